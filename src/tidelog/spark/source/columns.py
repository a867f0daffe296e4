"""Record batches to Arrow: the columns of Spark's Kafka source, built from the places that walk.py found."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import pyarrow

from tidelog.spark.native import walker
from tidelog.wire.batch import CONTROL_FLAG, BatchHeader, check, iterate, payload, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import read_marker

arrow: Any = pyarrow  # its own types are partial, so they end here
numbers: Any = numpy

ARENA_BYTES_MAX = 64 * 1024 * 1024
"""Where a part of the log inflates to more, it becomes several Arrow batches."""
ROWS_MAX = 1_000_000
"""So it does where it has more rows: of records that are next to nothing, millions are in a fetch."""
WINDOWS_MAX = 64
"""A record batch that has too many rows by itself is walked for each of its Arrow batches, at most so often."""
_OFFSET_LIMIT = 1 << 61
_MICROS_LIMIT = (1 << 63) // 1000 - 1

HEADER_TYPE = arrow.list_(arrow.struct([("key", arrow.string()), ("value", arrow.binary())]))


def schema_of(headers: bool) -> Any:
    """Arrow's schema of the rows; Spark's is in schema.py."""
    fields = [
        ("key", arrow.binary()),
        ("value", arrow.binary()),
        ("topic", arrow.string()),
        ("partition", arrow.int32()),
        ("offset", arrow.int64()),
        ("timestamp", arrow.timestamp("us", tz="UTC")),
        ("timestampType", arrow.int32()),
    ]
    return arrow.schema(fields + ([("headers", HEADER_TYPE)] if headers else []))


@dataclass(slots=True)
class Range:
    """What is wanted of a partition: offsets in [start, end)."""

    topic: str
    partition: int
    start: int
    end: int


class Decoder:
    """Turns what fetches bring into Arrow batches, in order.

    Control batches are skipped; with `committed` so are aborted transactions, by the lists that came with the fetches.
    """

    def __init__(self, wanted: Range, *, headers: bool = False, committed: bool = False) -> None:
        self._wanted = wanted
        self._headers = headers
        self._committed = committed
        self._schema = schema_of(headers)
        self._native = walker()[0]
        self._aborting: set[int] = set()  # producers inside an aborted transaction, where we are
        self._noted: set[tuple[int, int]] = set()
        self._coming: list[tuple[int, int]] = []  # (first offset, producer id), the next one last

    def feed(self, buffer: memoryview, aborted: Sequence[tuple[int, int]] = ()) -> Iterator[Any]:
        """The rows in a fetch's records, as Arrow batches; KafkaError where a batch is corrupt."""
        self._note(aborted)
        gathered: list[tuple[BatchHeader, Any]] = []
        size = rows = 0
        for header in iterate(buffer):
            try:
                check(buffer, header, len(buffer))
                if self._skipped(buffer, header):
                    continue
                section = payload(buffer, header)
            except KafkaError as error:
                where, _, at = self._where(header).partition(": ")
                raise KafkaError(
                    error.code, f"{where}: {at}: {(error.message or '').removeprefix(at + ': ')}"
                ) from error
            if gathered and (size + len(section) > ARENA_BYTES_MAX or rows + header.record_count > ROWS_MAX):
                yield from self._made(gathered)
                gathered, size, rows = [], 0, 0
            gathered.append((header, section))
            size += len(section)
            rows += header.record_count
        if gathered:
            yield from self._made(gathered)

    def _note(self, aborted: Sequence[tuple[int, int]]) -> None:
        fresh = [(first, producer) for producer, first in aborted if (first, producer) not in self._noted]
        if fresh:
            self._noted.update(fresh)
            self._coming = sorted([*self._coming, *fresh], reverse=True)

    def _skipped(self, buffer: memoryview, header: BatchHeader) -> bool:
        if header.base_offset >= self._wanted.end or header.last_offset < self._wanted.start:
            return True
        if self._committed:
            while self._coming and self._coming[-1][0] <= header.last_offset:
                first, producer = self._coming.pop()
                self._noted.discard((first, producer))
                self._aborting.add(producer)
        if header.attributes & CONTROL_FLAG:
            if header.producer_id in self._aborting and header.record_count:
                committed, _ = read_marker(next(records(buffer, header)))
                if not committed:
                    self._aborting.discard(header.producer_id)
            return True
        if not header.record_count:  # compaction leaves a producer's last batch, without its records
            return True
        return header.transactional and header.producer_id in self._aborting

    def _where(self, header: BatchHeader) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}: record batch at offset {header.base_offset}"

    def _made(self, gathered: list[tuple[BatchHeader, Any]]) -> Iterator[Any]:
        """Arrow batches with rows: one, but where a record batch alone has too many."""
        header = gathered[0][0]
        arena = b"".join(section for _, section in gathered)
        first, end = self._wanted.start, self._wanted.end
        step = end - first
        if header.record_count > ROWS_MAX:
            first, end = max(first, header.base_offset), min(end, header.next_offset)
            step = max(ROWS_MAX, -(-(end - first) // WINDOWS_MAX))
        while first < end:
            made = self._rows(gathered, arena, first, min(first + step, end))
            if made.num_rows:
                yield made
            first += step

    def _rows(self, gathered: list[tuple[BatchHeader, Any]], arena: bytes, first: int, last: int) -> Any:
        out = self._native.Walked()
        pos = 0
        kinds: list[tuple[int, int]] = []  # timestamp type, rows
        for header, section in gathered:
            before = out.rows
            self._walk(out, arena, pos, pos + len(section), header, first, last)
            pos += len(section)
            if out.rows > before:
                kinds.append((header.timestamp_type, out.rows - before))
        return self._batch(out, arena, kinds)

    def _walk(self, out: Any, arena: bytes, pos: int, end: int, header: BatchHeader, first: int, last: int) -> None:
        if not 0 <= header.base_offset < _OFFSET_LIMIT:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self._where(header)}: no offset can be so large")
        try:
            self._native.walk(
                out,
                arena,
                pos,
                end,
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp,
                bool(header.timestamp_type),
                first,
                last,
                self._headers,
            )
        except (ValueError, IndexError) as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"{self._where(header)}: {error}") from None

    def _batch(self, out: Any, arena: bytes, kinds: list[tuple[int, int]]) -> Any:
        rows = out.rows
        data = arrow.py_buffer(arena)
        pieces = _pieces(out.places, 4 * rows, data)
        every = numbers.arange(0, 4 * rows, 4, dtype=numbers.int32)
        times = numbers.frombuffer(out.times.getvalue(), dtype=numbers.int64)
        columns = [
            _gathered(pieces, every, out.null_keys),
            _gathered(pieces, every + 2, out.null_values),
            _constant_text(self._wanted.topic, rows),
            arrow.array(numbers.full(rows, self._wanted.partition, dtype=numbers.int32)),
            _plain(arrow.int64(), rows, out.offsets.getvalue()),
            _micros(times),
            arrow.array(numbers.repeat(*_columns_of(kinds))),
        ]
        if self._headers:
            columns.append(_header_lists(out, data))
        return arrow.RecordBatch.from_arrays(columns, schema=self._schema)


