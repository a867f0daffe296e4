"""The four requests of the classic protocol, for groups that follow it: from the router to the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.bounds import OWNER_CHARACTERS_MAX, PROTOCOLS_MAX
from tidelog.coordinator.group.classic import answers
from tidelog.coordinator.group.classic.decision import together
from tidelog.coordinator.group.classic.departures import heartbeat, leave
from tidelog.coordinator.group.classic.join import Join, create, join
from tidelog.coordinator.group.classic.shell import act, find, limits_of, moment, open_group
from tidelog.coordinator.group.classic.sync import Sync, sync
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.env.random import Random


def refusal(config: BrokerConfig, request: JoinGroupRequest, version: int) -> ErrorCode:
    """Why a JoinGroup is refused whatever its group is; NONE where it isn't."""
    if version == 0:  # it has no rebalance timeout: its session's counts
        request.rebalance_timeout_ms = request.session_timeout_ms
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if len(request.protocols) > PROTOCOLS_MAX:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    limits = limits_of(config)
    if not limits.session_min_ms <= request.session_timeout_ms <= limits.session_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def join_group(
    coordinator: GroupCoordinator,
    shard: GroupShard,
    request: JoinGroupRequest,
    version: int,
    client_id: str,
    client_host: str,
) -> Promise[JoinGroupResponse]:
    """The answer comes when the generation begins: after the join phase."""
    group_id, now = request.group_id, moment(shard.clock)
    if request.member_id and find(shard, group_id) is None:
        return Promise[JoinGroupResponse].resolved(answers.refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    group, is_new = open_group(shard, group_id, now)
    answer: Promise[JoinGroupResponse] = Promise()
    new_id = "" if request.member_id else _member_id(coordinator.random, request.group_instance_id or client_id)
    asked = Join.of(request, version, client_id, client_host, new_id, answer)
    decision = join(group, asked, limits_of(coordinator.config), now)
    act(coordinator, shard, group, together(decision, create(group)) if is_new else decision)
    return answer


def sync_group(
    coordinator: GroupCoordinator, shard: GroupShard, request: SyncGroupRequest, assignments: Mapping[str, bytes]
) -> Promise[SyncGroupResponse]:
    """The answer comes when the leader's assignment is committed."""
    group = find(shard, request.group_id)
    if group is None:
        return Promise[SyncGroupResponse].resolved(answers.unsynced(ErrorCode.UNKNOWN_MEMBER_ID))
    answer: Promise[SyncGroupResponse] = Promise()
    act(coordinator, shard, group, sync(group, Sync.of(request, assignments, answer), moment(shard.clock)))
    return answer


def beat(shard: GroupShard, request: HeartbeatRequest) -> HeartbeatResponse:
    group = find(shard, request.group_id)
    if group is None:
        return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    now = moment(shard.clock)
    code = heartbeat(group, request.member_id, request.group_instance_id, request.generation_id, now)
    return HeartbeatResponse(error_code=code)


def leave_group(
    coordinator: GroupCoordinator, shard: GroupShard, group_id: str, leavers: Sequence[MemberIdentity]
) -> Promise[LeaveGroupResponse]:
    """The answer comes at once, or where the group became empty when that is committed."""
    group = find(shard, group_id)
    if group is None:
        return Promise[LeaveGroupResponse].resolved(
            LeaveGroupResponse(members=[_unknown(leaver) for leaver in leavers])
        )
    answer: Promise[LeaveGroupResponse] = Promise()
    decision = leave(group, answer, leavers, limits_of(coordinator.config), moment(shard.clock))
    act(coordinator, shard, group, decision)
    return answer


def _unknown(leaver: MemberIdentity) -> MemberResponse:
    return MemberResponse(
        member_id=leaver.member_id,
        group_instance_id=leaver.group_instance_id,
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
    )


def _member_id(random: Random, owner: str) -> str:
    """The instance id or client id, and a UUID: never one that was given before.

    All members of a group are told the ids of all, so each must fit into a string whatever its client calls itself.
    """
    text = random.uuid().hex()
    return f"{owner[:OWNER_CHARACTERS_MAX]}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
