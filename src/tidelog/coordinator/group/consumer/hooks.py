"""Where the coordinator calls into the consumer protocol when a shard is loaded or unloaded.

What coordinates groups is imported when there are some: a broker starts sooner without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.consumer.state import ConsumerGroup

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard


def on_load(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """The shard's log was read: sessions of its members begin anew."""
    groups = (group for _, group in sorted(shard.state.groups.items()))
    consumer_groups = [group for group in groups if isinstance(group, ConsumerGroup) and group.members]
    if consumer_groups:
        from tidelog.coordinator.group.consumer.shell import resume

        for group in consumer_groups:
            resume(coordinator, shard, group)


def on_unload(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """Leadership ended: nobody waits here, and the timers went with the epoch."""
    shard.live.consumer.clear()
