"""Offsets and groups that go: because someone asked, because they expired, because their topic was deleted.

What goes is tombstones. A decision writes as many as fit a batch with room to spare; what is left is decided anew, so
that neither a group with many offsets nor a shard with many groups holds up the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.classic.shell import find as find_classic
from tidelog.coordinator.group.consumer.shell import forget as forget_consumer
from tidelog.coordinator.group.state import NO_OFFSETS
from tidelog.coordinator.group.views import view
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.groups import OffsetCommitKey

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState, TopicPartition

BATCH_BYTES = 256 * 1024
"""How much one decision removes, in bytes of its tombstones: well below the usual `max.message.bytes`."""
ENTRY_BYTES = 64
"""What a tombstone takes besides its names, at most."""


def tombstone(group_id: str, partition: TopicPartition) -> Entry:
    """Forgets the offset of a partition, committed or pending."""
    return Entry(OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1]), None)


def pending_partitions(state: GroupsState, group_id: str) -> set[TopicPartition]:
    """Partitions for which open transactions have offsets of the group."""
    writers = state.writers.get(group_id, ())
    return {partition for producer_id in writers for partition in state.pending[producer_id][group_id]}


def that_fit(group_id: str, partitions: Iterable[TopicPartition], room: int) -> tuple[list[Entry], int]:
    """Tombstones of the first of `partitions`, as many as `room` has bytes for (one at least), and the room left."""
    entries: list[Entry] = []
    for partition in partitions:
        size = len(group_id) + len(partition[0]) + ENTRY_BYTES
        if entries and size > room:
            break
        entries.append(tombstone(group_id, partition))
        room -= size
    return entries, room


def delete_offsets(
    coordinator: GroupCoordinator, group_id: str, partitions: Sequence[TopicPartition]
) -> Promise[list[ErrorCode]]:
    """A code for each partition; fails as a whole where there is no group, or one that may not lose offsets."""
    shard = coordinator.shard_of(group_id)

    def decide(state: GroupsState, now_ms: int) -> tuple[list[Entry], list[ErrorCode]]:
        group = view(shard, state, group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        group.check_offset_delete()
        is_subscribed = group.subscribed()
        committed = state.offsets.get(group_id, NO_OFFSETS)
        pending = pending_partitions(state, group_id)
        entries: list[Entry] = []
        codes: list[ErrorCode] = []
        for partition in partitions:
            if is_subscribed(partition[0]):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            codes.append(ErrorCode.NONE)
            if partition in committed or partition in pending:
                entries.append(tombstone(group_id, partition))
        return entries, codes

    return shard.submit(decide)


def delete_group(coordinator: GroupCoordinator, group_id: str) -> Promise[None]:
    """The group with its offsets, once it has no members. Fails with GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    shard = coordinator.shards.of(group_id)
    deleted: Promise[None] = Promise()

    def decide(state: GroupsState, now_ms: int) -> tuple[list[Entry], bool]:
        group = view(shard, state, group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        group.check_delete()
        partitions = {*state.offsets.get(group_id, NO_OFFSETS), *pending_partitions(state, group_id)}
        entries, _ = that_fit(group_id, partitions, BATCH_BYTES)
        if len(entries) < len(partitions):
            return entries, False
        return [*entries, *group.tombstones()], True

    def decided(promise: Promise[bool]) -> None:
        if promise.error is not None:
            deleted.fail(promise.error)
        elif promise.result():
            forget(shard, group_id)
            deleted.resolve(None)
        else:
            shard.submit(decide).on_done(decided)

    shard.submit(decide).on_done(decided)
    return deleted


def forget(shard: GroupShard, group_id: str) -> None:
    """What is live of a group that was removed goes too, unless someone came back meanwhile."""
    if shard.leads and group_id not in shard.machine.newest.groups:
        find_classic(shard, group_id)
        forget_consumer(shard, group_id)
