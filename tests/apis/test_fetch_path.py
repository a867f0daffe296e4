"""The fast path of Fetch answers byte for byte what the general way answers.

Two brokers hold the same logs and get the same requests, one of them without its fast path.
"""

import struct
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.apis.sim_broker import Asked, SimBroker, batch, in_transaction, marker, produce_fields
from tests.raw import build, request_class
from tidelog import apis
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

TOPICS = {
    "t": {"index.interval.bytes": "100"},
    "rolled": {"internal.segment.bytes": "1700"},
    "fleeting": {"tidelog.storage": "memory"},
    "torn": {},
    "empty": {},
}
UNKNOWN_ID = b"nobody's id....."
OFFSETS = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 19, 20, 21, 1000, -1]


def fill(broker: SimBroker) -> dict[str, bytes]:
    """The same logs in each broker; the ids of the topics."""
    ids = {name: broker.make_topic(name, 2, configs) for name, configs in TOPICS.items()}
    for name in ("t", "rolled", "fleeting"):
        for size in (1, 50, 300, 5):
            broker.append(name, *(b"%d" % number * size for number in range(5)))
    broker.delete_records("t", 2)
    broker.append("torn", b"plain")
    broker.append_own("torn", in_transaction(b"aborted", b"too", producer_id=9))
    broker.append_own("torn", in_transaction(b"committed", producer_id=8))
    broker.append_own("torn", marker(9, commit=False))
    broker.append_own("torn", marker(8, commit=True))
    broker.append_own("torn", in_transaction(b"open", producer_id=7))
    broker.append("torn", b"behind it")
    return ids


class Pair:
    def __init__(self) -> None:
        self.brokers = [SimBroker(), SimBroker(fast=False)]
        self.ids, same = map(fill, self.brokers)
        assert self.ids == same
        self.asked: list[list[Asked]] = []

    def send(self, frame: bytes) -> None:
        self.asked.append([broker.send_frame(frame) for broker in self.brokers])

    def check(self) -> None:
        for fast, general in self.asked:
            assert fast.outcome == general.outcome


@cache
def pair() -> Pair:
    """Reading changes nothing, so one pair serves all; what is parked is answered before the next example."""
    return Pair()


partitions = st.fixed_dictionaries(
    {
        "partition": st.sampled_from([0, 0, 0, 0, 1, 2, -1]),
        "current_leader_epoch": st.sampled_from([-1, -1, 0, 0, 1, -2]),
        "fetch_offset": st.sampled_from(OFFSETS),
        "last_fetched_epoch": st.sampled_from([-1, -1, -1, 0, 1, -5]),
        "log_start_offset": st.sampled_from([-1, 0, 5]),
        "partition_max_bytes": st.sampled_from([1 << 20, 1 << 20, 0, 1, 61, 200, 1000, -1, 2**31 - 1]),
    }
)
topics = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([*TOPICS, "nobody"]),
        "partitions": st.one_of(st.lists(partitions, min_size=1, max_size=1), st.lists(partitions, max_size=3)),
    }
)
bodies = st.fixed_dictionaries(
    {
        "max_wait_ms": st.sampled_from([0, 0, 100, 500, -1]),
        "min_bytes": st.sampled_from([1, 1, 1, 0, 100, 100_000, -1]),
        "max_bytes": st.sampled_from([1 << 20, 1 << 20, 0, 1, 100, 400, -1, 2**31 - 1]),
        "isolation_level": st.sampled_from([0, 0, 1, 1, 2]),
        "session_epoch": st.sampled_from([-1, -1, -1, -1, 3]),
        "topics": st.one_of(st.lists(topics, min_size=1, max_size=1), st.lists(topics, max_size=3)),
    }
)
clients = st.sampled_from([None, "", "client", "bö", "c" * 300])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A fetch: usually right, sometimes with tags, a rack, a replica's id, cut, with a tail or a byte changed."""
    version = draw(st.sampled_from([15, 16, 16, 17, 18, 18, 12, 4]))
    body: dict[str, Any] = draw(bodies)
    if version >= 12 and draw(st.integers(0, 9)) == 0:
        body["rack_id"] = "rack"
    if version >= 15 and draw(st.integers(0, 9)) == 0:
        body["replica_state"] = {"replica_id": draw(st.sampled_from([-1, 1, 2])), "replica_epoch": 1}
    for topic in body["topics"]:
        topic["topic_id"] = pair().ids.get(topic["topic"], UNKNOWN_ID)
        for partition in topic["partitions"]:
            if version < 12:
                partition.pop("last_fetched_epoch", None)
    encoded = encoder(request_class(ApiKey.FETCH), version)(build(request_class(ApiKey.FETCH), body))
    client = draw(clients)
    name = b"" if client is None else client.encode()
    head = struct.pack(">hhih", 1, version, draw(st.integers(-(2**31), 2**31 - 1)), -1 if client is None else len(name))
    tags = draw(st.sampled_from([b"\0", b"\0", b"\0", b"\1\0\2ab"])) if version >= 12 else b""
    frame = head + name + tags + encoded
    damage = draw(st.sampled_from(["none"] * 6 + ["cut", "tail", "byte"]))
    if damage == "cut":
        return frame[: draw(st.integers(10, len(frame)))]
    if damage == "tail":
        return frame + draw(st.sampled_from([b"\0", b"\0\0\0", b"tail"]))
    if damage == "byte":
        place = draw(st.integers(len(head) + len(name), len(frame) - 1))
        return frame[:place] + bytes([draw(st.integers(0, 255))]) + frame[place + 1 :]
    return frame


