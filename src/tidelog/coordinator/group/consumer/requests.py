"""ConsumerGroupHeartbeat, from `apis` to the group it is about: join, stay, leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.records import tombstone
from tidelog.coordinator.group.classic.shell import moment
from tidelog.coordinator.group.classic.state import ClassicGroup
from tidelog.coordinator.group.consumer.assigning import target_decided
from tidelog.coordinator.group.consumer.checking import check_request
from tidelog.coordinator.group.consumer.conversion import upgrade
from tidelog.coordinator.group.consumer.handover import retire
from tidelog.coordinator.group.consumer.heartbeat import Beat, heartbeat
from tidelog.coordinator.group.consumer.leaving import Gone, leave
from tidelog.coordinator.group.consumer.membership import Caller
from tidelog.coordinator.group.consumer.progress import Scene
from tidelog.coordinator.group.consumer.shell import departed, heard_of, keep, live_of, looked_at, scene_of
from tidelog.coordinator.group.consumer.state import JOIN_EPOCH, ConsumerGroup
from tidelog.coordinator.group.consumer.topics import hash_topics, names_of
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.uuids import uuid_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.coordinator.entry import Entry
    from tidelog.coordinator.group.consumer.live import LiveConsumerGroup
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps

TOPICS_AT_ONCE = 500
"""Topics of a group whose hashes are computed when they are needed: some milliseconds."""


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
    scene: Scene | None = None
    made: Beat | None = None
    classic: LiveClassicGroup | None = None

    def decide(state: GroupsState, now_ms: int) -> tuple[Sequence[Entry], ConsumerGroupHeartbeatResponse]:
        nonlocal scene, made, classic
        known = state.groups.get(group_id)
        group = known if isinstance(known, ConsumerGroup) else None
        scene = scene_of(coordinator, live, group, group_id, now_ms)
        opening: list[Entry] = []
        if group is None:
            opening, group, classic = _open(shard, state, request, scene)
        entries, made = heartbeat(group, request, caller, scene, lambda: uuid_text(coordinator.random.uuid()))
        return opening + entries if opening else entries, made.response

    promise = shard.submit(decide)
    if promise.error is None and scene is not None and made is not None:
        looked_at(live, scene, compared=made.compared, resolved=made.resolved)
        target_decided(coordinator, shard, group_id, live, wanted=made.wants_target)
        if classic is not None:
            _take_over(coordinator, shard, live, classic)
        heard_of(coordinator, shard, group_id, live, made.member, scene.terms.session_timeout_ms, moved=made.moved)
    return promise


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
    shard: GroupShard, state: GroupsState, request: ConsumerGroupHeartbeatRequest, scene: Scene
) -> tuple[list[Entry], ConsumerGroup, LiveClassicGroup | None]:
    """The group where it isn't one of this protocol yet: a new one, or what a classic group becomes."""
    group_id = request.group_id
    known, classic = state.groups.get(group_id), shard.live.classic.get(group_id)
    if request.member_epoch != JOIN_EPOCH:
        raise _not_found(group_id, exists=known is not None or classic is not None)
    if classic is None and isinstance(known, ClassicGroup):
        classic = LiveClassicGroup.loaded(known, moment(shard.clock))
    if classic is not None and classic.members:
        entries, group = upgrade(classic, scene.image, scene.terms)
        return entries, group, classic
    entries = [] if known is None else [tombstone(group_id)]
    return entries, ConsumerGroup(group_id), classic


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
    gone = Gone(())

    def decide(state: GroupsState, now_ms: int) -> tuple[Sequence[Entry], ConsumerGroupHeartbeatResponse]:
        nonlocal gone
        group = state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        scene = scene_of(coordinator, live, group, group_id, now_ms)
        entries, gone = leave(group, request.member_id, request.instance_id, request.member_epoch, scene)
        answer = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        return entries, answer

    promise = shard.submit(decide)
    if promise.error is None:
        departed(coordinator, shard, group_id, gone)
    return promise
