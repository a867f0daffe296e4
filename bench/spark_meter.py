"""CPU of a process and everything below it, those that have ended included.

PySpark's daemon lets its Python workers go without waiting for them: Linux then adds their time to nobody's, and a
count before and after would miss what they did, or come out below zero. So each process is looked at while it lives.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.process import descendants

LOOK_S = 0.2


class Meter:
    """Of one process; `total_s` grows with each look."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waited_s = waited_s()
        self._own_s: dict[int, float] = {}

    @property
    def total_s(self) -> float:
        return sum(self._own_s.values())

    def look(self) -> float:
        self._waited_s = waited_s()
        for each in (self._pid, *descendants(self._pid)):
            try:
                own_s = time.clock_gettime(~each << 3 | 2)  # the id that clock_getcpuclockid(3) gives
            except OSError:
                continue  # it ended meanwhile
            self._own_s[each] = max(own_s, self._own_s.get(each, 0.0))
        return self.total_s

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look again and again meanwhile."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(LOOK_S):
                self.look()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def lost_s(self) -> float:
        """What it spent and this process, which has waited for it since the last look, was not told of."""
        return max(0.0, self.total_s - (waited_s() - self._waited_s))


def waited_s() -> float:
    """CPU of children that ended and were waited for, and of theirs."""
    used = os.times()
    return used.children_user + used.children_system
