"""Group commit: everyone who waits for the disk waits for the same sync.

While a sync is under way, requests gather for the next. A sync covers what was written when it began: whatever comes
later waits for the next one. A few files are synced one by one; many at once are cheaper by one `syncfs`, which costs
about as much as three to five fdatasyncs (measured with 1 KB in each of n files, n = 1 / 8 / 100 / 1,000: fdatasync a
file 0.2 / 1.3 / 24 / 191 ms, one syncfs 0.3 / 0.2 / 1.0 / 5.8 ms).

A failed sync takes its logs offline: what the operating system dropped then can't be told, and asking again would be
answered as if nothing had happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.log.checkpoints import PARTITION_METADATA
from tidelog.log.names import LOG
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.env import Environment
    from tidelog.env.disk import Disk
    from tidelog.env.promise import Promise
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment

SYNC_EACH_MAX = 8
"""Up to so many files and folders are synced one by one."""


class Mark(NamedTuple):
    """How far a log was written when the sync began."""

    log: Log
    generation: int
    end: int
    segment: Segment | None
    size: int
    sealed: list[Segment]


def sync(disk: Disk, root: str, paths: list[str], folders: list[str]) -> None:
    """Make the files' contents, then the folders' names, durable. Blocks; touches nothing that the loop owns.

    Files are opened here, a few at most: an error that the kernel has noted for one since is reported all the same.
    """
    if len(paths) + len(folders) > SYNC_EACH_MAX:
        disk.sync_all(root)
        return
    for path in paths:
        disk.open(path).sync()
    for folder in folders:
        disk.sync_folder(folder)


class GroupCommit:
    """One sync at a time for all logs; `request` gathers."""

    __slots__ = ("_env", "_scheduled", "_syncing", "_waiting")

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._waiting: list[Log] = []
        self._scheduled = False
        self._syncing = False

    def request(self, log: Log) -> None:
        """Make everything written so far in `log` durable soon; it tells its listener then."""
        if log._requested or log.offline is not None:
            return
        log._requested = True
        self._waiting.append(log)
        if not self._scheduled and not self._syncing:
            self._scheduled = True
            self._env.loop.call_soon(self._start)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._syncing

    def _start(self) -> None:
        self._scheduled = False
        logs, self._waiting = self._waiting, []
        marks: list[Mark] = []
        work: dict[str, tuple[list[str], list[str]]] = {}
        for log in logs:
            log._requested = False
            if log.offline is None:
                marks.append(_mark(log, *work.setdefault(log.root, ([], []))))
        if not marks:
            return
        self._syncing = True
        disk = self._env.disk

        def work_off_loop() -> None:
            for root, (paths, folders) in work.items():
                sync(disk, root, paths, folders)

        self._env.loop.run_blocking(work_off_loop).on_done(lambda promise: self._done(marks, promise))

    def _done(self, marks: list[Mark], promise: Promise[None]) -> None:
        self._syncing = False
        error = promise.error
        for mark in marks:
            log = mark.log
            if log.deleted:
                continue
            if error is not None:
                log.go_offline(f"a sync that {log.folder} was part of failed: {error}")
            elif mark.generation == log._generation:
                log._sealed_unsynced = [segment for segment in log._sealed_unsynced if segment not in mark.sealed]
                if mark.segment is log._active and mark.segment is not None and log.offline is None:
                    log.mark(mark.end, mark.size)
                log.became_durable(mark.end)
            else:
                log.became_durable(min(log._synced_end, log.log_end))
                self.request(log)
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._env.loop.call_soon(self._start)


def _mark(log: Log, paths: list[str], folders: list[str]) -> Mark:
    """Note how far the log is written, and add what must be synced for that."""
    active = log._active
    if active is not None and log.log_end > log._synced_end:
        paths.append(active.stem + LOG)
    paths += [segment.stem + LOG for segment in log._sealed_unsynced]
    if log._new_folder and log.topic_id != ZERO_UUID and log.segments:
        paths.append(f"{log.folder}/{PARTITION_METADATA}")
    if log._new_names:
        folders.append(log.folder)
    if log._new_folder and log.root not in folders:
        folders.append(log.root)
    log._new_names = log._new_folder = False
    size = 0 if active is None else active.size
    return Mark(log, log._generation, log.log_end, active, size, list(log._sealed_unsynced))
