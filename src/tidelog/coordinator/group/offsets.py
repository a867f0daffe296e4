"""Committed offsets, record by record: plain ones count at once, those of a transaction when its marker says so."""

from __future__ import annotations

from sys import intern

from immutables import Map, MapMutation

from tidelog.coordinator.entry import Marker
from tidelog.coordinator.group.state import NO_OFFSETS, CommittedOffset, GroupsState, Offsets, TopicPartition
from tidelog.wire.records.groups import OffsetCommitKey, OffsetCommitValue

_NO_GROUPS: Map[str, Offsets] = Map()
_NOBODY: frozenset[int] = frozenset()


class Drafts:
    """The offsets of the groups that a fold touches, open for change: a load folds thousands of records at once."""

    __slots__ = ("_open", "state")

    def __init__(self, state: GroupsState) -> None:
        self.state = state
        """What is finished."""
        self._open: dict[str, MapMutation[TopicPartition, CommittedOffset]] = {}

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int, offset: int) -> None:
        """A record at `offset` of the log; `producer_id >= 0`: part of that producer's transaction."""
        group_id = key.group
        partition = intern(key.topic), key.partition
        if value is None:
            if group_id in self.state.writers:
                self.state = _forget_pending(self.finish(), group_id, partition)
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
            self.state = _pend(self.finish(), producer_id, group_id, partition, committed)
        else:
            self._of(group_id)[partition] = committed

    def finish(self) -> GroupsState:
        """The state with everything that was changed."""
        if self._open:
            offsets = self.state.offsets
            for group_id, draft in self._open.items():
                finished = draft.finish()
                if finished:
                    offsets = offsets.set(group_id, finished)
                elif group_id in offsets:
                    offsets = offsets.delete(group_id)
            self._open = {}
            self.state = self.state.with_offsets(offsets)
        return self.state

    def _of(self, group_id: str) -> MapMutation[TopicPartition, CommittedOffset]:
        draft = self._open.get(group_id)
        if draft is None:
            draft = self._open[group_id] = self.state.offsets.get(group_id, NO_OFFSETS).mutate()
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
            known = offsets.get(group_id, NO_OFFSETS).mutate()
            for partition, committed in pending.items():
                before = known.get(partition)
                if before is None or committed.record_offset > before.record_offset:
                    known[partition] = committed
            offsets = offsets.set(group_id, known.finish())
    return GroupsState(state.groups, offsets, state.pending.delete(marker.producer_id), writers)


def _pend(
    state: GroupsState, producer_id: int, group_id: str, partition: TopicPartition, committed: CommittedOffset
) -> GroupsState:
    by_group = state.pending.get(producer_id, _NO_GROUPS)
    pending = by_group.get(group_id, NO_OFFSETS).set(partition, committed)
    writers = state.writers
    if group_id not in by_group:
        writers = writers.set(group_id, writers.get(group_id, _NOBODY) | {producer_id})
    return GroupsState(
        state.groups, state.offsets, state.pending.set(producer_id, by_group.set(group_id, pending)), writers
    )


def _forget_pending(state: GroupsState, group_id: str, partition: TopicPartition) -> GroupsState:
    """A tombstone forgets what open transactions have for the partition, too."""
    for producer_id in state.writers.get(group_id, _NOBODY):
        state = _unpend(state, producer_id, group_id, partition)
    return state


def _unpend(state: GroupsState, producer_id: int, group_id: str, partition: TopicPartition) -> GroupsState:
    by_group = state.pending[producer_id]
    pending = by_group[group_id]
    if partition not in pending:
        return state
    pending = pending.delete(partition)
    writers = state.writers
    if pending:
        by_group = by_group.set(group_id, pending)
    else:
        by_group = by_group.delete(group_id)
        writers = _without_writer(writers, group_id, producer_id)
    every = state.pending.set(producer_id, by_group) if by_group else state.pending.delete(producer_id)
    return GroupsState(state.groups, state.offsets, every, writers)


def _without_writer(writers: Map[str, frozenset[int]], group_id: str, producer_id: int) -> Map[str, frozenset[int]]:
    left = writers[group_id] - {producer_id}
    return writers.set(group_id, left) if left else writers.delete(group_id)
