"""Topics of the coordinators get more replicas as brokers come: which, when, and that none is taken away."""

from collections.abc import Sequence
from typing import Any

from tests.metadata.images import broker, image_of, partition
from tidelog.apis.shared.internal_topics import unset_replication
from tidelog.config.broker import BrokerConfig
from tidelog.controller.internal_topics import is_concerned, replicate
from tidelog.controller.leaders import Defaults, InternalTopic
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import TOPIC_RESOURCE, ClusterImage
from tidelog.wire.records.metadata import ConfigRecord, PartitionChangeRecord, Record
from tidelog.wire.records.topics import TopicRecord

OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
OFFSETS_ID, STATE_ID = b"offsets' topic 0", b"state's topic  0"
WISHES = (InternalTopic(OFFSETS, 3), InternalTopic(STATE, 3, 2))
DEFAULTS = Defaults(internal_topics=WISHES)
MIN_ISR = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=STATE, name="min.insync.replicas", value="1")


def offsets(*replicas: tuple[int, ...]) -> list[Record]:
    made = [partition(index, OFFSETS_ID, replicas=some) for index, some in enumerate(replicas)]
    return [TopicRecord(name=OFFSETS, topic_id=OFFSETS_ID), *made]


def state(*replicas: tuple[int, ...], isr: tuple[int, ...] | None = None) -> list[Record]:
    made = [partition(index, STATE_ID, replicas=some, isr=isr) for index, some in enumerate(replicas)]
    return [TopicRecord(name=STATE, topic_id=STATE_ID), *made, MIN_ISR]


def added(image: ClusterImage, defaults: Defaults = DEFAULTS) -> tuple[Sequence[Any], list[list[int] | None]]:
    """The records, and the replicas that each partition gets."""
    decision = whole(replicate(image, defaults))
    changes = [one for one in decision.records if isinstance(one, PartitionChangeRecord)]
    assert decision.answer == len(changes)
    fold(image, decision.records, image.offset + len(decision.records), 1, 0).check_invariants()
    return decision.records, [one.replicas for one in changes]


def test_a_cluster_of_one_stays_as_it_is() -> None:
    image = image_of(broker(1), *offsets((1,), (1,)), *state((1,)))
    assert added(image) == ([], [])
    assert not is_concerned(image_of(), image, DEFAULTS)


def test_replicas_are_added_up_to_three_as_brokers_come() -> None:
    two = image_of(broker(1), broker(2), *offsets((1,), (1,)))
    records, replicas = added(two)
    assert replicas == [[1, 2], [1, 2]]
    assert [one.adding_replicas for one in records] == [[2], [2]]
    three = image_of(*(broker(id) for id in (1, 2, 3, 4)), *offsets((1,), (1, 3), (2, 3, 4)))
    _, replicas = added(three)
    for before, some in zip(([1], [1, 3]), replicas, strict=True):
        assert some is not None
        assert (some[: len(before)], len(set(some))) == (before, 3)


def test_who_is_fenced_gets_none_and_what_moves_is_left_alone() -> None:
    assert added(image_of(broker(1), broker(2, fenced=True), *offsets((1,))))[1] == []
    two = image_of(broker(1), broker(2), *offsets((1,)))
    moving = fold(two, added(two)[0], two.offset + 1, 1, 0)
    assert added(fold(moving, [broker(3)], moving.offset + 1, 1, 0))[1] == []


def test_none_is_taken_away_and_what_is_set_stays() -> None:
    image = image_of(*(broker(id) for id in (1, 2, 3, 4)), *offsets((1, 2, 3, 4)))
    assert added(image)[1] == []
    given = BrokerConfig.parse({"offsets.topic.replication.factor": "1", "transaction.state.log.min.isr": "1"})
    assert unset_replication(given) == (InternalTopic(STATE, 3, 0),)
    assert unset_replication(BrokerConfig.parse({})) == WISHES
    alone = image_of(broker(1), broker(2), *offsets((1,)))
    assert added(alone, Defaults(internal_topics=unset_replication(given)))[1] == []


def test_a_new_replica_is_on_another_host_where_there_is_one() -> None:
    def host(id: int, name: str) -> ConfigRecord:
        return ConfigRecord(resource_type=4, resource_name=str(id), name="tidelog.host", value=name)

    hosts = [host(1, "left"), host(2, "left"), host(3, "right"), host(4, "right")]
    image = image_of(*(broker(id) for id in (1, 2, 3, 4)), *hosts, *offsets(*[(1,)] * 8))
    for replicas in added(image, Defaults(internal_topics=(InternalTopic(OFFSETS, 2),)))[1]:
        assert replicas in ([1, 3], [1, 4])


def test_transactions_ask_for_two_in_sync_when_there_are_three() -> None:
    brokers = [broker(id) for id in (1, 2, 3)]
    two = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=STATE, name="min.insync.replicas", value="2")
    assert added(image_of(*brokers, *state((1, 2, 3), (2, 3, 1))))[0] == [two]
    assert added(image_of(*brokers, *state((1, 2, 3), isr=(1,))))[0] == [], "not yet: one alone would be refused"
    assert added(image_of(broker(1), broker(2), *state((1, 2))))[0] == []
    assert added(image_of(*brokers, *state((1, 2, 3)), two))[0] == []


def test_it_is_looked_at_when_brokers_or_these_topics_change() -> None:
    image = image_of(broker(1), broker(2), *offsets((1,)))
    changed = PartitionChangeRecord(partition_id=0, topic_id=OFFSETS_ID, leader=1)
    assert is_concerned(image, fold(image, [changed], image.offset + 1, 1, 0), DEFAULTS)
    assert is_concerned(image, fold(image, [broker(3)], image.offset + 1, 1, 0), DEFAULTS)
    other = TopicRecord(name="other", topic_id=b"another topic 00")
    assert not is_concerned(image, fold(image, [other], image.offset + 1, 1, 0), DEFAULTS)
