"""DescribeTopicPartitions (key 75): topics and their partitions, page by page, in the order of their names.

No topics means all. A page holds at most `response_partition_limit` partitions, and never more than
`max.request.partition.size.limit`; where more is to come, the cursor says from where. Only v0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.nodes import TOPIC_OPERATIONS, PartitionView
from tidelog.controller.names import INTERNAL_TOPICS, why_invalid
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.metadata.image import TopicImage


def handle(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    try:
        return _page(context, request)
    except KafkaError as error:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name) for topic in request.topics
            ]
        )


def _page(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    image = context.services.metadata.image
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    names = sorted(asked or image.topics)
    if cursor is not None:
        if asked and cursor.topic_name not in asked:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the topic list lacks the cursor's topic {cursor.topic_name}")
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition {cursor.partition_index} is negative")
        names = [name for name in names if name >= cursor.topic_name]
    left = max(min(context.services.config.max_request_partition_size_limit, request.response_partition_limit), 1)
    view = PartitionView(image, context.listener)
    answer = DescribeTopicPartitionsResponse()
    for name in names:
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
        seen = view.see(partition)
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
