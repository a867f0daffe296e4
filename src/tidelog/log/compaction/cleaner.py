"""The schedule of compaction: the log that is dirtiest is cleaned next, aside (running.py); retention waits meanwhile.

A cleaning that fails is tried again after a while; one that fails for the log's own bytes isn't, until the next start.
The checkpoint moves when all of a cleaning's segments are in place and durable.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.env.child_processes import BesideTheLoop
from tidelog.log.compaction import choice
from tidelog.log.names import METADATA_TOPIC
from tidelog.log.scan import BadBatch
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.env.loop import Timer
    from tidelog.log.compaction.choice import Due
    from tidelog.log.compaction.running import Run
    from tidelog.log.compaction.task import Done, Failed
    from tidelog.log.log import Log
    from tidelog.log.store import Store

LOOKS_A_TURN = 128
AGAIN_S_MAX = 3600.0
"""A log whose cleaning fails again and again is tried once an hour."""

_logger = logging.getLogger("tidelog.log.compaction")


class Cleaner:
    """Compaction of all logs of a store."""

    def __init__(self, env: Environment, store: Store, config: BrokerConfig) -> None:
        self._env = env
        self._store = store
        self._config = config
        self._child_processes = env.child_processes or BesideTheLoop(env.loop, env.disk)
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
            run.give_up()

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
            self._runs[log].give_up()

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
        ended = True
        try:
            for log in islice(logs, LOOKS_A_TURN):
                ended = False
                found = self._look_at(log)
                if found is not None and (best is None or found.ratio > best.ratio):
                    best = found
        except BaseException:
            self._looking = False
            raise
        if not ended and not self._stopped:
            self._env.loop.call_soon(self._look_on, logs, best)
            return
        self._looking = False
        if best is not None and not self._stopped:
            self._begin(best.log)

    def _look_at(self, log: Log) -> Due | None:
        if not log.config.compacts or len(log.segments) < 2 or log.topic == METADATA_TOPIC or log.deleted:
            return None
        if log in self._runs or log in self.uncleanable or self._store.upkeep.deletion.busy(log):
            return None
        if log in self._again and self._again[log][0] > self._env.clock.monotonic():
            return None
        with suppress(KafkaError):  # it went offline, and its listener knows
            try:
                return choice.look(
                    log,
                    self._store.clean_end(log),
                    self._store.saved_recovery_point(log),
                    self._env.clock.now_ms(),
                )
            except (OSError, BadBatch) as error:
                log.read_failed(error)
        return None

    # -- one cleaning

    def _begin(self, log: Log) -> None:
        from tidelog.log.compaction.running import Run  # most brokers start, and many live, without it

        due = self._look_at(log)
        if due is None:
            return
        run = self._runs[log] = Run(self._env, self._store, due, self._over)
        run.start(self._child_processes, self._config)
        if len(self._runs) < self._config.log_cleaner_threads:
            self._env.loop.call_soon(self.look)

    def _over(self, run: Run, outcome: Done | Failed | None) -> None:
        """Take note of how far it came, or of why it didn't."""
        from tidelog.log.compaction.task import Done

        log = run.log
        del self._runs[log]
        if isinstance(outcome, Done):
            self._again.pop(log, None)
            self._store.cleaned_to(log, outcome.clean_end)
            self._tell(run, outcome)
        elif outcome is not None:
            self._failed(log, outcome)
        if self._stopped:
            return
        with suppress(KafkaError):  # retention passed the log over; if it goes offline now, its listener knows
            log.apply_retention(self._env.clock.now_ms())
        self._env.loop.call_soon(self.look)

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
