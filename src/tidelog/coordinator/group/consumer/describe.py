"""A consumer group as ConsumerGroupDescribe tells it: epochs, members, what they have and what they should have."""

from collections.abc import Mapping, Sequence
from functools import partial

from tidelog.coordinator.group.consumer.state import NOTHING, ConsumerGroup
from tidelog.coordinator.group.consumer.target import preferred_assignor
from tidelog.env.slices import Steps, mapped
from tidelog.metadata.image import ClusterImage
from tidelog.wire.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    TopicPartitions,
)
from tidelog.wire.messages.consumer_group_describe import (
    Member as DescribedMember,
)

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def described(group: ConsumerGroup, default_assignor: str, image: ClusterImage) -> Steps[DescribedGroup]:
    members = yield from mapped(partial(_member, group, image), sorted(group.members), 1)
    return DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group.members, default_assignor),
        members=members,
    )


def _member(group: ConsumerGroup, image: ClusterImage, member_id: str) -> DescribedMember:
    """It has what is assigned to it, and what it was told to give up and still may use."""
    member = group.members[member_id]
    has: dict[bytes, list[int]] = {}
    for epochs in (member.assigned, member.revoking):
        for topic, partitions in epochs.items():
            has.setdefault(topic, []).extend(partitions)
    return DescribedMember(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscription.names),
        subscribed_topic_regex=member.subscription.regex,
        assignment=_assignment(has, image),
        target_assignment=_assignment(group.target.get(member.id, NOTHING), image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Sequence[int]], image: ClusterImage) -> Assignment:
    """Of topics that exist."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic, topic_name=image.topics_by_id[topic].name, partitions=sorted(partitions[topic])
            )
            for topic in partitions
            if topic in image.topics_by_id
        ]
    )
