"""Watching the turns of the loop: one that takes long holds up every client, so it is counted and said what held it.

CPU time of the thread is what counts: on a busy machine a turn may last long without doing much. Reading that clock is
a system call, so it is read every few milliseconds, not every turn: what is told of a long turn is right to within
that.
"""

import logging
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Any

from tidelog.env.bounds import CPU_READ_S, HELD_S, LONG_TURN_S

log = logging.getLogger("tidelog.loop")

SAY_EVERY_S = 10.0


class TurnWatch:
    """Counts long turns since the loop began, or since `reset`. `work` is set to words that tell what is being done."""

    __slots__ = ("_cpu", "_cpu_at", "_held_by", "_held_s", "_said", "_unsaid", "long", "longest_cpu_s", "work")

    def __init__(self) -> None:
        self.work: tuple[object, ...] = ()
        self._said = -SAY_EVERY_S
        self.reset()

    def reset(self) -> None:
        """Forget what was seen. For the thread of the loop."""
        self.long = 0
        self.longest_cpu_s = 0.0
        self._held_by: str = ""
        self._held_s = 0.0
        self._unsaid = 0
        self._cpu = thread_time()
        self._cpu_at = monotonic()

    def held(self, callback: Callable[..., Any], seconds: float) -> None:
        """A callback took more than HELD_S. The longest of a turn is what is told."""
        if seconds > self._held_s:
            self._held_s = seconds
            self._held_by = getattr(callback, "__qualname__", None) or repr(callback)
            if self.work:
                self._held_by += f", last request {' '.join(map(str, self.work))}"

    def turned(self, busy_s: float, now: float) -> None:
        """A turn has ended that was busy for so long, or CPU_READ_S have passed since the last call."""
        cpu = thread_time()
        if busy_s >= HELD_S:
            before = min(now - self._cpu_at - busy_s, CPU_READ_S)  # what may be from turns before this one
            cpu_s = min(cpu - self._cpu - before, busy_s)
            if cpu_s > self.longest_cpu_s:
                self.longest_cpu_s = cpu_s
            if cpu_s > LONG_TURN_S:
                self.long += 1
                self._say(cpu_s, busy_s, now)
        self._held_by, self._held_s, self.work = "", 0.0, ()
        self._cpu, self._cpu_at = cpu, now

    def due(self, now: float) -> bool:
        """Whether the CPU's clock is to be read again."""
        return now - self._cpu_at > CPU_READ_S

    def _say(self, cpu_s: float, busy_s: float, now: float) -> None:
        if now - self._said < SAY_EVERY_S:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} more since the last such line" if self._unsaid else ""
        log.warning(
            "a turn of the loop took %.0f ms of CPU (%.0f ms in all), held by %s%s",
            cpu_s * 1000,
            busy_s * 1000,
            self._held_by or "many callbacks",
            more,
        )
        self._said, self._unsaid = now, 0
