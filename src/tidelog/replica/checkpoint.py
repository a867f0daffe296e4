"""The high watermarks of all partitions are written down every `replica.high.watermark.checkpoint.interval.ms`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.env.slices import CHEAP_A_STEP

if TYPE_CHECKING:
    from tidelog.env import Loop
    from tidelog.env.loop import Timer
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps
    from tidelog.log.high_watermarks import HighWatermarks
    from tidelog.replica.replicas import Replicas

STEP = CHEAP_A_STEP // 4


class HighWatermarkCheckpoint:
    """An idle broker writes nothing: only what changed is."""

    def __init__(self, loop: Loop, replicas: Replicas, high_watermarks: HighWatermarks, interval_ms: int) -> None:
        self._loop = loop
        self._replicas = replicas
        self._high_watermarks = high_watermarks
        self._interval_s = max(interval_ms, 1) / 1000
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._look)

    def stop(self) -> None:
        """The clean stop writes them itself."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _look(self) -> None:
        self._loop.spread(self._note()).on_done(self._noted)

    def _note(self) -> Steps[None]:
        for number, partition in enumerate(list(self._replicas), 1):
            if not partition.deleted:
                self._high_watermarks.note(partition.log)
            if not number % STEP:
                yield

    def _noted(self, done: Promise[None]) -> None:
        done.result()
        if self._timer is not None:
            self._high_watermarks.save()
            self.start()
