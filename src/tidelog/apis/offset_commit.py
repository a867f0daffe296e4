"""OffsetCommit (key 8): a group's progress, durable when the answer leaves.

Topics and partitions that aren't there are answered one by one; a group or member that is refused fails them all.
v5 lets the broker say how long offsets are kept; v6 leader epochs; v7 instance ids; v8 flexible; v9 member epochs of
the consumer protocol, and GROUP_ID_NOT_FOUND; v10 names topics by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.commit import Wanted, commit
from tidelog.coordinator.group.fencing import Member
from tidelog.env.slices import CHEAP_A_STEP, ITEMS_A_STEP, Steps
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.metadata.image import ClusterImage

FIRST_WITH_TOPIC_IDS = 10


def handle(context: Context, request: OffsetCommitRequest) -> Steps[OffsetCommitResponse]:
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    response, wanted, waiting = yield from _sort_out(context.services.metadata.image, request, by_id)
    if not wanted:
        return response
    member = Member(request.generation_id_or_member_epoch, request.member_id, request.group_instance_id)
    try:
        codes = yield from commit(
            context.services.groups,
            request.group_id,
            member,
            wanted,
            context.version,
            request.retention_time_ms,
            _missing(by_id),
        )
    except KafkaError as error:
        codes = [error.code] * len(waiting)
    for place, (partition, code) in enumerate(zip(waiting, codes, strict=True), 1):
        partition.error_code = code
        if not place % CHEAP_A_STEP:
            yield
    return response


def _missing(by_id: bool) -> ErrorCode:
    """For a topic that isn't there."""
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _sort_out(
    image: ClusterImage, request: OffsetCommitRequest, by_id: bool
) -> Steps[tuple[OffsetCommitResponse, list[Wanted], list[OffsetCommitResponsePartition]]]:
    """The answer as far as it is known, what is left to commit, and where its outcome goes."""
    response = OffsetCommitResponse()
    wanted: list[Wanted] = []
    waiting: list[OffsetCommitResponsePartition] = []
    missing = _missing(by_id)
    for topic in request.topics:
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        answers: list[OffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            answer = OffsetCommitResponsePartition(partition_index=partition.partition_index)
            answers.append(answer)
            if known is None:
                answer.error_code = missing
            elif not 0 <= partition.partition_index < len(known.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                waiting.append(answer)
                wanted.append(
                    Wanted(
                        known.name,
                        known.id,
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                    )
                )
            if not len(answers) % ITEMS_A_STEP:
                yield
        response.topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        yield
    return response, wanted, waiting
