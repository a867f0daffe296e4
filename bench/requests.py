"""The raw requests that load_raw.c replays, and the ready-made answers of floor.c.

Written by hand, byte for byte: what all three brokers are given is then independent of the codec of the one that is
measured. Produce 10, Fetch 16, Metadata 12 and ApiVersions 3 are the versions that librdkafka picks as well.
"""

import os
import struct
import time
from dataclasses import dataclass

from tidelog.wire.batch import HEADER_BYTES, build
from tidelog.wire.record import Record

CLIENT = b"bench"
FLOOR_TOPIC = "floor"
FLOOR_TOPIC_ID = b"floor-topic-id-1"
FLOOR_PARTITIONS = 8
FLOOR_VERSIONS = {0: (0, 10), 1: (0, 16), 3: (0, 12), 18: (0, 3)}


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request with its size field, and where load_raw.c has to look."""

    frame: bytes
    error_at: int
    """Position of the partition's error code in the answer, counted from its size field."""
    offset_at: int = 0
    """Position of the fetch offset in the request; 0: it has none."""
    partition_at: int = 0
    """Position of the partition in a produce request."""


def batch_of(total_bytes: int, records: int) -> bytes:
    """A batch of exactly `total_bytes`, with records that hold (Kafka walks over each), dated now."""
    timestamp = int(time.time() * 1000)
    value_bytes = (total_bytes - HEADER_BYTES) // records - 12
    values = [os.urandom(value_bytes) for _ in range(records)]

    def built() -> bytes:
        return bytes(build(Record(timestamp=timestamp, value=value) for value in values))

    short = total_bytes - len(built())
    values[-1] += os.urandom(short)
    batch = built()
    if len(batch) != total_bytes:  # the last record's length grew by a byte
        values[-1] = values[-1][: total_bytes - len(batch)]
        batch = built()
    assert len(batch) == total_bytes, (len(batch), total_bytes)
    return batch


def produce(topic: str, batch: bytes, acks: int = -1) -> RawRequest:
    name = _text(topic.encode())
    before = b"\0" + struct.pack(">hi", acks, 30000) + b"\2" + name + b"\2"
    body = before + struct.pack(">i", 0) + _varint(len(batch) + 1) + batch + b"\0" + b"\0" + b"\0"
    error_at = 4 + 4 + 1 + 1 + len(name) + 1 + 4
    return RawRequest(_frame(0, 10, body), error_at, partition_at=_header_bytes() + len(before))


def fetch(topic_id: bytes, max_bytes: int) -> RawRequest:
    body = struct.pack(">iiibii", 500, 1, 50 << 20, 0, 0, -1) + b"\2" + topic_id + b"\2"
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, max_bytes) + b"\0"
    frame = _frame(1, 16, body + partition + b"\0" + b"\1" + b"\1" + b"\0")
    return RawRequest(frame, error_at=4 + 4 + 1 + 4 + 2 + 4 + 1 + 16 + 1 + 4, offset_at=_header_bytes() + len(body) + 8)


def metadata(topic: str) -> bytes:
    """Metadata of one topic, which isn't made where it isn't there; with its size field."""
    return _frame(3, 12, b"\2" + bytes(16) + _text(topic.encode()) + b"\0" + b"\0\0" + b"\0")


def floor_answers(port: int) -> bytes:
    """ApiVersions 3 and Metadata 12 of a broker on `port` with one topic of 8 partitions; one after the other."""
    keys = b"".join(struct.pack(">hhhB", key, low, high, 0) for key, (low, high) in FLOOR_VERSIONS.items())
    versions = struct.pack(">ih", 0, 0) + _varint(len(FLOOR_VERSIONS) + 1) + keys + struct.pack(">i", 0) + b"\0"
    one_replica = b"\2" + struct.pack(">i", 1)
    partitions = b"".join(
        struct.pack(">hiii", 0, index, 1, 0) + one_replica + one_replica + b"\1" + b"\0"
        for index in range(FLOOR_PARTITIONS)
    )
    broker = struct.pack(">i", 1) + _text(b"127.0.0.1") + struct.pack(">i", port) + b"\0" + b"\0"
    topic = struct.pack(">h", 0) + _text(FLOOR_TOPIC.encode()) + FLOOR_TOPIC_ID + b"\0"
    topic += _varint(FLOOR_PARTITIONS + 1) + partitions + struct.pack(">i", -(2**31)) + b"\0"
    metadata = (
        struct.pack(">iBi", 0, 0, 0) + b"\2" + broker + _text(b"floor") + struct.pack(">i", 1) + b"\2" + topic + b"\0"
    )
    return b"".join(struct.pack(">i", len(answer)) + answer for answer in (versions, metadata))


def _header_bytes() -> int:
    return 4 + 8 + 2 + len(CLIENT) + 1


def _frame(key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", key, version, 7, len(CLIENT)) + CLIENT + b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def _text(text: bytes) -> bytes:
    return _varint(len(text) + 1) + text


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
