"""A fetch that waits: what wakes it, what it looks at then, and when it is answered.

It is a waiter of each of its partitions. A fetch of few partitions looks at all of them each time that it is woken. One
of many looks at the partition that woke it only, and answers, in steps, once that makes up what the client waits for:
whoever names ten thousand partitions pays for them once a request, not with each record that anybody writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.env.slices import Steps, whole

if TYPE_CHECKING:
    from tidelog.env import Loop
    from tidelog.env.promise import Promise
    from tidelog.replica.partition import Partition

log = logging.getLogger("tidelog.fetch")

FEW = 128
"""Partitions that are looked at in one go: some tenths of a millisecond."""


class Look(Protocol):
    """What a fetch asks for, and how it is answered."""

    count: int
    """How many partitions it names, at most."""
    min_bytes: int
    available_bytes: dict[Partition, int]
    """Where the last look found something: how many bytes."""

    def prepare(self) -> Steps[None]:
        """Before all else: read what the request names."""
        ...

    def steps(self, *, at_once: bool) -> Steps[Any]:
        """Look at all of them: the answer, or None where it is worth waiting."""
        ...

    def partitions(self) -> Iterable[Partition | None]:
        """Those that can be waited for; None in place of one that can't, or others would wait for long."""
        ...

    def bytes_at(self, partition: Partition) -> int | None:
        """How much there is at one of them; None where the fetch has to be answered whatever there is."""
        ...

    def failure(self) -> Any:
        """The answer after a bug of ours."""
        ...

    def forget(self) -> Steps[None]:
        """After all else, where it names many: let go of what the request named, a little at a time."""
        ...


class Late(Protocol):
    """An answer that comes later, as `server/answers.py` has it."""

    def begin(self, slot: Any) -> None: ...

    def abandon(self) -> None: ...


class State(Enum):
    LOOKING = auto()
    """Its first look is under way; who wakes it meanwhile is looked at afterwards."""
    WAITING = auto()
    ANSWERING = auto()
    """There is enough: the answer is being made."""
    DONE = auto()
    """It was answered, or nobody waits for it any more."""


class Parked:
    """`looked`: all of it was looked at already, and there was too little. An answer may itself be late."""

    __slots__ = ("_look", "_loop", "_slot", "_state", "_successor", "_timer", "_wait_s", "_woken", "runs_ahead")

    def __init__(self, loop: Loop, look: Look, wait_s: float, *, looked: bool) -> None:
        self._loop = loop
        self._look = look
        self._wait_s = wait_s
        self._state = State.WAITING if looked else State.LOOKING
        self._woken: set[Partition] = set()
        self._slot: Any = None
        self._timer: Any = None
        self._successor: Late | None = None
        self.runs_ahead = False

    @property
    def done(self) -> bool:
        return self._state is State.DONE

    def begin(self, slot: Any) -> None:
        self._slot = slot
        self._timer = self._loop.call_later(self._wait_s, self.expire)
        if self._state is State.WAITING:
            for partition in self._look.partitions():
                if partition is not None:
                    partition.park(self)
        else:
            self._loop.spread(self._first_look()).on_done(self._looked)

    def _first_look(self) -> Steps[Any]:
        yield from self._look.prepare()
        for number, partition in enumerate(self._look.partitions()):
            if self._state is State.DONE:
                return None
            if partition is not None:
                partition.park(self)
            if not number % FEW:
                yield
        return (yield from self._look.steps(at_once=self._wait_s <= 0))

    def _looked(self, looked: Promise[Any]) -> None:
        if self._state is State.DONE:
            self._unpark()  # where it was parked after it was abandoned
            self._forget()
            return
        if looked.error is not None:
            self._answered(looked)
        elif (answer := looked.result()) is not None:
            self._complete(answer)
        elif self._state is State.ANSWERING:  # its time was over meanwhile
            self._answer()
        else:
            self._state = State.WAITING
            woken, self._woken = self._woken, set()
            for partition in woken:
                self.wake(partition)

    def wake(self, partition: Partition) -> None:
        if self._state is State.LOOKING:
            self._woken.add(partition)
        elif self._state is State.WAITING:
            if self._look.count <= FEW:
                self._look_again(at_once=False)
            elif self._has_enough(partition):
                self._answer()

    def expire(self) -> None:
        if self._state is State.LOOKING:
            self._state = State.ANSWERING  # when that look has ended
        elif self._state is State.WAITING:
            self._answer()

    def abandon(self) -> None:
        """The connection has gone: wait for nothing any more."""
        if self._successor is not None:
            self._successor.abandon()
        if self._state is not State.DONE:
            waited = self._state is State.WAITING
            self._leave()
            if waited:  # else what is under way ends first
                self._forget()

    def _has_enough(self, partition: Partition) -> bool:
        look = self._look
        count = look.bytes_at(partition)
        if count is None:
            return True
        look.available_bytes[partition] = count
        return sum(look.available_bytes.values()) >= look.min_bytes

    def _look_again(self, *, at_once: bool) -> None:
        try:
            answer = whole(self._look.steps(at_once=at_once))
        except Exception:  # a bug of ours: those parked beside this one are woken all the same
            log.exception("a parked fetch can't be answered")
            answer = self._look.failure()
        if answer is not None:
            self._complete(answer)

    def _answer(self) -> None:
        if self._look.count <= FEW:
            self._look_again(at_once=True)
            return
        self._state = State.ANSWERING
        self._loop.spread(self._look.steps(at_once=True)).on_done(self._answered)

    def _answered(self, answered: Promise[Any]) -> None:
        if self._state is State.DONE:
            self._forget()
            return
        if answered.error is not None:
            log.error("a parked fetch can't be answered", exc_info=answered.error)
            self._complete(self._look.failure())
        else:
            self._complete(answered.result())

    def _complete(self, answer: Any) -> None:
        slot = self._slot
        self._leave()
        self._forget()
        if answer is None or isinstance(answer, (bytes, list)):
            slot.complete(answer)
        else:  # the general way, which has many to look at, too, or reads the request in steps
            self._successor = answer
            answer.begin(slot)

    def _leave(self) -> None:
        """Let go of whoever holds it: thousands a second must not wait for the garbage collector."""
        self._state = State.DONE
        self._timer.cancel()
        self._timer = self._slot = None
        self._unpark()

    def _unpark(self) -> None:
        look = self._look
        if look.count <= FEW:
            for partition in look.partitions():
                if partition is not None:
                    partition.unpark(self)
        else:
            self._loop.spread(self._unparking())

    def _forget(self) -> None:
        if self._look.count > FEW:
            self._loop.spread(self._look.forget())

    def _unparking(self) -> Steps[None]:
        for number, partition in enumerate(self._look.partitions()):
            if partition is not None:
                partition.unpark(self)
            if not number % FEW:
                yield
