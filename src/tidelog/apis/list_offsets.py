"""ListOffsets (key 2): the offset at a time, or one of the log's marks.

-1 latest (the last stable offset for read_committed), -2 earliest, -3 the record with the largest timestamp (v7),
-4 earliest here (v8), -5 the last one in remote storage (v9), -6 the earliest one not yet there (v11). Without remote
storage -5 and -6 answer as Kafka does. Nothing at or beyond the high watermark is ever named to a consumer; while it
may still be below what was shown before a restart or by an earlier leader, the client is told to ask again. What is
written but not durable yet is waited for where no other replica has a say (shared/high_watermark_wait.py).

Records that take long to find in their batch are looked for by a child process; the request's other partitions wait.

v1 answers with one offset; v2 knows isolation levels; v4 fences by leader epoch; v6 is flexible; v10 carries a timeout.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.apis.shared.high_watermark_wait import Written
from tidelog.env.child_processes import ChildProcessesError
from tidelog.env.promise import Promise
from tidelog.env.slices import CHEAP_A_STEP, Steps, settled
from tidelog.log.search import Unwalked
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.log.search import Found, Key, Walked
    from tidelog.replica.partition import Partition

log = logging.getLogger("tidelog.list_offsets")

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
EPOCHS_FROM = 4
NOT_AVAILABLE_FROM = 5  # older clients don't know OFFSET_NOT_AVAILABLE
READ_COMMITTED = 1
CONSUMER = -1  # whoever else asks, a replica or somebody looking for a mistake, sees the log to its end
DEBUGGING = -2  # somebody looking for a mistake, who may ask followers too
NONE_FOUND = (-1, -1, -1)
SEARCH = "tidelog.log.search"


def handle(context: Context, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    written = Written(context.services, request.timeout_ms)
    twice = yield from _named_twice(request, written)
    refused: set[TopicPartition] = set()
    response = ListOffsetsResponse()
    for topic in request.topics:
        partitions: list[ListOffsetsPartitionResponse] = []
        for asked in topic.partitions:
            place = (topic.name, asked.partition_index)
            if place not in twice:
                partitions.append((yield from _look(context, request, topic.name, asked, written)))
            elif place not in refused:  # one that is named twice is refused once
                refused.add(place)
                partitions.append(_refused(asked))
            yield
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        yield
    written.done = True
    return response


def _named_twice(request: ListOffsetsRequest, written: Written) -> Steps[set[TopicPartition]]:
    """Those that are; and note is taken of what each of them has been written by now."""
    seen: set[TopicPartition] = set()
    consumer = request.replica_id == CONSUMER
    twice: set[TopicPartition] = set()
    for topic in request.topics:
        for start in range(0, len(topic.partitions), CHEAP_A_STEP):
            for partition in topic.partitions[start : start + CHEAP_A_STEP]:
                place = (topic.name, partition.partition_index)
                if place in seen:
                    twice.add(place)
                seen.add(place)
                if consumer:
                    written.note(*place)
            yield
        yield
    return twice


def _read(answer: Promise[bytearray]) -> Found | None:
    if isinstance(answer.error, ChildProcessesError):
        log.warning("records of a time could not be looked for: %s", answer.error)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    return Unwalked.read(answer.result())


def _refused(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=ErrorCode.INVALID_REQUEST)


def _look(
    context: Context, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, written: Written
) -> Steps[ListOffsetsPartitionResponse]:
    """What is asked of one partition."""
    place = topic, asked.partition_index
    response = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        look = partial(_partition, context, request, topic, asked)
        if asked.timestamp == LATEST:
            yield from written.wait(*place, look)
        position = yield from _search(context, request, topic, asked)
        if position is None and written.unshown(*place):
            yield from written.wait(*place, look)
            position = yield from _search(context, request, topic, asked)
        by_end = request.replica_id == CONSUMER and (position is None or asked.timestamp == LATEST)
        if by_end and (look().catching_up or written.unshown(*place)):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        response.timestamp, response.offset, leader_epoch = position or NONE_FOUND
        if context.version >= EPOCHS_FROM:
            response.leader_epoch = leader_epoch
    except KafkaError as error:
        response.error_code = error.code
        if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and context.version < NOT_AVAILABLE_FROM:
            response.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    except Exception:
        log.exception("looking up offsets of %s-%d failed", topic, asked.partition_index)
        response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    return response


def _search(
    context: Context, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> Steps[Found | None]:
    """(timestamp, offset, leader epoch); None: no such record is shown. Where there are records to walk, that is done
    aside, and everything is looked at anew then: the log may be another by that time."""
    walked: dict[Key, Found | None] = {}
    while True:
        partition = _partition(context, request, topic, asked)
        position = _find(partition, request, asked.timestamp, walked)
        if not isinstance(position, Unwalked):
            return position
        answer = context.services.store.child_processes.ask(SEARCH, position.question)
        walked[position.key] = yield from settled(answer.then(_read))


def _partition(context: Context, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition) -> Partition:
    if context.version < FIRST_VERSION.get(asked.timestamp, 0) or asked.timestamp < EARLIEST_PENDING_UPLOAD:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.services.replicas.get(topic, asked.partition_index)
    if request.replica_id == DEBUGGING:
        partition.check_replica(asked.current_leader_epoch)
    else:
        partition.check_leader(asked.current_leader_epoch)
    return partition


def _find(partition: Partition, request: ListOffsetsRequest, timestamp: int, walked: Walked) -> Found | Unwalked | None:
    log_ = partition.log
    if request.replica_id != CONSUMER:
        end = log_.log_end
    else:
        committed = request.isolation_level == READ_COMMITTED
        end = partition.last_stable_offset if committed else partition.high_watermark
    if timestamp == LATEST:
        return -1, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log_.log_start, log_.epochs.epoch_for(log_.log_start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NONE_FOUND
    position = log_.max_timestamp(walked) if timestamp == MAX_TIMESTAMP else log_.find_by_time(timestamp, end, walked)
    return position if isinstance(position, Unwalked) or (position is not None and position[1] < end) else None
