"""The broker's supply of producer ids: a block at a time from the controller, the next one asked for in good time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog.controller.producer_ids import ProducerIdBlock
from tidelog.env.promise import Promise

REFILL_BELOW = 100


class ProducerIds:
    """Ids in order; whoever asks while there is none waits for the next block."""

    def __init__(self, allocate: Callable[[], Promise[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._left = 0
        self._spare: ProducerIdBlock | None = None
        self._asking = False
        self._waiting: deque[Promise[int]] = deque()

    def next(self) -> Promise[int]:
        promise: Promise[int] = Promise()
        self._waiting.append(promise)
        self._serve()
        return promise

    def _serve(self) -> None:
        while self._waiting:
            if not self._left and self._spare is not None:
                (self._next, self._left), self._spare = self._spare, None
            if not self._left:
                break
            self._next, self._left = self._next + 1, self._left - 1
            self._waiting.popleft().resolve(self._next - 1)
        if self._left < REFILL_BELOW and self._spare is None and not self._asking:
            self._asking = True
            self._allocate().on_done(self._allocated)

    def _allocated(self, promise: Promise[ProducerIdBlock]) -> None:
        self._asking = False
        if promise.error is not None:
            waiting, self._waiting = self._waiting, deque()
            for waiter in waiting:
                waiter.fail(promise.error)
            return
        self._spare = promise.result()
        self._serve()
