"""What waits for other brokers: gathered, one request at a time to each, bounded, and given up when one is gone."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import pytest

from tidelog.coordinator.txn.broker_queues import BrokerQueues
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.metadata.follow import Follower
from tidelog.metadata.image import BrokerImage, ClusterImage, EndpointImage
from tidelog.rpc.errors import Lost, Unsupported
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import KafkaError

WAITING_MAX = 5


def broker(id: int, port: int = 9092, *, incarnation: int = 1, fenced: bool = False) -> BrokerImage:
    endpoints = (EndpointImage("CLIENTS", "public", 1), EndpointImage("INSIDE", f"10.0.0.{id}", port))
    return BrokerImage(id, 1, bytes([incarnation] * 16), endpoints, {}, fenced=fenced)


class Others:
    """The other side: what it was asked, in order, and whom it answers when."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []
        self.forgotten: list[int] = []
        self.closed = False
        self._open: dict[int, Promise[Any]] = {}
        self._to: tuple[int, str] = (0, "")

    def at(self, node_id: int, host: str, port: int) -> "Others":
        self._to = node_id, f"{host}:{port}"
        return self

    def ask(self, request: object, timeout_ms: int) -> Promise[Any]:
        node_id, address = self._to
        assert node_id not in self._open, "one request at a time"
        assert timeout_ms == 1000
        self.asked.append((address, request))
        promise = self._open[node_id] = Promise[Any]()
        return promise

    def forget(self, node_id: int) -> None:
        self.forgotten.append(node_id)
        if node_id in self._open:
            self.fail(node_id, Lost(f"node {node_id}", "it was closed on this side"))

    def close(self) -> None:
        self.closed = True

    def answer(self, node_id: int) -> None:
        self._open.pop(node_id).resolve("yes")

    def fail(self, node_id: int, error: Exception) -> None:
        self._open.pop(node_id).fail(error)


class Say:
    """A dialogue of words: three in a request at most."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def request(self, waiting: deque[str]) -> tuple[object, list[str]]:
        some = [waiting.popleft() for _ in range(min(3, len(waiting)))]
        return " ".join(some), some

    def answered(self, asked: list[str], response: Any) -> None:
        self.told += [(word, response) for word in asked]

    def failed(self, asked: list[str], error: Exception) -> None:
        kind = "refused" if isinstance(error, KafkaError) else type(error).__name__
        self.told += [(word, kind) for word in asked]


class Rig:
    def __init__(self) -> None:
        self.timeline = Timeline()
        random = SimRandom(1)
        loop = SimLoop(self.timeline, random)
        network = SimNetwork(self.timeline, random).view("tester")
        environment = Environment(self.timeline, loop, SimDisk(random), network, random)
        self.follower = Follower()
        self.others = Others()
        self.say = Say()
        self.queues: BrokerQueues[str] = BrokerQueues(
            environment,
            self.follower,
            self.others,  # type: ignore[arg-type]
            self.say,
            listener=lambda: "INSIDE",
            timeout_ms=lambda: 1000,
            waiting_max=WAITING_MAX,
        )
        self.cluster({2: broker(2), 3: broker(3)})

    def cluster(self, brokers: Mapping[int, BrokerImage]) -> None:
        self.follower.replace(ClusterImage(brokers=brokers))
        self.settle()

    def ask(self, broker_id: int, *words: str) -> None:
        for word in words:
            self.queues.ask(broker_id, word)
        self.settle()

    def settle(self) -> None:
        self.timeline.run_until(lambda: False, self.timeline.now + 0.001)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_is_asked_in_one_turn_goes_together_and_what_comes_meanwhile_with_the_next(rig: Rig) -> None:
    rig.ask(2, "a", "b")
    rig.ask(2, "c")
    rig.ask(2, "d", "e", "f")
    assert rig.others.asked == [("10.0.0.2:9092", "a b")]
    rig.others.answer(2)
    rig.settle()
    assert rig.others.asked[1:] == [("10.0.0.2:9092", "c d e")]
    rig.others.answer(2)
    rig.settle()
    rig.others.answer(2)
    rig.settle()
    assert rig.others.asked[2:] == [("10.0.0.2:9092", "f")]
    assert rig.say.told == [(word, "yes") for word in "abcdef"]


def test_brokers_do_not_wait_for_each_other(rig: Rig) -> None:
    rig.ask(2, "a")
    rig.ask(3, "b")
    assert rig.others.asked == [("10.0.0.2:9092", "a"), ("10.0.0.3:9092", "b")]
    rig.others.answer(3)
    rig.settle()
    rig.ask(3, "c")
    assert rig.others.asked[2:] == [("10.0.0.3:9092", "c")]
    assert rig.say.told == [("b", "yes")]


def test_a_queue_has_a_bound(rig: Rig) -> None:
    rig.ask(2, "a")
    rig.ask(2, *"bcdefgh")
    assert rig.say.told == [("g", "refused"), ("h", "refused")]
    assert rig.queues.waiting(2) == WAITING_MAX


def test_a_connection_that_is_lost_tells_all_who_wait_and_the_next_question_makes_another(rig: Rig) -> None:
    rig.ask(2, *"abcd")
    rig.others.fail(2, Lost("node 2", "no answer"))
    rig.settle()
    assert rig.say.told == [(word, "Lost") for word in "abcd"]
    rig.ask(2, "e")
    assert rig.others.asked[1:] == [("10.0.0.2:9092", "e")]


def test_a_request_that_the_other_side_does_not_know_is_no_trouble_of_those_behind_it(rig: Rig) -> None:
    rig.ask(2, *"abcd")
    rig.others.fail(2, Unsupported("version 9"))
    rig.settle()
    assert rig.say.told == [(word, "Unsupported") for word in "abc"]
    assert rig.others.asked[1:] == [("10.0.0.2:9092", "d")]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(broker(2, fenced=True), id="fenced"),
        pytest.param(broker(2, incarnation=2), id="started again"),
        pytest.param(None, id="unregistered"),
    ],
)
def test_nobody_waits_for_a_broker_that_is_gone(rig: Rig, after: BrokerImage | None) -> None:
    rig.ask(2, *"abcd")
    rig.ask(3, "x")
    rig.cluster({3: broker(3), **({} if after is None else {2: after})})
    assert rig.others.forgotten == [2]
    assert sorted(rig.say.told) == [("a", "Lost"), ("b", "Lost"), ("c", "Lost"), ("d", "refused")]
    rig.ask(2, "e")
    gone = after is None or after.fenced
    assert [word for _, word in rig.others.asked] == (["a b c", "x"] if gone else ["a b c", "x", "e"])
    assert rig.say.told[4:] == ([("e", "refused")] if gone else [])


def test_a_broker_that_changes_otherwise_is_waited_for(rig: Rig) -> None:
    rig.ask(2, "a")
    leaves = BrokerImage(2, 1, bytes([1] * 16), broker(2).endpoints, {}, fenced=False, in_controlled_shutdown=True)
    rig.cluster({2: leaves, 3: broker(3)})
    assert (rig.others.forgotten, rig.say.told) == ([], [])


def test_a_broker_that_moved_is_asked_where_it_is_now(rig: Rig) -> None:
    rig.cluster({2: broker(2, port=9999)})
    rig.ask(2, "a")
    assert rig.others.asked == [("10.0.0.2:9999", "a")]


def test_a_broker_that_stops_asks_nothing_more(rig: Rig) -> None:
    rig.ask(2, *"abcd")
    rig.queues.close()
    assert rig.others.closed
    rig.ask(2, "e")
    assert sorted(rig.say.told) == [("d", "refused"), ("e", "refused")]
