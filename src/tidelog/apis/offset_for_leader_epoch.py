"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, so that a client notices that a log was cut under it.

An epoch newer than all that the log has answers (-1, -1); the current one ends at the log's end. v2 fences by the
current leader epoch; v3 names the replica that asks; v4 is flexible.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.env.slices import Steps, mapped
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

log = logging.getLogger("tidelog.offset_for_leader_epoch")


def handle(context: Context, request: OffsetForLeaderEpochRequest) -> Steps[OffsetForLeaderEpochResponse]:
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        partitions = yield from mapped(partial(_one, context, topic.topic), topic.partitions)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _one(context: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    response = EpochEndOffset(partition=asked.partition)
    try:
        partition = context.services.replicas.get(topic, asked.partition)
        partition.check_leader(asked.current_leader_epoch)
        log_ = partition.log
        response.leader_epoch, response.end_offset = log_.epochs.end_offset_for(asked.leader_epoch, log_.log_end)
    except KafkaError as error:
        response.error_code = error.code
    except Exception:
        log.exception("looking up epoch %d of %s-%d failed", asked.leader_epoch, topic, asked.partition)
        response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    return response
