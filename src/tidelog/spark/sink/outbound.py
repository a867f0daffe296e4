"""A task's part of writing: Arrow batches to record batches, partition by partition, as one producer."""

import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pyarrow

from tidelog.rpc import Cluster
from tidelog.rpc.produce import Pipeline, Refused
from tidelog.rpc.transactions import Producer
from tidelog.spark.native import packer
from tidelog.spark.sink.arrow_buffers import binary, buffers
from tidelog.spark.sink.row_hash import RowHash
from tidelog.spark.sink.sink_options import SinkOptions
from tidelog.wire import batch as wire
from tidelog.wire.compression import compress
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.record import Record, encode_record

arrow: Any = pyarrow
numbers: Any = numpy


REQUEST_BYTES_MAX = 100 * 1024 * 1024 - 4096
"""Brokers hang up on requests above socket.request.max.bytes, without a word."""
HELD_BYTES_MAX = 64 * 1024 * 1024
"""What all partitions together gather before it is sent, however many there are."""
LARGE_ROWS_MAX = 1000


_NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


class RowError(ValueError):
    """A row that can't be written: which one, and why."""


class Outbound:
    """Gathers records by topic and partition and sends full batches; `flush` sends the rest."""

    def __init__(self, cluster: Cluster, options: SinkOptions, producer: Producer) -> None:
        self._cluster = cluster
        self._options = options
        self._producer = producer
        self._pipeline = Pipeline(cluster, producer.transactional_id)
        self._native = packer()[0]
        self._topics: dict[str, list[Any]] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._sticky = int(time.monotonic() * 1000)
        self._chosen_rows: Any = None  # of the batch that is added: those that go to the topic of now; None: all
        self._large: deque[tuple[int, int]] = deque(maxlen=LARGE_ROWS_MAX)  # rows that fill a batch, and their bytes
        self._may_hold = 0
        self.hash = RowHash(options.topic)
        self.rows = 0

    def add(self, batch: Any) -> None:
        """Write the rows of an Arrow batch; RowError names the first that can't be."""
        names = batch.schema.names
        with self._sending(self.rows + batch.num_rows):
            for topic, rows in self._by_topic(batch, names):
                if "headers" in names and rows.column("headers").null_count < rows.num_rows:
                    self._add_with_headers(topic, rows)
                else:
                    self._add_plain(topic, rows, names)
            if self._may_hold > HELD_BYTES_MAX and self.held_bytes() > HELD_BYTES_MAX:
                self._send_all()
        self.hash.add(batch)
        self.rows += batch.num_rows

    def flush(self) -> None:
        """Send the rest, and wait until everything is acknowledged."""
        with self._sending(self.rows):
            self._send_all()
            self._pipeline.settle()

    @contextmanager
    def _sending(self, reached: int) -> Generator[None, None, None]:
        """After an error nothing is on its way any more, so that the connections can be used to clean up."""
        try:
            yield
        except Refused as error:
            if error.code not in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                raise
            raise self._too_large(error.topic, error.batch, reached) from error
        except BaseException:
            self._pipeline.drop()
            raise

    def _too_large(self, topic: str, batch: bytes | bytearray, reached: int) -> RowError:
        header = wire.read_header(batch)
        known = "brokers take in a request" if len(batch) > REQUEST_BYTES_MAX else f"{topic} takes"
        if header.record_count == 1:
            record = next(wire.records(batch, header))
            size = len(record.key or b"") + len(record.value or b"")
            for row in (row for row, bytes_of in self._large if bytes_of == size):
                return RowError(
                    f"row {row} of this task has a key and value of {size} bytes, more than {known}: raise "
                    f"max.message.bytes of {topic}, or leave the row out"
                )
        return RowError(
            f"{header.record_count} of the rows of this task up to row {reached} make a batch of {len(batch)} bytes, "
            f"more than {known}: raise max.message.bytes of {topic}, or lower the option kafka.batch.size"
        )

    def _by_topic(self, batch: Any, names: list[str]) -> Iterator[tuple[str, Any]]:
        if "topic" not in names or (self._options.topic is not None):
            yield self._options.topic or "", batch
            return
        column = batch.column("topic")
        if column.null_count:
            row = next(index for index, value in enumerate(column) if not value.is_valid)
            raise RowError(f"row {self.rows + row} of this task has no topic, and the option topic is not set")
        for value in column.unique().to_pylist():
            self._chosen_rows = arrow.compute.equal(column, value)
            yield value, batch.filter(self._chosen_rows)

    def _number(self, row: int) -> int:
        """Of a row among those that go to the topic of now: the number in the task that people are told."""
        if self._chosen_rows is None:
            return self.rows + row
        return self.rows + int(numbers.flatnonzero(self._chosen_rows.to_numpy(zero_copy_only=False))[row])

    def _partitions(self, topic: str) -> list[Any]:
        held = self._topics.get(topic)
        if held is None:
            self._pipeline.settle()  # asking needs a connection without answers on their way
            try:
                count = len(self._cluster.topic(topic).partitions)
            except KafkaError as error:
                if error.code not in _NO_TOPIC or self._options.topic is not None:
                    raise
                raise RowError(f"row {self._number(0)} of this task goes to {topic!r}, which is no topic") from error
            held = self._topics[topic] = [self._native.Partitioned() for _ in range(count)]
            self._may_hold += count * self._options.batch_bytes
        return held

    def _add_plain(self, topic: str, rows: Any, names: list[str]) -> None:
        held = self._partitions(topic)
        key_ends, keys, key_nulls = buffers(binary(rows, "key"))
        value_ends, values, value_nulls = buffers(binary(rows, "value"))
        if len(keys) + len(values) > self._options.batch_bytes:
            self._note_large(_sizes(key_ends) + _sizes(value_ends))
        chosen = self._chosen(topic, rows, names, len(held))
        row = 0
        while row < rows.num_rows:
            self._sticky += 1
            row = self._native.pack(
                held,
                row,
                rows.num_rows,
                key_ends,
                keys,
                key_nulls,
                value_ends,
                values,
                value_nulls,
                chosen,
                self._sticky % len(held),
                self._options.batch_bytes,
            )
            self._send_full(topic, held)

    def _add_with_headers(self, topic: str, rows: Any) -> None:
        held = self._partitions(topic)
        chosen = self._chosen(topic, rows, rows.schema.names, len(held))
        places = numbers.frombuffer(chosen, dtype=numbers.int32).tolist() if chosen else None
        keys = binary(rows, "key").to_pylist()
        values, headers = binary(rows, "value").to_pylist(), rows.column("headers").to_pylist()
        self._sticky += 1
        for row, (key, value, pairs) in enumerate(zip(keys, values, headers, strict=True)):
            index = -1 if places is None else places[row]
            if index < 0:
                index = self._sticky % len(held) if key is None else self._native.murmur2(key, 0, len(key)) % len(held)
            target = held[index]
            record = Record(key=key, value=value, headers=self._headers(row, pairs))
            encoded = encode_record(record, target.count, 0)
            if len(encoded) > self._options.batch_bytes:
                self._large.append((self._number(row), len(key or b"") + len(value or b"")))
            if not target.has_room(len(encoded), self._options.batch_bytes):
                self._send(topic, index, target)
                encoded = encode_record(record, 0, 0)
            target.out.write(encoded)
            target.count += 1

    def _headers(self, row: int, pairs: list[dict[str, Any] | None] | None) -> tuple[tuple[str, bytes | None], ...]:
        named: list[tuple[str, bytes | None]] = []
        for pair in pairs or ():
            if pair is None or pair["key"] is None:
                raise RowError(f"row {self._number(row)} of this task has a header without a key")
            named.append((pair["key"], pair["value"]))
        return tuple(named)

    def _note_large(self, sizes: Any) -> None:
        for row in numbers.flatnonzero(sizes > self._options.batch_bytes)[-LARGE_ROWS_MAX:].tolist():
            self._large.append((self._number(row), int(sizes[row])))

    def _chosen(self, topic: str, rows: Any, names: list[str], count: int) -> bytes:
        """The partition of each row, -1 where its key is to choose; empty where there is no such column."""
        if "partition" not in names:
            return b""
        column = rows.column("partition").cast(arrow.int64())
        named = column.fill_null(0).to_numpy(zero_copy_only=False)
        wrong = numbers.flatnonzero((named >= count) | (named < 0))
        if len(wrong):
            raise RowError(
                f"row {self._number(int(wrong[0]))} of this task names partition {int(named[wrong[0]])} of {topic}, "
                f"which has {count}"
            )
        return column.fill_null(-1).to_numpy(zero_copy_only=False).astype(numbers.int32).tobytes()

    def held_bytes(self) -> int:
        """What is gathered, and not sent yet."""
        return sum(len(held.out) for partitions in self._topics.values() for held in partitions)

    def _send_all(self) -> None:
        for topic, partitions in self._topics.items():
            for index, held in enumerate(partitions):
                self._send(topic, index, held)

    def _send_full(self, topic: str, held: list[Any]) -> None:
        for index, each in enumerate(held):
            if each.full:
                self._send(topic, index, each)

    def _send(self, topic: str, index: int, held: Any) -> None:
        count = held.count
        if not count:
            return
        section = held.taken()
        place = (topic, index)
        sequence = self._sequences.get(place, 0)
        batch = self._built(section, count, sequence)
        if len(batch) > REQUEST_BYTES_MAX:
            raise self._too_large(topic, batch, self.rows)
        self._pipeline.add(topic, index, batch)
        self._sequences[place] = (sequence + count) & wire.SEQUENCE_MAX

    def _built(self, section: bytes, count: int, sequence: int) -> bytearray:
        codec, producer = self._options.compression, self._producer
        body = compress(codec, section) if codec else section
        now_ms = int(time.time() * 1000)
        attributes = codec | (wire.TRANSACTIONAL_FLAG if producer.transactional_id is not None else 0)
        out = bytearray(wire.HEADER_BYTES)
        out += body
        length = len(out) - wire.LOG_OVERHEAD
        wire.HEADER.pack_into(
            out, 0, 0, length, -1, wire.MAGIC, 0, attributes, count - 1, now_ms, now_ms, producer.id, producer.epoch,
            sequence, count,
        )  # fmt: skip
        wire.seal(out, 0, len(out))
        return out


def _sizes(ends: bytes) -> Any:
    return numbers.diff(numbers.frombuffer(ends, dtype=numbers.int32))
