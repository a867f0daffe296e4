"""What a shard of the group coordinator knows besides its log: who waits, and timers. Made anew on every load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tidelog.coordinator.group.offset_changes import OffsetChanges

if TYPE_CHECKING:
    from tidelog.coordinator.group.classic.live import LiveClassicGroup
    from tidelog.coordinator.group.consumer.live import LiveConsumerGroup
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.coordinator.shard import Shard

    GroupShard: TypeAlias = "Shard[GroupsState, GroupLive]"


@dataclass(slots=True)
class GroupLive:
    """By group id. An entry is made by the protocol that the group follows, and goes with the group."""

    classic: dict[str, LiveClassicGroup] = field(default_factory=dict)
    consumer: dict[str, LiveConsumerGroup] = field(default_factory=dict)
    offset_changes: OffsetChanges = field(default_factory=OffsetChanges)
