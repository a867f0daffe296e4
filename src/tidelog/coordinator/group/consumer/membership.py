"""Which member a request is about, and what it says about itself.

A static member is known by its instance id: one that left with epoch -2, or speaks the other protocol by now, comes
back under a new member id and takes over what the former had.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tidelog.coordinator.group.caller import Caller
from tidelog.coordinator.group.consumer.state import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    Epochs,
    Member,
    Subscription,
)
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions


class Found(NamedTuple):
    """The member before the request. `replaces` is the id of the static member whose place it takes."""

    member: Member
    replaces: str | None = None


def find(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str) -> Found:
    """The member that sends a heartbeat; a new one where it joins."""
    joining = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            if not joining:
                raise unknown(group, member_id)
            return Found(Member(member_id))
        check_epoch(member, request.member_epoch, request.topic_partitions)
        return Found(member)
    existing = group.static_member(request.instance_id)
    if not joining:
        existing = known_instance(existing, request.instance_id, member_id)
        check_epoch(existing, request.member_epoch, request.topic_partitions)
        return Found(existing)
    if existing is None:
        return Found(group.members.get(member_id) or Member(member_id))
    if existing.classic is None and existing.epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
            f"instance id is owned by {existing.id} member.",
        )
    return replacement(existing, member_id)


def replacement(existing: Member, member_id: str) -> Found:
    """The static member under another id: with its partitions, in no epoch yet."""
    return Found(replace(existing, id=member_id, epoch=0, previous_epoch=0), existing.id)


def known_instance(member: Member | None, instance_id: str, member_id: str) -> Member:
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.id}.",
        )
    return member


def unknown(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.id}.")


def check_epoch(member: Member, epoch: int, owned: Sequence[TopicPartitions] | None) -> None:
    """The member's epoch, or the one before, where the answer that told it the new one may have been lost: then all
    that it says it uses must be its own. 0 is always good: it begins anew."""
    if epoch in (member.epoch, JOIN_EPOCH):
        return
    if epoch > member.epoch:
        raise _fenced("greater", epoch, member)
    if epoch != member.previous_epoch or owned is None or not _within(owned, member.assigned):
        raise _fenced("smaller", epoch, member)


def _fenced(which: str, epoch: int, member: Member) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _within(owned: Sequence[TopicPartitions], assigned: Epochs) -> bool:
    for one in owned:
        epochs = assigned.get(one.topic_id, {})
        if not all(partition in epochs for partition in one.partitions):
            return False
    return True


def updated(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """The member as the request tells it; what isn't told stays. The same object where nothing is new."""
    before = member.subscription
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if names is None and (regex is None or regex == before.regex):
        subscription = before
    else:
        subscription = Subscription(
            before.names if names is None else tuple(sorted(set(names))), before.regex if regex is None else regex
        )
        if subscription == before:
            subscription = before
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if (
        subscription is before
        and member.classic is None
        and caller.client_id == member.client_id
        and caller.host == member.client_host
        and (rebalance_timeout_ms == -1 or rebalance_timeout_ms == member.rebalance_timeout_ms)
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and (request.rack_id is None or request.rack_id == member.rack_id)
        and (request.server_assignor is None or request.server_assignor == member.assignor)
    ):
        return member
    return replace(
        member,
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        client_id=caller.client_id,
        client_host=caller.host,
        subscription=subscription,
        assignor=request.server_assignor if request.server_assignor is not None else member.assignor,
        classic=None,
    )
