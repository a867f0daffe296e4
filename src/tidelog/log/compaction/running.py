"""One cleaning as the loop sees it: a child process's job, and each segment that it wrote put in place of the old ones.

A truncation, a deletion or a topic that is no longer compacted ends it: what was put in place by then stays, since each
segment is right by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.commit import AGAIN_S, TOO_MANY_FILES
from tidelog.log.compaction import swap
from tidelog.log.compaction.task import Done, Failed, Replacement, Task, decode_report
from tidelog.log.names import CLEANED
from tidelog.log.producer_snapshot import encode_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.env.child_processes import ChildProcesses, Job
    from tidelog.env.promise import Promise
    from tidelog.log.compaction.choice import Due
    from tidelog.log.store import Store

CHILD = "tidelog.log.compaction.child"
READ_BYTES_MIN = 64 * 1024


class Run:
    """`over` is called once, when nothing is under way any more: with how it ended, None where it was given up."""

    def __init__(
        self, env: Environment, store: Store, due: Due, over: Callable[[Run, Done | Failed | None], None]
    ) -> None:
        self.log = due.log
        self.began = env.clock.monotonic()
        self.job: Job | None = None
        self._env = env
        self._store = store
        self._due = due
        self._over = over
        self._token = env.random.random_bytes(8).hex()
        self._folder = due.log.folder
        self._generation = due.log.ends.generation
        self._segments = {segment.base: segment for segment in due.log.segments[: due.number]}
        self._given_up = False
        self._outcome: Done | Failed = Failed(reason="it ended without a word", damaged=False)
        self._ended = False
        self._syncs = 0

    def start(self, child_processes: ChildProcesses, config: BrokerConfig) -> None:
        try:
            self.job = child_processes.start(CHILD, self._task(config).encode(), self._told, self._job_ended)
        except OSError as error:
            self._job_ended(f"no child process could be started: {error}")

    def give_up(self) -> None:
        """End it as soon as may be."""
        self._given_up = True
        if self.job is not None:
            self.job.cancel()

    def _task(self, config: BrokerConfig) -> Task:
        due, log, disk = self._due, self.log, self._env.disk
        topic, threads = log.config, max(1, config.log_cleaner_threads)
        return Task(
            folder=self._folder,
            token=self._token,
            segments=[(segment.base, segment.size_now(disk)) for segment in log.segments[: due.number]],
            later=[segment.base for segment in log.segments[due.number :]],
            first_dirty=due.first_dirty,
            end=due.end,
            log_start=self._store.starts.settled(log),
            now_ms=self._env.clock.now_ms(),
            delete_retention_ms=topic.delete_retention_ms,
            segment_bytes=topic.segment_size,
            index_bytes=topic.segment_index_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            map_bytes=int(config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor) // threads,
            buffer_bytes=max(READ_BYTES_MIN, config.log_cleaner_io_buffer_size // threads),
            inflated_bytes_max=topic.tidelog_inflated_bytes_max,
            bytes_per_s=config.log_cleaner_io_max_bytes_per_second / threads,
            producers=encode_snapshot(log.producers.items()),
        )

    # -- what the job tells

    def _told(self, line: bytes) -> None:
        report = decode_report(line)
        if not isinstance(report, Replacement):
            self._outcome = report
        elif not self._given_up:
            self._replace(report)

    def _replace(self, new: Replacement) -> None:
        log = self.log
        going = [self._segments[base] for base in new.bases]
        if not self._holds() or not log.config.compacts or not swap.still_there(log, going):
            self.give_up()
            return
        try:
            removed = swap.swap_in(log, going, new, self._token)
        except OSError as error:
            log.go_offline(f"putting compacted segments in place in {log.folder} failed: {error}")
            self.give_up()
            return
        self._syncs += 1
        self._sync(removed)

    def _sync(self, removed: list[str]) -> None:
        disk, folder = self._env.disk, self._folder
        self._env.loop.run_blocking(lambda: disk.sync_folder(folder)).on_done(lambda done: self._synced(removed, done))

    def _holds(self) -> bool:
        """Whether the log is still the one that the cleaning began with; a truncation cuts what is being read."""
        log = self.log
        return not log.deleted and log.offline is None and log.ends.generation == self._generation

    def _synced(self, removed: list[str], done: Promise[None]) -> None:
        """The new names are durable: only now may the old files go."""
        if isinstance(done.error, OSError) and done.error.errno in TOO_MANY_FILES:  # nothing was tried
            self._env.loop.call_later(AGAIN_S, self._sync, removed)
            return
        self._syncs -= 1
        log = self.log
        if done.error is None:
            for path in removed:
                self._store.upkeep.remove(path, log.config.file_delete_delay_ms)
        elif not log.deleted:
            log.go_offline(f"a sync of {log.folder} failed: {done.error}")
        self._finish()

    def _job_ended(self, how: str | None) -> None:
        self._ended = True
        if how is not None and not (isinstance(self._outcome, Failed) and self._outcome.damaged):
            self._outcome = Failed(reason=how, damaged=False)
        self._finish()

    # -- the end

    def _finish(self) -> None:
        """When the job ended and every swap is durable."""
        if not self._ended or self._syncs:
            return
        outcome = self._outcome if not self._given_up and self._holds() else None
        if isinstance(outcome, Done):
            self._over(self, outcome)
            return
        rest = self._env.loop.run_blocking(self._remove_rest)
        rest.on_done(lambda done: self._removed(done, outcome))

    def _remove_rest(self) -> None:
        """What it had written and nobody needs."""
        disk, ours = self._env.disk, f".{self._token}."
        for name in disk.list_folder(self._folder):
            if name.endswith(CLEANED) and ours in name:
                disk.remove(f"{self._folder}/{name}")

    def _removed(self, done: Promise[None], outcome: Failed | None) -> None:
        if done.error is not None and not isinstance(done.error, FileNotFoundError):
            self._store.report(f"removing half compacted segments in {self._folder} failed: {done.error}")
        self._over(self, outcome)
