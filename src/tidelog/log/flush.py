"""Moving a log's recovery point: segments, indexes, producer snapshot and leader epochs made durable, in this order.

What is to be written is gathered on the loop (`prepare`), written and synced off it (`Saving`), and taken note of on
the loop again (`finish`). Many logs at once share their syncs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, cast

from tidelog.log import checkpoints
from tidelog.log.bounds import SECTOR_BYTES, SYNC_EACH_MAX
from tidelog.log.checkpoints import LEADER_EPOCHS
from tidelog.log.commit import TOO_MANY_FILES
from tidelog.log.names import OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, segment_stem
from tidelog.log.producer_snapshot import encode_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.env.disk import Disk
    from tidelog.log.index import OffsetIndex, TimeIndex
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment


class FlushJob(NamedTuple):
    """What one log needs to have its recovery point at `end`."""

    log: Log
    generation: int
    end: int
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


def prepare(log: Log, *, closing: bool = False, lean: bool = False) -> FlushJob:
    """Gather, on the loop. `closing` adds the last time entry, as a closed segment has it. Raises OSError, BadBatch.

    `lean`: without what the next start finds in the batches as well. It has to read those that were written since the
    last flush: for a log that `may_be_lean`, after a clean stop.
    """
    if not lean:
        _ = log.producers  # first: loading them may read the disk, and gives recovered segments their snapshots
    epochs = log.epochs
    active = log.segments.active
    if active is not None and closing:
        active.finish_times()
    end = log.ends.log_end
    unsaved = lean and _never_saved(log)
    bases = {segment.base for segment in log.segments}
    needed = log.restart_snapshot()  # until the recovery point is saved that the new one belongs to
    stale = [] if lean else [known for known in log.snapshots if known not in bases and known not in (end, needed)]
    waiting = log.begin_flush()
    sealed = [segment for segment, _ in waiting.unsaved]
    segments = sealed if active is None else [*sealed, active]
    unsynced = waiting.unsynced if active is None else (*waiting.unsynced, active)
    snapshots = {_next_base(log, segment): data for segment, data in waiting.unsaved if data}
    if not lean:
        snapshots[end] = encode_snapshot(log.producers.items())
    entries: list[tuple[str, int, bytes]] = []
    saved: list[tuple[OffsetIndex | TimeIndex, int]] = []
    for segment in () if unsaved else segments:
        for suffix, index in ((OFFSET_INDEX, segment.offsets), (TIME_INDEX, segment.times)):
            if index is not None:
                where, data = index.unsaved()
                entries.append((segment.stem + suffix, where, data))
                saved.append((index, len(index)))
    return FlushJob(
        log,
        log.ends.generation,
        end,
        log.folder,
        log.root,
        [segment.path for segment in unsynced],
        entries,
        saved,
        snapshots,
        None if unsaved else epochs.begin_save(),
        stale,
        sealed,
        waiting.folder,
        [segment.stem + TXN_INDEX for segment in segments if segment.has_aborted],
    )


def may_be_lean(log: Log) -> bool:
    """Whether a stop may leave to the next start what it would otherwise save of the log.

    The producers are those of the last snapshot, or of the log's first batch where there is none, and of what comes
    behind it. Apache Kafka reads on from there, too; but where a segment has its index, and there is no snapshot at
    all, it takes it that there are no producers. What was sealed since the last flush needs its indexes.
    """
    return not log.unsynced.bases and (log.snapshots.newest is not None or _never_saved(log))


def _never_saved(log: Log) -> bool:
    """Whether no flush has saved anything of the log: nothing but batches is in its folder.

    The next start builds the rest of them, and so does Apache Kafka, which looks for the index.
    """
    if len(log.segments) != 1 or log.snapshots.newest is not None:
        return False
    names = log.segments[0].stem + OFFSET_INDEX, log.segments[0].stem + TIME_INDEX, f"{log.folder}/{LEADER_EPOCHS}"
    return not any(map(log.segments.around.disk.exists, names))


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
    """Write `data` at `where`; nothing is behind it then. Not durable yet. The path again, for the sync.

    What ends no further on, and in the same sector, is written over: a power loss leaves the one or the other. To cut a
    file to nothing and write it again costs ten times as much: ext4 sends such a file to the disk when it is closed.
    """
    file = disk.open(path, create=True)
    size, end = file.size(), where + len(data)
    if where < size <= end and where // SECTOR_BYTES == (end - 1) // SECTOR_BYTES:
        disk.write_at(path, where, data)
        return path
    if size != where:
        file.truncate(where)
    if data:
        file.append(data)
    return path


class Postponed(Exception):
    """A recovery point stays where it is for now: no room, too many open files. The records are none the worse."""


class Saving:
    """Jobs that are saved together, off the loop: `run` writes and syncs. One that fails drops out, the rest go on.

    `failed` has, by the job's place, Postponed, or the error of a sync after which nobody knows what is on disk.
    `failed_roots` are the data folders of which a sync of everything failed. `gone` are files that were not there any
    more: retention and deletion go on meanwhile.
    """

    def __init__(self, disk: Disk, jobs: list[FlushJob]) -> None:
        self.jobs = jobs
        self.failed: dict[int, Exception] = {}
        self.failed_roots: dict[str, OSError] = {}
        self.gone: set[str] = set()
        self._logs = {job.log for job in jobs}
        self._whole_roots = {job.root for job in jobs} if _syncs_most(jobs) > SYNC_EACH_MAX else set[str]()
        self._disk = disk
        self._names = [_Names(disk) for _ in jobs]

    def concerns(self, log: Log) -> bool:
        """Whether it may sync files of this log: its own logs', or everything in the folder."""
        return log in self._logs or log.root in self._whole_roots

    def run(self) -> None:
        """The segments come first: a snapshot must not be ahead of them. Raises OSError where that concerns all."""
        self._sync([job.files for job in self.jobs])
        self._sync(self._each(self._write))
        self._each(self._rename)
        self._sync_folders()
        self._each(self._remove_stale)

    def _each(self, step: Callable[[int, FlushJob], list[str]]) -> list[list[str]]:
        """What the step gives for each job; none for those that dropped out."""
        results: list[list[str]] = []
        for place, job in enumerate(self.jobs):
            results.append([])
            if place not in self.failed:
                try:
                    results[-1] = step(place, job)
                except OSError as error:
                    self.failed[place] = Postponed(str(error))
        return results

    def _write(self, place: int, job: FlushJob) -> list[str]:
        disk, names = self._disk, self._names[place]
        files = [overwrite(disk, path, where, data) for path, where, data in job.entries]
        for offset, data in job.snapshots.items():  # the one that a start would begin with may be among them
            names.write_whole(job.snapshot(offset), data)
        files += [path for path in job.aborted if disk.exists(path)]
        if job.epochs is not None:
            checkpoints.write_epochs(cast("Disk", names), f"{job.folder}/{LEADER_EPOCHS}", job.epochs)
        return files + [path for path, _ in names.renames]

    def _rename(self, place: int, job: FlushJob) -> list[str]:
        for old, new in self._names[place].renames:
            self._disk.rename(old, new)
        return []

    def _remove_stale(self, place: int, job: FlushJob) -> list[str]:
        for offset in job.stale:
            with suppress(FileNotFoundError):
                self._disk.remove(job.snapshot(offset))
        return []

    def _sync(self, paths: list[list[str]]) -> None:
        if sum(map(len, paths)) > SYNC_EACH_MAX:
            self._sync_roots()
            return
        for place, group in enumerate(paths):
            if place not in self.failed:
                for path in group:
                    self._sync_one(place, path)

    def _sync_one(self, place: int, path: str) -> None:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            self.gone.add(path)
            return
        except OSError as error:
            self.failed.setdefault(place, Postponed(str(error)))
            return
        try:
            file.sync()
        except OSError as error:
            self.failed[place] = error

    def _sync_folders(self) -> None:
        """The roots too: a commit that is to sync a new folder's name may still be under way."""
        folders = [job.folder for place, job in enumerate(self.jobs) if place not in self.failed]
        folders += {job.root: None for job in self.jobs}
        if len(folders) > SYNC_EACH_MAX:
            self._sync_roots()
            return
        for folder in folders:
            try:
                self._disk.sync_folder(folder)
            except FileNotFoundError:
                self.gone.add(folder)
            except OSError as error:
                if error.errno not in TOO_MANY_FILES:
                    raise
                self._postpone(
                    [place for place, job in enumerate(self.jobs) if folder in (job.folder, job.root)], error
                )

    def _sync_roots(self) -> None:
        for root in {job.root: None for job in self.jobs}:
            try:
                self._disk.sync_all(root)
            except OSError as error:
                places = [place for place, job in enumerate(self.jobs) if job.root == root]
                if error.errno in TOO_MANY_FILES:
                    self._postpone(places, error)
                    continue
                self.failed_roots[root] = error
                self.failed.update(dict.fromkeys(places, error))

    def _postpone(self, places: list[int], error: OSError) -> None:
        """Nothing was tried: it is another time."""
        for place in places:
            self.failed.setdefault(place, Postponed(str(error)))


def _syncs_most(jobs: list[FlushJob]) -> int:
    """How many files or folders are synced together, at most."""
    segments = sum(len(job.files) for job in jobs)
    others = sum(len(job.entries) + len(job.snapshots) + len(job.aborted) + (job.epochs is not None) for job in jobs)
    return max(segments, others, len(jobs) + len({job.root for job in jobs}))


def postpone(job: FlushJob) -> None:
    """Take note, on the loop, that the job was not saved, and that it may be tried again."""
    if job.epochs is not None:
        job.log.epochs.save_again()


def holds(job: FlushJob) -> bool:
    """Whether the log's files are those that were saved: after a truncation others may have their names."""
    return job.log.ends.generation == job.generation


def finish(job: FlushJob) -> bool:
    """Take note, on the loop, that the job was saved; False where a truncation came in between."""
    log = job.log
    if not holds(job):
        for index, _ in job.saved:
            index.saved = 0
        return False
    for index, count in job.saved:
        index.saved = count
    log.flushed(job)
    return True
