"""DescribeTopicPartitions (key 75): topics and their partitions, page by page, in the order of their names.

No topics means all. A page holds at most `response_partition_limit` partitions, and never more than
`max.request.partition.size.limit`; where more is to come, the cursor says from where. Only v0.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.apis.shared.nodes import TOPIC_OPERATIONS, PartitionView, offline_here
from tidelog.controller.names import INTERNAL_TOPICS, why_invalid
from tidelog.env.slices import CHEAP_A_STEP, Steps, distinct, mapped, ordered
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.metadata.image import TopicImage


def handle(context: Context, request: DescribeTopicPartitionsRequest) -> Steps[DescribeTopicPartitionsResponse]:
    try:
        return (yield from _page(context, request))
    except KafkaError as error:
        failed = partial(_failed, error.code)
        return DescribeTopicPartitionsResponse(topics=(yield from mapped(failed, request.topics)))


def _failed(code: ErrorCode, topic: TopicRequest) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)


def _name(topic: TopicRequest) -> str:
    return topic.name


def _page(context: Context, request: DescribeTopicPartitionsRequest) -> Steps[DescribeTopicPartitionsResponse]:
    image = context.services.metadata.image
    cursor = request.cursor
    asked = yield from distinct((yield from mapped(_name, request.topics, CHEAP_A_STEP)))
    names = yield from ordered(asked or list(image.topics))
    if cursor is not None:
        if asked and cursor.topic_name not in asked:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the topic list lacks the cursor's topic {cursor.topic_name}")
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition {cursor.partition_index} is negative")
        names = [name for name in names if name >= cursor.topic_name]
    left = max(min(context.services.config.max_request_partition_size_limit, request.response_partition_limit), 1)
    view = PartitionView(image, context.listener, here=offline_here(context.services))
    answer = DescribeTopicPartitionsResponse()
    for name in names:
        yield
        if left == 0:
            answer.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            if asked:
                answer.topics.append(_missing(name))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(len(topic.partitions), start + left)
        answer.topics.append(_described(topic, view, start, end))
        if end < len(topic.partitions):
            answer.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        left -= max(end - start, 0)
    return answer


def _described(topic: TopicImage, view: PartitionView, start: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    for index in range(start, end):
        partition = topic.partitions[index]
        seen = view.see(partition, topic.name, index)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=seen.leader,
                leader_epoch=seen.leader_epoch,
                replica_nodes=seen.replicas,
                isr_nodes=seen.isr,
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=seen.offline,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
