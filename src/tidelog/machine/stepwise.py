"""Decisions that take long, in steps: the loop has turns for others between them, the machine hasn't.

A decision is made on one state, and its records are appended to the log that this state is of: so while one is under
way, whatever else is to be decided waits for it, and is decided after it in the order in which it came. What fits into
a slice of a turn is decided at once, as by the machine itself.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tidelog.env.clock import Clock
from tidelog.env.loop import Loop
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, whole
from tidelog.machine.decision import Decision
from tidelog.machine.machine import Machine, Position

_logger = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")
R_in = TypeVar("R_in", contravariant=True)
T = TypeVar("T")


class StepLog(Protocol[R_in]):
    """The log under the machine, as `machine.AppendLog`, appended to in steps."""

    @property
    def next_offset(self) -> int: ...

    def append_steps(self, records: Sequence[R_in], epoch: int, now_ms: int) -> Steps[int]:
        """As `append`. Whoever leads may change between two steps: then it raises, and none of the records counts."""
        ...


FoldSteps = Callable[[S, Sequence[R], Position], Steps[S]]
DecideSteps = Callable[[S, int], Steps[Decision[R, T]]]


class _Job(NamedTuple):
    decide: DecideSteps[Any, Any, Any]
    promise: Promise[Any]


class Stepwise(Generic[S, R]):
    """Takes decisions for `machine`, long ones and short ones."""

    __slots__ = ("_clock", "_fold", "_jobs", "_log", "_loop", "_machine", "_working")

    def __init__(
        self, machine: Machine[S, R], fold: FoldSteps[S, R], log: StepLog[R], clock: Clock, loop: Loop
    ) -> None:
        self._machine = machine
        self._fold = fold
        self._log = log
        self._clock = clock
        self._loop = loop
        self._jobs: deque[_Job] = deque()
        """Those that are to be decided; the first is under way."""
        self._working = False

    def submit(self, decide: Callable[[S, int], Decision[R, T]]) -> Promise[T]:
        """As `Machine.submit`, behind what is under way."""
        if not self._jobs:
            return self._machine.submit(decide)

        def at_once(state: S, now_ms: int) -> Steps[Decision[R, T]]:
            return decide(state, now_ms)
            yield

        return self.submit_steps(at_once)

    def submit_steps(self, decide: DecideSteps[S, R, T]) -> Promise[T]:
        """As `submit`, for a decision that takes long. What it sees stays the newest state until it is appended."""
        refused = self._machine.refuses(len(self._jobs))
        if refused is not None:
            return Promise[T].failed(refused)
        promise: Promise[T] = Promise()
        self._jobs.append(_Job(decide, promise))
        if not self._working:
            self._work()
        return promise

    def unload(self) -> None:
        """The machine's leadership is over: whoever waits for a decision is told so."""
        jobs, self._jobs = self._jobs, deque()
        for job in jobs:
            job.promise.fail(self._machine.lost())

    # -- one after the other

    def _work(self) -> None:
        self._working = True
        while self._jobs:
            worked = self._loop.drive(self._steps(self._jobs[0], self._machine.epoch))
            if not worked.done:
                worked.on_done(self._worked)
                return
            self._tell(worked)
        self._working = False

    def _worked(self, worked: Promise[None]) -> None:
        self._tell(worked)
        self._work()

    def _tell(self, worked: Promise[None]) -> None:
        if worked.error is not None:
            _logger.error("an answer of the machine could not be taken", exc_info=worked.error)

    def _steps(self, job: _Job, epoch: int | None) -> Steps[None]:
        """Decide, and have the answer come when it is committed. Nobody else decides until this has ended.

        What it raises, if anything, is of those who were answered.
        """
        now_ms = self._clock.now_ms()
        try:
            records, answer = yield from job.decide(self._machine.newest, now_ms)
            if records and self._is_on(job):
                assert epoch is not None
                yield from self._append(records, epoch, now_ms)
        except Exception as error:
            if self._is_on(job):
                self._jobs.popleft()
                job.promise.fail(error)
            return
        if self._is_on(job):
            self._jobs.popleft()
            self._machine.answer_later(job.promise, answer)

    def _is_on(self, job: _Job) -> bool:
        """Whether the decision is still awaited: leadership didn't end meanwhile."""
        return bool(self._jobs) and self._jobs[0] is job

    def _append(self, records: Sequence[R], epoch: int, now_ms: int) -> Steps[None]:
        # Folding first: records that can't follow what came before must not reach the log.
        machine = self._machine
        last = self._log.next_offset + len(records) - 1
        state = yield from self._fold(machine.newest, records, Position(last, epoch, now_ms))
        written = yield from self._log.append_steps(records, epoch, now_ms)
        # No step from here on: what is written may be committed in the next turn.
        if written != last:  # the log added records of its own, such as those of a transaction
            state = whole(self._fold(state, (), Position(written, epoch, now_ms)))
        machine.appended(written, state, records)
