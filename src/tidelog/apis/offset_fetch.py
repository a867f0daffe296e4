"""OffsetFetch (key 9): where groups go on.

Null topics ask for everything the group has committed. A partition without an offset is answered with -1. v2 has an
error for the whole group, in v1 each partition repeats it; v7 can ask for stable offsets only, which waits for commits
on their way and answers UNSTABLE_OFFSET_COMMIT where a transaction is open; v8 takes many groups; v9 members say who
they are; v10 names topics by id.

What is named again and again isn't answered as often (`repeats`): with metadata of some kilobytes an answer would grow
out of bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.repeats import bounded
from tidelog.coordinator.group.lookup import NO_OFFSET, Asked, FoundTopic, fetch
from tidelog.env.promise import Promise, gather
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.metadata.image import ClusterImage

FIRST_WITH_GROUP_ERROR = 2
FIRST_WITH_MANY_GROUPS = 8
FIRST_WITH_TOPIC_IDS = 10


def handle(context: Context, request: OffsetFetchRequest) -> Promise[OffsetFetchResponse]:
    many = context.version >= FIRST_WITH_MANY_GROUPS
    groups = bounded(request.groups, lambda group: group.group_id) if many else [_only_group(request)]
    promises = [_fetch(context, group, request.require_stable) for group in groups]
    every = gather(promises).map(lambda done: [promise.result() for promise in done])
    if many:
        return every.map(lambda answers: OffsetFetchResponse(groups=answers))
    return every.map(lambda answers: _old_form(answers[0]))


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    if topics is not None:
        topics = [OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes) for one in topics]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _fetch(context: Context, group: OffsetFetchRequestGroup, require_stable: bool) -> Promise[OffsetFetchResponseGroup]:
    image = context.services.metadata.image
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    asked, unknown = _named(image, group, by_id)

    def answer(promise: Promise[list[FoundTopic]]) -> OffsetFetchResponseGroup:
        error = promise.error
        if error is None:
            found = promise.result()
            if by_id and asked is None:
                found = _with_ids(image, found)
            return OffsetFetchResponseGroup(group_id=group.group_id, topics=[*map(_told, found), *unknown])
        if not isinstance(error, KafkaError):
            raise error
        return _refused(group, error.code, context.version)

    try:
        looked_up = fetch(
            context.services.groups,
            group.group_id,
            group.member_id,
            group.member_epoch,
            asked,
            require_stable=require_stable,
        )
    except KafkaError as error:
        looked_up = Promise[list[FoundTopic]].failed(error)
    return looked_up.then(answer)


def _named(
    image: ClusterImage, group: OffsetFetchRequestGroup, by_id: bool
) -> tuple[Asked | None, list[OffsetFetchResponseTopics]]:
    """What is asked for, by name (None: everything), and the answers to ids that no topic has."""
    if group.topics is None:
        return None, []
    topics = bounded(group.topics, lambda topic: topic.topic_id if by_id else topic.name)
    if not by_id:
        return [(topic.name, ZERO_UUID, _indexes(topic)) for topic in topics], []
    asked: list[tuple[str, bytes, list[int]]] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in topics:
        known = image.topics_by_id.get(topic.topic_id)
        if known is not None:
            asked.append((known.name, topic.topic_id, _indexes(topic)))
        else:
            partitions = [_partition(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
    return asked, unknown


def _indexes(topic: OffsetFetchRequestTopics) -> list[int]:
    return bounded(topic.partition_indexes, lambda index: index)


def _with_ids(image: ClusterImage, found: list[FoundTopic]) -> list[FoundTopic]:
    """Topics that aren't there any more have no id to be named by, and are left out."""
    topics = image.topics
    return [one._replace(id=topics[one.name].id) for one in found if one.name in topics]


def _told(topic: FoundTopic) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=code,
            )
            for partition, committed, code in topic.partitions
        ],
    )


def _refused(group: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    if version >= FIRST_WITH_GROUP_ERROR:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name, partitions=[_partition(index, code) for index in topic.partition_indexes]
        )
        for topic in group.topics or ()
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=code)


def _partition(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET.offset, metadata="", error_code=code
    )


def _old_form(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
