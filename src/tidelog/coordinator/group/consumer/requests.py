"""ConsumerGroupHeartbeat around its decision: what is done ahead of it, and a member's leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.consumer.departures import Gone, leave
from tidelog.coordinator.group.consumer.shell import context_of, departed, live_of
from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.coordinator.group.consumer.topics import hash_topics, names_of
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tidelog.coordinator.entry import Entry
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps

TOPICS_AT_ONCE = 500
"""Topics of a group whose hashes are computed when they are needed: some milliseconds."""


def prepared(coordinator: GroupCoordinator, group_id: str) -> Steps[None] | None:
    """What is to be done before the next heartbeat of a group is decided, where that takes long."""
    try:
        shard = coordinator.shard_of(group_id)
    except KafkaError:
        return None  # the heartbeat itself says why
    image, live = coordinator.metadata.image, shard.live.consumer.get(group_id)
    if live is None or (live.topics is image.topics_shape and live.brokers is image.brokers):
        return None
    group = shard.machine.newest.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or _names(group) <= TOPICS_AT_ONCE:
        return None
    return hash_topics(group.subscriptions, group.resolved, image)


def _names(group: ConsumerGroup) -> int:
    return sum(len(names_of(subscription, group.resolved)) for subscription in group.subscriptions)


def leave_group(
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
