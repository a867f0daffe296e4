"""Work that would hold the loop for long, in slices: a little of it in each turn, so that all others have theirs.

A turn of the loop is fair only if time is its bound: what a request costs varies a thousandfold. Long work is a
generator that yields wherever it may be interrupted, at least every tenth of a millisecond or so. All that is spread
shares one slice a turn, one piece of work after the other. Before that come, each kind with a bound of its own a turn:
what is known to be light, what waited for something that is there now, and what is only to begin and may be short.

What must wait for something yields the promise of it (`settled`), and goes on when that is there.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from enum import Enum
from heapq import merge
from itertools import islice
from time import monotonic
from typing import Any, TypeAlias, TypeVar, cast

from tidelog.env.bounds import DRIVEN_S_A_TURN, SLICE_S, WOKEN_S, WOKEN_S_A_TURN
from tidelog.env.promise import Promise

T = TypeVar("T")
U = TypeVar("U")
C = TypeVar("C", bound="str | int | tuple[Any, ...]")

Steps: TypeAlias = Generator[Promise[Any] | None, None, T]
"""What is done in steps: it yields where others may have their turn, and returns what came of it."""


ITEMS_A_STEP = 16
"""Of what takes some microseconds each."""
CHEAP_A_STEP = 1024
"""Of what takes a tenth of one."""


class Weight(Enum):
    """What is known of work before it is begun, and so when it has its turn."""

    LIGHT = "what it belongs to has taken little so far"
    NEW = "nothing is known of it: it may be short"
    HEAVY = "what it belongs to has taken much"


LIGHT, NEW, HEAVY = Weight  # names of the module are found faster than members of an Enum

_Work: TypeAlias = deque[tuple[Steps[Any], Promise[Any]]]


class Slices:
    """The work that waits for its next slice. `call` runs a callback such that what it raises is logged."""

    __slots__ = ("_call", "_driven_s", "_light", "_new", "_queue", "_woken")

    def __init__(self, call: Callable[[Callable[..., None], tuple[Any, ...]], None]) -> None:
        self._call = call
        self._driven_s = 0.0
        self._light: _Work = deque()
        self._woken: _Work = deque()
        self._new: _Work = deque()
        self._queue: _Work = deque()

    def __len__(self) -> int:
        return len(self._light) + len(self._woken) + len(self._new) + len(self._queue)

    def add(self, steps: Steps[T], weight: Weight = HEAVY) -> Promise[T]:
        promise: Promise[T] = Promise()
        work = self._light if weight is LIGHT else self._new if weight is NEW else self._queue
        work.append((steps, promise))
        return promise

    def drive(self, steps: Steps[T], weight: Weight = LIGHT) -> Promise[T]:
        """Advance at once, if this turn has the time, and no other newcomer waits for its own; else as `add`."""
        if self._driven_s > DRIVEN_S_A_TURN or (weight is NEW and self._new):
            return self.add(steps, weight)
        promise: Promise[T] = Promise()
        began = monotonic()
        self._advance(steps, promise, began + SLICE_S)
        self._driven_s += monotonic() - began
        return promise

    def begin(self, steps: Steps[T]) -> tuple[bool, T | None]:
        """Advance at once, if this turn has the time, for as long as a slice, or until it waits for something. Whether
        that was the end of it, and what came of it then."""
        if self._driven_s > DRIVEN_S_A_TURN:
            return False, None
        began = now = monotonic()
        try:
            while now < began + SLICE_S:
                waits = next(steps)
                now = monotonic()
                if waits is not None and not waits.done:
                    break
            return False, None
        except StopIteration as end:
            now = monotonic()
            return True, end.value
        finally:
            self._driven_s += now - began

    def new_turn(self) -> None:
        """Beginnings have their time again."""
        self._driven_s = 0.0

    def run(self) -> None:
        """A little of each kind, then one slice: of the first in the queue, and of others behind it where that one
        ends before the slice does."""
        now = monotonic()
        if self._light or self._woken:
            until = now + WOKEN_S_A_TURN
            now = self._some_of(self._light, WOKEN_S, until, now)
            now = self._some_of(self._woken, WOKEN_S, until, now)
        if self._new:
            now = self._some_of(self._new, WOKEN_S, now + DRIVEN_S_A_TURN, now)
        queue, deadline = self._queue, now + SLICE_S
        while queue and now < deadline:
            self._advance(*queue.popleft(), deadline)
            now = monotonic()

    def _some_of(self, work: _Work, each_s: float, until: float, now: float) -> float:
        """Advance those that are there by now, each once, until the time is over; at least the first. The time then."""
        for _ in range(len(work)):
            self._advance(*work.popleft(), now + each_s)
            now = monotonic()
            if now >= until:
                break
        return now

    def _advance(self, steps: Steps[Any], promise: Promise[Any], deadline: float) -> None:
        """Until it ends, or waits, or the deadline has passed: then it is in the queue again."""
        try:
            while True:
                waits = next(steps)
                if waits is not None and not waits.done:
                    waits.on_done(lambda _: self._woken.append((steps, promise)))
                    return
                if monotonic() >= deadline:
                    self._queue.append((steps, promise))
                    return
        except StopIteration as end:
            self._call(promise.resolve, (end.value,))
        except Exception as error:
            self._call(promise.fail, (error,))


def settled(promise: Promise[T]) -> Steps[T]:
    """Wait for it in the middle of steps; its value, or the error that it failed with."""
    while not promise.done:
        yield promise
    return promise.result()


def outcome(given: Any) -> Steps[Any]:
    """What comes of what a handler gave back: steps to a response, the promise of one, or the response itself."""
    if isinstance(given, Generator):
        given = yield from cast("Steps[Any]", given)
    if isinstance(given, Promise):
        given = yield from settled(cast("Promise[Any]", given))
    return given


def mapped(make: Callable[[T], U], items: Sequence[T], at_once: int = ITEMS_A_STEP) -> Steps[list[U]]:
    """What `make` makes of each item, `at_once` of them in a step; at least one step."""
    made: list[U] = []
    for start in range(0, len(items), at_once):
        made += map(make, items[start : start + at_once])
        yield
    if not items:
        yield
    return made


def distinct(items: Sequence[T]) -> Steps[list[T]]:
    """Each once, in the order in which they come first."""
    first: dict[T, None] = {}
    for start in range(0, len(items), CHEAP_A_STEP):
        first.update(dict.fromkeys(items[start : start + CHEAP_A_STEP]))
        yield
    return list(first)


def ordered(items: Sequence[C]) -> Steps[list[C]]:
    """As `sorted`: short runs are, and merged then."""
    runs: list[list[C]] = []
    for start in range(0, len(items), CHEAP_A_STEP):
        runs.append(sorted(items[start : start + CHEAP_A_STEP]))
        yield
    if len(runs) <= 1:
        return runs[0] if runs else []
    result: list[C] = []
    merged = merge(*runs)
    while some := list(islice(merged, CHEAP_A_STEP // 8)):
        result += some
        yield
    return result


def steps_of(callback: Callable[..., None], *args: Any) -> Steps[None]:
    """A callback as work of one step: it runs when a slice has room for it."""
    callback(*args)
    return
    yield


def whole(steps: Steps[T]) -> T:
    """All of it, now: for work that is short, and waits for nothing."""
    while True:
        try:
            waits = next(steps)
            assert waits is None or waits.done, "what is to be done now can't wait"
        except StopIteration as end:
            return end.value
