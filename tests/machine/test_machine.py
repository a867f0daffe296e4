"""A machine on a log: here the state is a tuple of numbers, and records are added to it."""

import gc
import weakref
from collections.abc import Callable, Sequence

import pytest

from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, settled, whole
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


def fold(state: State, records: Sequence[int], position: Position) -> State:
    return (*state, *records)


class World:
    def __init__(self, fold: Callable[[State, Sequence[int], Position], State] = fold) -> None:
        self.timeline = Timeline()
        self.log = ListLog()
        self.published: list[tuple[State, list[int]]] = []
        self.machine: Machine[State, int] = Machine(
            (),
            fold,
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
    def fold(state: State, records: Sequence[int], position: Position) -> State:
        raise ValueError("no such record")

    world = World(fold)
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
    whole(world.machine.follow((5, 6, 7), [6, 7], 3))
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


def test_the_first_record_is_not_committed_by_hearing_that_nothing_is(world: World) -> None:
    answer = world.add(1)
    world.machine.commit(0)
    assert not answer.done


def test_as_many_decisions_may_wait_as_the_bound_says(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "WAITING_MAX", 2)
    assert world.add(1).error is None
    assert world.machine.refuses() is None
    refused = world.machine.refuses(more=1)
    assert refused is not None, "one more waits elsewhere"
    assert refused.code is ErrorCode.REQUEST_TIMED_OUT
    assert world.add(2).error is None


def test_an_answer_that_was_left_for_later_comes_at_once_where_nothing_waits(world: World) -> None:
    promise: Promise[str] = Promise()
    world.machine.answer_later(promise, "done")
    assert promise.result() == "done"
    world.machine.check_invariants()


def test_all_who_wait_for_a_change_are_answered_before_any_that_came_of_its_answers(world: World) -> None:
    told: list[str] = []

    def again(promise: Promise[str]) -> None:
        told.append(promise.result())
        world.add(2, answer="from the answer").on_done(lambda done: told.append(done.result()))
        world.machine.commit(world.log.next_offset)

    world.add(1, answer="wrote").on_done(again)
    world.add(answer="read").on_done(lambda done: told.append(done.result()))
    world.machine.commit(1)
    assert told == ["wrote", "read", "from the answer"]


class MarkingLog(ListLog):
    """A log that puts a record of its own behind each batch, as the end of a transaction is."""

    @property
    def next_offset(self) -> int:
        return sum(len(batch) + 1 for batch in self.batches)


@pytest.mark.parametrize(("log", "positions"), [(ListLog(), [1, 4]), (MarkingLog(), [1, 2, 5, 6])])
def test_a_state_stands_where_its_last_record_does(log: ListLog, positions: list[int]) -> None:
    timeline = Timeline()
    seen: list[Position] = []

    def fold(state: State, records: Sequence[int], position: Position) -> State:
        seen.append(position)
        return (*state, *records)

    loop = SimLoop(timeline, SimRandom(1))
    machine = Machine[State, int]((), fold, log, lambda *_: None, timeline, loop, ErrorCode.NOT_COORDINATOR)
    machine.lead(3)
    machine.submit(lambda state, now_ms: ([1, 2], None))
    machine.submit(lambda state, now_ms: ([3, 4, 5], None))
    assert [position.offset for position in seen] == positions
    assert {(position.epoch, position.timestamp_ms) for position in seen} == {(3, timeline.now_ms())}
    assert machine.newest == (1, 2, 3, 4, 5)


class Subscriber:
    """Who is told of each change: in steps that go on when the test says so, or not at all."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gates: list[Promise[None]] = []
        self.told: list[list[int]] = []
        self.timeline = Timeline()
        self.log = ListLog()
        self.machine: Machine[State, int] = Machine(
            (),
            lambda state, records, position: (*state, *records),
            self.log,
            self.publish,
            self.timeline,
            SimLoop(self.timeline, SimRandom(1)),
            ErrorCode.NOT_COORDINATOR,
        )

    def publish(self, state: State, records: Sequence[int]) -> Steps[None] | None:
        if self.error is not None:
            raise self.error
        return self._steps(list(records))

    def _steps(self, records: list[int]) -> Steps[None]:
        for gate in self.gates:
            yield from settled(gate)
        self.told.append(records)

    def add(self, *numbers: int) -> Promise[str]:
        return self.machine.submit(lambda state, now_ms: (list(numbers), "done"))

    def open(self, gate: Promise[None]) -> None:
        gate.resolve(None)
        self.run()

    def run(self) -> None:
        self.timeline.run_until(lambda: False, self.timeline.now + 1)
        self.machine.check_invariants()


def test_what_others_decided_is_published_in_steps() -> None:
    subscriber = Subscriber()
    gate = Promise[None]()
    subscriber.gates = [gate]
    steps = subscriber.machine.follow((6, 7), [6, 7], 1)
    next(steps)
    assert (subscriber.machine.committed, subscriber.told) == ((6, 7), [])
    gate.resolve(None)
    whole(steps)
    assert subscriber.told == [[6, 7]]


def test_what_others_decided_and_nobody_could_follow_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    subscriber = Subscriber()
    subscriber.error = ValueError("can't follow")
    whole(subscriber.machine.follow((6, 7), [6, 7], 1))
    assert "the change up to offset 1 is committed, but not followed" in caplog.text


def test_what_is_committed_when_leadership_ends_stays_though_a_long_publication_was_before_it() -> None:
    """It was decided here: nobody replays it to this machine, so it would never be seen."""
    subscriber = Subscriber()
    subscriber.machine.lead(1)
    gate = Promise[None]()
    subscriber.gates = [gate]
    answers = [subscriber.add(1), subscriber.add(2), subscriber.add(3)]
    subscriber.machine.commit(2)
    subscriber.gates = []
    subscriber.machine.unload()
    assert subscriber.machine.committed == subscriber.machine.newest == (1, 2)
    assert subscriber.told == [[2]]
    assert [answer.error.code for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 3
    subscriber.open(gate)
    assert subscriber.told == [[2], [1]], "with a follower, the earlier one is ended first"


def test_a_change_that_nobody_could_follow_is_answered_and_the_log_tells(caplog: pytest.LogCaptureFixture) -> None:
    subscriber = Subscriber()
    subscriber.machine.lead(1)
    subscriber.error = ValueError("can't follow")
    answers = [subscriber.add(1), subscriber.add(2)]
    subscriber.machine.commit(2)
    assert [answer.result() for answer in answers] == ["done", "done"]
    assert "the change up to offset 0 is committed, but not followed" in caplog.text
    assert "can't follow" in caplog.text


def test_a_publication_that_fails_later_is_told_and_one_that_does_not_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    subscriber = Subscriber()
    subscriber.machine.lead(1)
    first, second = Promise[None](), Promise[None]()
    subscriber.gates = [first]
    answer = subscriber.add(1)
    subscriber.machine.commit(1)
    subscriber.open(first)
    assert answer.result() == "done"
    assert caplog.text == ""
    subscriber.gates = [second]
    answer = subscriber.add(2)
    subscriber.machine.commit(2)
    second.fail(ValueError("can't follow"))
    subscriber.run()
    assert answer.result() == "done"
    assert "the change up to offset 1 is committed, but not followed" in caplog.text


def test_a_change_is_published_once_though_more_is_committed_meanwhile() -> None:
    subscriber = Subscriber()
    subscriber.machine.lead(1)
    gate = Promise[None]()
    subscriber.gates = [gate]
    answers = [subscriber.add(1), subscriber.add(2)]
    subscriber.machine.commit(1)
    subscriber.machine.commit(2)
    subscriber.machine.commit(2)
    assert subscriber.told == []
    subscriber.open(gate)
    assert subscriber.told == [[1], [2]]
    assert [answer.result() for answer in answers] == ["done", "done"]


def test_a_publication_that_outlasts_its_leadership_answers_nobody_of_the_next() -> None:
    subscriber = Subscriber()
    subscriber.machine.lead(1)
    gate = Promise[None]()
    subscriber.gates = [gate]
    before = subscriber.add(1)
    subscriber.machine.commit(1)
    subscriber.machine.unload()
    assert before.error is not None
    subscriber.machine.lead(2)
    after = subscriber.add(2)
    subscriber.open(gate)
    assert not after.done
    subscriber.machine.commit(2)
    subscriber.run()
    assert after.result() == "done"


class Action:
    """What a timer runs, which can be asked after when nobody holds it any more."""

    def __call__(self) -> None: ...


@pytest.mark.parametrize("over", ["it ran", "it was cancelled", "leadership ended"])
def test_a_timer_that_is_over_is_forgotten(world: World, over: str) -> None:
    action = Action()
    held = weakref.ref(action)
    timer = world.machine.schedule(1.0, action)
    if over == "it was cancelled":
        timer.cancel()
    if over == "leadership ended":
        world.machine.unload()
    del action, timer
    assert held() is not None
    world.timeline.run_until(lambda: False, 5.0)
    gc.collect()
    assert held() is None
    assert world.timeline.events == (over == "it ran"), "nobody is woken for nothing"
