"""Offsets and groups that go: because someone asked, because they expired, because their topic was deleted.

What goes is tombstones. A decision writes a few hundred, or as many as fit a batch with room to spare; what is left is
decided anew, so that neither a group with many offsets nor a shard with many groups holds up the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from tidelog.coordinator.bounds import REMOVAL_BATCH_BYTES, REMOVED_AT_ONCE
from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.classic.shell import find as find_classic
from tidelog.coordinator.group.consumer.shell import forget as forget_consumer
from tidelog.coordinator.group.state import NO_OFFSETS
from tidelog.coordinator.group.views import View, view
from tidelog.coordinator.placement import CONSUMER_OFFSETS
from tidelog.coordinator.shard_log import EncodedEntries
from tidelog.env.slices import Steps, settled
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.groups import OffsetCommitKey

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.wire.topic_partition import TopicPartition


def tombstone(group_id: str, partition: TopicPartition) -> Entry:
    """Forgets the offset of a partition, committed or pending."""
    return Entry(OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1]), None)


def is_pending(state: GroupsState, group_id: str, partition: TopicPartition) -> bool:
    """Whether an open transaction has an offset of the group for the partition."""
    return any(partition in state.pending[writer][group_id] for writer in state.writers.get(group_id, ()))


def partitions_of(state: GroupsState, group_id: str) -> Iterator[TopicPartition]:
    """Those that the group has an offset for, committed or pending; one that has several may come as often."""
    pending = (state.pending[writer][group_id] for writer in state.writers.get(group_id, ()))
    return chain(state.offsets.get(group_id, NO_OFFSETS), *pending)


def add_some(shard: GroupShard, group_id: str, partitions: Iterable[TopicPartition], to: EncodedEntries) -> int:
    """Tombstones of the first of `partitions`, as many as the batch has room for (its first in any case); how many."""
    count = 0
    for partition in partitions:
        if not shard.encode(tombstone(group_id, partition), to, REMOVAL_BATCH_BYTES):
            break
        count += 1
    return count


def add_group(shard: GroupShard, group: View, to: EncodedEntries) -> bool:
    """What takes the group itself out of the log: all of it, or nothing where the batch hasn't the room."""
    count, section_bytes = len(to), len(to.section)
    if all(shard.encode(entry, to) for entry in group.tombstones()):
        return True
    to.cut(count, section_bytes)
    if not count:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the group {group.group_id} can't be removed: raise max.message.bytes of {CONSUMER_OFFSETS}",
        )
    return False


def is_empty(group: View) -> bool:
    """Whether the group may be removed: it has no members."""
    try:
        group.check_delete()
    except KafkaError:
        return False
    return True


def delete_offsets(
    coordinator: GroupCoordinator, group_id: str, partitions: Sequence[TopicPartition]
) -> Steps[list[ErrorCode]]:
    """A code for each partition; raises where there is no group, or one that may not lose offsets."""
    shard = coordinator.shard_of(group_id)
    return (yield from shard.live.offset_changes.alone(group_id, _delete_offsets(shard, group_id, partitions)))


def _delete_offsets(shard: GroupShard, group_id: str, partitions: Sequence[TopicPartition]) -> Steps[list[ErrorCode]]:
    codes: list[ErrorCode] = []

    def decide(state: GroupsState, now_ms: int) -> Decision[Entry, list[ErrorCode]]:
        group = view(shard, state, group_id)
        if group is None:
            if codes:  # what it had is gone by now, and the group with it
                return Decision([], [ErrorCode.NONE] * (len(partitions) - len(codes)))
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        if not codes:
            group.check_offset_delete()
        is_subscribed = group.subscribed()
        committed = state.offsets.get(group_id, NO_OFFSETS)
        entries = EncodedEntries(now_ms)
        outcomes: list[ErrorCode] = []
        for partition in partitions[len(codes) : len(codes) + REMOVED_AT_ONCE]:
            if is_subscribed(partition[0]):
                outcomes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            if (partition in committed or is_pending(state, group_id, partition)) and not add_some(
                shard, group_id, (partition,), entries
            ):
                break
            outcomes.append(ErrorCode.NONE)
        return Decision(entries, outcomes)

    while True:
        codes += yield from settled(shard.submit(decide))
        if len(codes) == len(partitions):
            return codes
        yield


def delete_group(coordinator: GroupCoordinator, group_id: str) -> Steps[None]:
    """The group with its offsets, if it has no members; raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.

    Whoever joins while the pieces are written joins after the removal: the offsets go, and the group is theirs.
    """
    shard = coordinator.shards.of(group_id)
    yield from shard.live.offset_changes.alone(group_id, _delete_group(shard, group_id))


def _delete_group(shard: GroupShard, group_id: str) -> Steps[None]:
    begun = False

    def decide(state: GroupsState, now_ms: int) -> Decision[Entry, bool]:
        group = view(shard, state, group_id)
        if group is None:
            if begun:
                return Decision([], True)
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        if not begun:
            group.check_delete()
        left = partitions_of(state, group_id)
        some = dict.fromkeys(islice(left, REMOVED_AT_ONCE))
        entries = EncodedEntries(now_ms)
        if add_some(shard, group_id, some, entries) < len(some) or any(partition not in some for partition in left):
            return Decision(entries, False)
        return Decision(entries, not is_empty(group) or add_group(shard, group, entries))

    while not (yield from settled(shard.submit(decide))):
        begun = True
        yield
    forget(shard, group_id)


def forget(shard: GroupShard, group_id: str) -> None:
    """What is live of a group that was removed goes too, unless someone came back meanwhile."""
    if shard.leads and group_id not in shard.machine.newest.groups:
        find_classic(shard, group_id)
        forget_consumer(shard, group_id)
