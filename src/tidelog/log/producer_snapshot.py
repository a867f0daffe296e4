"""The `.snapshot` file: producers as they were at an offset, in Kafka's format. One batch of each producer's five.

version (2 bytes) | CRC-32C of the rest (4) | count (4) | entries of 46 bytes.
"""

from collections.abc import Iterable
from struct import Struct

from tidelog.env.disk import Disk
from tidelog.log.producers import Appended, Producer
from tidelog.wire.batch import SEQUENCE_MAX
from tidelog.wire.crc import crc32c

VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_ENTRIES_AT = _HEAD.size + _COUNT.size


class SnapshotError(Exception):
    """The file is no whole snapshot; the one before it, or the log itself, must do."""


def encode_snapshot(producers: Iterable[tuple[int, Producer]]) -> bytes:
    entries: list[bytes] = []
    for producer_id, producer in producers:
        last = producer.window[-1] if producer.window else Appended(-1, -1, -1, -1, -1)
        entries.append(
            _ENTRY.pack(
                producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.first_offset,
                producer.seen_ms,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
        )
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, path: str) -> list[tuple[int, Producer]]:
    """The producers in the bytes of the file at `path`, each with a window of its last batch."""
    if len(data) < _ENTRIES_AT:
        raise SnapshotError(f"{path} has {len(data)} bytes; a producer snapshot has {_ENTRIES_AT} at least")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"{path} is a producer snapshot of version {version}; {VERSION} is known")
    if crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise SnapshotError(f"{path} is damaged: its checksum doesn't match")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    if count < 0 or len(data) != _ENTRIES_AT + count * _ENTRY.size:
        raise SnapshotError(f"{path} claims {count} producers in {len(data)} bytes")
    producers: list[tuple[int, Producer]] = []
    for entry in _ENTRY.iter_unpack(memoryview(data)[_ENTRIES_AT:]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = entry
        producer = Producer(epoch, coordinator_epoch, timestamp)
        producer.txn_first_offset = txn_first_offset if txn_first_offset >= 0 else -1
        producer.restored = True
        if last_offset >= 0:
            first_sequence = (last_sequence - delta) & SEQUENCE_MAX if last_sequence >= 0 else -1
            producer.window.append(Appended(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp))
        producers.append((producer_id, producer))
    return producers


def read_snapshot(disk: Disk, path: str) -> list[tuple[int, Producer]]:
    return decode_snapshot(disk.read_whole(path), path)
