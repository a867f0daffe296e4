"""Placement, elections, features, producer ids, reassignments, and what a new leader writes first."""

from collections.abc import Sequence

import pytest

from tests.metadata.images import TOPIC_ID, broker, features, image_of, partition, topic
from tidelog.controller.activation import activation_records, default_bootstrap
from tidelog.controller.elections import elect_leaders
from tidelog.controller.features import update_features
from tidelog.controller.leaders import Defaults
from tidelog.controller.placement import Placement
from tidelog.controller.producer_ids import ProducerIdBlock, allocate
from tidelog.controller.reassignments import list_reassignments
from tidelog.env.slices import whole
from tidelog.metadata.image import EMPTY_IMAGE, BrokerImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tidelog.wire.records.cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
)
from tidelog.wire.records.topics import PartitionChangeRecord, TopicRecord

DEFAULTS = Defaults()


def a_broker(id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerImage:
    return BrokerImage(id, 1, b"", (), {}, rack, fenced)


def test_leaders_go_round_the_brokers() -> None:
    brokers = {id: a_broker(id) for id in (1, 2, 3)}
    assert Placement(brokers).place(0, 4, 2, 0) == [(1, 2), (2, 3), (3, 1), (1, 3)]
    assert Placement(brokers).place(4, 1, 2, 0) == [(2, 1)], "more partitions go on where the others ended"
    assert Placement(brokers).place(0, 1, 2, 5) == [(3, 2)]


def test_replicas_land_in_different_racks() -> None:
    brokers = {id: a_broker(id, rack) for id, rack in enumerate("aabbcc", 1)}
    for replicas in Placement(brokers).place(0, 6, 3, 0):
        assert len({brokers[replica].rack for replica in replicas}) == 3, replicas


def test_fenced_broker_does_not_lead() -> None:
    brokers = {1: a_broker(1, fenced=True), 2: a_broker(2)}
    assert Placement(brokers).place(0, 2, 2, 0) == [(2, 1), (2, 1)]


@pytest.mark.parametrize(
    ("brokers", "factor"), [([], 1), ([a_broker(1, fenced=True)], 1), ([a_broker(1)], 2), ([a_broker(1)], 0)]
)
def test_impossible_placement(brokers: list[BrokerImage], factor: int) -> None:
    with pytest.raises(KafkaError) as raised:
        Placement({broker.id: broker for broker in brokers}).place(0, 1, factor, 0)
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def elect(
    *partitions: tuple[str, int], kind: int = 0, leader: int = 1
) -> tuple[Sequence[object], list[ReplicaElectionResult]]:
    image = image_of(
        broker(), broker(2), TopicRecord(name="t", topic_id=TOPIC_ID), partition(0, replicas=(1, 2), leader=leader)
    )
    asked = [TopicPartitions(topic=name, partitions=[index]) for name, index in partitions] or None
    records, response = whole(
        elect_leaders(image, ElectLeadersRequest(election_type=kind, topic_partitions=asked), DEFAULTS)
    )
    return records, response.replica_election_results


def codes(results: list[ReplicaElectionResult]) -> list[int]:
    return [partition.error_code for result in results for partition in result.partition_result]


def test_preferred_leader_comes_back() -> None:
    records, results = elect(("t", 0), leader=2)
    assert records == [PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1)]
    assert results == [
        ReplicaElectionResult(topic="t", partition_result=[PartitionResult(partition_id=0, error_message=None)])
    ]


def test_no_election_where_none_is_needed() -> None:
    assert codes(elect(("t", 0))[1]) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert codes(elect(("t", 0), kind=1, leader=2)[1]) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert elect()[1] == [ReplicaElectionResult(topic="t", partition_result=[])]


def test_election_of_what_does_not_exist() -> None:
    assert codes(elect(("t", 1), ("u", 0))[1]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    with pytest.raises(KafkaError, match="election type 7"):
        elect(("t", 0), kind=7)


def test_preferred_leader_that_is_away_is_not_available() -> None:
    image = image_of(
        broker(fenced=True),
        broker(2),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        partition(0, replicas=(1, 2), isr=(2,), leader=2),
    )
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    assert codes(whole(elect_leaders(image, request, DEFAULTS))[1].replica_election_results) == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    ]


def update(
    name: str, level: int, kind: int = 1, version: int = 1, *, validate_only: bool = False
) -> tuple[Sequence[object], int]:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)],
        validate_only=validate_only,
    )
    records, response = whole(update_features(image_of(), request, 1, version, DEFAULTS))
    return records, response.error_code


def test_feature_goes_down_when_it_is_told_to() -> None:
    assert update("transaction.version", 1, kind=2) == (
        [FeatureLevelRecord(name="transaction.version", feature_level=1)],
        0,
    )
    assert update("transaction.version", 1, kind=2, validate_only=True) == ([], 0)


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("transaction.version", 1, 1),
        ("transaction.version", 3, 1),
        ("transaction.version", -1, 2),
        ("no.such.version", 1, 1),
        ("no.such.version", 0, 1),
        ("no.such.version", 0, 2),
        ("", 0, 1),
        ("metadata.version", 31, 1),
        ("metadata.version", 29, 2),
        ("metadata.version", 29, 3),
        ("metadata.version", 6, 2),
        ("kraft.version", 0, 2),
        ("group.version", 1, 9),
    ],
)
def test_impossible_level_is_refused(name: str, level: int, kind: int) -> None:
    assert update(name, level, kind) == ([], ErrorCode.INVALID_UPDATE_VERSION)


