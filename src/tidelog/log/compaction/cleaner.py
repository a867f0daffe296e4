"""The loop's side of compaction: the log that is dirtiest is cleaned next, aside; its new segments are put in place.

A cleaning that fails is tried again after a while; one that fails for the log's own bytes isn't, until the next start.
A truncation, a deletion or a topic that is no longer compacted ends it: what was put in place by then stays, since each
segment is right by itself, and the checkpoint stays where it was. Retention waits meanwhile.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.env.aside import BesideTheLoop
from tidelog.log.compaction import choice, swap
from tidelog.log.compaction.task import Done, Failed, Replacement, Task, decode_report
from tidelog.log.names import CLEANED, METADATA_TOPIC
from tidelog.log.producer_snapshot import encode_snapshot
from tidelog.log.scan import BadBatch
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.env.aside import Errand
    from tidelog.env.loop import Timer
    from tidelog.env.promise import Promise
    from tidelog.log.compaction.choice import Due
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment
    from tidelog.log.store import Store

CHILD = "tidelog.log.compaction.child"
LOOKS_A_TURN = 128
AGAIN_S_MAX = 3600.0
"""A log whose cleaning fails again and again is tried once an hour."""
READ_BYTES_MIN = 64 * 1024

_logger = logging.getLogger("tidelog.log.compaction")


class Run:
    """One cleaning that is under way."""

    def __init__(self, due: Due, token: str, generation: int, began: float) -> None:
        self.log = due.log
        self.token = token
        self.generation = generation
        self.began = began
        self.segments = {segment.base: segment for segment in due.log.segments[: due.number]}
        self.folder = due.log.folder
        self.errand: Errand | None = None
        self.given_up = False
        self.done: Done | None = None
        self.failed: Failed | None = None
        self.ended = False
        self.syncs = 0


class Cleaner:
    """Compaction of all logs of a store."""

    def __init__(self, env: Environment, store: Store, config: BrokerConfig) -> None:
        self._env = env
        self._store = store
        self._config = config
        self._aside = env.aside or BesideTheLoop(env.loop, env.disk)
        self._runs: dict[Log, Run] = {}
        self._again: dict[Log, tuple[float, float]] = {}  # not before then, and how long was waited for that
        self._timer: Timer | None = None
        self._looking = False
        self._stopped = False
        self.uncleanable: dict[Log, str] = {}

    # -- start, stop, questions

    def start(self) -> None:
        if self._config.log_cleaner_enable and self._config.log_cleaner_threads:
            self._wait()

    def stop(self) -> None:
        """No log is begun any more, and those that are being cleaned are left: `idle` tells when."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for run in list(self._runs.values()):
            self._give_up(run)

    @property
    def idle(self) -> bool:
        return not self._runs

    def busy(self, log: Log) -> bool:
        """Whether the log is being cleaned: then retention leaves it alone."""
        return log in self._runs

    def runs(self) -> list[Run]:
        """The cleanings that are under way."""
        return list(self._runs.values())

    def forget(self, log: Log) -> None:
        """The log is no more."""
        self._again.pop(log, None)
        self.uncleanable.pop(log, None)
        if log in self._runs:
            self._give_up(self._runs[log])

    # -- which log

    def _wait(self) -> None:
        if not self._stopped:
            self._timer = self._env.loop.call_later(max(self._config.log_cleaner_backoff_ms, 1) / 1000, self._tick)

    def _tick(self) -> None:
        self._wait()
        self.look()

    def look(self) -> None:
        """Begin with the dirtiest log that is due, as far as there is room for one more."""
        if self._looking or self._stopped or len(self._runs) >= self._config.log_cleaner_threads:
            return
        self._looking = True
        self._look_on(iter(self._store.logs()), None)

    def _look_on(self, logs: Iterator[Log], best: Due | None) -> None:
        """A bounded number a turn of the loop."""
        for _ in range(LOOKS_A_TURN):
            log = next(logs, None)
            if log is None or self._stopped:
                self._looking = False
                if best is not None and not self._stopped:
                    self._begin(best.log)
                return
            found = self._look_at(log)
            if found is not None and (best is None or found.ratio > best.ratio):
                best = found
        self._env.loop.call_soon(self._look_on, logs, best)

    def _look_at(self, log: Log) -> Due | None:
        if not log.config.compacts or len(log.segments) < 2 or log.topic == METADATA_TOPIC or log.deleted:
            return None
        if log in self._runs or log in self.uncleanable:
            return None
        if log in self._again and self._again[log][0] > self._env.clock.monotonic():
            return None
        with suppress(KafkaError):  # it went offline, and its listener knows
            try:
                return choice.look(log, self._store.clean_end(log), self._env.clock.now_ms())
            except (OSError, BadBatch) as error:
                log.read_failed(error)
        return None

    # -- one cleaning

    def _begin(self, log: Log) -> None:
        due = self._look_at(log)
        if due is None:
            return
        run = Run(due, self._env.random.random_bytes(8).hex(), log._generation, self._env.clock.monotonic())
        self._runs[log] = run
        try:
            run.errand = self._aside.start(
                CHILD,
                self._task(due, run).encode(),
                lambda line: self._told(run, line),
                lambda how: self._ended(run, how),
            )
        except OSError as error:
            self._ended(run, f"no child process could be started: {error}")
            return
        if len(self._runs) < self._config.log_cleaner_threads:
            self._env.loop.call_soon(self.look)

    def _task(self, due: Due, run: Run) -> Task:
        log, config, disk = due.log, self._config, self._env.disk
        topic, threads = log.config, max(1, config.log_cleaner_threads)
        return Task(
            folder=run.folder,
            token=run.token,
            segments=[(segment.base, segment.size_now(disk)) for segment in log.segments[: due.number]],
            later=[segment.base for segment in log.segments[due.number :]],
            first_dirty=due.first_dirty,
            end=due.end,
            log_start=self._store.settled_start(log),
            now_ms=self._env.clock.now_ms(),
            delete_retention_ms=topic.delete_retention_ms,
            segment_bytes=topic.segment_size,
            index_bytes=topic.segment_index_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            map_bytes=int(config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor) // threads,
            buffer_bytes=max(READ_BYTES_MIN, config.log_cleaner_io_buffer_size // threads),
            bytes_per_s=config.log_cleaner_io_max_bytes_per_second / threads,
            producers=encode_snapshot(log.producers.items()),
        )

    def _told(self, run: Run, line: bytes) -> None:
        report = decode_report(line)
        if isinstance(report, Done):
            run.done = report
        elif isinstance(report, Failed):
            run.failed = report
        elif not run.given_up:
            self._replace(run, report)

    def _replace(self, run: Run, new: Replacement) -> None:
        log = run.log
        going = [run.segments[base] for base in new.bases]
        if not self._holds(run, going):
            self._give_up(run)
            return
        try:
            removed = swap.swap_in(log, going, new, run.token)
        except OSError as error:
            run.given_up = True
            log.go_offline(f"putting compacted segments in place in {log.folder} failed: {error}")
            return
        disk, folder = self._env.disk, log.folder
        run.syncs += 1
        synced = self._env.loop.run_blocking(lambda: disk.sync_folder(folder))
        synced.on_done(lambda done: self._synced(run, removed, done))

    def _holds(self, run: Run, going: list[Segment]) -> bool:
        """Whether the log is still what the cleaning began with, as far as these segments go."""
        log = run.log
        return (
            not (self._stopped or log.deleted)
            and log.offline is None
            and log.config.compacts
            and log._generation == run.generation
            and swap.still_there(log, going)
        )

    def _synced(self, run: Run, removed: list[str], done: Promise[None]) -> None:
        run.syncs -= 1
        log = run.log
        if done.error is not None and not log.deleted:
            run.given_up = True
            log.go_offline(f"a sync of {log.folder} failed: {done.error}")
        elif done.error is None:
            for path in removed:
                self._store.upkeep.remove(path, log.config.file_delete_delay_ms)
        self._finish(run)

    def _give_up(self, run: Run) -> None:
        run.given_up = True
        if run.errand is not None:
            run.errand.cancel()

    def _ended(self, run: Run, how: str | None) -> None:
        run.ended = True
        if how is not None and run.failed is None:
            run.failed = Failed(reason=how, damaged=False)
        self._finish(run)

    def _finish(self, run: Run) -> None:
        """The errand ended and every swap is durable: take note of how far it came, or of why not."""
        if not run.ended or run.syncs or run.log not in self._runs:
            return
        log = run.log
        if run.given_up or log.deleted or log.offline is not None or log._generation != run.generation:
            self._remove_rest(run)  # a truncation may have cut what was being read, too: that is no damage
        elif run.failed is not None or run.done is None:
            self._remove_rest(run)
            self._failed(log, run.failed or Failed(reason="it ended without a word", damaged=False))
        else:
            del self._runs[log]
            self._again.pop(log, None)
            self._store.cleaned_to(log, run.done.clean_end)
            self._tell(run, run.done)
            self._let_retention(log)
            self._env.loop.call_soon(self.look)

    def _let_retention(self, log: Log) -> None:
        """It was passed over while the log was cleaned."""
        with suppress(KafkaError):  # it went offline, and its listener knows
            log.apply_retention(self._env.clock.now_ms())

    def _tell(self, run: Run, done: Done) -> None:
        _logger.info(
            "%s: compacted up to offset %d in %.1f s: %.1f MB read, %.1f MB written, %d of %d records stayed",
            run.log.place,
            done.clean_end,
            self._env.clock.monotonic() - run.began,
            done.bytes_read / 1e6,
            done.bytes_written / 1e6,
            done.records_written,
            done.records_read,
        )

    def _failed(self, log: Log, failed: Failed) -> None:
        if failed.damaged:
            self.uncleanable[log] = failed.reason
            self._store.report(
                f"{log.place} can't be compacted: {failed.reason}. It is left as it is until the next start; restore "
                "the file, or delete the topic"
            )
            return
        waited_s = self._again[log][1] if log in self._again else 0.0
        wait_s = min(max(2 * waited_s, self._config.log_cleaner_backoff_ms / 1000, 0.001), AGAIN_S_MAX)
        self._again[log] = self._env.clock.monotonic() + wait_s, wait_s
        self._store.report(f"compacting {log.place} failed: {failed.reason}; it is tried again in {wait_s:.0f} s")

    def _remove_rest(self, run: Run) -> None:
        """What it had written and nobody needs. Only then may the log be cleaned again, or the store stop."""
        disk, folder = self._env.disk, run.folder
        ending = f".{run.token}."

        def remove() -> None:
            for name in disk.list_folder(folder):
                if name.endswith(CLEANED) and ending in name:
                    disk.remove(f"{folder}/{name}")

        def removed(done: Promise[None]) -> None:
            if done.error is not None and not isinstance(done.error, FileNotFoundError):
                self._store.report(f"removing half compacted segments in {folder} failed: {done.error}")
            self._runs.pop(run.log, None)

        self._env.loop.run_blocking(remove).on_done(removed)
