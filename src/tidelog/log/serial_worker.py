"""Work off the loop that clients ask for: one piece at a time, so that syncs always find a thread beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.env.promise import Promise

if TYPE_CHECKING:
    from tidelog.env import Loop

T = TypeVar("T")


class SerialWorker:
    """What waits here is bounded by who waits for it: a request brings one piece after the other."""

    __slots__ = ("_busy", "_loop", "_waiting")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[[], Any], Promise[Any]]] = deque()
        self._busy = False

    def run(self, work: Callable[[], T]) -> Promise[T]:
        promise: Promise[T] = Promise()
        self._waiting.append((work, promise))
        if not self._busy:
            self._next()
        return promise

    def _next(self) -> None:
        self._busy = True
        work, promise = self._waiting.popleft()
        self._loop.run_blocking(work).on_done(lambda done: self._done(done, promise))

    def _done(self, done: Promise[Any], promise: Promise[Any]) -> None:
        self._busy = False
        if self._waiting:
            self._next()
        if done.error is not None:
            promise.fail(done.error)
        else:
            promise.resolve(done.result())
