"""What a store does by itself: flushes on time, retention, compaction, expiry of producers, the scrub, removal of
deleted files.

Each is bounded a turn of the loop, so that a broker with 10,000 logs doesn't stand still for them. A store that nobody
writes to has no timer but for retention and the scrub.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.config.setting import LONG_MAX
from tidelog.env.slices import ITEMS_A_STEP, whole
from tidelog.log import flush
from tidelog.log.bounds import BATCHES_MAX, FLUSH_TOGETHER
from tidelog.log.checkpoints import PARTITION_METADATA
from tidelog.log.commit import TOO_MANY_FILES, missing
from tidelog.log.compaction.cleaner import Cleaner
from tidelog.log.deletion import Deletion
from tidelog.log.flush import Postponed
from tidelog.log.names import METADATA_TOPIC
from tidelog.log.removal import Removals
from tidelog.log.scan import BadBatch
from tidelog.log.scrub import STEP_S, Scrub
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.env.loop import Timer
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps
    from tidelog.log.flush import FlushJob, Saving
    from tidelog.log.log import Log
    from tidelog.log.store import Store

TICK_S = 1.0
LOOKS_A_TURN = 128

_logger = logging.getLogger("tidelog.log")


class Upkeep:
    """The schedules of one store."""

    def __init__(self, env: Environment, store: Store, config: BrokerConfig) -> None:
        self._env = env
        self._store = store
        self._config = config
        self._dirty: dict[Log, int] = {}  # since when
        self._queue: dict[Log, None] = {}
        self._retained: dict[Log, None] = {}
        self._flushing = False
        self._saving: frozenset[str] = frozenset()  # folders that a flush is writing to, whoever's they are by now
        self._removals = Removals(env, store.report)
        self._tick_timer: Timer | None = None
        self._timers: dict[str, Timer] = {}
        self._stopped = False
        self.scrub = Scrub(env, store)
        self.cleaner = Cleaner(env, store, config)
        self.deletion = Deletion(store)

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
        self._removals.stop()
        for timer in (*self._timers.values(), self._tick_timer):
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
        self._dirty[log] = self._now_ms()
        if self._tick_timer is None and not self._stopped:
            self._tick_timer = self._env.loop.call_later(TICK_S, self._tick)

    def forget(self, log: Log) -> None:
        self._dirty.pop(log, None)
        self._queue.pop(log, None)

    def let_go(self, log: Log) -> None:
        """The log is no more."""
        self.forget(log)
        self.cleaner.forget(log)
        self.deletion.forget(log)

    def _tick(self) -> None:
        now_ms = self._now_ms()
        interval_ms = self._config.log_flush_offset_checkpoint_interval_ms
        batches = sum(log.ends.batches for log in self._dirty)
        enough = batches // (2 * len(self._dirty)) if batches > BATCHES_MAX else batches
        for log, since_ms in self._dirty.items():
            waited_ms = now_ms - since_ms
            # What the cluster is made of is little, and the last that may be cut for a bad batch above this point.
            patience_ms = interval_ms if log.topic != METADATA_TOPIC else 0
            if log.ends.batches > enough or waited_ms >= patience_ms:
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
        jobs: list[FlushJob] = []
        while self._queue and not jobs:  # some may all be offline
            logs = list(islice(self._queue, FLUSH_TOGETHER))
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

    def prepare(self, logs: list[Log], *, closing: bool = False, lean: bool = False) -> list[FlushJob]:
        jobs: list[FlushJob] = []
        for log in logs:
            self.forget(log)
            if log.offline is None and log.segments:
                try:
                    job = flush.prepare(log, closing=closing, lean=lean and flush.may_be_lean(log))
                    if job.new_folder:  # whose it is has to be durable before anything in it
                        job.files.append(f"{job.folder}/{PARTITION_METADATA}")
                    jobs.append(job)
                except (OSError, BadBatch, KafkaError) as error:
                    self._not_prepared(log, error)
        return jobs

    def _not_prepared(self, log: Log, error: OSError | BadBatch | KafkaError) -> None:
        cause = error.__cause__ if isinstance(error, KafkaError) else error
        if isinstance(cause, OSError) and cause.errno in TOO_MANY_FILES:
            self._store.report(f"{log.place}: its recovery point stays at {log.recovery_point}: {error}")
            self.wrote(log)
        else:
            log.go_offline(f"preparing a flush of {log.folder} failed: {error}")

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
        whole(self.take_notes(saving, error))

    def take_notes(self, saving: Saving, error: BaseException | None) -> Steps[None]:
        """`error`: of all jobs together. A log that went offline meanwhile stays where it was known to be durable."""
        for root, failure in saving.failed_roots.items():
            self._store.commit.root_failed(root, failure)
        for place, job in enumerate(saving.jobs):
            self._take_note(saving, place, job, error)
            if place % ITEMS_A_STEP == ITEMS_A_STEP - 1:
                yield

    def _take_note(self, saving: Saving, place: int, job: FlushJob, error: BaseException | None) -> None:
        log = job.log
        log.unsynced.end_flush()
        if log.deleted or log.offline is not None:
            return
        failed = error or saving.failed.get(place)
        if isinstance(failed, Postponed):
            log.flush_postponed(failed)
            flush.postpone(job)
            self.wrote(log)
            self.deletion.flush_ended(log)
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
            if offset not in job.log.snapshots:
                with suppress(FileNotFoundError):
                    self._env.disk.remove(job.snapshot(offset))

    @property
    def dirty(self) -> list[Log]:
        return list(dict.fromkeys((*self._dirty, *self._queue)))

    # -- retention, expiry

    def _retain(self) -> None:
        """A log that is being compacted has its turn when that is done."""
        self._store.space.look()
        logs = (log for log in self._store.logs() if not self.cleaner.busy(log))
        self._in_turns(logs, lambda log: log.apply_retention(self._env.clock.now_ms()))

    def retain_soon(self, log: Log) -> None:
        """Records were deleted: their segments go now, not when retention looks next, which may be minutes from now."""
        if not self._retained:
            self._env.loop.call_soon(self._retain_those)
        self._retained[log] = None

    def _retain_those(self) -> None:
        logs, self._retained = self._retained, {}
        here = (log for log in logs if not log.deleted and not self.cleaner.busy(log))
        self._in_turns(here, lambda log: log.apply_retention(self._env.clock.now_ms()))

    def _expire(self) -> None:
        self._in_turns(iter(self._store.logs()), lambda log: log.expire_producers(self._env.clock.now_ms()))

    def _in_turns(self, logs: Iterator[Log], work: Callable[[Log], None]) -> None:
        """A bounded number a turn of the loop. Whatever one of them comes to, the others have their turn."""
        for _ in range(LOOKS_A_TURN):
            log = next(logs, None)
            if log is None or self._stopped:
                return
            try:
                work(log)
            except KafkaError:
                pass  # it went offline, or what it takes to decide can't be read: both were told
            except Exception:
                _logger.exception("the upkeep of %s failed; it is tried again at the next pass", log.place)
        self._env.loop.call_soon(self._in_turns, logs, work)

    def remove(self, path: str, delay_ms: int, *, folder: bool = False) -> None:
        """Remove the file or folder after a while, off the loop."""
        self._removals.add(path, delay_ms, folder=folder)
