"""A clean stop: everything made durable, then the checkpoints, then the mark that says so.

Beside the loop, and in steps on it: 10,000 logs that were just written take a second or two. They do since little is
saved of most of them. A flush makes four files for a new log, the indexes, the snapshot of its producers and its leader
epochs, and a file costs more than all that is in it. The next start can do without: it reads the batches behind the
last flush, as it reads the end of a log anyway, and so does Apache Kafka (flush.py has what either needs). So that is
saved for a bounded number of logs only, those with most batches to read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.env.promise import Promise
from tidelog.env.slices import CHEAP_A_STEP, ITEMS_A_STEP, settled
from tidelog.log.bounds import STOP_SAVED_MAX, STOP_TOGETHER
from tidelog.log.flush import FlushJob, Saving
from tidelog.log.memory import MemoryLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.env import Environment
    from tidelog.env.slices import Steps
    from tidelog.log.checkpoint_files import CheckpointFiles
    from tidelog.log.commit import GroupCommit
    from tidelog.log.data_folders import DataFolders
    from tidelog.log.log import Log
    from tidelog.log.starts import LogStarts
    from tidelog.log.upkeep import Upkeep


class CleanStop:
    """Of one store, on which nothing is under way any more. `logs` are those that are open."""

    def __init__(
        self,
        env: Environment,
        logs: Callable[[], list[Log]],
        upkeep: Upkeep,
        commit: GroupCommit,
        starts: LogStarts,
        folders: DataFolders,
        points: Mapping[str, CheckpointFiles],
    ) -> None:
        self._env = env
        self._logs = logs
        self._upkeep = upkeep
        self._commit = commit
        self._starts = starts
        self._folders = folders
        self._points = points

    def run(self, broker_epoch: int | None) -> Steps[None]:
        """Raises OSError where a checkpoint can't be written. A log that couldn't be flushed keeps the mark away."""
        dirty = self._upkeep.dirty
        dirty.sort(key=lambda log: log.ends.batches, reverse=True)
        for first in range(0, len(dirty), STOP_TOGETHER):
            yield from self._flush(dirty[first : first + STOP_TOGETHER], STOP_SAVED_MAX - first)
        yield from self._note_ends()
        for root in self._folders.admitted:
            yield from self._points[root].finish()
            if (yield from self._is_clean(root)):
                self._folders.close_journal(root)
                epoch = self._folders.epoch_found(root) if broker_epoch is None else broker_epoch
                yield from settled(self._env.loop.run_blocking(partial(self._folders.mark, root, epoch)))

    def _flush(self, logs: list[Log], saved_max: int) -> Steps[None]:
        """The first `saved_max` are saved as in any flush."""
        jobs: list[FlushJob] = []
        for first in range(0, len(logs), ITEMS_A_STEP):
            jobs += self._upkeep.prepare(
                logs[first : first + ITEMS_A_STEP], closing=True, lean=first + ITEMS_A_STEP > saved_max
            )
            yield
        if not jobs:
            return
        saving, ended = Saving(self._env.disk, jobs), Promise[None]()
        self._commit.flush_begins(saving)
        ran = self._env.loop.run_blocking(saving.run)
        ran.on_done(lambda _: self._commit.flush_ends(lambda: ended.resolve(None)))
        yield from settled(ended)
        yield from self._upkeep.take_notes(saving, ran.error)

    def _note_ends(self) -> Steps[None]:
        for place, log in enumerate(self._logs()):
            points = self._points[log.root]
            if isinstance(log, MemoryLog):
                points.memory.put((log.topic, log.partition), log.log_end)
            elif log.segments:
                self._starts.note(log)
                hw = log.log_end if log.high_watermark < 0 else log.high_watermark
                points.replication.put((log.topic, log.partition), hw)
            if place % ITEMS_A_STEP == 0:
                yield

    def _is_clean(self, root: str) -> Steps[bool]:
        """Whether the next start may take all logs in the folder as it finds them."""
        # A folder found after a crash that nobody asked for was never recovered: the next start has to do it.
        if not self._folders.is_clean(root) and self._folders.partitions.is_any_in(root):
            return False
        if self._folders.journal_is_needed(root):
            return False
        unfinished = set(self._upkeep.dirty)
        for place, log in enumerate(self._logs()):
            if log.root != root or self._folders.gone((log.topic, log.partition)):
                continue
            if log.offline is not None or log in unfinished:
                return False
            if place % CHEAP_A_STEP == 0:
                yield
        return True
