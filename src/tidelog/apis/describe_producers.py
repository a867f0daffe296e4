"""DescribeProducers (key 61): the producers that partitions remember (KIP-664), of any replica. Only v0.

A partition that is named twice is described once: with many producers the answer would grow out of bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.names import why_invalid
from tidelog.env.slices import Steps, mapped
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.log.producers import Producer


def handle(context: Context, request: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
    topics: list[TopicResponse] = []
    described: set[TopicPartition] = set()
    for topic in request.topics:
        partitions: list[PartitionResponse] = []
        for index in topic.partition_indexes:
            if (topic.name, index) not in described:
                described.add((topic.name, index))
                partitions.append((yield from _describe(context, topic.name, index)))
            yield
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
        yield
    return DescribeProducersResponse(topics=topics)


def _describe(context: Context, topic: str, index: int) -> Steps[PartitionResponse]:
    reason = why_invalid(topic)
    if reason is not None:
        return PartitionResponse(
            partition_index=index, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=reason
        )
    if topic not in context.services.metadata.image.topics:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic}."
        return PartitionResponse(partition_index=index, error_code=code, error_message=message)
    try:
        partition = context.services.replicas.get(topic, index)
        partition.check_replica()
        producers = list(partition.log.producers.items())
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(
        partition_index=index, active_producers=(yield from mapped(_producer_state, producers, 64))
    )


def _producer_state(known: tuple[int, Producer]) -> ProducerState:
    producer_id, producer = known
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.txn_first_offset,
    )
