"""Members that go: by their own word, or because they weren't heard of, or didn't give up what they should."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.consumer import entries as records
from tidelog.coordinator.group.consumer.context import DecisionContext
from tidelog.coordinator.group.consumer.downgrade import Downgrade, may_downgrade
from tidelog.coordinator.group.consumer.membership import known_instance, unknown
from tidelog.coordinator.group.consumer.progress import counted
from tidelog.coordinator.group.consumer.state import NOTHING, STATIC_LEAVE_EPOCH, ConsumerGroup, Member
from tidelog.coordinator.group.consumer.topics import group_hash
from tidelog.machine.decision import Decision


class Gone(NamedTuple):
    """`downgrade` is there where those who stay all speak the classic protocol, and the group does now, too."""

    members: tuple[str, ...]
    downgrade: Downgrade | None = None


def leave(
    group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int, context: DecisionContext
) -> Decision[Entry, Gone]:
    """With epoch -2 a static member goes for a while: its place is kept until its session ends."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown(group, member_id)
        return fence(group, [member], context)
    member = known_instance(group.static_member(instance_id), instance_id, member_id)
    if epoch != STATIC_LEAVE_EPOCH:
        return fence(group, [member], context)
    resting = replace(
        member,
        epoch=STATIC_LEAVE_EPOCH,
        assigned={topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()},
        revoking=NOTHING,
    )
    return Decision([records.current_entry(group.id, resting)], Gone(()))


def fence(group: ConsumerGroup, members: Collection[Member], context: DecisionContext) -> Decision[Entry, Gone]:
    """The group without these: in a new epoch, or under the classic protocol."""
    gone = tuple(member.id for member in members)
    if not members:
        return Decision([], Gone(()))
    if may_downgrade(group, members, context.terms):
        made = context.downgrade(group, {member.id for member in members}, context.image, context.now_ms)
        return Decision(made.entries, Gone(gone, made))
    entries = [entry for member_id in gone for entry in records.member_gone(group.id, member_id)]
    counts = dict(group.subscriptions)
    for member in members:
        counts = counted(counts, member.subscription, None)
    left = {subscription.regex for subscription in counts}
    resolved = group.resolved
    for regex in sorted({member.subscription.regex for member in members} - left):
        if regex:
            entries.append(records.regex_gone(group.id, regex))
            resolved = resolved.delete(regex) if regex in resolved else resolved
    metadata_hash = group_hash(counts, resolved, context.image)
    entries.append(records.epoch_entry(group.id, group.epoch + 1, metadata_hash))
    return Decision(entries, Gone(gone))