@settings(max_examples=400, deadline=None)
@given(st.lists(frames(), min_size=1, max_size=5))
def test_both_ways_answer_the_same_bytes(sent: list[bytes]) -> None:
    both_ways = pair()
    both_ways.asked.clear()
    for frame in sent:
        both_ways.send(frame)
    both_ways.check()
    for seconds in (0.15, 0.5):
        for broker in both_ways.brokers:
            broker.pass_time(seconds)
        both_ways.check()
    for both in both_ways.asked:
        for asked in both:
            if not asked.done:  # a byte changed its patience
                asked.late.abandon()


def part(offset: int = 0, partition: int = 0) -> dict[str, Any]:
    return {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": 0,
    }


def fields(topic_id: bytes, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    topics = [{"topic_id": topic_id, "partitions": list(parts) or [part()]}]
    return {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics, **more}


def no_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing handles a fetch that the fast path leaves, or doesn't get done."""

    def handler(key: int) -> Any:
        assert key != ApiKey.FETCH, "it took the general way"
        return apis.handler(key)

    monkeypatch.setattr("tidelog.apis.shared.api.handler", handler)


def test_the_usual_request_takes_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SimBroker()
    topic_id = broker.make_topic("t")
    broker.append("t", b"a", b"b")
    no_general_way(monkeypatch)
    for version in (15, 16, 17, 18):
        for isolation in (0, 1):
            asked = broker.send(ApiKey.FETCH, version, fields(topic_id, isolation_level=isolation))
            assert len(asked.response.responses[0].partitions[0].records) == len(batch(b"a", b"b"))


def test_a_small_piece_of_a_large_log_is_mapped_and_the_same_both_ways() -> None:
    brokers = [SimBroker(), SimBroker(fast=False)]
    for broker in brokers:
        configs = {"tidelog.durability": "os", "index.interval.bytes": "1"}
        topic_id = broker.make_topic("tides", 1, configs)
        for n in range(20):
            broker.send(ApiKey.PRODUCE, 10, produce_fields("tides", batch(b"x" * (10 + 3 * (n % 4)))))
        answers = [
            broker.send(ApiKey.FETCH, 16, fields(topic_id, {**part(offset), "partition_max_bytes": bound})).frame
            for bound in (1, 90, 150, 400, 1 << 20)
            for offset in range(20)
        ]
        records = b"".join(answer or b"" for answer in answers).replace(topic_id, b"")
        if broker is brokers[0]:
            mapped = records
        else:
            assert mapped == records
    log = brokers[0].partition("tides").log
    assert log.read_mapped(7, 150, log.log_end) is not None


def test_many_partitions_of_several_topics_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SimBroker()
    ids = [broker.make_topic(name, 300) for name in ("t", "u")]
    broker.append("t", b"a", partition=299)
    broker.append("u", b"b", partition=1)
    no_general_way(monkeypatch)
    asked = fields(ids[0], *(part(partition=index) for index in range(300)))
    asked["topics"] += fields(ids[1], part(partition=0), part(partition=1))["topics"]
    sent = broker.send(ApiKey.FETCH, 16, asked)
    broker.pass_time(1)  # it looks in steps
    answer = sent.response.responses
    assert [(topic.topic_id, len(topic.partitions)) for topic in answer] == [(ids[0], 300), (ids[1], 2)]
    found = [(each.partition_index, len(each.records)) for topic in answer for each in topic.partitions if each.records]
    assert found == [(299, len(batch(b"a"))), (1, len(batch(b"b")))]


def test_waiting_and_waking_take_the_fast_path_too(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SimBroker()
    topic_id = broker.make_topic("t", 2)
    broker.append("t", b"so that the log is there", partition=1)
    no_general_way(monkeypatch)
    one = broker.send(ApiKey.FETCH, 16, fields(topic_id, part(1, partition=1)))
    two = broker.send(ApiKey.FETCH, 16, fields(topic_id, part(), part(1, partition=1)))
    assert not one.done
    assert not two.done
    broker.append("t", b"a", b"b", partition=1)
    broker.settle()
    for asked in (one, two):
        assert len(asked.response.responses[0].partitions[-1].records) == len(batch(b"a", b"b"))
    late = broker.send(ApiKey.FETCH, 16, fields(topic_id, part(3, partition=1)))
    broker.pass_time(0.6)
    assert late.response.responses[0].partitions[0].high_watermark == 3


def append(broker: SimBroker, topic: str, partition: int) -> None:
    if topic in broker.services.metadata.image.topics and broker.partition(topic, partition).is_served:
        broker.append(topic, b"some", b"more", partition=partition)


def transact(broker: SimBroker, topic: str, partition: int, producer_id: int, *, commit: bool) -> None:
    """A whole transaction, and one that stays open."""
    if topic in broker.services.metadata.image.topics and broker.partition(topic, partition).is_served:
        broker.append_own(topic, in_transaction(b"transacted", producer_id=producer_id), partition)
        broker.append_own(topic, marker(producer_id, commit=commit), partition)
        broker.append_own(topic, in_transaction(b"open", producer_id=producer_id + 100), partition)


def lose_lead(broker: SimBroker, topic: str, leader: int) -> None:
    if topic in broker.services.metadata.image.topics:
        found = broker.partition(topic)
        found.follow_image(found.image._replace(leader=leader, leader_epoch=found.leader_epoch + 1))


def go_offline(broker: SimBroker, topic: str) -> None:
    if topic in broker.services.metadata.image.topics:
        broker.partition(topic).log.go_offline("a test")


def delete(broker: SimBroker, topic: str) -> None:
    if topic in broker.services.metadata.image.topics:
        broker.delete_topic(topic)


names = st.sampled_from(["t", "u"])
indexes = st.sampled_from([0, 0, 1])
events = st.one_of(
    st.tuples(st.just(append), names, indexes),
    st.tuples(st.just(append), names, indexes),
    st.tuples(st.just(lose_lead), names, st.sampled_from([1, 2])),
    st.tuples(st.just(go_offline), names),
    st.tuples(st.just(delete), names),
    st.tuples(st.just(SimBroker.pass_time), st.sampled_from([0.05, 0.2, 1.0])),
    st.builds(
        lambda topic, index, producer_id, commit: (partial(transact, commit=commit), topic, index, producer_id),
        names,
        indexes,
        st.sampled_from([1, 2]),
        st.booleans(),
    ),
)
waits = st.fixed_dictionaries(
    {
        "max_wait_ms": st.sampled_from([100, 500, 90_000]),
        "min_bytes": st.sampled_from([1, 1, 1, 200, 100_000]),
        "max_bytes": st.sampled_from([1 << 20, 1 << 20, 100]),
        "isolation_level": st.sampled_from([0, 1]),
    }
)
FEW_BYTES = {"max_wait_ms": 100, "max_bytes": 1 << 20, "isolation_level": 1}
parks = st.tuples(waits, st.lists(st.tuples(names, indexes), min_size=1, max_size=4))


@settings(max_examples=80, deadline=None)
@example(  # aborted, but too little to be answered with
    parked=[({**FEW_BYTES, "min_bytes": 1}, [("t", 0)]), ({**FEW_BYTES, "min_bytes": 200}, [("t", 0)])],
    happened=[(partial(transact, commit=False), "t", 0, 1)],
)
@given(st.lists(parks, min_size=1, max_size=3), st.lists(events, max_size=6))
def test_whatever_happens_to_who_waits_both_ways_answer_the_same_bytes(
    parked: list[tuple[dict[str, Any], list[tuple[str, int]]]], happened: list[tuple[Any, ...]]
) -> None:
    brokers = [SimBroker(), SimBroker(fast=False)]
    ids, _ = [{name: broker.make_topic(name, 2) for name in ("t", "u")} for broker in brokers]
    asked: list[list[Asked]] = [[], []]
    for body, wanted in parked:
        topics = [{"topic_id": ids[name], "partitions": [part(partition=index)]} for name, index in wanted]
        for broker, sent in zip(brokers, asked, strict=True):
            sent.append(broker.send(ApiKey.FETCH, 16, {**body, "topics": topics}))
    for event, *arguments in [*happened, (SimBroker.pass_time, 1.0), (SimBroker.pass_time, 61.0)]:
        for broker in brokers:
            event(broker, *arguments)
            broker.settle()
        fast, general = ([each.outcome for each in sent] for sent in asked)
        assert fast == general
    assert all(each.done for sent in asked for each in sent)
    for broker in brokers:
        assert not any(partition.waiting_fetches for partition in broker.services.replicas)


def test_what_is_out_of_the_ordinary_among_hundreds_of_partitions_is_told_in_steps() -> None:
    """A request for so many is read in steps the second time, when the general way has it: the answer is late again."""
    broker = SimBroker()
    topic_id = broker.make_topic("tide", 1200)
    broker.loop.steps_a_slice = lambda: 1  # type: ignore[method-assign]
    wanted = [part(offset=7 if index == 5 else 0, partition=index) for index in range(1200)]
    for _ in range(3):
        answer = broker.ask(ApiKey.FETCH, 16, fields(topic_id, *wanted, max_wait_ms=500, min_bytes=1))
        told = answer.responses[0].partitions
        assert len(told) == 1200
        assert {one.partition_index: one.error_code for one in told if one.error_code} == {
            5: ErrorCode.OFFSET_OUT_OF_RANGE
        }


def test_a_client_that_goes_while_that_is_told_is_let_go_of() -> None:
    broker = SimBroker()
    topic_id = broker.make_topic("tide", 1200)
    broker.loop.steps_a_slice = lambda: 1  # type: ignore[method-assign]
    wanted = [part(offset=7 if index == 5 else 0, partition=index) for index in range(1200)]
    asked = broker.send(ApiKey.FETCH, 16, fields(topic_id, *wanted, max_wait_ms=500, min_bytes=1))
    broker.timeline.run_until(lambda: asked.late.done, broker.timeline.now + 30.0)
    assert not asked.done
    asked.late.abandon()
    broker.pass_time(30.0)
    assert not asked.done
    assert not any(partition.waiting_fetches for partition in broker.services.replicas)
