"""Records of classic groups, folded into the state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from immutables import Map

from tidelog.coordinator.group.classic.state import ClassicGroup, ClassicMember
from tidelog.wire.records.groups import GroupMetadataKey, GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from tidelog.coordinator.group.state import GroupsState


def replay_group(state: GroupsState, key: GroupMetadataKey, value: GroupMetadataValue | None) -> GroupsState:
    """A record holds a group whole; a tombstone ends it."""
    if value is None:
        if not isinstance(state.groups.get(key.group), ClassicGroup):
            return state
        return replace(state, groups=state.groups.delete(key.group))
    return replace(state, groups=state.groups.set(key.group, group_of(key.group, value)))


def group_of(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    return ClassicGroup(
        group_id=group_id,
        protocol_type=value.protocol_type or None,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp,
        members=Map({member.member_id: _member_of(member) for member in value.members}),
    )


def _member_of(member: MemberMetadata) -> ClassicMember:
    """Records of version 0 have no rebalance timeout: the session's counted for both."""
    rebalance_timeout_ms = member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )


REPLAY: dict[type[Any], Callable[[GroupsState, Any, Any], GroupsState]] = {GroupMetadataKey: replay_group}
