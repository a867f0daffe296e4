"""What a store does by itself: flushes on time, retention, compaction, expiry of producers, the scrub, removal of
deleted files.

Each is bounded a turn of the loop, so that a broker with 10,000 logs doesn't stand still for them. A store that nobody
writes to has no timer but for retention and the scrub.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.config.setting import LONG_MAX
from tidelog.log import flush
from tidelog.log.checkpoints import PARTITION_METADATA
from tidelog.log.commit import missing
from tidelog.log.compaction.cleaner import Cleaner
from tidelog.log.flush import Postponed
from tidelog.log.names import METADATA_TOPIC
from tidelog.log.scan import BadBatch
from tidelog.log.scrub import STEP_S, Scrub
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.env.loop import Timer
    from tidelog.env.promise import Promise
    from tidelog.log.flush import FlushJob, Saving
    from tidelog.log.log import Log
    from tidelog.log.store import Store

TICK_S = 1.0
BATCHES_MAX = 100_000
"""Batches behind all recovery points together, after which the logs with most of them are flushed: reading them again
takes about 0.2 s."""
FLUSH_TOGETHER = 32
LOOKS_A_TURN = 128
REMOVALS_TOGETHER = 256


class Upkeep:
    """The schedules of one store."""

    def __init__(self, env: Environment, store: Store, config: BrokerConfig) -> None:
        self._env = env
        self._store = store
        self._config = config
        self._dirty: dict[Log, None] = {}
        self._queue: dict[Log, None] = {}
        self._flushing = False
        self._saving: frozenset[str] = frozenset()  # folders that a flush is writing to, whoever's they are by now
        self._removals: list[tuple[int, str, bool]] = []
        self._tick_timer: Timer | None = None
        self._removal_timer: Timer | None = None
        self._timers: dict[str, Timer] = {}
        self._stopped = False
        self.scrub = Scrub(env, store)
        self.cleaner = Cleaner(env, store, config)

    def start(self) -> None:
        config = self._config
        delay = config.log_initial_task_delay_ms / 1000
        self._every("retention", config.log_retention_check_interval_ms / 1000, delay, self._retain)
        self._every("expiry", config.producer_id_expiration_check_interval_ms / 1000, delay, self._expire)
        self._every("scrub", STEP_S, delay, self.scrub.step)
        self.cleaner.start()

    def stop(self) -> None:
        """No timer fires any more; what runs off the loop goes on until `idle`."""
        self._stopped = True
        self.cleaner.stop()
        for timer in (*self._timers.values(), self._tick_timer, self._removal_timer):
            if timer is not None:
                timer.cancel()

    @property
    def idle(self) -> bool:
        return not self._flushing and not self.scrub.busy and self.cleaner.idle

    def _every(self, name: str, period_s: float, delay_s: float, work: Callable[[], None]) -> None:
        def run() -> None:
            if not self._stopped:
                self._timers[name] = self._env.loop.call_later(period_s, run)
                work()

        self._timers[name] = self._env.loop.call_later(delay_s, run)

    def _now_ms(self) -> int:
        """For what is due after a while: the wall clock may be set back."""
        return int(self._env.clock.monotonic() * 1000)

    # -- flushing

    def wrote(self, log: Log) -> None:
        """The log was written to for the first time since its last flush."""
        log.flushed_ms = self._now_ms()
        self._dirty[log] = None
        if self._tick_timer is None and not self._stopped:
            self._tick_timer = self._env.loop.call_later(TICK_S, self._tick)

    def forget(self, log: Log) -> None:
        self._dirty.pop(log, None)
        self._queue.pop(log, None)

    def let_go(self, log: Log) -> None:
        """The log is no more."""
        self.forget(log)
        self.cleaner.forget(log)

    def _tick(self) -> None:
        now_ms = self._now_ms()
        interval_ms = self._config.log_flush_offset_checkpoint_interval_ms
        batches = sum(log.batches for log in self._dirty)
        enough = batches // (2 * len(self._dirty)) if batches > BATCHES_MAX else batches
        for log in self._dirty:
            waited_ms = now_ms - log.flushed_ms
            # What the cluster is made of is little, and the last that may be cut for a bad batch above this point.
            patience_ms = interval_ms if log.topic != METADATA_TOPIC else 0
            if log.batches > enough or waited_ms >= patience_ms:
                self._queue[log] = None
            elif log.config.flush_ms < LONG_MAX and waited_ms >= log.config.flush_ms:
                self._store.commit.request(log)
        self._flush_next()
        self._tick_timer = None
        if self._dirty and not self._stopped:
            self._tick_timer = self._env.loop.call_later(TICK_S, self._tick)

    def flush_soon(self, log: Log) -> None:
        """Move the log's recovery point to its end."""
        if not self._queue and not self._flushing:
            self._env.loop.call_soon(self._flush_next)
        self._queue[log] = None

    def _flush_next(self) -> None:
        if self._flushing or not self._queue or self._stopped:
            return
        logs = list(self._queue)[:FLUSH_TOGETHER]
        for log in logs:
            del self._queue[log]
        jobs = self.prepare(logs)
        if not jobs:
            return
        self._flushing = True
        self._saving = frozenset(job.folder for job in jobs)
        saving = flush.Saving(self._env.disk, jobs)
        self._store.commit.flush_begins(saving)
        self._env.loop.run_blocking(saving.run).on_done(lambda done: self._flushed(saving, done))

    def prepare(self, logs: list[Log], *, closing: bool = False) -> list[FlushJob]:
        jobs: list[FlushJob] = []
        for log in logs:
            self.forget(log)
            if log.offline is None and log.segments:
                try:
                    job = flush.prepare(log, closing=closing)
                    if job.new_folder:  # whose it is has to be durable before anything in it
                        job.files.append(f"{job.folder}/{PARTITION_METADATA}")
                    jobs.append(job)
                except (OSError, BadBatch, KafkaError) as error:
                    log.go_offline(f"preparing a flush of {log.folder} failed: {error}")
        return jobs

    def saving(self, folder: str) -> bool:
        """Whether a flush is writing files of this name now."""
        return folder in self._saving

    def _flushed(self, saving: Saving, done: Promise[None]) -> None:
        self._saving = frozenset()
        self._store.commit.flush_ends(lambda: self._flush_ended(saving, done.error))

    def _flush_ended(self, saving: Saving, error: BaseException | None) -> None:
        self.take_note(saving, error)
        self._flushing = False  # only now: what becomes durable may be what a stop waits for
        self._flush_next()

    def take_note(self, saving: Saving, error: BaseException | None) -> None:
        """`error`: of all jobs together. A log that went offline meanwhile stays where it was known to be durable."""
        for root, failure in saving.failed_roots.items():
            self._store.commit.root_failed(root, failure)
        for place, job in enumerate(saving.jobs):
            log = job.log
            log._flushing = False
            if log.deleted or log.offline is not None:
                continue
            failed = error or saving.failed.get(place)
            if isinstance(failed, Postponed):
                self._store.report(f"{log.place}: its recovery point stays at {log.recovery_point}: {failed}")
                flush.postpone(job)
                self.wrote(log)
            elif failed is not None:
                log.go_offline(f"flushing {job.folder} failed: {failed}")
            elif saving.gone and flush.holds(job) and (lost := missing(log, saving.gone)):
                log.go_offline(f"{lost} is not there any more: someone removed it")
            elif not flush.finish(job):
                self._remove_outdated(job)
                self.wrote(log)
            else:
                self._store.recovered_to(log)

    def _remove_outdated(self, job: FlushJob) -> None:
        """The log was cut while it was flushed: snapshots of what was there before must not be taken for new ones."""
        for offset in job.snapshots:
            if offset not in job.log._snapshots:
                with suppress(FileNotFoundError):
                    self._env.disk.remove(job.snapshot(offset))

    @property
    def dirty(self) -> list[Log]:
        return list({**self._dirty, **self._queue})

    # -- retention, expiry

    def _retain(self) -> None:
        """A log that is being compacted has its turn when that is done."""
        logs = (log for log in self._store.logs() if not self.cleaner.busy(log))
        self._in_turns(logs, lambda log: _quietly(log.apply_retention, self._env.clock.now_ms()))

    def _expire(self) -> None:
        self._in_turns(iter(self._store.logs()), lambda log: log.expire_producers(self._env.clock.now_ms()))

    def _in_turns(self, logs: Iterator[Log], work: Callable[[Log], None]) -> None:
        """A bounded number a turn of the loop."""
        for _ in range(LOOKS_A_TURN):
            log = next(logs, None)
            if log is None or self._stopped:
                return
            work(log)
        self._env.loop.call_soon(self._in_turns, logs, work)

    # -- removing

    def remove(self, path: str, delay_ms: int, *, folder: bool = False) -> None:
        """Remove the file or folder after a while, off the loop."""
        due = self._now_ms() + delay_ms
        self._removals.append((due, path, folder))
        if self._removal_timer is None and not self._stopped:
            self._removal_timer = self._env.loop.call_later(delay_ms / 1000, self._remove_due)

    def _remove_due(self) -> None:
        now_ms = self._now_ms()
        due = [removal for removal in self._removals if removal[0] <= now_ms][:REMOVALS_TOGETHER]
        self._removals = [removal for removal in self._removals if removal not in due]
        disk = self._env.disk
        self._removal_timer = None
        if due:

            def remove_all() -> None:
                for _, path, folder in due:
                    if disk.exists(path):
                        (disk.remove_tree if folder else disk.remove)(path)

            self._env.loop.run_blocking(remove_all).on_done(self._removed)
        if self._removals and not self._stopped:
            wait_s = max(0.001, (min(self._removals)[0] - now_ms) / 1000)
            self._removal_timer = self._env.loop.call_later(wait_s, self._remove_due)

    def _removed(self, done: Promise[None]) -> None:
        if done.error is not None:
            self._store.report(f"removing deleted files failed: {done.error}; they are tried again at the next start")


def _quietly(work: Callable[[int], int], now_ms: int) -> None:
    """A log that fails here went offline, and its listener knows."""
    try:
        work(now_ms)
    except KafkaError:
        return
