"""Record batches v2 made by hand, right ones and wrong ones.

Apart from `tidelog.wire.batch` on purpose: what the broker is asked with in tests doesn't come from the code that is
tested. Every field of the header can be overridden; the CRC is right unless it is overridden too.
"""

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import cramjam
from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 8, 16, 32, 64
NOW_MS = int(time.time()) * 1000


def varint(value: int) -> bytes:
    """A zigzag varint."""
    unsigned = (value << 1) ^ (value >> 63) if value < 0 else value << 1
    out = bytearray()
    while unsigned > 0x7F:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as a producer sends it. `offset_delta` is its place in the batch unless it says otherwise."""

    value: bytes | None = b"value"
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None

    def encode(self, place: int) -> bytes:
        body = bytearray(b"\0")
        body += varint(self.timestamp_delta)
        body += varint(place if self.offset_delta is None else self.offset_delta)
        for part in (self.key, self.value):
            body += varint(-1) if part is None else varint(len(part)) + part
        body += varint(len(self.headers))
        for name, value in self.headers:
            body += varint(len(name.encode())) + name.encode()
            body += varint(-1) if value is None else varint(len(value)) + value
        return varint(len(body)) + bytes(body)


@dataclass(frozen=True, slots=True)
class Producer:
    """Who sends, for idempotence: the next batch begins at `sequence`."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1


ANYONE = Producer()


def compressed(codec: int, data: bytes) -> bytes:
    """As clients compress: gzip, snappy in Java's framing, an lz4 frame, zstd."""
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(data))
        return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        return _lz4_frame(data)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return data


def _lz4_frame(data: bytes) -> bytes:
    """A frame as Java reads it: independent blocks, here stored as they are; 0x82 is the checksum of its two flags."""
    blocks = [data[pos : pos + 65536] for pos in range(0, len(data), 65536)]
    stored = b"".join(struct.pack("<I", len(block) | 1 << 31) + block for block in blocks)
    return struct.pack("<I", 0x184D2204) + b"\x60\x40\x82" + stored + bytes(4)


@dataclass(slots=True)
class Batch:
    """A batch to send. None means: as it follows from the records."""

    records: Sequence[Sent]
    producer: Producer = ANYONE
    codec: int = NONE
    base_timestamp: int = NOW_MS
    max_timestamp: int | None = None
    attributes: int | None = None
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    last_offset_delta: int | None = None
    count: int | None = None
    length: int | None = None
    crc: int | None = None
    body: bytes | None = field(default=None)
    """The bytes after the header, in place of the records (already compressed, or broken)."""

    def encode(self) -> bytes:
        body = self.body
        if body is None:
            body = compressed(self.codec, b"".join(r.encode(i) for i, r in enumerate(self.records)))
        max_timestamp = self.max_timestamp
        if max_timestamp is None:
            max_timestamp = self.base_timestamp + max((r.timestamp_delta for r in self.records), default=0)
        count = len(self.records)
        tail = (
            self.codec if self.attributes is None else self.attributes,
            count - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.base_timestamp,
            max_timestamp,
            self.producer.id,
            self.producer.epoch,
            self.producer.sequence,
            count if self.count is None else self.count,
        )
        crc = crc32c(struct.pack(">hiqqqhii", *tail) + body) if self.crc is None else self.crc
        length = HEADER_BYTES - 12 + len(body) if self.length is None else self.length
        return HEADER.pack(self.base_offset, length, self.leader_epoch, self.magic, crc, *tail) + body


@dataclass(frozen=True, slots=True)
class Read:
    """A batch as it came back in a Fetch."""

    base_offset: int
    leader_epoch: int
    magic: int
    crc_is_right: bool
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer: Producer
    count: int
    body: bytes

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    def values(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of each record of an uncompressed batch."""
        assert not self.attributes & 7, "compressed"
        out: list[tuple[int, bytes | None, bytes | None]] = []
        pos = 0
        for _ in range(self.count):
            length, pos = _read_varint(self.body, pos)
            end = pos + length
            _, at = _read_varint(self.body, pos + 1)
            delta, at = _read_varint(self.body, at)
            parts: list[bytes | None] = []
            for _ in range(2):
                size, at = _read_varint(self.body, at)
                parts.append(None if size < 0 else self.body[at : at + size])
                at += max(size, 0)
            out.append((self.base_offset + delta, parts[0], parts[1]))
            pos = end
        return out


def batches(data: bytes) -> Iterator[Read]:
    """The whole batches in what a Fetch returned; a cut one at the end is left out, as clients do."""
    pos = 0
    while pos + HEADER_BYTES <= len(data):
        base, length, epoch, magic, crc, attributes, last, first_ts, max_ts, pid, pepoch, seq, count = (
            HEADER.unpack_from(data, pos)
        )
        end = pos + 12 + length
        if end > len(data):
            return
        right = crc32c(data[pos + 21 : end]) == crc
        producer = Producer(pid, pepoch, seq)
        body = data[pos + HEADER_BYTES : end]
        yield Read(base, epoch, magic, right, attributes, last, first_ts, max_ts, producer, count, body)
        pos = end


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), pos
        shift += 7
