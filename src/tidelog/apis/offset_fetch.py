"""OffsetFetch (key 9): where groups go on.

Null topics ask for everything the group has committed. A partition without an offset is answered with -1. v2 has an
error for the whole group, in v1 each partition repeats it; v7 can ask for stable offsets only, which waits for commits
on their way and answers UNSTABLE_OFFSET_COMMIT where a transaction is open; v8 takes many groups; v9 members say who
they are; v10 names topics by id.

What is named again and again isn't answered as often (`repeats`): with metadata of some kilobytes an answer would grow
out of bounds.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.apis.shared.repeats import bounded
from tidelog.coordinator.group.lookup import NO_OFFSET, AskedTopic, Found, Lookup, stand
from tidelog.coordinator.group.state import GroupsState
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, mapped, settled
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
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
    from tidelog.apis.shared.context import Context
    from tidelog.metadata.image import ClusterImage

FIRST_WITH_GROUP_ERROR = 2
FIRST_WITH_MANY_GROUPS = 8
FIRST_WITH_TOPIC_IDS = 10
GROUPS_A_STEP = 1
"""The first group of a shard has that loaded."""


def handle(context: Context, request: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    many = context.version >= FIRST_WITH_MANY_GROUPS
    if many:
        groups = yield from bounded(request.groups, _group_id)
    else:
        groups = [(yield from _only_group(request))]
    stands = yield from mapped(partial(_stand, context, request.require_stable), groups, GROUPS_A_STEP)
    answers: list[OffsetFetchResponseGroup] = []
    for group, state in zip(groups, stands, strict=True):
        answers.append((yield from _answer(context, group, state, request.require_stable)))
        yield
    if many:
        return OffsetFetchResponse(groups=answers)
    return (yield from _old_form(answers[0]))


def _group_id(group: OffsetFetchRequestGroup) -> str:
    return group.group_id


def _only_group(request: OffsetFetchRequest) -> Steps[OffsetFetchRequestGroup]:
    topics = None if request.topics is None else (yield from mapped(_new_form, request.topics))
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _new_form(topic: OffsetFetchRequestTopic) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)


def _stand(context: Context, require_stable: bool, group: OffsetFetchRequestGroup) -> Promise[GroupsState]:
    try:
        return stand(
            context.services.groups, group.group_id, group.member_id, group.member_epoch, require_stable=require_stable
        )
    except KafkaError as error:
        return Promise[GroupsState].failed(error)


def _answer(
    context: Context, group: OffsetFetchRequestGroup, state: Promise[GroupsState], stable: bool
) -> Steps[OffsetFetchResponseGroup]:
    image, version = context.services.metadata.image, context.version
    by_id = version >= FIRST_WITH_TOPIC_IDS
    try:
        lookup = Lookup((yield from settled(state)), group.group_id, stable=stable)
    except KafkaError as error:
        return (yield from _refused(group, error.code, version))
    yield from lookup.prepare()
    unknown: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        asked, unknown = yield from _named(image, group.topics, by_id)
    else:
        asked = yield from lookup.everything()
        if by_id:  # topics that aren't there any more have no id to be named by
            asked = [one._replace(id=image.topics[one.name].id) for one in asked if one.name in image.topics]
    topics: list[OffsetFetchResponseTopics] = []
    for topic in asked:
        partitions = yield from lookup.of(topic, _partition_answer)
        topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics + unknown)


def _named(
    image: ClusterImage, topics: list[OffsetFetchRequestTopics], by_id: bool
) -> Steps[tuple[list[AskedTopic], list[OffsetFetchResponseTopics]]]:
    """What is asked for, by name, and the answers to ids that no topic has."""
    asked: list[AskedTopic] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in (yield from bounded(topics, _topic_id if by_id else _topic_name)):
        known = image.topics_by_id.get(topic.topic_id) if by_id else None
        if known is None and by_id:
            failed = partial(_partition, ErrorCode.UNKNOWN_TOPIC_ID)
            partitions = yield from mapped(failed, topic.partition_indexes)
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
        else:
            name, topic_id = (topic.name, ZERO_UUID) if known is None else (known.name, known.id)
            asked.append(AskedTopic(name, topic_id, (yield from bounded(topic.partition_indexes, int))))
        yield
    return asked, unknown


def _topic_id(topic: OffsetFetchRequestTopics) -> bytes:
    return topic.topic_id


def _topic_name(topic: OffsetFetchRequestTopics) -> str:
    return topic.name


def _partition_answer(lookup: Found) -> OffsetFetchResponsePartitions:
    partition, committed, code = lookup
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _refused(group: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> Steps[OffsetFetchResponseGroup]:
    if version >= FIRST_WITH_GROUP_ERROR:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    topics: list[OffsetFetchResponseTopics] = []
    for topic in group.topics or ():
        partitions = yield from mapped(partial(_partition, code), topic.partition_indexes)
        topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=code)


def _partition(code: ErrorCode, index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET.offset, metadata="", error_code=code
    )


def _old_form(group: OffsetFetchResponseGroup) -> Steps[OffsetFetchResponse]:
    topics: list[OffsetFetchResponseTopic] = []
    for topic in group.topics:
        partitions = yield from mapped(_old_partition, topic.partitions)
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _old_partition(one: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=one.partition_index,
        committed_offset=one.committed_offset,
        committed_leader_epoch=one.committed_leader_epoch,
        metadata=one.metadata,
        error_code=one.error_code,
    )
