"""The active controller and its clock: who is fenced when, and who isn't, since it was the controller that was held."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.apis.controllers import ControllerNode
from tests.controller.nodes import Node, World
from tests.metadata.images import broker
from tidelog.apis import broker_heartbeat
from tidelog.controller.leaders import Defaults
from tidelog.controller.liveness import Liveness
from tidelog.env import Environment
from tidelog.env.loop import Timer
from tidelog.env.promise import Promise
from tidelog.machine.decision import Decision
from tidelog.metadata.image import EMPTY_IMAGE
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest


class Held:
    """A loop on which nothing happens until the test lets it; `delays` are those of the timers that were set."""

    def __init__(self, node: Node) -> None:
        self.timer: tuple[float, Callable[..., None]] | None = None
        self.delays: list[float] = []
        self._node = node

    def call_later(self, delay_s: float, callback: Callable[..., None]) -> Timer:
        self.delays.append(delay_s)
        self.timer = (self._node.world.timeline.now + delay_s, callback)
        return self

    def cancel(self) -> None:
        self.timer = None

    def fire(self) -> None:
        assert self.timer is not None
        _, callback = self.timer
        self.timer = None
        callback()


@pytest.fixture
def node() -> Node:
    node = World().start()
    node.write(broker(2, epoch=14), broker(3, epoch=15))
    return node


@pytest.fixture
def live(node: Node, held: Held, monkeypatch: pytest.MonkeyPatch) -> Liveness:
    """Of the controller, on a loop of the test."""
    live = node.controller.liveness
    monkeypatch.setattr(live, "_loop", held)
    live.stop()
    live.start(1, node.image)
    return live


@pytest.fixture
def held(node: Node) -> Held:
    return Held(node)


def fenced(node: Node) -> list[int]:
    node.image.check_invariants()
    return sorted(one.id for one in node.image.brokers.values() if one.fenced)


def test_new_controller_fences_who_does_not_come_soon(node: Node) -> None:
    node.stop()
    node = node.world.start()
    node.controller.liveness.heard(3, 15, 20, 7)
    node.world.run(0.8)
    assert fenced(node) == [2]
    node.world.run(9.0)
    assert fenced(node) == [2, 3]


def test_new_controller_waits_for_who_fetches_from_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.stop()
    node = node.world.start()
    monkeypatch.setattr(node.controller.liveness, "_fetching", lambda: [3])
    node.world.run(8.0)
    assert fenced(node) == [2]
    node.world.run(2.0)
    assert fenced(node) == [2, 3]


def test_newcomer_that_fetches_is_not_taken_for_who_had_its_id(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.stop()
    node = node.world.start()
    live = node.controller.liveness
    monkeypatch.setattr(live, "_fetching", lambda: [2, 3])
    live.claimed(3)
    node.world.run(3.5)
    assert fenced(node) == [3]


def test_id_that_is_claimed_late_is_free_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its earlier self was given a whole session more, and the time that it has beside a newcomer is over: found in
    the simulator (quorum, seed 568)."""
    node.stop()
    node = node.world.start()
    live = node.controller.liveness
    monkeypatch.setattr(live, "_fetching", lambda: [2, 3])
    node.world.run(8.5)
    live.claimed(3)
    node.world.run(0.2)
    assert fenced(node) == [3]


def test_broker_of_its_own_id_has_a_whole_session(node: Node) -> None:
    """It may be in this process, and is soon heard; or it never comes back, since the node is a controller only now."""
    node.write(broker(1, epoch=16))
    node.stop()
    node = node.world.start()
    node.world.run(8.0)
    assert fenced(node) == [2, 3]
    node.world.run(2.0)
    assert fenced(node) == [1, 2, 3]


@pytest.mark.parametrize(("late_s", "expected"), [(4.0, [2]), (5.0, [])])
def test_controller_that_was_held_up_fences_nobody_for_it(
    node: Node, live: Liveness, held: Held, late_s: float, expected: list[int]
) -> None:
    live.heard(2, 14, 20, 7)
    live.heard(3, 15, 20, 8)
    node.world.run(1.0)
    held.fire()  # when they should have come on connections of their own, had they been silent
    live.heard(3, 15, 20, 8)
    node.world.run(8.0 + late_s)
    live.heard(3, 15, 20, 8)
    held.fire()
    node.world.run(0.5)
    assert fenced(node) == expected
    node.world.run(5.0)
    live.heard(3, 15, 20, 8)
    node.world.run(3.6)
    if held.timer is not None:
        held.fire()
    node.world.run(0.5)
    assert fenced(node) == [2], "who stays silent is fenced all the same"


