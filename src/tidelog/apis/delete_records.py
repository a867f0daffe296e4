"""DeleteRecords (key 21): delete everything before an offset; the log then starts there, which may be inside a batch.

-1 means up to the high watermark. Beyond the high watermark is OFFSET_OUT_OF_RANGE; below the log's start nothing
happens. What is written but not durable yet is waited for where no other replica has a say
(shared/high_watermark_wait.py). The answer tells the low watermark, the lowest start of the log among its replicas that
live, and waits until that is what was asked for, or its time is over: the records are deleted then, too, wherever a
replica comes to hear of it. Internal topics and compacted ones keep their records. v2 is flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.apis.bounds import MAX_WAIT_MS
from tidelog.apis.shared.high_watermark_wait import Written
from tidelog.controller.names import INTERNAL_TOPICS
from tidelog.env.promise import Promise, gather
from tidelog.env.slices import Steps, settled
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.replica.partition import Partition

TO_HIGH_WATERMARK = -1
NO_WATERMARK = -1
AT_ONCE = 4096
"""Partitions whose new starts are being saved at once."""


def handle(context: Context, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse]:
    written = Written(context.services, request.timeout_ms)
    for topic in request.topics:
        for asked in topic.partitions:
            written.note(topic.name, asked.partition_index)
            yield
    response = DeleteRecordsResponse()
    replicas = _Replicas()
    context.services.deadlines.add(min(request.timeout_ms, MAX_WAIT_MS), replicas)
    saved: list[Promise[None]] = []
    for topic in request.topics:
        results: list[DeleteRecordsPartitionResult] = []
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=NO_WATERMARK)
            try:
                yield from _wait(context, topic.name, asked, written)
                saved.append(_delete(context, topic.name, asked.offset, result, replicas))
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
            yield
            if len(saved) == AT_ONCE:
                yield from settled(gather(saved))
                saved = []
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        yield
    yield from settled(gather(saved))
    written.done = replicas.done = True
    return response


class _Replicas:
    """Of one request: the partitions of which not all replicas are known to begin where they should."""

    __slots__ = ("_is_over", "_waiting", "done")

    def __init__(self) -> None:
        self._waiting: dict[Promise[None], DeleteRecordsPartitionResult] = {}
        self._is_over = False
        self.done = False

    def wait(self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult) -> Promise[None]:
        """Until they do; `result` tells what came of it."""
        promise: Promise[None] = Promise()

        def complete(code: ErrorCode) -> None:
            if promise.done:
                return
            self._waiting.pop(promise, None)
            result.error_code = code
            result.low_watermark = partition.low_watermark if code is ErrorCode.NONE else NO_WATERMARK
            promise.resolve(None)

        self._waiting[promise] = result
        partition.wait_for_low_watermark(offset, complete)
        if self._is_over and not promise.done:
            complete(ErrorCode.REQUEST_TIMED_OUT)
        return promise

    def expire(self) -> None:
        self._is_over = True
        waiting, self._waiting = self._waiting, {}
        for promise, result in waiting.items():
            result.error_code, result.low_watermark = ErrorCode.REQUEST_TIMED_OUT, NO_WATERMARK
            promise.resolve(None)


def _wait(context: Context, topic: str, asked: DeleteRecordsPartition, written: Written) -> Steps[None]:
    """Where the records that are to go are written, but not shown yet, until they are."""
    index = asked.partition_index
    look = partial(_deletable, context, topic, index)
    if asked.offset == TO_HIGH_WATERMARK or asked.offset > look().high_watermark:
        yield from written.wait(topic, index, look)
        if written.unshown(topic, index):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def _delete(
    context: Context, topic: str, offset: int, result: DeleteRecordsPartitionResult, replicas: _Replicas
) -> Promise[None]:
    """Delete, and tell in `result` how far; the promise is settled once the log's new start would survive a crash, and
    that of all replicas is there."""
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
    durable: Promise[None] = Promise()
    result.low_watermark = log.delete_before(offset)
    if result.low_watermark < offset:
        result.low_watermark = NO_WATERMARK
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} can't begin at {offset}: that couldn't be written down"
        )
    if log.config.tidelog_storage == "memory":
        return replicas.wait(partition, offset, result)

    def saved(promise: Promise[None]) -> None:
        if promise.error is not None:
            result.low_watermark, result.error_code = NO_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR
            durable.resolve(None)
            return
        context.services.store.upkeep.retain_soon(log)
        replicas.wait(partition, offset, result).on_done(lambda _: durable.resolve(None))

    context.services.store.starts.saved(log).on_done(saved)
    return durable


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
