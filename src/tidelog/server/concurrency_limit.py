"""How many requests that take long are worked on at once: the others wait until one of them is done.

All of them share one thread, so that none is done later on average by waiting; but each takes memory from its first
step to its answer.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tidelog.env.bounds import SLICE_S
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, settled

T = TypeVar("T")


class ConcurrencyLimit:
    """What takes no longer than a slice doesn't count. What waits for something gives its place up meanwhile."""

    __slots__ = ("_free", "_monotonic", "_waiting")

    def __init__(self, monotonic: Callable[[], float], at_once: int) -> None:
        self._monotonic = monotonic
        self._free = at_once
        self._waiting: deque[Promise[None]] = deque()

    def bounded(self, steps: Steps[T]) -> Steps[T]:
        """The same work; once it proved long, it goes on when there is a place for it."""
        monotonic = self._monotonic
        spent, is_long, entered = 0.0, False, False
        try:
            while True:
                began = monotonic()
                waits = next(steps)
                spent += monotonic() - began
                if waits is not None and not waits.done:
                    if entered:
                        entered = self._leave()
                elif spent > SLICE_S and not entered:
                    yield from self._enter(again=is_long)
                    is_long = entered = True
                yield waits
        except StopIteration as end:
            return end.value
        finally:
            if entered:
                self._leave()

    def _enter(self, *, again: bool) -> Steps[None]:
        """`again`: it was there before, and comes before those who weren't."""
        if self._free:
            self._free -= 1
            return
        place: Promise[None] = Promise()
        if again:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        yield from settled(place)

    def _leave(self) -> bool:
        if self._waiting:
            self._waiting.popleft().resolve(None)  # its place is the next one's
        else:
            self._free += 1
        return False
