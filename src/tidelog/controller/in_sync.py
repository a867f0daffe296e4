"""AlterPartition: a leader asks for another ISR, and says whether it has recovered from an unclean election (KIP-497).

Only the present leader may ask, and only on what the controller has decided last: the partition epoch orders it among
all other changes. A replica is let in if its broker is active, and is still the incarnation that the leader heard of
(KIP-903): one that restarted since may have lost what it had. An ISR that is complete ends a reassignment, which may
cost the asking leader its leadership.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidelog.controller.brokers import check_epoch
from tidelog.controller.changes import Changes
from tidelog.controller.leaders import Defaults
from tidelog.controller.partition_change import RECOVERED, RECOVERING, as_it_is
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.image import ClusterImage, PartitionImage, TopicImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicResult,
)

PARTITIONS_A_STEP = 64
FIRST_WITH_EPOCHS = 3
ANY_EPOCH = -1
"""A leader that doesn't know the epoch of a replica's broker."""


def alter_partition(
    image: ClusterImage, request: AlterPartitionRequest, version: int, defaults: Defaults
) -> Steps[Decision[Any, AlterPartitionResponse]]:
    """An answer for each partition: what it is afterwards, or why it stays as it is."""
    check_epoch(image, request.broker_id, request.broker_epoch)
    changes = Changes(image, defaults)
    topics: list[TopicResult] = []
    looks = 0
    for asked in request.topics:
        topic = image.topics_by_id.get(asked.topic_id)
        results: list[PartitionResult] = []
        for data in asked.partitions:
            looks += 1
            if not looks % PARTITIONS_A_STEP:
                yield
            if version < FIRST_WITH_EPOCHS:
                data = replace(data, new_isr_with_epochs=[BrokerState(broker_id=id) for id in data.new_isr])
            try:
                results.append(_altered(changes, image, topic, request.broker_id, data))
            except KafkaError as error:
                results.append(PartitionResult(partition_index=data.partition_index, error_code=error.code))
        topics.append(TopicResult(topic_id=asked.topic_id, partitions=results))
    return Decision(changes.records, AlterPartitionResponse(topics=topics))


def _altered(
    changes: Changes, image: ClusterImage, topic: TopicImage | None, broker_id: int, data: PartitionData
) -> PartitionResult:
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = changes.partition(topic, data.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    isr = tuple(state.broker_id for state in data.new_isr_with_epochs)
    _check_sender(partition, broker_id, data)
    _check_isr(partition, isr, data.leader_recovery_state)
    if not all(_is_eligible(image, state) for state in data.new_isr_with_epochs):
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
    target = replace(as_it_is(partition), isr=isr, recovery_state=data.leader_recovery_state)
    after = changes.change(topic, data.partition_index, target) or partition
    if after.leader != broker_id:
        # It is done; and the leader learns that it is none any more.
        raise KafkaError(ErrorCode.NEW_LEADER_ELECTED)
    return PartitionResult(
        partition_index=data.partition_index,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )


def _check_sender(partition: PartitionImage, broker_id: int, data: PartitionData) -> None:
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        # The leader heard of it from a controller that is ahead of this one.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if data.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if data.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_isr(partition: PartitionImage, isr: Sequence[int], recovery_state: int) -> None:
    members = set(isr)
    if len(members) != len(isr) or partition.leader not in members or not members <= set(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if recovery_state not in (RECOVERED, RECOVERING):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _is_eligible(image: ClusterImage, state: BrokerState) -> bool:
    broker = image.brokers.get(state.broker_id)
    return broker is not None and broker.active and state.broker_epoch in (ANY_EPOCH, broker.epoch)
