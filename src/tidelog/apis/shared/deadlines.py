"""Requests that give up when their time is over, cheaply: most are answered long before.

A timer for each request would cost more than the request; here those with the same timeout stand in a queue by their
deadline, and one timer looks at the heads of the queues. A deadline is met to within `LOOK_S`.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.env import Environment

log = logging.getLogger("tidelog.deadlines")

LOOK_S = 0.1
QUEUES_MAX = 64  # a client may make up any timeout: beyond so many different ones they are rounded up


class Expiring(Protocol):
    done: bool

    def expire(self) -> None: ...


class Deadlines:
    __slots__ = ("_clock", "_looking", "_loop", "_queues")

    def __init__(self, env: Environment) -> None:
        self._clock = env.clock
        self._loop = env.loop
        self._queues: dict[int, deque[tuple[float, Expiring]]] = {}
        self._looking = False

    def add(self, timeout_ms: int, request: Expiring) -> None:
        """Call `request.expire()` after `timeout_ms`, unless it is done by then."""
        timeout_ms = max(timeout_ms, 0)
        queue = self._queues.get(timeout_ms)
        if queue is None:
            if len(self._queues) >= QUEUES_MAX:
                timeout_ms = 1 << timeout_ms.bit_length()
            queue = self._queues.setdefault(timeout_ms, deque())
        queue.append((self._clock.monotonic() + timeout_ms / 1000, request))
        if not self._looking:
            self._looking = True
            self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        now = self._clock.monotonic()
        for timeout_ms, queue in list(self._queues.items()):
            while queue and (queue[0][1].done or queue[0][0] <= now):
                request = queue.popleft()[1]
                if not request.done:
                    _expire(request)
            if not queue:
                del self._queues[timeout_ms]
        self._looking = bool(self._queues)
        if self._looking:
            self._loop.call_later(LOOK_S, self._look)


def _expire(request: Expiring) -> None:
    try:
        request.expire()
    except Exception:  # the others' time is over all the same
        log.exception("a request that timed out can't be answered")
