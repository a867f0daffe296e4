"""How a consumer group's records change it: on append as on load.

Loading reads a compacted log, so a record may come without those that once stood before it. A tombstone of what isn't
there changes nothing, a member's partitions may come before its subscription, and a partition that two members' records
name is of the later one until the other's own later record is read.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from immutables import Map, MapMutation

from tidelog.coordinator.group.consumer.state import (
    LEAVE_EPOCH,
    NOTHING,
    ClassicFacts,
    ConsumerGroup,
    Epochs,
    Member,
    MemberState,
    Partitions,
    Resolved,
    Subscription,
)
from tidelog.coordinator.group.state import GroupsState
from tidelog.wire.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)
from tidelog.wire.records.consumer_groups import (
    TopicPartition as TargetPartitions,
)
from tidelog.wire.topic_partition import TopicIdPartition

NO_TARGET_EPOCH = -1
_STATES = frozenset(MemberState)


def _epoch(state: GroupsState, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> GroupsState:
    if value is None:
        return state.without_group(key.group_id) if _existing(state, key.group_id) is not None else state
    group = _group(state, key.group_id)
    return state.with_group(group.id, replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash))


def _partition_metadata(
    state: GroupsState, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
) -> GroupsState:
    group = _existing(state, key.group_id) if value is None else _group(state, key.group_id)
    if group is None or group.has_partition_metadata == (value is not None):
        return state
    return state.with_group(group.id, replace(group, has_partition_metadata=value is not None))


def _member(
    state: GroupsState, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> GroupsState:
    if value is None:
        group = _existing(state, key.group_id)
        old = None if group is None else group.members.get(key.member_id)
        if group is None or old is None:
            return state
        return state.with_group(group.id, with_member(group, old, None))
    group = _group(state, key.group_id)
    old = group.members.get(key.member_id)
    facts = value.classic_member_metadata
    new = replace(
        old or Member(key.member_id),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscription=Subscription(tuple(sorted(value.subscribed_topic_names)), value.subscribed_topic_regex or ""),
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if facts is None
        else ClassicFacts(
            facts.session_timeout_ms, tuple((one.name, one.metadata) for one in facts.supported_protocols)
        ),
    )
    return state.with_group(group.id, with_member(group, old, new))


def _target_epoch(
    state: GroupsState,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> GroupsState:
    if value is None:
        group = _existing(state, key.group_id)
        if group is None:
            return state
        return state.with_group(group.id, replace(group, target_epoch=NO_TARGET_EPOCH, target_timestamp_ms=0))
    group = _group(state, key.group_id)
    changed = replace(group, target_epoch=value.assignment_epoch, target_timestamp_ms=value.assignment_timestamp)
    return state.with_group(group.id, changed)


def _target_member(
    state: GroupsState,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> GroupsState:
    if value is None:
        group = _existing(state, key.group_id)
        if group is None or key.member_id not in group.target:
            return state
        return state.with_group(group.id, replace(group, target=group.target.delete(key.member_id)))
    group = _group(state, key.group_id)
    target = group.target.set(key.member_id, _target_partitions(value.topic_partitions))
    return state.with_group(group.id, replace(group, target=target))


def _current(
    state: GroupsState,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> GroupsState:
    if value is None:
        group = _existing(state, key.group_id)
        old = None if group is None else group.members.get(key.member_id)
        if group is None or old is None:
            return state
        new = replace(old, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING, revoking=NOTHING)
        return state.with_group(group.id, with_member(group, old, new))
    group = _group(state, key.group_id)
    old = group.members.get(key.member_id)
    new = replace(
        old or Member(key.member_id),
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in _STATES else MemberState.UNKNOWN,
        assigned=_epochs(value.assigned_partitions, value.member_epoch),
        revoking=_epochs(value.partitions_pending_revocation, value.member_epoch),
    )
    return state.with_group(group.id, with_member(group, old, new))


def _regex(
    state: GroupsState, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> GroupsState:
    regex = key.regular_expression
    if value is None:
        group = _existing(state, key.group_id)
        if group is None or regex not in group.resolved:
            return state
        return state.with_group(group.id, replace(group, resolved=group.resolved.delete(regex)))
    group = _group(state, key.group_id)
    matches = Resolved(frozenset(value.topics), value.version, value.timestamp)
    return state.with_group(group.id, replace(group, resolved=group.resolved.set(regex, matches)))


REPLAY: dict[type, Callable[[GroupsState, Any, Any], GroupsState]] = {
    ConsumerGroupMetadataKey: _epoch,
    ConsumerGroupPartitionMetadataKey: _partition_metadata,
    ConsumerGroupMemberMetadataKey: _member,
    ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _target_member,
    ConsumerGroupCurrentMemberAssignmentKey: _current,
    ConsumerGroupRegularExpressionKey: _regex,
}


def with_member(group: ConsumerGroup, old: Member | None, new: Member | None) -> ConsumerGroup:
    """The group with `new` in the place of `old` (same id; None: not there), and all that follows from members."""
    one = new or old
    assert one is not None
    members = group.members.delete(one.id) if new is None else group.members.set(one.id, new)
    return replace(
        group,
        members=members,
        static=_static(group.static, old, new),
        subscriptions=_counted(group.subscriptions, old and old.subscription, new and new.subscription),
        owners=_owners(group.owners, old, new),
        classic_members=group.classic_members + _is_classic(new) - _is_classic(old),
    )


def _is_classic(member: Member | None) -> bool:
    return member is not None and member.classic is not None


def _static(static: Map[str, str], old: Member | None, new: Member | None) -> Map[str, str]:
    before, after = old and old.instance_id, new and new.instance_id
    if old is not None and before is not None and before != after and static.get(before) == old.id:
        static = static.delete(before)
    if new is not None and after is not None and static.get(after) != new.id:
        static = static.set(after, new.id)
    return static


def _counted(
    counts: Map[Subscription, int], before: Subscription | None, after: Subscription | None
) -> Map[Subscription, int]:
    if before == after:
        return counts
    if before is not None:
        left = counts[before] - 1
        counts = counts.set(before, left) if left else counts.delete(before)
    return counts if after is None else counts.set(after, counts.get(after, 0) + 1)


def _owners(owners: Map[TopicIdPartition, str], old: Member | None, new: Member | None) -> Map[TopicIdPartition, str]:
    if old is not None and new is not None and old.assigned is new.assigned and old.revoking is new.revoking:
        return owners
    had = () if old is None else _held(old)
    has = set(() if new is None else _held(new))
    changed: MapMutation[TopicIdPartition, str] = owners.mutate()
    for one in had:
        if one not in has and old is not None and changed.get(one) == old.id:
            del changed[one]
    for one in has:
        if new is not None and changed.get(one) != new.id:
            changed[one] = new.id
    return changed.finish()


def _held(member: Member) -> Iterable[TopicIdPartition]:
    for epochs in (member.assigned, member.revoking):
        for topic_id, partitions in epochs.items():
            for partition in partitions:
                yield topic_id, partition


def _existing(state: GroupsState, group_id: str) -> ConsumerGroup | None:
    group = state.groups.get(group_id)
    return group if type(group) is ConsumerGroup else None


def _group(state: GroupsState, group_id: str) -> ConsumerGroup:
    """The group; a new one where none was, or where one of the classic protocol stood without its tombstone."""
    return _existing(state, group_id) or ConsumerGroup(group_id)


def _target_partitions(listed: list[TargetPartitions]) -> Partitions:
    return {one.topic_id: tuple(sorted(one.partitions)) for one in listed if one.partitions}


def _epochs(listed: list[TopicPartitions], member_epoch: int) -> Epochs:
    """With the epochs that the record tells; older versions of Kafka told none, and the member's stands for them."""
    by_topic: dict[bytes, dict[int, int]] = {}
    for one in listed:
        epochs = one.assignment_epochs
        if not one.partitions:
            continue
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [max(member_epoch, 0)] * len(one.partitions)
        by_topic[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return by_topic or NOTHING
