"""Moving a log's recovery point: segments, indexes, producer snapshot and leader epochs made durable, in this order.

What is to be written is gathered on the loop (`prepare`), written and synced off it (`save`), and taken note of on the
loop again (`finish`). Many logs at once share their syncs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from tidelog.log import checkpoints
from tidelog.log.checkpoints import LEADER_EPOCHS
from tidelog.log.commit import SYNC_EACH_MAX
from tidelog.log.names import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, segment_stem
from tidelog.log.producer_snapshot import encode_snapshot

if TYPE_CHECKING:
    from tidelog.env.disk import Disk
    from tidelog.log.index import OffsetIndex, TimeIndex
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment


class FlushJob(NamedTuple):
    """What one log needs to have its recovery point at `end`."""

    log: Log
    generation: int
    end: int
    position: int
    folder: str
    root: str
    files: list[str]
    """Paths of segments, to be synced."""
    entries: list[tuple[str, int, bytes]]
    """(path, where, bytes) of index entries to be written."""
    saved: list[tuple[OffsetIndex | TimeIndex, int]]
    """How many entries each index has saved then."""
    snapshots: dict[int, bytes]
    epochs: list[tuple[int, int]] | None
    stale: list[int]
    """Snapshots that the new one takes the place of."""
    sealed: list[Segment]
    new_folder: bool
    aborted: list[str]

    def snapshot(self, offset: int) -> str:
        return f"{self.folder}/{segment_stem(offset)}{SNAPSHOT}"


def prepare(log: Log, *, closing: bool = False) -> FlushJob:
    """Gather, on the loop. `closing` adds the last time entry, as a closed segment has it. Raises OSError, BadBatch."""
    segments = [segment for segment, _ in log._sealed_unsaved]
    snapshots = {_next_base(log, segment): data for segment, data in log._sealed_unsaved if data}
    active = log._active
    if active is not None:
        if closing:
            active.finish_times()
        segments.append(active)
    entries: list[tuple[str, int, bytes]] = []
    saved: list[tuple[OffsetIndex | TimeIndex, int]] = []
    for segment in segments:
        for suffix, index in ((OFFSET_INDEX, segment.offsets), (TIME_INDEX, segment.times)):
            if index is not None:
                where, data = index.unsaved()
                entries.append((segment.stem + suffix, where, data))
                saved.append((index, len(index)))
    snapshots[log.log_end] = encode_snapshot(log.producers.items())
    bases = {segment.base for segment in log.segments}
    stale = [offset for offset in log._snapshots if offset not in bases and offset != log.log_end]
    unsynced = [*log._sealed_unsynced, active] if active is not None else list(log._sealed_unsynced)
    epochs = log.epochs
    job = FlushJob(
        log,
        log._generation,
        log.log_end,
        0 if active is None else active.size,
        log.folder,
        log.root,
        [segment.stem + LOG for segment in unsynced],
        entries,
        saved,
        snapshots,
        epochs.entries() if epochs.dirty else None,
        stale,
        [segment for segment, _ in log._sealed_unsaved],
        log._new_folder,
        [segment.stem + TXN_INDEX for segment in segments if segment.has_aborted],
    )
    epochs.dirty = False
    log._dirty = False
    log.batches = 0
    log._flush_from = job.position
    log._size_limit = -1
    return job


def _next_base(log: Log, segment: Segment) -> int:
    return next(other.base for other in log.segments if other.base > segment.base)


class _Names:
    """Stands in for a disk's `write_whole`: contents now, names later, so that many files share two syncs."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.renames: list[tuple[str, str]] = []

    def write_whole(self, path: str, data: bytes) -> None:
        overwrite(self._disk, path + ".tmp", 0, data)
        self.renames.append((path + ".tmp", path))


def overwrite(disk: Disk, path: str, where: int, data: bytes) -> str:
    """Write `data` at `where`; nothing is behind it then. Not durable yet. The path again, for the sync."""
    file = disk.open(path, create=True)
    if file.size() != where:
        file.truncate(where)
    if data:
        file.append(data)
    return path


def save(disk: Disk, jobs: list[FlushJob]) -> None:
    """Write and sync, off the loop. The segments come first: a snapshot must not be ahead of them."""
    _sync(disk, jobs, [path for job in jobs for path in job.files])
    names = _Names(disk)
    files: list[str] = []
    for job in jobs:
        files += [overwrite(disk, path, where, data) for path, where, data in job.entries]
        files += [overwrite(disk, job.snapshot(offset), 0, data) for offset, data in job.snapshots.items()]
        files += [path for path in job.aborted if disk.exists(path)]
        if job.epochs is not None:
            checkpoints.write_epochs(cast("Disk", names), f"{job.folder}/{LEADER_EPOCHS}", job.epochs)
    files += [path for path, _ in names.renames]
    _sync(disk, jobs, files)
    for old, new in names.renames:
        disk.rename(old, new)
    folders = [job.folder for job in jobs]
    folders += {job.root: None for job in jobs if job.new_folder}
    if len(folders) > SYNC_EACH_MAX:
        _sync_roots(disk, jobs)
    else:
        for folder in folders:
            disk.sync_folder(folder)
    for path in [job.snapshot(offset) for job in jobs for offset in job.stale]:
        if disk.exists(path):
            disk.remove(path)


def _sync(disk: Disk, jobs: list[FlushJob], paths: list[str]) -> None:
    if len(paths) > SYNC_EACH_MAX:
        _sync_roots(disk, jobs)
    else:
        for path in paths:
            disk.open(path).sync()


def _sync_roots(disk: Disk, jobs: list[FlushJob]) -> None:
    for root in {job.root: None for job in jobs}:
        disk.sync_all(root)


def finish(job: FlushJob) -> bool:
    """Take note, on the loop, that the job was saved; False where a truncation came in between."""
    log = job.log
    if log._generation != job.generation:
        for index, _ in job.saved:
            index.saved = 0
        return False
    for index, count in job.saved:
        index.saved = count
    sealed = set(job.sealed)
    log._sealed_unsynced = [segment for segment in log._sealed_unsynced if segment not in sealed]
    log._sealed_unsaved = [pair for pair in log._sealed_unsaved if pair[0] not in sealed]
    for segment in job.sealed:
        segment.offsets = segment.times = None
    log._snapshots = sorted({*log._snapshots, *job.snapshots}.difference(job.stale))
    log.recovery_point = max(log.recovery_point, job.end)
    log.became_durable(job.end)
    return True
