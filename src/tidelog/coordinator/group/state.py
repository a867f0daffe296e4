"""What one shard of the group coordinator knows: groups, their committed offsets, and offsets of open transactions.

Immutable: a version of the state is a reference, and a change shares with the version before all that it doesn't touch.
A group that only commits offsets, and has no members, stands in `offsets` alone: a simple group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from immutables import Map

from tidelog.wire.topic_partition import TopicPartition
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.coordinator.group.classic.state import ClassicGroup
    from tidelog.coordinator.group.consumer.state import ConsumerGroup

    Group: TypeAlias = "ClassicGroup | ConsumerGroup"


class CommittedOffset(NamedTuple):
    """Where a group goes on in one partition. `record_offset`: where in the offsets topic this was written."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    """-1: it expires by `offsets.retention.minutes`."""
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1


Offsets: TypeAlias = "Map[TopicPartition, CommittedOffset]"

NO_OFFSETS: Offsets = Map()
_NOTHING: Map[Any, Any] = Map()


@dataclass(frozen=True, slots=True)
class GroupsState:
    """`pending` is by producer id, then by group; `writers` are the producers with pending offsets of a group."""

    groups: Map[str, Group] = _NOTHING
    offsets: Map[str, Offsets] = _NOTHING
    pending: Map[int, Map[str, Offsets]] = _NOTHING
    writers: Map[str, frozenset[int]] = _NOTHING

    def with_group(self, group_id: str, group: Group) -> GroupsState:
        return GroupsState(self.groups.set(group_id, group), self.offsets, self.pending, self.writers)

    def without_group(self, group_id: str) -> GroupsState:
        """Its offsets stay: they have records, and tombstones, of their own."""
        if group_id not in self.groups:
            return self
        return GroupsState(self.groups.delete(group_id), self.offsets, self.pending, self.writers)

    def with_offsets(self, offsets: Map[str, Offsets]) -> GroupsState:
        return GroupsState(self.groups, offsets, self.pending, self.writers)


EMPTY = GroupsState()
