"""Where the coordinator calls into the consumer protocol when a shard is loaded or unloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.consumer.live import LiveConsumerGroup
from tidelog.coordinator.group.consumer.shell import forget, heard_of, scene_of
from tidelog.coordinator.group.consumer.state import ConsumerGroup

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard


def on_load(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """The shard's log was read: sessions of its members begin anew."""
    for group_id, group in shard.state.groups.items():
        if isinstance(group, ConsumerGroup) and group.members:
            live = LiveConsumerGroup()
            session_ms = scene_of(coordinator, live, None, group_id, 0).terms.session_timeout_ms
            for member in group.members.values():
                own_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
                heard_of(coordinator, shard, group_id, live, member, own_ms, moved=True)


def on_unload(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """Leadership ended: nobody waits here, and the timers went with the epoch."""
    for group_id in list(shard.live.consumer):
        forget(shard, group_id)
