"""Looks into batches: how much of that a turn of the loop has time for, and what is done aside instead.

Aside they are looked into one after the other, within a bound of memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidelog.env.child_processes import ChildProcessesError
from tidelog.env.promise import Promise
from tidelog.log.bounds import LOOKS_S_A_TURN, WAITING_BYTES_MAX
from tidelog.log.record_check import ON_THE_LOOP, Budget
from tidelog.log.validate import Admitted, Unlooked
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.env import ChildProcesses, Clock, Loop

RECORD_CHECK = "tidelog.log.record_check"

NONE_AT_ONCE = Budget(0, 0, 0, 0, 0)

T = TypeVar("T")

log = logging.getLogger("tidelog.log")


class Looks:
    """`budget` is what one look may take on the loop."""

    __slots__ = ("_child_processes", "_loop", "_monotonic", "_spent_s", "_turn", "budget", "waiting_bytes")

    def __init__(self, child_processes: ChildProcesses, loop: Loop, clock: Clock, budget: Budget = ON_THE_LOOP) -> None:
        self._child_processes = child_processes
        self._loop = loop
        self._monotonic = clock.monotonic
        self._turn = -1
        self._spent_s = 0.0
        self.budget = budget
        self.waiting_bytes = 0

    def at_once(self, look: Callable[[Budget], T]) -> T:
        """Do what takes a look, with what this turn of the loop has left for it: a client may send a thousand small
        batches at once, or one for each of a thousand partitions."""
        if self._turn != self._loop.turns:
            self._turn, self._spent_s = self._loop.turns, 0.0
        began = self._monotonic()
        try:
            return look(self.budget if self._spent_s < LOOKS_S_A_TURN else NONE_AT_ONCE)
        finally:
            self._spent_s += self._monotonic() - began

    def look(self, unlooked: Unlooked) -> Promise[Admitted]:
        """What is to be appended; fails with KafkaError."""
        size = len(unlooked.question)
        if self.waiting_bytes and self.waiting_bytes + size > WAITING_BYTES_MAX:
            return Promise[Admitted].failed(
                KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many batches wait to be looked into: try again")
            )
        self.waiting_bytes += size

        def looked(done: Promise[bytearray]) -> Admitted:
            self.waiting_bytes -= size
            if isinstance(done.error, ChildProcessesError):
                log.warning("a record batch of %d bytes could not be looked into: %s", size, done.error)
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the batch could not be looked into: try again")
            return unlooked.settle(done.result())

        return self._child_processes.ask(RECORD_CHECK, unlooked.question).then(looked)
