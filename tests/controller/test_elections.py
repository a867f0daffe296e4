"""Elections that somebody asks for, and those that the controller does by itself."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.controller.nodes import Node, World
from tests.metadata.images import TOPIC_ID, broker, image_of, partition, topic
from tidelog.controller.balance import ELECTIONS_AT_ONCE, elect_preferred, elect_uncleanly
from tidelog.controller.elections import elect_leaders
from tidelog.controller.leader_balance import LeaderBalance
from tidelog.controller.leaders import Defaults
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.records.cluster import ConfigRecord
from tidelog.wire.records.metadata import Record
from tidelog.wire.records.topics import PartitionChangeRecord, TopicRecord

PREFERRED, UNCLEAN = 0, 1
ALLOWED = ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")


def cluster(*more: Record, fenced: Sequence[int] = ()) -> ClusterImage:
    """Four partitions: led as they should be, by another, by nobody though 2 was in sync, by nobody at all."""
    return image_of(
        *(broker(id, fenced=id in fenced) for id in (1, 2, 3)),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        partition(0, replicas=(1, 2)),
        partition(1, replicas=(1, 2), leader=2),
        partition(2, replicas=(1, 2), isr=(2,), leader=-1),
        partition(3, replicas=(1, 2), isr=(), leader=-1),
        *more,
    )


def ask(image: ClusterImage, kind: int, indexes: list[int] | None) -> tuple[Sequence[Any], list[tuple[int, int]]]:
    topics = None if indexes is None else [TopicPartitions(topic="t", partitions=indexes)]
    records, response = whole(
        elect_leaders(image, ElectLeadersRequest(election_type=kind, topic_partitions=topics), Defaults())
    )
    fold(image, records, image.offset + len(records), 1, 0).check_invariants()
    (result,) = response.replica_election_results
    return records, [(p.partition_id, p.error_code) for p in result.partition_result]


def changed(index: int, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, **fields)


def test_preferred_replicas_lead_again() -> None:
    records, told = ask(cluster(), PREFERRED, [0, 1, 2, 3, 4])
    assert records == [changed(1, leader=1), changed(2, leader=2)]
    assert told == [
        (0, ErrorCode.ELECTION_NOT_NEEDED),
        (1, 0),
        (2, 0),
        (3, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_preferred_replica_that_is_fenced_stays_out() -> None:
    records, told = ask(cluster(fenced=[1]), PREFERRED, [1])
    assert (records, told) == ([], [(1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)])


def test_who_wants_the_preferred_leader_is_told_who_leads_on() -> None:
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
    _, response = whole(elect_leaders(cluster(fenced=[1]), request, Defaults()))
    told = {one.partition_id: one.error_message for one in response.replica_election_results[0].partition_result}
    assert told[1] == ("The preferred replica of t-1, on broker 1, is not there or not in sync; broker 2 leads on.")
    assert told[3] == "The preferred replica of t-3, on broker 1, is not there or not in sync; nobody leads."


def test_unclean_election_is_for_partitions_without_a_leader_and_needs_no_leave_of_the_topic() -> None:
    records, told = ask(cluster(), UNCLEAN, [0, 1, 2, 3])
    assert records == [changed(2, leader=2), changed(3, leader=1, isr=[1], leader_recovery_state=1)]
    assert told == [(0, ErrorCode.ELECTION_NOT_NEEDED), (1, ErrorCode.ELECTION_NOT_NEEDED), (2, 0), (3, 0)]
    records, told = ask(cluster(fenced=[1, 2]), UNCLEAN, [3])
    assert (records, told) == ([], [(3, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)])


def test_all_partitions_are_meant_and_those_that_need_nothing_are_left_out() -> None:
    assert ask(cluster(), PREFERRED, None)[1] == [(1, 0), (2, 0), (3, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


def test_partition_that_is_named_twice_is_elected_once() -> None:
    records, told = ask(cluster(), PREFERRED, [1, 1])
    assert records == [changed(1, leader=1)]
    assert told == [(1, 0), (1, ErrorCode.ELECTION_NOT_NEEDED)]


def test_unknown_kind_of_election_is_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        whole(elect_leaders(cluster(), ElectLeadersRequest(election_type=2), Defaults()))
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_eligible_replica_leads_before_any_other() -> None:
    eligible = changed(3, eligible_leader_replicas=[2], last_known_elr=[1])
    records, _ = ask(cluster(eligible), UNCLEAN, [3])
    assert records == [changed(3, leader=2, isr=[2], eligible_leader_replicas=[], last_known_elr=[])]


def test_controller_brings_preferred_leaders_back() -> None:
    assert whole(elect_preferred(cluster(), Defaults())) == ([changed(1, leader=1), changed(2, leader=2)], 2)
    assert whole(elect_preferred(cluster(fenced=[1]), Defaults())) == ([changed(2, leader=2)], 1)


def test_controller_elects_uncleanly_where_the_topic_allows_it() -> None:
    assert whole(elect_uncleanly(cluster(), Defaults())) == ([], 0)
    elected = [changed(2, leader=2), changed(3, leader=1, isr=[1], leader_recovery_state=1)]
    assert whole(elect_uncleanly(cluster(ALLOWED), Defaults())) == (elected, 2)
    assert whole(elect_uncleanly(cluster(), Defaults(unclean_leader_election=True))) == (elected, 2)


def test_elections_are_done_in_batches() -> None:
    many: list[Record] = topic(partitions=ELECTIONS_AT_ONCE + 5, replicas=(2, 1))
    image = image_of(broker(1), broker(2, fenced=True), *many)
    image = fold(image, [changed(i, leader=1, isr=[1, 2]) for i in range(ELECTIONS_AT_ONCE + 5)], image.offset, 1, 0)
    assert whole(elect_preferred(image, Defaults()))[1] == 0
    image = fold(image, [broker(1), broker(2)], image.offset, 1, 0)
    records, count = whole(elect_preferred(image, Defaults()))
    assert (len(records), count) == (ELECTIONS_AT_ONCE, ELECTIONS_AT_ONCE)
    image = fold(image, records, image.offset, 1, 0)
    assert whole(elect_preferred(image, Defaults()))[1] == 5


# ---- on the active controller ----


@pytest.fixture
def node() -> Node:
    node = World().start()
    node.write(
        *(broker(id, epoch=14 + id) for id in (2, 3)),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        partition(0, replicas=(2, 3), leader=3),
        partition(1, replicas=(2, 3), isr=(), leader=-1),
    )
    for id in (2, 3):  # a session for each, so that none is fenced meanwhile
        node.controller.liveness.heard(id, 14 + id, 0, -1)
    return node


def balance(node: Node, interval_s: float | None) -> LeaderBalance:
    balance = LeaderBalance(node.loop, node.controller.submit_steps, Defaults(), interval_s)
    node.follower.subscribe(balance.look)
    balance.start()
    return balance


def leaders(node: Node) -> list[int]:
    node.image.check_invariants()
    return [partition.leader for partition in node.image.topics["t"].partitions]


def test_leader_goes_back_after_the_interval(node: Node) -> None:
    balance(node, 30)
    node.world.run(29)
    assert leaders(node) == [3, -1]
    node.world.run(2)
    assert leaders(node) == [2, -1]


def test_leader_stays_where_rebalancing_is_off_and_where_this_node_does_not_lead(node: Node) -> None:
    balance(node, None)
    balance(node, 30).stop()
    node.world.run(1000)
    assert leaders(node) == [3, -1]


def test_leader_is_elected_uncleanly_as_soon_as_its_topic_allows_it(node: Node) -> None:
    node.write(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1000"))
    node.world.run(1)
    assert leaders(node) == [3, -1]
    node.write(ALLOWED)
    node.world.run(1)
    assert leaders(node) == [3, 2]


def test_what_is_left_over_a_batch_follows_at_once(node: Node) -> None:
    node.write(TopicRecord(name="many", topic_id=b"another topic 00"))
    count = ELECTIONS_AT_ONCE + 5
    node.write(*(partition(i, b"another topic 00", replicas=(2, 3), leader=3) for i in range(count)))
    balance(node, 30)
    node.world.run(31)
    assert {p.leader for p in node.image.topics["many"].partitions} == {2}
