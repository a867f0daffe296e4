"""Decisions in steps on a machine: others wait for their turn behind them, and see what they wrote."""

from collections.abc import Callable, Sequence

import pytest

from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, whole
from tidelog.machine import machine as machine_module
from tidelog.machine.machine import Machine, Position
from tidelog.machine.stepwise import Stepwise
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError

State = tuple[int, ...]
MANY = 100
"""Steps that no slice has room for."""


class StepLog:
    """A log in a list; appending takes some steps, and may fail before or between them."""

    def __init__(self, leads: Callable[[int], bool]) -> None:
        self.records: list[int] = []
        self.error: Exception | None = None
        self._leads = leads

    @property
    def next_offset(self) -> int:
        return len(self.records)

    def append(self, records: Sequence[int], epoch: int, now_ms: int) -> int:
        return whole(self.append_steps(records, epoch, now_ms))

    def append_steps(self, records: Sequence[int], epoch: int, now_ms: int) -> Steps[int]:
        yield
        if self.error is not None:
            raise self.error
        if not self._leads(epoch):
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        self.records += records
        return self.next_offset - 1


def fold_steps(state: State, records: Sequence[int], position: Position) -> Steps[State]:
    for record in records:
        state = (*state, record)
        yield
    return state


class World:
    def __init__(self) -> None:
        self.timeline = Timeline()
        self.loop = SimLoop(self.timeline, SimRandom(1))
        self.log = StepLog(lambda epoch: self.machine.epoch == epoch)
        self.published: list[State] = []
        self.slow_publication = 0
        self.publication_error: Exception | None = None
        self.machine: Machine[State, int] = Machine(
            (),
            lambda state, records, position: whole(fold_steps(state, records, position)),
            self.log,
            self.publish,
            self.timeline,
            self.loop,
            ErrorCode.NOT_CONTROLLER,
        )
        self.decisions: Stepwise[State, int] = Stepwise(self.machine, fold_steps, self.log, self.timeline, self.loop)
        self.machine.lead(1)

    def publish(self, state: State, records: Sequence[int]) -> Steps[None]:
        for _ in range(self.slow_publication):
            yield
        if self.publication_error is not None:
            raise self.publication_error
        self.published.append(state)

    def add(self, *numbers: int, steps: int = 0, answer: str = "done") -> Promise[str]:
        def decide(state: State, now_ms: int) -> Steps[tuple[list[int], str]]:
            for _ in range(steps):
                yield
            return list(numbers), f"{answer} on {state}"

        promise = self.decisions.submit_steps(decide)
        self.machine.check_invariants()
        return promise

    def run(self) -> None:
        self.timeline.run_until(lambda: False, self.timeline.now + 1)
        self.machine.check_invariants()

    def commit(self) -> None:
        self.machine.commit(self.log.next_offset)
        self.machine.check_invariants()


@pytest.fixture
def world() -> World:
    return World()


def test_short_decision_is_made_at_once_and_answered_when_committed(world: World) -> None:
    answer = world.add(answer="nothing")
    assert answer.result() == "nothing on ()"
    answer = world.add(1)
    world.run()
    assert not answer.done
    world.commit()
    assert answer.result() == "done on ()"


def test_what_comes_while_one_is_under_way_is_decided_after_it_in_order(world: World) -> None:
    order: list[str] = []
    for number in range(3):
        world.add(number, steps=MANY, answer=str(number)).on_done(lambda done: order.append(done.result()))
    world.decisions.submit(lambda state, now_ms: ([9], f"short on {state}")).on_done(
        lambda done: order.append(done.result())
    )
    assert world.log.records == []
    world.run()
    assert world.log.records == [0, 1, 2, 9]
    world.commit()
    assert order == ["0 on ()", "1 on (0,)", "2 on (0, 1)", "short on (0, 1, 2)"]


def test_error_of_a_decision_is_its_answer_and_the_next_has_its_turn(world: World) -> None:
    def refuse(state: State, now_ms: int) -> Steps[tuple[list[int], None]]:
        for _ in range(MANY):
            yield
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    refused, after = world.decisions.submit_steps(refuse), world.add(1, steps=MANY)
    world.run()
    world.commit()
    assert refused.error.code is ErrorCode.INVALID_REQUEST
    assert after.result() == "done on ()"


def test_failed_append_is_forgotten(world: World) -> None:
    world.log.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    failed = world.add(1, steps=MANY)
    world.run()
    assert failed.error is world.log.error
    assert world.machine.newest == ()
    world.log.error = None
    world.add(2, steps=MANY)
    world.run()
    assert world.machine.newest == (2,)


@pytest.mark.parametrize("events", range(40))
def test_end_of_leadership_fails_all_who_wait_whatever_is_under_way(world: World, events: int) -> None:
    first, second = world.add(1, steps=MANY), world.add(2)
    world.timeline.run_until(lambda: world.timeline.events >= events, world.timeline.now + 1)
    appended = list(world.log.records)
    world.machine.unload()
    world.decisions.unload()
    assert first.error.code is second.error.code is ErrorCode.NOT_CONTROLLER
    world.machine.load(tuple(appended))
    world.machine.lead(2)
    now = world.add(3, steps=MANY)
    world.run()
    world.commit()
    assert now.result() == f"done on {tuple(appended)}"
    assert world.log.records == [*appended, 3], "what was under way in the old epoch writes nothing in the new one"


def test_answer_waits_for_a_publication_that_takes_long(world: World) -> None:
    world.slow_publication = MANY
    first, second = world.add(1), world.add(2)
    world.run()
    world.machine.commit(2)
    saw = world.decisions.submit(lambda state, now_ms: ([], state))
    assert not first.done
    assert not saw.done, "nobody hears of what others can't see yet"
    assert world.published == []
    world.run()
    assert (first.result(), second.result(), saw.result()) == ("done on ()", "done on (1,)", (1, 2))
    assert world.published == [(1,), (1, 2)]


def test_publication_that_fails_is_told_and_answered(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.slow_publication, world.publication_error = 1, ValueError("can't follow")
    answer = world.add(1)
    world.run()
    world.commit()
    world.run()
    assert answer.result() == "done on ()"
    assert "the change up to offset 0 is committed, but not followed" in caplog.text


def test_decisions_that_wait_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "WAITING_MAX", 2)
    world.add(1, steps=MANY), world.add(2)
    assert world.add(3).error.code is ErrorCode.REQUEST_TIMED_OUT


def test_who_fails_to_take_an_answer_holds_up_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def bad(promise: Promise[str]) -> None:
        raise ValueError("bad listener")

    world.log.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    world.add(1, steps=MANY).on_done(bad)
    world.add(2, steps=MANY).on_done(bad)
    last = world.add(3)
    world.run()
    assert last.error is world.log.error
    assert "bad listener" in caplog.text
