"""Checkpoints of the metadata: `<end offset>-<epoch>.checkpoint`, batches in the log's own format.

A checkpoint opens with SnapshotHeader (and the voters), holds the image as records, and ends with SnapshotFooter:
without it, it isn't whole. It is written under a name that ends in `.part` and renamed once durable, so that no
checkpoint is ever half there under its real name.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tidelog.env.disk import Disk
from tidelog.raft.control import control_batch, data_batch, data_values, voters_record
from tidelog.raft.voters import VoterSet
from tidelog.wire.batch import HEADER_BYTES, check, iterate, read_header, records
from tidelog.wire.errors import KafkaError
from tidelog.wire.records.control import (
    ControlRecord,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_control,
)

SUFFIX = ".checkpoint"
PART = ".checkpoint.part"
DELETED = ".checkpoint.deleted"
BATCH_BYTES = 1 << 20


class SnapshotError(ValueError):
    """A checkpoint that is not whole or not what was written."""


class SnapshotId(NamedTuple):
    """Everything below `offset` is in it; `epoch` is that of its last record."""

    offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}{SUFFIX}"


class SnapshotContents(NamedTuple):
    header: SnapshotHeaderRecord
    control: list[ControlRecord]
    """All control records but header and footer."""
    values: list[bytes]


def parse_name(name: str) -> SnapshotId | None:
    if not name.endswith(SUFFIX):
        return None
    offset, dash, epoch = name.removesuffix(SUFFIX).partition("-")
    if not dash or len(offset) != 20 or len(epoch) != 10 or not (offset + epoch).isdigit():
        return None
    return SnapshotId(int(offset), int(epoch))


def list_snapshots(disk: Disk, folder: str) -> list[SnapshotId]:
    """Oldest first."""
    parsed = (parse_name(name) for name in disk.list_folder(folder))
    return sorted(snapshot for snapshot in parsed if snapshot is not None)


def remove_leftovers(disk: Disk, folder: str) -> None:
    """What a crash left of checkpoints that were being written or deleted."""
    for name in disk.list_folder(folder):
        if name.endswith((PART, DELETED)):
            disk.remove(f"{folder}/{name}")


def encode_snapshot(
    values: Iterable[bytes],
    *,
    epoch: int,
    log_timestamp_ms: int,
    now_ms: int,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> Iterator[bytearray]:
    """The batches of a checkpoint. Its offsets count from 0 and mean nothing."""
    opening: list[ControlRecord] = [SnapshotHeaderRecord(last_contained_log_timestamp=log_timestamp_ms)]
    if kraft_version > 0:
        opening.append(KRaftVersionRecord(kraft_version=kraft_version))
        if voters is not None:  # who was formatted to join knows of none
            opening.append(voters_record(voters))
    yield control_batch(opening, 0, epoch, now_ms)
    offset = len(opening)
    chunk: list[bytes] = []
    chunk_bytes = 0
    for value in values:
        chunk.append(value)
        chunk_bytes += len(value)
        if chunk_bytes >= BATCH_BYTES:
            yield data_batch(chunk, offset, epoch, now_ms)
            offset += len(chunk)
            chunk, chunk_bytes = [], 0
    if chunk:
        yield data_batch(chunk, offset, epoch, now_ms)
        offset += len(chunk)
    yield control_batch([SnapshotFooterRecord()], offset, epoch, now_ms)


def write_snapshot(disk: Disk, folder: str, file_name: str, batches: Iterable[bytearray]) -> None:
    """Durable under its name when this returns. Blocks: call it off the loop, or at start."""
    part = f"{folder}/{file_name.removesuffix(SUFFIX)}{PART}"
    if disk.exists(part):
        disk.remove(part)
    file = disk.open(part, create=True)
    for batch in batches:
        file.append(batch)
    file.sync()
    disk.rename(part, f"{folder}/{file_name}")
    disk.sync_folder(folder)


def read_snapshot(disk: Disk, path: str) -> SnapshotContents:
    """All of a checkpoint, checked: every checksum, and that it begins and ends as it should."""
    data = disk.read_whole(path)
    header: SnapshotHeaderRecord | None = None
    footer = False
    control: list[ControlRecord] = []
    values: list[bytes] = []
    end = 0
    try:
        for batch in iterate(data):
            check(data, batch, len(data))
            end = batch.end
            if not batch.control:
                values += data_values(data, batch)
                continue
            for record in records(data, batch):
                decoded = decode_control(record.key or b"", record.value or b"")
                if isinstance(decoded, SnapshotHeaderRecord):
                    header = decoded
                elif isinstance(decoded, SnapshotFooterRecord):
                    footer = True
                elif decoded is not None:
                    control.append(decoded)
    except (KafkaError, ValueError) as error:
        raise SnapshotError(f"{path} is damaged: {error}") from None
    if header is None or not footer or end != len(data):
        missing = "its header" if header is None else "its footer" if not footer else "the end of its last batch"
        raise SnapshotError(f"{path} lacks {missing}: it was not written to its end")
    return SnapshotContents(header, control, values)


def snapshot_timestamp(disk: Disk, path: str) -> int:
    """When the last record in a checkpoint was written."""
    file = disk.open(path)
    header = read_header(file.read(0, HEADER_BYTES))
    first = next(records(file.read(0, header.size), header))  # of the first batch: a checkpoint may be large
    decoded = decode_control(first.key or b"", first.value or b"")
    return decoded.last_contained_log_timestamp if isinstance(decoded, SnapshotHeaderRecord) else 0


def delete_snapshots(disk: Disk, folder: str, snapshots: Sequence[SnapshotId]) -> None:
    for snapshot in snapshots:
        disk.remove(f"{folder}/{snapshot.file_name}")
    if snapshots:
        disk.sync_folder(folder)
