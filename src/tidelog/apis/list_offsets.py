"""ListOffsets (key 2): the offset at a time, or one of the log's marks.

-1 latest (the last stable offset for read_committed), -2 earliest, -3 the record with the largest timestamp (v7),
-4 earliest here (v8), -5 the last one in remote storage (v9), -6 the earliest one not yet there (v11). Without remote
storage -5 and -6 answer as Kafka does. Nothing at or beyond the high watermark is ever named to a consumer; while it
may still be below what was shown before a restart or by an earlier leader, the client is told to ask again.

Records that take long to find in their batch are walked by a thread; the request's other partitions wait behind it.

v1 answers with one offset; v2 knows isolation levels; v4 fences by leader epoch; v6 is flexible; v10 carries a timeout.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from tidelog.env.promise import Promise
from tidelog.log.search import Unwalked
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context
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
CONSUMER = -1  # whoever else asks, a replica or somebody looking for a mistake (-2), sees the log to its end
NONE_FOUND = (-1, -1, -1)


def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse | Promise[ListOffsetsResponse]:
    asked = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    looks: dict[tuple[str, int], _Look] = {}
    response = ListOffsetsResponse()
    for topic in request.topics:
        partitions: list[ListOffsetsPartitionResponse] = []
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            if key not in looks:  # one that is named twice is refused once
                looks[key] = _Look(context, request, topic.name, partition, twice=asked[key] > 1)
                partitions.append(looks[key].response)
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return _look_at(context, iter(looks.values()), response)


def _look_at(
    context: Context,
    looks: Iterator[_Look],
    response: ListOffsetsResponse,
    later: Promise[ListOffsetsResponse] | None = None,
) -> ListOffsetsResponse | Promise[ListOffsetsResponse]:
    """One after the other. Where one has records to walk, a thread does so, and the others wait behind it."""
    for look in looks:
        unwalked = look.take()
        if unwalked is not None:
            answer = later or Promise[ListOffsetsResponse]()
            _walk(context, look, unwalked, partial(_look_at, context, looks, response, answer))
            return answer
    if later is not None:
        later.resolve(response)
    return response


def _walk(context: Context, look: _Look, unwalked: Unwalked, go_on: Callable[[], object]) -> None:
    def walked(promise: Promise[Found | None]) -> None:
        again = look.take(unwalked, promise)
        if again is not None:
            _walk(context, look, again, go_on)
        else:
            go_on()

    context.services.store.lane.run(unwalked.walk).on_done(walked)


class _Look:
    """What is asked of one partition, and what was found out."""

    __slots__ = ("_asked", "_context", "_request", "_topic", "_twice", "_walked", "response")

    def __init__(
        self, context: Context, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, *, twice: bool
    ) -> None:
        self._context = context
        self._request = request
        self._topic = topic
        self._asked = asked
        self._twice = twice
        self._walked: dict[Key, Found | None] = {}
        self.response = ListOffsetsPartitionResponse(partition_index=asked.partition_index)

    def take(self, unwalked: Unwalked | None = None, done: Promise[Found | None] | None = None) -> Unwalked | None:
        """Fill in the response; or the batch that has to be walked first, until it is `done`."""
        response = self.response
        try:
            if unwalked is not None and done is not None:
                self._walked[unwalked.key] = done.result()
            found = self._find()
            if isinstance(found, Unwalked):
                return found
            response.timestamp, response.offset, leader_epoch = found
            if self._context.version >= EPOCHS_FROM:
                response.leader_epoch = leader_epoch
        except KafkaError as error:
            response.error_code = error.code
            if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and self._context.version < NOT_AVAILABLE_FROM:
                response.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        except Exception:
            log.exception("looking up offsets of %s-%d failed", self._topic, self._asked.partition_index)
            response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return None

    def _find(self) -> Found | Unwalked:
        context, asked = self._context, self._asked
        if self._twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if context.version < FIRST_VERSION.get(asked.timestamp, 0) or asked.timestamp < EARLIEST_PENDING_UPLOAD:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        partition = context.services.replicas.get(self._topic, asked.partition_index)
        partition.check_leader(asked.current_leader_epoch)
        return _find(partition, self._request, asked.timestamp, self._walked)


def _find(partition: Partition, request: ListOffsetsRequest, timestamp: int, walked: Walked) -> Found | Unwalked:
    """(timestamp, offset, leader epoch); all -1 where there is no such record."""
    log_ = partition.log
    catching_up = False
    if request.replica_id != CONSUMER:
        end = log_.log_end
    else:
        committed = request.isolation_level == READ_COMMITTED
        end = partition.last_stable_offset if committed else partition.high_watermark
        catching_up = partition.catching_up
    if timestamp == LATEST:
        if catching_up:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log_.log_start, log_.epochs.epoch_for(log_.log_start)
    if timestamp == LATEST_TIERED:
        return -1, -1, -1
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return -1, -1, -1
    found = log_.max_timestamp(walked) if timestamp == MAX_TIMESTAMP else log_.find_by_time(timestamp, end, walked)
    if isinstance(found, Unwalked) or (found is not None and found[1] < end):
        return found
    if catching_up:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return NONE_FOUND
