"""When a shard of the coordinator is loaded or unloaded: what that means for its classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.classic.decision import NOTHING
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.outcomes import bury
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.rebalance import prepare
from tidelog.coordinator.group.classic.shell import act, limits_of, moment
from tidelog.coordinator.group.classic.state import ClassicGroup
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard


def on_load(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """Members get a whole session to find this coordinator; a group that is too large for its limit shrinks."""
    limits, now = limits_of(coordinator.config), moment(shard.clock)
    for group_id, known in sorted(shard.machine.newest.groups.items()):
        if not isinstance(known, ClassicGroup) or not known.members:
            continue
        group = shard.live.classic[group_id] = LiveClassicGroup.loaded(known, now)
        follows = NOTHING
        if len(group.members) > limits.members_max:
            follows = prepare(group, f"it has more than {limits.members_max} members", limits, now)
        act(coordinator, shard, group, follows)


def on_unload(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """Whoever waits is told to look for the next coordinator."""
    now = moment(shard.clock)
    for group in list(shard.live.classic.values()):
        if group.phase is not Phase.DEAD:
            act(coordinator, shard, group, bury(group, ErrorCode.NOT_COORDINATOR, now))