def test_same_level_again_is_no_error() -> None:
    assert update("kraft.version", 1) == ([], 0)
    assert update("metadata.version", 30) == ([FeatureLevelRecord(name="metadata.version", feature_level=30)], 0)


def test_feature_that_is_named_twice_is_written_once() -> None:
    named = [FeatureUpdateKey(feature="group.version", max_version_level=level, upgrade_type=2) for level in (1, 0)]
    records, response = whole(update_features(image_of(), UpdateFeaturesRequest(feature_updates=named), 1, 1, DEFAULTS))
    assert records == [FeatureLevelRecord(name="group.version", feature_level=0)]
    assert [result.feature for result in response.results] == ["group.version"] * 2, "and told twice"


def test_results_for_each_feature_up_to_version_one() -> None:
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=1)])
    assert [r.feature for r in whole(update_features(image_of(), request, 1, 1, DEFAULTS))[1].results] == [
        "group.version"
    ]
    assert whole(update_features(image_of(), request, 1, 2, DEFAULTS))[1].results == []


def test_version_zero_says_otherwise_what_a_downgrade_is() -> None:
    down = FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=True)
    records, response = whole(
        update_features(image_of(), UpdateFeaturesRequest(feature_updates=[down]), 1, 0, DEFAULTS)
    )
    assert (records, response.error_code) == ([FeatureLevelRecord(name="group.version", feature_level=0)], 0)


def test_producer_ids_come_in_blocks() -> None:
    records, block = allocate(image_of(broker()), 1, 6)
    assert records == [ProducerIdsRecord(broker_id=1, broker_epoch=6, next_producer_id=1000)]
    assert block == ProducerIdBlock(0, 1000)
    _, block = allocate(image_of(broker(), *records), 1, 6)
    assert block == ProducerIdBlock(1000, 1000)


def test_no_producer_ids_for_an_old_self_or_when_they_ran_out() -> None:
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        allocate(image_of(broker()), 1, 5)
    last = ProducerIdsRecord(broker_id=1, broker_epoch=6, next_producer_id=2**63 - 1000)
    with pytest.raises(KafkaError, match="all producer ids"):
        allocate(image_of(broker(), last), 1, 6)


def test_moving_partitions_are_listed() -> None:
    image = image_of(broker(), broker(2), *topic(partitions=2))
    assert whole(list_reassignments(image, ListPartitionReassignmentsRequest(topics=None))).topics == []
    moving = PartitionChangeRecord(
        partition_id=1, topic_id=TOPIC_ID, replicas=[1, 2], adding_replicas=[2], directories=[bytes(16)] * 2
    )
    image = image_of(broker(), broker(2), *topic(partitions=2), moving)
    expected = [
        OngoingTopicReassignment(
            name="t",
            partitions=[OngoingPartitionReassignment(partition_index=1, replicas=[1, 2], adding_replicas=[2])],
        )
    ]
    assert whole(list_reassignments(image, ListPartitionReassignmentsRequest(topics=None))).topics == expected
    asked = [
        ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1, 9]),
        ListPartitionReassignmentsTopics(name="unknown", partition_indexes=[0]),
    ]
    assert whole(list_reassignments(image, ListPartitionReassignmentsRequest(topics=asked))).topics == expected


def test_new_cluster_starts_with_its_bootstrap_records() -> None:
    records, _ = activation_records(EMPTY_IMAGE, default_bootstrap(), Defaults(min_insync_replicas=1))
    assert records == [
        BeginTransactionRecord(name="Bootstrap records"),
        *features(),
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
        EndTransactionRecord(),
    ]


def test_known_cluster_starts_with_nothing() -> None:
    assert activation_records(image_of(), default_bootstrap(), DEFAULTS) == ([], None)


def test_transaction_left_open_is_aborted() -> None:
    image = image_of(BeginTransactionRecord(name="x"), *topic())
    assert activation_records(image, default_bootstrap(), DEFAULTS) == (
        [AbortTransactionRecord(reason="Controller failover")],
        None,
    )


def test_eligible_leader_replicas_come_with_one_min_isr_for_all_brokers() -> None:
    def own(name: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=4, resource_name=name, name="min.insync.replicas", value=value)

    off = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)
    on = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
    update = FeatureUpdateKey(feature=on.name, max_version_level=1, upgrade_type=1)
    request = UpdateFeaturesRequest(feature_updates=[update])
    defaults = Defaults(min_insync_replicas=2)
    image = image_of(off, own("7", "3"))
    assert whole(update_features(image, request, 1, 1, defaults))[0] == [own("", "2"), own("7", None), on]
    image = image_of(off, own("", "3"))
    assert whole(update_features(image, request, 1, 1, defaults))[0] == [on]
    checked = UpdateFeaturesRequest(feature_updates=[update], validate_only=True)
    assert whole(update_features(image_of(off), checked, 1, 1, defaults))[0] == []
