"""The requests of group members: from `apis` to the protocol that the group follows, and from one to the other.

A group follows the classic protocol or the consumer protocol (KIP-848); neither knows of the other. Members of the
classic protocol may be in a group of either, and a member of the consumer protocol may come to a classic group, which
goes over with its members then (`migration.py`). Who decides is found here, once, on the newest state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.group import migration
from tidelog.coordinator.group.caller import Caller
from tidelog.coordinator.group.classic import answers
from tidelog.coordinator.group.classic import requests as classic
from tidelog.coordinator.group.consumer import classic_members
from tidelog.coordinator.group.consumer import requests as consumer
from tidelog.coordinator.group.consumer.heartbeat import Beat, heartbeat
from tidelog.coordinator.group.consumer.shell import context_of, heard_of, live_of, looked_at
from tidelog.coordinator.group.consumer.state import JOIN_EPOCH, ConsumerGroup
from tidelog.coordinator.group.consumer.target_job import target_decided
from tidelog.coordinator.group.consumer.validation import check_request
from tidelog.env.promise import Promise
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.uuids import uuid_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.coordinator.entry import Entry
    from tidelog.coordinator.group.classic.live import LiveClassicGroup
    from tidelog.coordinator.group.consumer.context import DecisionContext
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.wire.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )


def _consumer_group(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    """The group, if it follows the consumer protocol; all others follow the classic one, new ones too."""
    group = shard.machine.newest.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


# -- the classic protocol's four requests


def join_group(
    coordinator: GroupCoordinator, request: JoinGroupRequest, version: int, caller: Caller
) -> Promise[JoinGroupResponse]:
    """The answer comes when the generation begins: after the join phase; in a group of the consumer protocol, when
    what was decided is committed."""
    refused = classic.refusal(coordinator.config, request, version)
    if refused:
        return Promise[JoinGroupResponse].resolved(answers.refused(refused, request.member_id))
    try:
        shard = coordinator.shard_of(request.group_id)
    except KafkaError as error:
        return Promise[JoinGroupResponse].resolved(answers.refused(error.code))
    group = _consumer_group(shard, request.group_id)
    if group is not None:
        if not group.is_empty:
            return _join_consumer_group(coordinator, shard, group, request, version, caller)
        # Without members it isn't one of the consumer protocol any more.
        removed = classic_members.remove(shard, group)
        if removed.error is not None:
            return classic_members.failed_join(removed.error, request)
    return classic.join_group(coordinator, shard, request, version, *caller)


def _join_consumer_group(
    coordinator: GroupCoordinator,
    shard: GroupShard,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    version: int,
    caller: Caller,
) -> Promise[JoinGroupResponse]:
    promise, downgrade = classic_members.join(coordinator, shard, group, request, version, caller)
    if downgrade is None:
        return promise
    why = "a static member came back to the classic protocol"
    migration.install(coordinator, shard, downgrade, why, rebalance=group.epoch > group.target_epoch)
    answer: Promise[JoinGroupResponse] = Promise()

    def committed(downgraded: Promise[JoinGroupResponse]) -> None:
        """The group is a classic one, and the member is in it: it joins again, there."""
        if downgraded.error is None:
            request.member_id = downgraded.result().member_id
            there = join_group(coordinator, request, version, caller)
        else:
            there = classic_members.failed_join(downgraded.error, request)
        there.on_done(lambda done: answer.resolve(done.result()) if done.error is None else answer.fail(done.error))

    promise.on_done(committed)
    return answer


def sync_group(
    coordinator: GroupCoordinator, request: SyncGroupRequest, assignments: Mapping[str, bytes]
) -> Promise[SyncGroupResponse]:
    """The answer comes when the leader's assignment is committed; in a group of the consumer protocol, when what the
    member was assigned is."""
    try:
        shard = coordinator.shard_of(request.group_id)
    except KafkaError as error:
        return Promise[SyncGroupResponse].resolved(answers.unsynced(error.code))
    group = _consumer_group(shard, request.group_id)
    if group is not None:
        return classic_members.sync(coordinator, shard, group, request)
    return classic.sync_group(coordinator, shard, request, assignments)


def classic_heartbeat(coordinator: GroupCoordinator, request: HeartbeatRequest) -> HeartbeatResponse:
    """While the group is being loaded nobody can say more than that it goes on: its members stay."""
    try:
        shard = coordinator.shard_of(request.group_id)
    except KafkaError as error:
        is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
    group = _consumer_group(shard, request.group_id)
    if group is not None:
        return classic_members.beat(coordinator, shard, group, request)
    return classic.beat(shard, request)


def leave_group(
    coordinator: GroupCoordinator, group_id: str, leavers: Sequence[MemberIdentity]
) -> Promise[LeaveGroupResponse]:
    """The answer comes at once, or where the group became empty when that is committed; in a group of the consumer
    protocol, when it is committed."""
    try:
        shard = coordinator.shard_of(group_id)
    except KafkaError as error:
        return Promise[LeaveGroupResponse].resolved(LeaveGroupResponse(error_code=error.code))
    group = _consumer_group(shard, group_id)
    if group is not None:
        return classic_members.leave(coordinator, shard, group, leavers)
    return classic.leave_group(coordinator, shard, group_id, leavers)


# -- the consumer protocol's request


class _Decided(NamedTuple):
    beat: Beat
    context: DecisionContext
    classic: LiveClassicGroup | None
    """The group as it was until now, where it followed the classic protocol."""


def consumer_heartbeat(
    coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest, version: int, caller: Caller
) -> Promise[ConsumerGroupHeartbeatResponse]:
    """Raises, or fails with, the KafkaError that the member is to be told."""
    check_request(request, version, coordinator.config.group_consumer_assignors)
    group_id = request.group_id
    shard = coordinator.shard_of(group_id)
    if request.member_epoch < JOIN_EPOCH:
        return consumer.leave_group(coordinator, shard, request)
    live = live_of(shard, group_id)

    def decide(state: GroupsState, now_ms: int) -> Decision[Entry, _Decided]:
        known = state.groups.get(group_id)
        group = known if isinstance(known, ConsumerGroup) else None
        context = context_of(coordinator, live, group, group_id, now_ms)
        opening: Sequence[Entry] = ()
        before: LiveClassicGroup | None = None
        if group is None:
            opening, (group, before) = migration.open_group(shard, state, request, context)
        entries, beat = heartbeat(group, request, caller, context, lambda: uuid_text(coordinator.random.uuid()))
        return Decision([*opening, *entries] if opening else entries, _Decided(beat, context, before))

    promise, decided = shard.hand_in(decide)
    if decided is not None:
        beat, context, before = decided
        looked_at(live, context, compared=beat.compared, resolved=beat.resolved)
        target_decided(coordinator, shard, group_id, live, wanted=beat.wants_target)
        if before is not None:
            migration.take_over(coordinator, shard, live, before)
        heard_of(coordinator, shard, group_id, live, beat.member, context.terms.session_timeout_ms, moved=beat.moved)
    return promise.map(lambda decided: decided.beat.response)
