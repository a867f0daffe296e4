"""A group changes protocols while its members are at work: who waits under the old one is told, timers begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.classic.decision import NOTHING
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.outcomes import bury
from tidelog.coordinator.group.classic.rebalance import prepare
from tidelog.coordinator.group.classic.shell import act, limits_of, moment
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard


def install(
    coordinator: GroupCoordinator, shard: GroupShard, live: LiveClassicGroup, reason: str, *, rebalance: bool = True
) -> None:
    """The group is a classic one from now on: its members' sessions begin, and they are called to join again."""
    now = moment(shard.clock)
    shard.live.classic[live.group_id] = live
    for member in live.members.values():
        live.expect(member, now)
    follows = prepare(live, reason, limits_of(coordinator.config), now) if rebalance else NOTHING
    act(coordinator, shard, live, follows)


def retire(coordinator: GroupCoordinator, shard: GroupShard, live: LiveClassicGroup) -> None:
    """The group is no classic one any more: who waits for a generation is told to join again, and will be heard."""
    act(coordinator, shard, live, bury(live, ErrorCode.REBALANCE_IN_PROGRESS, moment(shard.clock)))
