"""ConsumerGroupHeartbeat, from `apis` to the group it is about: join, stay, leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.records import tombstone
from tidelog.coordinator.group.classic.shell import moment
from tidelog.coordinator.group.classic.state import ClassicGroup
from tidelog.coordinator.group.consumer.assigning import target_decided
from tidelog.coordinator.group.consumer.checking import check_request
from tidelog.coordinator.group.consumer.context import DecisionContext
from tidelog.coordinator.group.consumer.conversion import upgrade
from tidelog.coordinator.group.consumer.handover import retire
from tidelog.coordinator.group.consumer.heartbeat import Beat, heartbeat
from tidelog.coordinator.group.consumer.leaving import Gone, leave
from tidelog.coordinator.group.consumer.membership import Caller
from tidelog.coordinator.group.consumer.shell import context_of, departed, heard_of, keep, live_of, looked_at
from tidelog.coordinator.group.consumer.state import JOIN_EPOCH, ConsumerGroup
from tidelog.coordinator.group.consumer.topics import hash_topics, names_of
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.uuids import uuid_text

if TYPE_CHECKING:
    from tidelog.coordinator.entry import Entry
    from tidelog.coordinator.group.consumer.live import LiveConsumerGroup
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps

TOPICS_AT_ONCE = 500
"""Topics of a group whose hashes are computed when they are needed: some milliseconds."""


class _Opened(NamedTuple):
    """The group that a heartbeat is for, and the classic one that it was until now."""

    group: ConsumerGroup
    classic: LiveClassicGroup | None


class _Decided(NamedTuple):
    made: Beat
    context: DecisionContext
    classic: LiveClassicGroup | None


def beat(
    coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest, version: int, caller: Caller
) -> Promise[ConsumerGroupHeartbeatResponse]:
    """Raises, or fails with, the KafkaError that the member is to be told."""
    check_request(request, version, coordinator.config.group_consumer_assignors)
    group_id = request.group_id
    shard = coordinator.shard_of(group_id)
    if request.member_epoch < JOIN_EPOCH:
        return _leave(coordinator, shard, request)
    live = live_of(shard, group_id)

    def decide(state: GroupsState, now_ms: int) -> Decision[Entry, _Decided]:
        known = state.groups.get(group_id)
        group = known if isinstance(known, ConsumerGroup) else None
        context = context_of(coordinator, live, group, group_id, now_ms)
        opening, opened = _open(shard, state, request, context) if group is None else Decision((), _Opened(group, None))
        entries, made = heartbeat(opened.group, request, caller, context, lambda: uuid_text(coordinator.random.uuid()))
        return Decision([*opening, *entries] if opening else entries, _Decided(made, context, opened.classic))

    promise, decided = shard.hand_in(decide)
    if decided is not None:
        made, context, classic = decided
        looked_at(live, context, compared=made.compared, resolved=made.resolved)
        target_decided(coordinator, shard, group_id, live, wanted=made.wants_target)
        if classic is not None:
            _take_over(coordinator, shard, live, classic)
        heard_of(coordinator, shard, group_id, live, made.member, context.terms.session_timeout_ms, moved=made.moved)
    return promise.map(_response)


def _response(decided: _Decided) -> ConsumerGroupHeartbeatResponse:
    return decided.made.response


def prepared(coordinator: GroupCoordinator, group_id: str) -> Steps[None] | None:
    """What is to be done before the next heartbeat of a group is decided, where that takes long."""
    try:
        shard = coordinator.shard_of(group_id)
    except KafkaError:
        return None  # the heartbeat itself says why
    image, live = coordinator.metadata.image, shard.live.consumer.get(group_id)
    if live is None or (live.topics is image.topics and live.brokers is image.brokers):
        return None
    group = shard.machine.newest.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or _names(group) <= TOPICS_AT_ONCE:
        return None
    return hash_topics(group.subscriptions, group.resolved, image)


def _names(group: ConsumerGroup) -> int:
    return sum(len(names_of(subscription, group.resolved)) for subscription in group.subscriptions)


def _open(
    shard: GroupShard, state: GroupsState, request: ConsumerGroupHeartbeatRequest, context: DecisionContext
) -> Decision[Entry, _Opened]:
    """The group where it isn't one of this protocol yet: a new one, or what a classic group becomes."""
    group_id = request.group_id
    known, classic = state.groups.get(group_id), shard.live.classic.get(group_id)
    if request.member_epoch != JOIN_EPOCH:
        raise _not_found(group_id, exists=known is not None or classic is not None)
    if classic is None and isinstance(known, ClassicGroup):
        classic = LiveClassicGroup.loaded(known, moment(shard.clock))
    if classic is not None and classic.members:
        entries, group = upgrade(classic, context.image, context.terms)
        return Decision(entries, _Opened(group, classic))
    entries = [] if known is None else [tombstone(group_id)]
    return Decision(entries, _Opened(ConsumerGroup(group_id), classic))


def _not_found(group_id: str, *, exists: bool) -> KafkaError:
    message = f"Group {group_id} is not a consumer group." if exists else f"Consumer group {group_id} not found."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _take_over(
    coordinator: GroupCoordinator, shard: GroupShard, live: LiveConsumerGroup, classic: LiveClassicGroup
) -> None:
    """The classic group's members are this group's now; their sessions go on under it."""
    now_s = shard.clock.monotonic()
    for member in classic.members.values():
        deadlines = live.of(member.member_id)
        deadlines.session_s = now_s + member.session_timeout_ms / 1000
        live.wake_by(deadlines.session_s)
    keep(coordinator, shard, classic.group_id, live)
    retire(coordinator, shard, classic)


def _leave(
    coordinator: GroupCoordinator, shard: GroupShard, request: ConsumerGroupHeartbeatRequest
) -> Promise[ConsumerGroupHeartbeatResponse]:
    group_id = request.group_id
    live = live_of(shard, group_id)

    def decide(state: GroupsState, now_ms: int) -> Decision[Entry, Gone]:
        group = state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        context = context_of(coordinator, live, group, group_id, now_ms)
        return leave(group, request.member_id, request.instance_id, request.member_epoch, context)

    answer = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    promise, gone = shard.hand_in(decide)
    if gone is not None:
        departed(coordinator, shard, group_id, gone)
    return promise.map(lambda _: answer)
