"""DeleteRecords (key 21): delete everything before an offset; the log then starts there, which may be inside a batch.

-1 means up to the high watermark. Beyond the high watermark is OFFSET_OUT_OF_RANGE; below the log's start nothing
happens. The answer tells the low watermark, the lowest start of the log among its replicas, and waits until that is
what was asked for. Internal topics and compacted ones keep their records. v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.names import INTERNAL_TOPICS
from tidelog.env.promise import Promise, gather
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.replica.partition import Partition

TO_HIGH_WATERMARK = -1
NO_WATERMARK = -1


def handle(context: Context, request: DeleteRecordsRequest) -> Promise[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    saved: list[Promise[None]] = []
    for topic in request.topics:
        results: list[DeleteRecordsPartitionResult] = []
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=NO_WATERMARK)
            try:
                saved.append(_delete(context, topic.name, asked.offset, result))
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return gather(saved).map(lambda done: response)


def _delete(context: Context, topic: str, offset: int, result: DeleteRecordsPartitionResult) -> Promise[None]:
    """Delete, and tell in `result` how far; the promise is settled once the log's new start would survive a crash."""
    index = result.partition_index
    partition = _deletable(context, topic, index)
    log = partition.log
    if offset == TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{offset} is not between 0 and the high watermark {partition.high_watermark} of {topic}-{index}",
        )
    settled: Promise[None] = Promise()
    result.low_watermark = log.delete_before(offset)
    if log.config.tidelog_storage == "memory":
        settled.resolve(None)
        return settled

    def saved(promise: Promise[None]) -> None:
        if promise.error is not None:
            result.low_watermark, result.error_code = NO_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR
        settled.resolve(None)

    context.services.store.starts_saved(log).on_done(saved)
    return settled


def _deletable(context: Context, topic: str, index: int) -> Partition:
    if context.services.metadata.image.partition(topic, index) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
    partition = context.services.replicas.get(topic, index)
    partition.check_leader()
    if partition.log.config.compacts and not partition.log.config.deletes:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted: its records can't be deleted by offset")
    return partition
