"""One member's next step towards the target: what it keeps, what it must give up, what it gets.

What it has and the target doesn't give it is taken away first: it stays in its epoch, UNREVOKED, until a heartbeat
confirms that it doesn't use it any more. Then it moves to the target's epoch and gets what the target gives it and
nobody else has. What others still have it gets by later heartbeats; until then it is UNRELEASED.

So a partition is given to its next owner only after the last one confirmed, or left: never two owners.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from tidelog.coordinator.group.consumer.state import NOTHING, Epochs, Member, MemberState, Partitions
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.consumer_group_heartbeat import TopicPartitions

Owned = Sequence[TopicPartitions] | None
"""What the member says it uses; None: it says nothing, and may still use anything."""


def reconcile(
    member: Member,
    target_epoch: int,
    target: Partitions,
    subscribed: Container[bytes],
    is_free: Callable[[bytes, int], bool],
    owned: Owned,
    *,
    subscription_changed: bool,
) -> Member:
    """The member after this heartbeat; the same object where nothing changes.

    `is_free` says whether nobody but this member has a partition. With `subscription_changed`, what it no longer
    subscribes to is taken away at once, before the target follows.
    """
    if not subscription_changed and member.reconciled_to(target_epoch):
        return member
    if member.state == MemberState.STABLE and member.epoch == target_epoch:
        return _unsubscribe(member, subscribed, owned)
    if member.state == MemberState.UNREVOKED and _uses(owned, member.revoking):
        return _unsubscribe(member, subscribed, owned) if subscription_changed else member
    if member.state == MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in an unknown state: it must abandon all its partitions and rejoin.",
        )
    return _advance(member, target_epoch, target, subscribed, is_free, owned)


def _advance(
    member: Member,
    target_epoch: int,
    target: Partitions,
    subscribed: Container[bytes],
    is_free: Callable[[bytes, int], bool],
    owned: Owned,
) -> Member:
    kept: dict[bytes, dict[int, int]] = {}
    lost: dict[bytes, dict[int, int]] = {}
    for topic, epochs in member.assigned.items():
        wanted = frozenset(target.get(topic, ())) if topic in subscribed else frozenset[int]()
        stays = {partition: epoch for partition, epoch in epochs.items() if partition in wanted}
        if stays:
            kept[topic] = stays
        if len(stays) < len(epochs):
            lost[topic] = {partition: epoch for partition, epoch in epochs.items() if partition not in stays}
    if lost and _uses(owned, lost):
        return _changed(member, MemberState.UNREVOKED, member.epoch, kept, lost)
    waiting = False
    for topic, partitions in target.items():
        if topic not in subscribed:
            continue
        have = kept.get(topic, NOTHING)
        for partition in partitions:
            if partition in have:
                continue
            if is_free(topic, partition):
                have = kept.setdefault(topic, {})
                have[partition] = target_epoch
            else:
                waiting = True
    state = MemberState.UNRELEASED if waiting else MemberState.STABLE
    return _changed(member, state, target_epoch, kept, {})


def _unsubscribe(member: Member, subscribed: Container[bytes], owned: Owned) -> Member:
    """Without the topics that it doesn't subscribe to any more, whatever the target says."""
    gone = {topic: epochs for topic, epochs in member.assigned.items() if topic not in subscribed}
    if not gone:
        return member
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic not in gone}
    revoking = {topic: {**member.revoking.get(topic, {}), **epochs} for topic, epochs in gone.items()}
    revoking = {**member.revoking, **revoking}
    if _uses(owned, revoking):
        return _changed(member, MemberState.UNREVOKED, member.epoch, kept, revoking)
    return _changed(member, member.state, member.epoch, kept, member.revoking)


def _changed(member: Member, state: int, epoch: int, assigned: Epochs, revoking: Epochs) -> Member:
    """The same object where nothing changes, and the same mappings where they don't: comparing them is cheap then."""
    assigned = member.assigned if assigned == member.assigned else assigned
    revoking = member.revoking if revoking == member.revoking else revoking
    if (
        state == member.state
        and epoch == member.epoch == member.previous_epoch
        and assigned is member.assigned
        and revoking is member.revoking
    ):
        return member
    return replace(member, state=state, epoch=epoch, previous_epoch=member.epoch, assigned=assigned, revoking=revoking)


def _uses(owned: Owned, partitions: Epochs) -> bool:
    """Whether the member may still use one of them."""
    if owned is None:
        return True
    for one in owned:
        epochs = partitions.get(one.topic_id)
        if epochs is not None and any(partition in epochs for partition in one.partitions):
            return True
    return False