def _columns_of(kinds: list[tuple[int, int]]) -> tuple[Any, Any]:
    return (
        numbers.array([kind for kind, _ in kinds], dtype=numbers.int32),
        numbers.array([rows for _, rows in kinds], dtype=numbers.int64),
    )


def _pieces(places: Any, count: int, data: Any) -> Any:
    """All stretches between two places, as one array on the arena: it shares its bytes, and every other is a gap."""
    held = places.getvalue()
    end = held[-4:] if held else b"\0\0\0\0"
    return arrow.Array.from_buffers(arrow.binary(), count, [None, arrow.py_buffer(held + end), data])


def _gathered(pieces: Any, which: Any, nulls: Any) -> Any:
    """The wanted stretches, copied together; null where `nulls` names the row."""
    taken = pieces.take(arrow.array(which))
    if not len(nulls):
        return taken
    rows = numbers.frombuffer(nulls.getvalue(), dtype=numbers.int32)
    _, offsets, data = taken.buffers()
    return arrow.Array.from_buffers(arrow.binary(), len(which), [_validity(len(which), rows), offsets, data])


def _validity(count: int, nulls: Any) -> Any:
    valid = numbers.ones(count, dtype=numbers.uint8)
    valid[nulls] = 0
    return arrow.py_buffer(numbers.packbits(valid, bitorder="little").tobytes())


def _plain(kind: Any, count: int, data: bytes) -> Any:
    return arrow.Array.from_buffers(kind, count, [None, arrow.py_buffer(data)])


def _micros(millis: Any) -> Any:
    """Spark counts microseconds; a time that it can't hold becomes the nearest that it can."""
    micros = numbers.clip(millis, -_MICROS_LIMIT, _MICROS_LIMIT) * 1000
    return _plain(arrow.timestamp("us", tz="UTC"), len(micros), micros.tobytes())


def _constant_text(text: str, count: int) -> Any:
    data = text.encode()
    if count * len(data) >= 1 << 31:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{text}: {count} records of next to nothing in a record batch")
    ends = numbers.arange(0, (count + 1) * len(data), len(data), dtype=numbers.int32)[: count + 1]
    return arrow.Array.from_buffers(
        arrow.string(), count, [None, arrow.py_buffer(ends.tobytes()), arrow.py_buffer(data * count)]
    )


def _header_lists(out: Any, data: Any) -> Any:
    """array<struct<key: string, value: binary>>; null where a record has no headers, as in Spark's own source."""
    counts = numbers.frombuffer(out.header_counts.getvalue(), dtype=numbers.int32)
    pieces = _pieces(out.header_places, 4 * out.headers, data)
    every = numbers.arange(0, 4 * out.headers, 4, dtype=numbers.int32)
    names = _text(_gathered(pieces, every, io.BytesIO().getbuffer()))
    values = _gathered(pieces, every + 2, out.null_headers)
    pairs = arrow.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE.value_type))
    ends = numbers.zeros(len(counts) + 1, dtype=numbers.int32)
    numbers.cumsum(counts, out=ends[1:])
    validity = _validity(len(counts), numbers.flatnonzero(counts == 0))
    return arrow.Array.from_buffers(
        HEADER_TYPE, len(counts), [validity, arrow.py_buffer(ends.tobytes())], children=[pairs]
    )


def _text(names: Any) -> Any:
    """Names as text; bytes that aren't UTF-8 are replaced, as Java's clients do."""
    try:
        return names.cast(arrow.string())
    except arrow.ArrowInvalid:
        return arrow.array([name.decode("utf-8", "replace") for name in names.to_pylist()], type=arrow.string())
