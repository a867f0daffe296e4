"""Consumers that read from a follower in their own rack (KIP-392): who tells them so, and what a follower serves."""

from typing import Any

import pytest

from tests.apis.followers import FollowingBroker, bases, change, register
from tests.apis.sim_broker import SimBroker
from tests.apis.test_replica_fetch import fence, produce
from tidelog.config.cluster import RACK_AWARE
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey


def cluster(selector: str | None = RACK_AWARE) -> SimBroker:
    broker = SimBroker({"broker.rack": "a", **({} if selector is None else {"replica.selector.class": selector})})
    broker.make_topic("tide")
    for id, rack in ((2, "b"), (3, "c"), (4, "c")):
        register(broker, id, rack=rack)
    change(broker, replicas=[1, 2, 3, 4], isr=[1, 2, 3, 4])
    produce(broker, acks=1)
    for id, end in ((2, 1), (3, 0), (4, 1)):
        follower = FollowingBroker(broker, id)
        follower.fetch(follower.part(0, end))
    return broker


@pytest.fixture
def broker() -> SimBroker:
    return cluster()


def consume(broker: SimBroker, offset: int = 0, rack: str = "", version: int = 16, **more: Any) -> Any:
    topic = broker.services.metadata.image.topics["tide"]
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    named = {"topic_id": topic.id} if version >= 13 else {"topic": "tide"}
    fields = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "session_epoch": -1,
        "topics": [{**named, "partitions": [{**part, **more}]}],
        **({"rack_id": rack} if version >= 11 else {}),
    }
    asked = broker.send(ApiKey.FETCH, version, fields)
    broker.settle()
    return asked


def nearest(broker: SimBroker, rack: str, offset: int = 0) -> int:
    asked = consume(broker, offset, rack)
    if not asked.done:
        return -1
    told = asked.response.responses[0].partitions[0]
    assert (told.error_code, bytes(told.records)) == (0, b"")
    return told.preferred_read_replica


def test_a_consumer_is_sent_to_a_replica_of_its_rack(broker: SimBroker) -> None:
    assert [nearest(broker, rack) for rack in ("a", "b", "c", "d")] == [-1, 2, 4, -1]
    assert nearest(broker, "c", offset=1) == 4, "3 doesn't have it yet"


def test_only_those_in_sync_and_alive_are_named(broker: SimBroker) -> None:
    fence(broker, 4)
    assert nearest(broker, "c") == 3
    assert nearest(broker, "c", offset=1) == -1
    change(broker, isr=[1, 3, 4])
    assert nearest(broker, "b") == -1


def test_unless_the_cluster_wants_it_the_leader_serves_all() -> None:
    assert nearest(cluster(selector=None), "b") == -1


def test_a_follower_serves_consumers_what_it_knows_to_be_committed(broker: SimBroker) -> None:
    change(broker, leader=2)
    partition = broker.partition("tide")
    partition.learn(1, 0)
    told = consume(broker, rack="d").response.responses[0].partitions[0]
    assert (told.error_code, told.high_watermark, bases(bytes(told.records))) == (0, 1, [0])
    assert told.preferred_read_replica == -1
    for version in (10, 16):  # one without a rack was sent here by nobody: it is told who leads
        lost = consume(broker, version=version).response.responses[0].partitions[0]
        assert lost.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    two = FollowingBroker(broker, 3)
    assert two.fetch(two.part(0, 0)) == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, [])]


def test_a_consumer_waits_at_a_follower_for_what_the_leader_tells_it(broker: SimBroker) -> None:
    change(broker, leader=2)
    partition = broker.partition("tide")
    assert partition.high_watermark == 0
    asked = consume(broker, rack="d")
    assert not asked.done
    partition.learn(1, 0)
    broker.settle()
    assert bases(bytes(asked.response.responses[0].partitions[0].records)) == [0]


def test_a_fenced_epoch_is_told_at_a_follower_too(broker: SimBroker) -> None:
    change(broker, leader=2)
    told = consume(broker, rack="d", current_leader_epoch=0).response.responses[0].partitions[0]
    assert told.error_code == ErrorCode.FENCED_LEADER_EPOCH
