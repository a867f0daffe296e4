"""ListGroups and DescribeGroups: the groups whose state this broker leads, as committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.views import group_ids, view
from tidelog.env.slices import CHEAP_A_STEP, Steps, mapped
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_groups import DescribedGroup
from tidelog.wire.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.coordinator.group.coordinator import GroupCoordinator

DEAD = "Dead"
FIRST_WITH_NOT_FOUND = 6


def list_groups(
    coordinator: GroupCoordinator, states: Sequence[str] = (), types: Sequence[str] = ()
) -> Steps[list[ListedGroup]]:
    """All, or those in one of `states` and of one of `types`; both without regard to case.

    Raises COORDINATOR_LOAD_IN_PROGRESS while a part of them is still being read.
    """
    wanted_states = frozenset((yield from mapped(lambda state: state.strip().lower(), states, CHEAP_A_STEP)))
    wanted_types = frozenset((yield from mapped(str.lower, types, CHEAP_A_STEP)))
    groups: list[ListedGroup] = []
    for shard in coordinator.shards.all():
        state = shard.state
        for group_id in group_ids(state):
            yield
            group = view(shard, state, group_id)
            if group is None:
                continue
            listed = group.listed()
            if wanted_types and listed.group_type not in wanted_types:
                continue
            if wanted_states and listed.group_state.lower() not in wanted_states:
                continue
            groups.append(listed)
    return groups


def describe_group(coordinator: GroupCoordinator, group_id: str, version: int) -> DescribedGroup:
    """A classic group. One that isn't there, or follows another protocol, is told to be dead, as clients expect."""
    try:
        shard = coordinator.shards.of(group_id)
        group = view(shard, shard.state, group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group.described()
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        dead = DescribedGroup(group_id=group_id, group_state=DEAD)
        if version >= FIRST_WITH_NOT_FOUND:
            dead.error_code, dead.error_message = error.code, error.message
        return dead
