"""DeleteRecords (key 21): delete everything before an offset; the log then starts there, which may be inside a batch.

-1 means up to the high watermark. Beyond the high watermark is OFFSET_OUT_OF_RANGE; below the log's start nothing
happens. The answer tells the low watermark, the lowest start of the log among its replicas, and waits until that is
what was asked for. Internal topics and compacted ones keep their records. v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.names import INTERNAL_TOPICS
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context

TO_HIGH_WATERMARK = -1
NO_WATERMARK = -1


def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_one(context, topic.name, one.partition_index, one.offset) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _one(context: Context, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        low_watermark, code = _delete(context, topic, index, offset), ErrorCode.NONE
    except KafkaError as error:
        low_watermark, code = NO_WATERMARK, error.code
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=code)


def _delete(context: Context, topic: str, index: int, offset: int) -> int:
    if context.services.metadata.image.partition(topic, index) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
    partition = context.services.replicas.get(topic, index)
    partition.check_leader()
    log = partition.log
    if log.config.compacts and not log.config.deletes:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted: its records can't be deleted by offset")
    if offset == TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{offset} is not between 0 and the high watermark {partition.high_watermark} of {topic}-{index}",
        )
    if offset > log.log_start:
        log.delete_before(offset)
    return log.log_start
