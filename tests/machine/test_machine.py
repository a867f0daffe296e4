"""A machine on a log: here the state is a tuple of numbers, and records are added to it."""

from collections.abc import Sequence

import pytest

from tidelog.env.promise import Promise
from tidelog.machine import machine as machine_module
from tidelog.machine.decision import Decision
from tidelog.machine.machine import Machine, Position
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError

State = tuple[int, ...]


class ListLog:
    """A log in a list that can be made to fail. Nothing is committed before the test says so."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.error: Exception | None = None

    @property
    def next_offset(self) -> int:
        return sum(map(len, self.batches))

    def append(self, records: Sequence[int], epoch: int, now_ms: int) -> int:
        if self.error is not None:
            raise self.error
        self.batches.append(list(records))
        return self.next_offset - 1


class World:
    def __init__(self) -> None:
        self.timeline = Timeline()
        self.log = ListLog()
        self.published: list[tuple[State, list[int]]] = []
        self.machine: Machine[State, int] = Machine(
            (),
            lambda state, records, position: (*state, *records),
            self.log,
            lambda state, records: self.published.append((state, list(records))),
            self.timeline,
            SimLoop(self.timeline, SimRandom(1)),
            ErrorCode.NOT_COORDINATOR,
        )

    def add(self, *numbers: int, answer: str = "done") -> Promise[str]:
        promise = self.machine.submit(lambda state, now_ms: (list(numbers), answer))
        self.machine.check_invariants()
        return promise


@pytest.fixture
def world() -> World:
    world = World()
    world.machine.lead(3)
    return world


def test_answer_comes_when_its_records_are_committed(world: World) -> None:
    answer = world.add(1, 2)
    assert world.log.batches == [[1, 2]]
    assert not answer.done
    world.machine.commit(1)
    assert not answer.done
    world.machine.commit(2)
    assert answer.result() == "done"
    assert world.published == [((1, 2), [1, 2])]


def test_decision_sees_what_was_appended_and_readers_what_is_committed(world: World) -> None:
    world.add(1)
    seen: list[State] = []
    world.machine.submit(lambda state, now_ms: (seen.append(state) or [], None))
    assert seen == [(1,)]
    assert world.machine.committed == ()
    world.machine.commit(1)
    assert world.machine.committed == (1,)


def test_answer_reads_its_own_write(world: World) -> None:
    answer = world.add(7)
    committed: list[State] = []
    answer.on_done(lambda _: committed.append(world.machine.committed))
    world.machine.commit(1)
    assert committed == [(7,)]


def test_decision_that_wrote_nothing_answers_at_once(world: World) -> None:
    assert world.add().result() == "done"
    assert world.log.batches == []


def test_decision_that_wrote_nothing_waits_for_what_it_saw(world: World) -> None:
    world.add(1)
    answer = world.add(answer="saw 1")
    assert not answer.done
    world.machine.commit(1)
    assert answer.result() == "saw 1"


def test_answers_leave_in_order(world: World) -> None:
    order: list[str] = []
    for name in "abc":
        world.add(*([] if name == "b" else [1]), answer=name).on_done(lambda p: order.append(p.result()))
    world.machine.commit(2)
    assert order == ["a", "b", "c"]


def test_error_of_a_decision_is_its_answer(world: World) -> None:
    def refuse(state: State, now_ms: int) -> tuple[list[int], None]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    assert isinstance(world.machine.submit(refuse).error, KafkaError)
    assert world.machine.newest == ()


def test_who_hands_a_decision_in_knows_at_once_what_it_was_and_who_asked_when_it_is_committed(world: World) -> None:
    promise, decided = world.machine.hand_in(lambda state, now_ms: Decision([1], "done"))
    assert decided == "done"
    assert world.machine.newest == (1,)
    assert not promise.done
    world.machine.commit(1)
    assert promise.result() == "done"


def test_who_hands_in_what_is_refused_or_can_not_be_written_has_nothing_to_remember(world: World) -> None:
    def refuse(state: State, now_ms: int) -> Decision[int, str]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    promise, decided = world.machine.hand_in(refuse)
    assert (decided, world.machine.newest) == (None, ())
    assert isinstance(promise.error, KafkaError)
    world.log.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    promise, decided = world.machine.hand_in(lambda state, now_ms: Decision([1], "done"))
    assert (decided, world.machine.newest) == (None, ())
    assert promise.error is world.log.error
    world.machine.unload()
    assert world.machine.hand_in(lambda state, now_ms: Decision([1], "done")).decided is None


def test_failed_append_takes_the_replay_back(world: World) -> None:
    world.log.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    answer = world.add(1)
    assert answer.error is world.log.error
    assert world.machine.newest == ()
    world.log.error = None
    world.add(2)
    world.machine.commit(1)
    assert world.machine.committed == (2,)


def test_records_that_cannot_be_folded_never_reach_the_log() -> None:
    world = World()

    def fold(state: State, records: Sequence[int], position: Position) -> State:
        raise ValueError("no such record")

    world.machine._fold = fold
    world.machine.lead(1)
    assert isinstance(world.add(1).error, ValueError)
    assert world.log.batches == []


def test_end_of_leadership_fails_who_waits_and_forgets_what_is_not_committed(world: World) -> None:
    first, second = world.add(1), world.add(2)
    world.machine.commit(1)
    world.machine.unload()
    assert first.result() == "done"
    assert second.error.code is ErrorCode.NOT_COORDINATOR
    assert world.machine.newest == (1,)
    assert world.add(3).error.code is ErrorCode.NOT_COORDINATOR


def test_what_others_decided_is_replayed() -> None:
    world = World()
    world.machine.load((5,))
    world.machine.replay([6, 7], Position(3, 1, 0))
    assert world.machine.committed == world.machine.newest == (5, 6, 7)
    assert world.published == [((5, 6, 7), [6, 7])]


def test_timer_of_a_past_epoch_does_nothing(world: World) -> None:
    fired: list[str] = []
    world.machine.schedule(1.0, lambda: fired.append("before"))
    world.machine.unload()
    world.machine.lead(4)
    world.machine.schedule(1.0, lambda: fired.append("after"))
    world.machine.schedule(1.0, lambda: fired.append("cancelled")).cancel()
    world.timeline.run_until(lambda: False, 5.0)
    assert fired == ["after"]


def test_waiting_decisions_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "WAITING_MAX", 2)
    world.add(1), world.add(2)
    assert world.add(3).error.code is ErrorCode.REQUEST_TIMED_OUT
    world.machine.commit(2)
    assert world.add(3).error is None


def test_who_submits_when_answered_takes_its_turn_behind_those_before_it(world: World) -> None:
    told: list[str] = []

    def again(promise: Promise[str]) -> None:
        told.append(promise.result())
        if promise.result() == "first":
            world.add(4, answer="from the answer").on_done(lambda done: told.append(done.result()))
            world.machine.commit(world.log.next_offset)

    for number, answer in ((1, "first"), (2, "second"), (3, "third")):
        world.add(number, answer=answer).on_done(again)
    world.machine.commit(1)
    assert told == ["first", "second", "third", "from the answer"]
    assert world.machine.committed == (1, 2, 3, 4)
    world.machine.check_invariants()


def test_who_waited_too_long_is_answered_and_the_change_stays(world: World) -> None:
    early = world.add(1)
    reading = world.machine.submit(lambda state, now_ms: ([], state))
    world.timeline.run_until(lambda: False, world.timeline.now + 3)
    late = world.add(2)
    since = world.machine.waiting_since
    assert since is not None
    world.machine.give_up(since, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    world.machine.check_invariants()
    assert [one.error is not None for one in (early, reading)] == [True, True]
    assert not late.done
    world.machine.commit(2)
    assert late.result() == "done"
    assert world.machine.committed == (1, 2)
    assert world.machine.waiting_since is None


def test_a_new_epoch_forgets_what_an_earlier_one_knew_of_commits(world: World) -> None:
    world.add(1)
    world.machine.commit(50)
    world.machine.unload()
    world.machine.lead(4)
    waiting = world.add(2)
    world.machine.commit(1)
    assert not waiting.done
