"""The machine itself: the one way in which state that must survive comes to change.

A decision sees the newest state, with everything that was appended before it, and returns `(records, answer)`
(`decision.py`). The records are folded into the next state and appended; the answer leaves when they are committed.
Readers see the committed state only. States are immutable, so a version is a reference, and taking a failed append back
is forgetting one.

What holds, always (`check_invariants`):

- the newest state is the committed one with the records of the waiting decisions folded in, in their order;
- an answer leaves after the publication of its records, and answers leave in the order of their decisions;
- a decision that wrote nothing waits for what it saw: nobody hears of what may yet be taken back;
- when leadership ends every waiting decision fails with the machine's `lost` error: it may or may not have been done,
  and whoever asks again asks the next leader.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tidelog.env.clock import Clock
from tidelog.env.loop import Loop, Timer
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, whole
from tidelog.machine.decision import Decision, Submission
from tidelog.wire.errors import ErrorCode, KafkaError

_logger = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")
R_in = TypeVar("R_in", contravariant=True)
T = TypeVar("T")

WAITING_MAX = 10_000
"""Decisions that may wait for their commit; beyond it, callers are told to come again."""


class Position(NamedTuple):
    """Where in the log a state stands: everything up to and including `offset` is in it."""

    offset: int
    epoch: int
    timestamp_ms: int


class AppendLog(Protocol[R_in]):
    """The log that a machine writes to while it leads."""

    @property
    def next_offset(self) -> int: ...

    def append(self, records: Sequence[R_in], epoch: int, now_ms: int) -> int:
        """Write the records so that all or none of them count; the offset of the last. Durable and committed later.

        Raises OSError or KafkaError where it couldn't: then none of them counts.
        """
        ...


Fold = Callable[[S, Sequence[R], Position], S]
"""The state after some records; pure."""


class _Waiting(Generic[S, R]):
    """A decision that was appended and isn't committed; `answers` are those that wait for it."""

    __slots__ = ("answers", "offset", "records", "since", "state")

    def __init__(self, offset: int, state: S, records: Sequence[R], since: float) -> None:
        self.offset = offset
        self.state = state
        self.records = records
        self.since = since
        self.answers: list[tuple[Promise[Any], Any]] = []


