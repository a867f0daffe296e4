"""AlterPartition: which ISR a leader gets, and what it is told otherwise."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.metadata.images import TOPIC_ID, broker, image_of, partition, topic
from tidelog.controller.in_sync import alter_partition
from tidelog.controller.leaders import Defaults
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
    TopicResult,
)
from tidelog.wire.records.cluster import ConfigRecord
from tidelog.wire.records.metadata import Record
from tidelog.wire.records.nodes import BrokerRegistrationChangeRecord
from tidelog.wire.records.topics import PartitionChangeRecord, TopicRecord

OTHER_ID = b"another topic 00"
CHANGED = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID)


def cluster(*more: Record, isr: tuple[int, ...] = (1, 2, 3)) -> ClusterImage:
    return image_of(
        *(broker(id, epoch=id * 100) for id in (1, 2, 3, 4)),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        partition(0, replicas=(1, 2, 3), isr=isr, leader=isr[0]),
        *more,
    )


def asked(isr: Sequence[int], **fields: Any) -> PartitionData:
    states = [BrokerState(broker_id=id, broker_epoch=id * 100) for id in isr]
    return PartitionData(new_isr_with_epochs=states, **fields)


def ask(
    image: ClusterImage, data: PartitionData, version: int = 3, topic_id: bytes = TOPIC_ID, min_isr: int = 1
) -> tuple[Sequence[Any], PartitionResult]:
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=100, topics=[TopicData(topic_id=topic_id, partitions=[data])]
    )
    records, response = whole(alter_partition(image, request, version, Defaults(min_insync_replicas=min_isr)))
    fold(image, records, image.offset + len(records), 1, 0).check_invariants()
    assert response == AlterPartitionResponse(
        topics=[TopicResult(topic_id=topic_id, partitions=response.topics[0].partitions)]
    )
    return records, response.topics[0].partitions[0]


def test_leader_takes_a_follower_out_and_in_again() -> None:
    records, result = ask(cluster(), asked([1, 2]))
    assert records == [replace(CHANGED, isr=[1, 2])]
    assert result == PartitionResult(leader_id=1, isr=[1, 2], partition_epoch=1)
    records, result = ask(cluster(isr=(1, 2)), asked([1, 2, 3]))
    assert records == [replace(CHANGED, isr=[1, 2, 3])]
    assert result == PartitionResult(leader_id=1, isr=[1, 2, 3], partition_epoch=1)


def test_isr_that_is_so_already_is_confirmed_and_not_written() -> None:
    assert ask(cluster(), asked([1, 2, 3])) == ([], PartitionResult(leader_id=1, isr=[1, 2, 3]))


def test_before_version_3_the_isr_has_no_epochs() -> None:
    records, _ = ask(cluster(), PartitionData(new_isr=[1, 3]), version=2)
    assert records == [replace(CHANGED, isr=[1, 3])]


def test_below_min_isr_who_leaves_stays_eligible_until_there_are_enough_again() -> None:
    image = cluster()
    records, _ = ask(image, asked([1]), min_isr=2)
    assert records == [replace(CHANGED, isr=[1], eligible_leader_replicas=[2, 3])]
    image = fold(image, records, image.offset + 1, 1, 0)
    records, _ = ask(image, asked([1, 3], partition_epoch=1), min_isr=2)
    assert records == [replace(CHANGED, isr=[1, 3], eligible_leader_replicas=[])]


def test_old_metadata_versions_open_a_leader_epoch_when_the_isr_shrinks() -> None:
    image = replace(cluster(), features={"metadata.version": 11})
    image = replace(image, topics={}, topics_by_id={})
    image = fold(image, [*topic(replicas=(1, 2, 3))], image.offset + 2, 1, 0)
    records, result = ask(image, asked([1, 2]))
    assert records == [replace(CHANGED, isr=[1, 2], leader=1)]
    assert (result.leader_epoch, result.partition_epoch) == (1, 1)


def test_leader_that_has_recovered_says_so() -> None:
    unclean = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1, isr=[1], leader_recovery_state=1)
    image = cluster(unclean)
    at = {"leader_epoch": 1, "partition_epoch": 1}
    assert ask(image, asked([1, 2], leader_recovery_state=1, **at))[1].error_code == ErrorCode.INVALID_REQUEST
    records, result = ask(image, asked([1, 2], leader_recovery_state=0, **at))
    assert records == [replace(CHANGED, isr=[1, 2], leader_recovery_state=0)]
    assert result.leader_recovery_state == 0


def test_reassignment_ends_when_the_new_replica_is_in_sync_and_the_leader_may_go() -> None:
    moving = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=[4, 2, 3, 1], removing_replicas=[1], adding_replicas=[4],
        directories=[b"directory      4", b"directory      2", b"directory      3", b"directory of one"],
    )  # fmt: skip
    records, result = ask(cluster(moving), asked([1, 2, 3, 4], partition_epoch=1))
    assert records == [
        replace(
            CHANGED,
            isr=[2, 3, 4],
            leader=4,
            replicas=[4, 2, 3],
            removing_replicas=[],
            adding_replicas=[],
            directories=[b"directory      4", b"directory      2", b"directory      3"],
        )
    ]
    assert result == PartitionResult(error_code=ErrorCode.NEW_LEADER_ELECTED)


def test_reassignment_ends_and_the_leader_stays() -> None:
    moving = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2, 4, 3], removing_replicas=[3], adding_replicas=[4],
        directories=[b"directory of one", b"directory      2", b"directory      4", b"directory      3"],
    )  # fmt: skip
    records, result = ask(cluster(moving), asked([1, 2, 4], partition_epoch=1))
    assert records == [
        replace(
            CHANGED,
            isr=[1, 2, 4],
            leader=1,
            replicas=[1, 2, 4],
            removing_replicas=[],
            adding_replicas=[],
            directories=[b"directory of one", b"directory      2", b"directory      4"],
        )
    ]
    assert result == PartitionResult(leader_id=1, leader_epoch=1, isr=[1, 2, 4], partition_epoch=2)


FENCED = BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=300, fenced=1)
STOPPING = BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=300, in_controlled_shutdown=1)
EPOCHS = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1)


@pytest.mark.parametrize(
    ("image", "data", "code"),
    [
        (cluster(), asked([1], partition_index=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (cluster(), asked([1], leader_epoch=1), ErrorCode.NOT_CONTROLLER),
        (cluster(), asked([1], partition_epoch=1), ErrorCode.NOT_CONTROLLER),
        (cluster(EPOCHS), asked([1], partition_epoch=1), ErrorCode.FENCED_LEADER_EPOCH),
        (cluster(EPOCHS), asked([1], leader_epoch=1), ErrorCode.INVALID_UPDATE_VERSION),
        (cluster(isr=(2, 3)), asked([1, 2]), ErrorCode.INVALID_REQUEST),
        (cluster(), asked([]), ErrorCode.INVALID_REQUEST),
        (cluster(), asked([2, 3]), ErrorCode.INVALID_REQUEST),
        (cluster(), asked([1, 4]), ErrorCode.INVALID_REQUEST),
        (cluster(), asked([1, 2, 2]), ErrorCode.INVALID_REQUEST),
        (cluster(), asked([1], leader_recovery_state=1), ErrorCode.INVALID_REQUEST),
        (cluster(), asked([1], leader_recovery_state=7), ErrorCode.INVALID_REQUEST),
        (cluster(FENCED), asked([1, 2, 3]), ErrorCode.INELIGIBLE_REPLICA),
        (cluster(STOPPING), asked([1, 2, 3]), ErrorCode.INELIGIBLE_REPLICA),
        (
            cluster(),
            PartitionData(
                new_isr_with_epochs=[
                    BrokerState(broker_id=1, broker_epoch=100),
                    BrokerState(broker_id=2, broker_epoch=199),
                ]
            ),
            ErrorCode.INELIGIBLE_REPLICA,
        ),
    ],
)
def test_isr_that_may_not_be_is_refused(image: ClusterImage, data: PartitionData, code: ErrorCode) -> None:
    assert ask(image, data) == ([], PartitionResult(partition_index=data.partition_index, error_code=code))


def test_topic_that_is_not_there_is_said_of_each_partition() -> None:
    assert ask(cluster(), asked([1]), topic_id=OTHER_ID)[1].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_old_self_of_the_leader_is_refused_as_a_whole() -> None:
    with pytest.raises(KafkaError) as raised:
        whole(alter_partition(cluster(), AlterPartitionRequest(broker_id=1, broker_epoch=99), 3, Defaults()))
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_min_isr_is_the_topics_own() -> None:
    image = cluster(ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="3"))
    records, _ = ask(image, asked([1, 2]))
    assert records == [replace(CHANGED, isr=[1, 2], eligible_leader_replicas=[3])]
