"""One record inside a batch: written, read, and walked with every length checked against what is left."""

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.env.network import Buffer
from tidelog.wire import varint
from tidelog.wire.varint import VarintError

Headers = tuple[tuple[str, bytes | None], ...]

RECORD_BYTES_MIN = 7  # length, attributes, two deltas, key, value and header count, a byte each
_HEADER_BYTES_MIN = 2
_LONG_LIMIT = 1 << 63  # a sum beyond it wraps, as in every client


class Record(NamedTuple):
    """A record as clients see it. Header keys that aren't UTF-8 survive a round trip (surrogate escapes)."""

    offset: int = -1
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


class RecordError(ValueError):
    """The records of a batch aren't well formed. Says which record and what is wrong."""


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """The record with its length in front, as it stands in a batch."""
    encode = varint.encode
    key, value = record.key, record.value
    parts = [b"\x00", encode(timestamp_delta), encode(offset_delta)]
    parts += (b"\x01",) if key is None else (encode(len(key)), key)
    parts += (b"\x01",) if value is None else (encode(len(value)), value)
    parts.append(encode(len(record.headers)))
    for name, content in record.headers:
        name_bytes = name.encode("utf-8", "surrogateescape")
        parts += (encode(len(name_bytes)), name_bytes)
        parts += (b"\x01",) if content is None else (encode(len(content)), content)
    body = b"".join(parts)
    return encode(len(body)) + body


def walk_records(
    section: Buffer, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Iterator[Record]:
    """The `count` records that fill `section` exactly."""
    end = len(section)
    if count < 0 or count * RECORD_BYTES_MIN > end:
        raise RecordError(f"{count} records can't be in {end} bytes")
    pos = index = 0
    try:
        for index in range(count):
            size, pos = varint.decode(section, pos, end)
            if size < 0 or size > end - pos:
                raise RecordError(f"record {index} claims {size} bytes where {end - pos} are left")
            record_end = pos + size
            record = _read_record(section, pos, record_end, base_offset, base_timestamp, append_time)
            pos = record_end
            yield record
    except (VarintError, RecordError) as error:
        text = str(error)
        raise RecordError(text if text.startswith("record ") else f"record {index}: {text}") from None
    if pos != end:
        raise RecordError(f"{end - pos} bytes are left behind the last of {count} records")


def first_since(
    section: bytes, count: int, base_timestamp: int, timestamp: int, least_offset_delta: int
) -> tuple[int, int] | None:
    """(timestamp, offset delta) of the first record as new as `timestamp`, from an offset delta on.

    Nothing else of the records is looked at: a batch may have a million of them, and the loop waits.
    """
    end, pos = len(section), 0
    decode = varint.decode
    try:
        for index in range(count):
            size = section[pos]
            pos += 1
            if size > 127 or size & 1:
                size, pos = decode(section, pos - 1, end)
                size *= 2
            stop = pos + (size >> 1)
            delta = section[pos + 1]
            if delta > 127:
                delta, at = decode(section, pos + 1, stop, 64)
            else:
                delta, at = delta >> 1 ^ -(delta & 1), pos + 2
            if base_timestamp + delta >= timestamp:
                offset_delta, _ = decode(section, at, stop)
                stamp = wrapped(base_timestamp + delta)
                if offset_delta >= least_offset_delta and stamp >= timestamp:
                    return stamp, offset_delta
            if not pos < stop <= end:
                raise RecordError(f"record {index} claims {size >> 1} bytes where {end - pos} are left")
            pos = stop
    except (IndexError, VarintError) as error:
        raise RecordError(f"the records are cut off: {error}") from None
    return None


def _read_record(
    section: Buffer, pos: int, end: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Record:
    decode = varint.decode
    timestamp_delta, pos = decode(section, pos + 1, end, 64)
    offset_delta, pos = decode(section, pos, end)
    key, pos = _read_bytes(section, pos, end, "key")
    value, pos = _read_bytes(section, pos, end, "value")
    header_count, pos = decode(section, pos, end)
    headers: Headers = ()
    if header_count:
        if header_count < 0 or header_count * _HEADER_BYTES_MIN > end - pos:
            raise RecordError(f"{header_count} headers can't be in {end - pos} bytes")
        pairs: list[tuple[str, bytes | None]] = []
        for _ in range(header_count):
            name, pos = _read_bytes(section, pos, end, "header's name")
            if name is None:
                raise RecordError("a header has no name")
            content, pos = _read_bytes(section, pos, end, "header's value")
            pairs.append((name.decode("utf-8", "surrogateescape"), content))
        headers = tuple(pairs)
    if pos != end:
        raise RecordError(f"{end - pos} bytes are left at the record's end")
    timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
    return Record(base_offset + offset_delta, wrapped(timestamp), key, value, headers)


def wrapped(timestamp: int) -> int:
    """A sum of 64 bits, as every client computes it."""
    if -_LONG_LIMIT <= timestamp < _LONG_LIMIT:
        return timestamp
    return (timestamp + _LONG_LIMIT) % (2 * _LONG_LIMIT) - _LONG_LIMIT


def _read_bytes(section: Buffer, pos: int, end: int, what: str) -> tuple[bytes | None, int]:
    size, pos = varint.decode(section, pos, end)
    if size < 0:
        return None, pos
    if size > end - pos:
        raise RecordError(f"its {what} claims {size} bytes where {end - pos} are left")
    return bytes(section[pos : pos + size]), pos + size
