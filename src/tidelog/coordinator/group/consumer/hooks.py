"""Where the coordinator calls into the consumer protocol when a shard is loaded or unloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard


def on_load(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """The shard's log was read: sessions of its members begin anew."""


def on_unload(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """Leadership ended: who waits is told so."""
