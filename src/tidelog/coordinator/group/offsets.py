"""Committed offsets, record by record: plain ones count at once, those of a transaction when its marker says so."""

from __future__ import annotations

from sys import intern

from immutables import Map, MapMutation

from tidelog.coordinator.entry import Marker
from tidelog.coordinator.group.ending import merged
from tidelog.coordinator.group.state import NO_OFFSETS, CommittedOffset, GroupsState, Offsets
from tidelog.wire.records.groups import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.topic_partition import TopicPartition

_NO_GROUPS: Map[str, Offsets] = Map()
_NOBODY: frozenset[int] = frozenset()


class Drafts:
    """The offsets of the groups that a fold touches, open for change: a load folds thousands of records at once."""

    __slots__ = ("_open", "state")

    def __init__(self, state: GroupsState) -> None:
        self.state = state
        """What is finished."""
        self._open: dict[tuple[str, int], MapMutation[TopicPartition, CommittedOffset]] = {}
        """By group, and producer: -1 is none, what is committed."""

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int, offset: int) -> None:
        """A record at `offset` of the log; `producer_id >= 0`: part of that producer's transaction."""
        group_id = key.group
        partition = intern(key.topic), key.partition
        if value is None:
            for writer in self.state.writers.get(group_id, _NOBODY):
                self._of(group_id, writer).pop(partition, None)
            self._of(group_id).pop(partition, None)
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            offset,
        )
        if producer_id >= 0:
            if producer_id not in self.state.writers.get(group_id, _NOBODY):
                self.state = _with_writer(self.state, producer_id, group_id)
            self._of(group_id, producer_id)[partition] = committed
        else:
            self._of(group_id)[partition] = committed

    def finish(self) -> GroupsState:
        """The state with everything that was changed."""
        drafts, self._open = self._open, {}
        for (group_id, producer_id), draft in drafts.items():
            if producer_id >= 0:
                self.state = _with_pending(self.state, producer_id, group_id, draft.finish())
            else:
                self.state = _with_committed(self.state, group_id, draft.finish())
        return self.state

    def _of(self, group_id: str, producer_id: int = -1) -> MapMutation[TopicPartition, CommittedOffset]:
        """What is committed for the group, or pending in the producer's transaction."""
        draft = self._open.get((group_id, producer_id))
        if draft is None:
            by_group = self.state.offsets if producer_id < 0 else self.state.pending.get(producer_id, _NO_GROUPS)
            draft = self._open[group_id, producer_id] = by_group.get(group_id, NO_OFFSETS).mutate()
        return draft


def replay_marker(state: GroupsState, marker: Marker) -> GroupsState:
    """A transaction ended: what it wrote counts, unless a plain commit came after it; or it is forgotten."""
    by_group = state.pending.get(marker.producer_id)
    if by_group is None:
        return state
    offsets, writers = state.offsets, state.writers
    for group_id, pending in by_group.items():
        writers = _without_writer(writers, group_id, marker.producer_id)
        if marker.committed:
            before = offsets.get(group_id, NO_OFFSETS)
            offsets = offsets.set(group_id, merged(marker, group_id, pending, before))
    return GroupsState(state.groups, offsets, state.pending.delete(marker.producer_id), writers)


def _with_committed(state: GroupsState, group_id: str, committed: Offsets) -> GroupsState:
    if committed:
        return state.with_offsets(state.offsets.set(group_id, committed))
    return state.with_offsets(state.offsets.delete(group_id)) if group_id in state.offsets else state


def _with_writer(state: GroupsState, producer_id: int, group_id: str) -> GroupsState:
    """Its pending offsets follow when they are finished."""
    writers = state.writers.set(group_id, state.writers.get(group_id, _NOBODY) | {producer_id})
    return GroupsState(state.groups, state.offsets, state.pending, writers)


def _with_pending(state: GroupsState, producer_id: int, group_id: str, pending: Offsets) -> GroupsState:
    by_group, writers = state.pending.get(producer_id, _NO_GROUPS), state.writers
    if pending:
        by_group = by_group.set(group_id, pending)
    else:
        by_group = by_group.delete(group_id) if group_id in by_group else by_group
        writers = _without_writer(writers, group_id, producer_id)
    if by_group:
        every = state.pending.set(producer_id, by_group)
    else:
        every = state.pending.delete(producer_id) if producer_id in state.pending else state.pending
    return GroupsState(state.groups, state.offsets, every, writers)


def _without_writer(writers: Map[str, frozenset[int]], group_id: str, producer_id: int) -> Map[str, frozenset[int]]:
    left = writers[group_id] - {producer_id}
    return writers.set(group_id, left) if left else writers.delete(group_id)
