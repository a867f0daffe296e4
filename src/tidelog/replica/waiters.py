"""Who waits for a partition: fetches for data, producers for their acknowledgement.

A waiter is told of data, and of every reason why data won't come: a new epoch, a deleted topic, a log gone offline. It
then looks again by itself, so waking it once too often does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.replica.partition import Partition


class FetchWaiter(Protocol):
    """A parked fetch. `wake` may be called by any of its partitions, and more than once."""

    def wake(self, partition: Partition) -> None: ...

    def expire(self) -> None:
        """Answer with what there is now."""
        ...


class FollowerReader(Protocol):
    """The place of a partition in the session of a follower that reads it."""

    def grew(self) -> None:
        """There is more to read."""
        ...

    def moved(self) -> None:
        """The high watermark, or the log's start, is another."""
        ...

    def turned(self) -> None:
        """It may not be served any more, or is again: another leader epoch, other replicas, a log that went offline, a
        deletion."""
        ...


class Waiting(Protocol):
    """Who may have been told something else by the time that it is called."""

    done: bool


LOOK_MIN = 256
"""A queue that is shorter isn't looked through for those who gave up."""


class AckQueue:
    """Producers that wait until the high watermark has passed their batches, in the order of their offsets."""

    __slots__ = ("_look_at", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callable[[ErrorCode], None], Waiting | None]] = deque()
        self._look_at = LOOK_MIN

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, next_offset: int, complete: Callable[[ErrorCode], None], waiter: Waiting | None = None) -> None:
        """`complete` is called once: with NONE when everything below `next_offset` is committed, else with the error.

        A producer that resends waits for offsets below those of others: it takes its place among them, since whoever
        comes first in the queue is answered first. A `waiter` that is done is forgotten sooner or later: while the high
        watermark stands still others come, again and again.
        """
        waiting = self._waiting
        if len(waiting) >= self._look_at:
            self._forget_done()
        if not waiting or waiting[-1][0] <= next_offset:
            waiting.append((next_offset, complete, waiter))
            return
        place = len(waiting)
        while place and waiting[place - 1][0] > next_offset:
            place -= 1
        waiting.insert(place, (next_offset, complete, waiter))

    def _forget_done(self) -> None:
        waiting = self._waiting
        kept = [one for one in waiting if one[2] is None or not one[2].done]
        waiting.clear()
        waiting.extend(kept)
        self._look_at = max(LOOK_MIN, 2 * len(kept))

    def rise(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](ErrorCode.NONE)

    def fail(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, complete, _ in waiting:
            complete(code)
