"""A group as the APIs beside its own protocol see it: listing, describing, deletion of offsets and groups, expiry.

A simple group has offsets and nothing else: an empty classic group without a protocol type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.coordinator.group.classic import checks as classic_checks
from tidelog.coordinator.group.classic import records as classic_records
from tidelog.coordinator.group.classic import view as classic_view
from tidelog.coordinator.group.consumer import entries as consumer_entries
from tidelog.coordinator.group.consumer.state import PROTOCOL_TYPE, ConsumerGroup
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_groups import DescribedGroup
from tidelog.wire.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from tidelog.coordinator.entry import Entry
    from tidelog.coordinator.group.classic.live import LiveClassicGroup
    from tidelog.coordinator.group.classic.state import ClassicGroup
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState


class ClassicView:
    """A group of the classic protocol, or a simple one: then it is neither in the log nor live."""

    __slots__ = ("_group", "_live", "group_id")

    def __init__(self, group_id: str, group: ClassicGroup | None, live: LiveClassicGroup | None) -> None:
        self.group_id = group_id
        self._group = group
        self._live = live

    def listed(self) -> ListedGroup:
        return classic_view.listed(self.group_id, self._group, self._live)

    def described(self) -> DescribedGroup:
        return classic_view.described(self.group_id, self._group, self._live)

    def check_delete(self) -> None:
        """Raises NON_EMPTY_GROUP where the group has members."""
        classic_checks.check_delete(self._group, self._live)

    def check_offset_delete(self) -> None:
        """Raises NON_EMPTY_GROUP where nobody can tell which offsets are in use."""
        classic_checks.check_offset_delete(self._group, self._live)

    def subscribed(self) -> Callable[[str], bool]:
        """Whether offsets of a topic are in use."""
        return classic_checks.subscribed(self._live)

    def expires_from(self) -> Callable[[int], int | None]:
        """By its commit timestamp, from when on the retention of an offset counts; None: not now."""
        return classic_checks.expires_from(self._group, self._live)

    def tombstones(self) -> list[Entry]:
        """What takes the group itself out of the log. A simple one too: Kafka remembers it by its offsets' records."""
        return [classic_records.tombstone(self.group_id)]


class ConsumerView:
    """A group of the consumer protocol; the same questions."""

    __slots__ = ("_group", "group_id")

    def __init__(self, group: ConsumerGroup) -> None:
        self.group_id = group.id
        self._group = group

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id, protocol_type=PROTOCOL_TYPE, group_state=self._group.state, group_type="consumer"
        )

    def described(self) -> DescribedGroup:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a classic group.")

    def check_delete(self) -> None:
        if not self._group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has members")

    def check_offset_delete(self) -> None:
        """Which topics its members read is known."""

    def subscribed(self) -> Callable[[str], bool]:
        group = self._group
        topics = {name for subscription in group.subscriptions for name in subscription.names}
        for regex in group.regexes():
            resolved = group.resolved.get(regex)
            topics.update(() if resolved is None else resolved.topics)
        return topics.__contains__

    def expires_from(self) -> Callable[[int], int | None]:
        return lambda commit_timestamp_ms: commit_timestamp_ms

    def tombstones(self) -> list[Entry]:
        return consumer_entries.group_gone(self._group)


View = ClassicView | ConsumerView


def view(shard: GroupShard, state: GroupsState, group_id: str) -> View | None:
    """The group under `state`; None where there is none."""
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return ConsumerView(group)
    live = shard.live.classic.get(group_id)
    in_log = group is not None or group_id in state.offsets or group_id in state.writers
    if not in_log and (live is None or not (live.members or live.pending or live.writing)):
        return None
    return ClassicView(group_id, group, live)


def group_ids(state: GroupsState) -> set[str]:
    """All that have a record: groups, and simple groups with offsets or with those of an open transaction."""
    return {*state.groups, *state.offsets, *state.writers}