class Machine(Generic[S, R]):
    """State on a log. `committed` is for readers, `newest` is what the next decision sees."""

    __slots__ = (
        "_clock",
        "_committing",
        "_end",
        "_fold",
        "_full",
        "_log",
        "_loop",
        "_lost",
        "_publish",
        "_timers",
        "_waiting",
        "_waiting_answers",
        "committed",
        "epoch",
        "newest",
    )

    def __init__(
        self,
        state: S,
        fold: Fold[S, R],
        log: AppendLog[R],
        publish: Callable[[S, Sequence[R]], Steps[None] | None],
        clock: Clock,
        loop: Loop,
        lost: ErrorCode,
        full: ErrorCode = ErrorCode.REQUEST_TIMED_OUT,
    ) -> None:
        self.committed = state
        self.newest = state
        self.epoch: int | None = None
        """The leader epoch in which this machine decides; None while it doesn't lead."""
        self._fold = fold
        self._log = log
        self._publish = publish
        self._clock = clock
        self._loop = loop
        self._lost = lost
        self._full = full
        self._waiting: deque[_Waiting[S, R]] = deque()
        self._waiting_answers = 0
        self._end = 0
        self._committing = False
        self._timers: set[_EpochTimer] = set()

    # ---- loading and following: what others decided ----

    def load(self, state: S) -> None:
        """Begin from a whole state, such as a snapshot."""
        assert self.epoch is None, "a leading machine holds the newest state already"
        self.committed = self.newest = state

    def follow(self, state: S, records: Sequence[R], offset: int) -> Steps[None]:
        """Committed records, up to `offset`, that this machine didn't decide in its present epoch, and the state that
        they lead to: publish it. The next ones are folded when that is done."""
        assert self.epoch is None, "a leading machine replayed its records when it appended them"
        self.committed = self.newest = state
        try:
            steps = self._publish(state, records)
            if steps is not None:
                yield from steps
        except Exception as error:
            self._not_told(offset, error)

    # ---- leading ----

    def lead(self, epoch: int) -> None:
        """All of the log is replayed: decide from now on."""
        assert self.epoch is None
        self.epoch = epoch
        self._end = 0

    def unload(self) -> None:
        """Leadership is over: forget what isn't committed, fail who waits, stop the timers.

        What is committed and wasn't published yet, since a publication before it takes its time, is published now: it
        isn't replayed to whoever decided it.
        """
        self.epoch = None
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if entry.offset < self._end and entry.state is not self.committed:
                self.committed = entry.state
                self._publish_whole(entry)
        self.newest = self.committed
        self._waiting_answers = 0
        for timer in self._timers:
            timer.stop()
        self._timers.clear()
        for entry in waiting:
            for promise, _ in entry.answers:
                promise.fail(self.lost())

    def submit(self, decide: Callable[[S, int], Decision[R, T]]) -> Promise[T]:
        """Decide on the newest state, now; the answer comes when the records are committed and published."""
        return self.hand_in(decide).promise

    def hand_in(self, decide: Callable[[S, int], Decision[R, T]]) -> Submission[T]:
        """As `submit`, for who has to know at once what was decided."""
        refused = self.refuses()
        if refused is not None:
            return Submission(Promise[T].failed(refused), None)
        now_ms = self._clock.now_ms()
        try:
            records, answer = decide(self.newest, now_ms)
            if records:
                self._append(records, now_ms)
        except Exception as error:
            return Submission(Promise[T].failed(error), None)
        if not self._waiting:
            return Submission(Promise[T].resolved(answer), answer)
        promise: Promise[T] = Promise()
        self.answer_later(promise, answer)
        return Submission(promise, answer)

    def refuses(self, more: int = 0) -> KafkaError | None:
        """Why nothing can be decided now, if so; `more`: answers that wait elsewhere."""
        if self.epoch is None:
            return KafkaError(self._lost, "this node doesn't lead")
        if self._waiting_answers + more >= WAITING_MAX:
            return KafkaError(self._full, f"{WAITING_MAX} changes wait already")
        return None

    def lost(self) -> KafkaError:
        """What whoever waits hears when leadership ends."""
        return KafkaError(self._lost, "leadership ended before the change was committed")

    def answer_later(self, promise: Promise[T], answer: T) -> None:
        """Resolve it when what was appended so far is committed."""
        if not self._waiting:
            promise.resolve(answer)
            return
        self._waiting[-1].answers.append((promise, answer))
        self._waiting_answers += 1

    def _append(self, records: Sequence[R], now_ms: int) -> None:
        assert self.epoch is not None
        # Folding first: records that can't follow what came before must not reach the log.
        last = self._log.next_offset + len(records) - 1
        state = self._fold(self.newest, records, Position(last, self.epoch, now_ms))
        written = self._log.append(records, self.epoch, now_ms)
        if written != last:  # the log added records of its own, such as those of a transaction
            state = self._fold(state, (), Position(written, self.epoch, now_ms))
        self.appended(written, state, records)

    def appended(self, offset: int, state: S, records: Sequence[R]) -> None:
        """These records, up to `offset`, are in the log, and lead from the newest state to this one."""
        self.newest = state
        self._waiting.append(_Waiting(offset, state, records, self._clock.monotonic()))

    def commit(self, end: int) -> None:
        """Everything below `end` is committed: publish it, then answer. What takes long to publish is published in
        steps, and the rest comes behind it.

        Who is answered may submit again at once, and that may be committed before this returns: it takes its turn
        behind the answers that come before it.
        """
        self._end = max(self._end, end)
        if self._committing:
            return
        self._committing = True
        publishing = False
        try:
            while self._waiting and self._waiting[0].offset < self._end:
                entry = self._waiting[0]
                self.committed = entry.state
                if not self._publish_now(entry):
                    publishing = True
                    return
                self._answer(entry)
        finally:
            self._committing = publishing

    def _publish_now(self, entry: _Waiting[S, R]) -> bool:
        """Tell of the entry; whether that is done. Where it takes long, it goes on in later turns, and so do we."""
        try:
            steps = self._publish(entry.state, entry.records)
        except Exception as error:
            self._not_told(entry.offset, error)
            return True
        if steps is None:
            return True
        published = self._loop.drive(steps)
        if not published.done:
            published.on_done(lambda promise: self._published(entry, promise))
            return False
        if published.error is not None:
            self._not_told(entry.offset, published.error)
        return True

    def _publish_whole(self, entry: _Waiting[S, R]) -> None:
        try:
            steps = self._publish(entry.state, entry.records)
            if steps is not None:
                whole(steps)
        except Exception as error:
            self._not_told(entry.offset, error)

    def _published(self, entry: _Waiting[S, R], promise: Promise[None]) -> None:
        if promise.error is not None:
            self._not_told(entry.offset, promise.error)
        self._committing = False
        try:
            self._answer(entry)
        finally:
            self.commit(self._end)

    def _not_told(self, offset: int, error: BaseException) -> None:
        """It is committed, whoever could not follow: the answer says so, and the log what happened."""
        _logger.error("the change up to offset %d is committed, but not followed", offset, exc_info=error)

    def _answer(self, entry: _Waiting[S, R]) -> None:
        """It was published: whoever waits for it is answered, unless leadership ended while that took its time."""
        if self._waiting and self._waiting[0] is entry:
            self._waiting.popleft()
            self._waiting_answers -= len(entry.answers)
            for promise, answer in entry.answers:
                promise.resolve(answer)

    @property
    def waiting_since(self) -> float | None:
        """When the oldest decision that isn't committed was appended, by the clock that never goes back."""
        return self._waiting[0].since if self._waiting else None

    def give_up(self, before: float, error: KafkaError) -> None:
        """Fail who waits for what was appended by then. It stays appended, and may be committed yet."""
        late: list[tuple[Promise[Any], Any]] = []
        for entry in self._waiting:
            if entry.since > before:
                break
            late += entry.answers
            self._waiting_answers -= len(entry.answers)
            entry.answers = []
        for promise, _ in late:
            promise.fail(error)

    def schedule(self, delay_s: float, action: Callable[[], None]) -> "_EpochTimer":
        """Run `action` later, unless leadership changed by then."""
        assert self.epoch is not None
        timer = _EpochTimer(self, self._timers, self.epoch, action)
        timer.handle = self._loop.call_later(delay_s, timer.fire)
        self._timers.add(timer)
        return timer

    def check_invariants(self) -> None:
        """What holds between any two events; for tests and simulation."""
        offsets = [entry.offset for entry in self._waiting]
        assert offsets == sorted(offsets)
        assert self._waiting_answers == sum(len(entry.answers) for entry in self._waiting)
        assert self.newest is (self._waiting[-1].state if self._waiting else self.committed)
        assert self.epoch is not None or not self._waiting


class _EpochTimer:
    """A timer of one leader epoch. `timers` are those of the machine that are under way."""

    __slots__ = ("_action", "_epoch", "_machine", "_timers", "handle")

    def __init__(
        self, machine: Machine[Any, Any], timers: "set[_EpochTimer]", epoch: int, action: Callable[[], None]
    ) -> None:
        self._machine = machine
        self._timers = timers
        self._epoch = epoch
        self._action = action
        self.handle: Timer | None = None

    def fire(self) -> None:
        self._timers.discard(self)
        if self._machine.epoch == self._epoch:
            self._action()

    def stop(self) -> None:
        if self.handle is not None:
            self.handle.cancel()

    def cancel(self) -> None:
        self._timers.discard(self)
        self.stop()
