"""The records of a consumer group, as Apache Kafka writes them, from the state that they tell."""

from collections.abc import Iterable, Sequence

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.consumer.state import ConsumerGroup, Epochs, Member, Partitions, Resolved
from tidelog.wire.records.consumer_groups import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)


def subscription_entry(group_id: str, member: Member) -> Entry:
    classic = member.classic
    return Entry(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscription.names),
            subscribed_topic_regex=member.subscription.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
            ),
        ),
    )


def epoch_entry(group_id: str, epoch: int, metadata_hash: int) -> Entry:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Entry(ConsumerGroupMetadataKey(group_id=group_id), value)


def target_entry(group_id: str, member_id: str, partitions: Partitions) -> Entry:
    listed = [TopicPartition(topic_id=topic, partitions=list(indexes)) for topic, indexes in partitions.items()]
    return Entry(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=listed),
    )


def target_epoch_entry(group_id: str, epoch: int, timestamp_ms: int) -> Entry:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return Entry(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_entry(group_id: str, member: Member) -> Entry:
    return Entry(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_listed(member.assigned),
            partitions_pending_revocation=_listed(member.revoking),
        ),
    )


def _listed(epochs: Epochs) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic, partitions=list(by_partition), assignment_epochs=list(by_partition.values()))
        for topic, by_partition in epochs.items()
    ]


def regex_entry(group_id: str, regex: str, resolved: Resolved) -> Entry:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return Entry(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_gone(group_id: str, regex: str) -> Entry:
    return Entry(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def partition_metadata_gone(group_id: str) -> Entry:
    return Entry(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_gone(group_id: str, member_id: str) -> list[Entry]:
    """What it has first, itself last: so that what is read half-way never has partitions without a member."""
    return [
        Entry(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Entry(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Entry(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_gone(group: ConsumerGroup) -> list[Entry]:
    """Tombstones for everything the group has; a group that is read back in this order ends as none."""
    return tombstones(group.id, sorted(group.members), sorted(group.resolved))


def tombstones(group_id: str, member_ids: Sequence[str], regexes: Iterable[str]) -> list[Entry]:
    return [
        *(Entry(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one), None) for one in member_ids),
        *(Entry(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one), None) for one in member_ids),
        Entry(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(Entry(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=one), None) for one in member_ids),
        *(regex_gone(group_id, regex) for regex in regexes),
        partition_metadata_gone(group_id),
        Entry(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def group_entries(group: ConsumerGroup) -> list[Entry]:
    """Everything that makes the group, for one that comes from the classic protocol."""
    members = list(group.members.values())
    return [
        *(subscription_entry(group.id, member) for member in members),
        epoch_entry(group.id, group.epoch, group.metadata_hash),
        *(target_entry(group.id, member.id, group.target[member.id]) for member in members),
        target_epoch_entry(group.id, group.target_epoch, group.target_timestamp_ms),
        *(current_entry(group.id, member) for member in members),
    ]