def test_heartbeats_set_no_timers(node: Node, live: Liveness, held: Held) -> None:
    for _ in range(100):
        live.heard(2, 14, 20, 7)
        live.heard(3, 15, 20, 8)
    assert len(held.delays) == 1, "the one that was set when it began to lead"
    live.connection_broken(9)
    assert len(held.delays) == 1, "a connection that no broker is heard on"
    held.fire()
    assert held.delays[1:] == [pytest.approx(9.0)]
    live.connection_broken(7)
    assert 0.3 <= held.delays[2] <= 0.7


def test_fencing_that_could_not_be_written_is_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    append = node.raft.append_records

    def full(*args: object) -> int:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    node.controller.liveness.heard(2, 14, 20, 7)
    node.controller.liveness.connection_broken(7)
    monkeypatch.setattr(node.raft, "append_records", full)
    node.world.run(2.0)
    assert fenced(node) == []
    monkeypatch.setattr(node.raft, "append_records", append)
    node.world.run(1.1)
    assert fenced(node) == [2]


def test_broker_that_was_heard_while_its_fencing_waited_is_not_fenced(node: Node) -> None:
    live = node.controller.liveness
    live.heard(2, 14, 20, 7)

    def long(image: object, now_ms: int):
        for _ in range(100_000):
            if not waiting:
                break
            yield
        return [], None

    waiting = True
    node.controller.submit_steps(long)
    live.connection_broken(7)
    node.world.run(0.8)
    live.heard(2, 14, 20, 8)
    waiting = False
    node.world.run(0.5)
    assert fenced(node) == []


def test_broker_that_dies_while_its_fencing_is_being_answered_is_fenced(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was heard again before it was decided, so that nothing was done; the answer came when it was dead."""
    live = node.controller.liveness
    submit, answers = node.controller.submit_steps, list[Promise[None]]()

    def answered_late(decide: Any) -> Promise[Any]:
        late: Promise[Any] = Promise()
        decided = submit(decide)
        answers.append(late)
        node.loop.call_later(3.0, lambda: late.resolve(decided.result()))
        return late

    live.heard(2, 14, 20, 7)
    live.heard(3, 15, 20, 9)
    monkeypatch.setattr(live, "_submit", lambda decide: (live.heard(2, 14, 20, 8), answered_late(decide))[1])
    live.connection_broken(7)
    node.world.run(0.8)
    assert len(answers) == 1
    monkeypatch.setattr(live, "_submit", submit)
    live.connection_broken(8)
    node.world.run(4.0)
    assert fenced(node) == [2]


def test_broker_that_died_before_it_was_let_in_stays_out() -> None:
    """It asked for that on a second connection, while the end of the first one and much else was yet to be decided."""
    cluster = ControllerNode()
    cluster.join(3)
    assert cluster.register(2).error_code == ErrorCode.NONE
    assert cluster.beat(2, connection=7, want_fence=True).is_fenced
    node, live = cluster.node, cluster.controller.liveness
    waiting = True

    def long(image: object, now_ms: int):
        while waiting:
            yield
        return Decision([], None)

    node.controller.submit_steps(long)
    live.connection_broken(7)
    node.world.run(0.8)
    given = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=cluster.epochs[2], current_metadata_offset=cluster.image.offset
    )
    broker_heartbeat.handle(cast(Any, SimpleNamespace(services=cluster.services, connection_id=8)), given)
    live.connection_broken(8)
    node.world.run(0.8)
    waiting = False
    node.world.run(5.0)
    assert fenced(node) == [2]


def test_fencing_that_takes_long_and_fails_is_tried_once_at_a_time() -> None:
    """Heartbeats that come meanwhile begin no other try: each one would go on for ever beside the first."""
    timeline, random = Timeline(), SimRandom(1)
    loop = SimLoop(timeline, random)
    tries: list[float] = []

    def submit(decide: object) -> Promise[None]:
        promise: Promise[None] = Promise()
        tries.append(timeline.now)
        loop.call_later(0.1, promise.fail, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full"))
        return promise

    env = Environment(timeline, loop, cast(Any, None), cast(Any, None), random)
    live = Liveness(env, submit, 1, Defaults(), 9000)
    live.start(1, EMPTY_IMAGE)
    live.heard(2, 14, 20, 7)  # and never again
    for tenth in range(600):
        timeline.plan(tenth / 10, live.heard, 3, 15, 20, 8)
    timeline.run_until(lambda: False, 60.0)
    assert 40 <= len(tries) <= 60
