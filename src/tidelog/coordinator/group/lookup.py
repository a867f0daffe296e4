"""OffsetFetch: where a group goes on, as committed; or, for who needs stable offsets, once nothing is pending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.coordinator.group.fencing import check_fetch
from tidelog.coordinator.group.state import NO_OFFSETS, CommittedOffset
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.state import GroupsState

NO_OFFSET = CommittedOffset(-1)


class Found(NamedTuple):
    """`committed` is NO_OFFSET where nothing was committed."""

    topic: str
    topic_id: bytes
    partition: int
    committed: CommittedOffset
    code: ErrorCode = ErrorCode.NONE


Asked = Sequence[tuple[str, bytes, Sequence[int]]]
"""Topics by name and id (zero: any), with their partitions."""


def fetch(
    coordinator: GroupCoordinator,
    group_id: str,
    member_id: str | None,
    member_epoch: int,
    asked: Asked | None,
    *,
    require_stable: bool,
) -> Promise[list[Found]]:
    """What was asked for, or everything (None), in order. Fails as a whole where the member is refused.

    `require_stable` also waits for commits that are on their way, and marks what an open transaction may yet change.
    """
    shard = coordinator.shards.of(group_id)

    def look(state: GroupsState, stable: bool) -> list[Found]:
        group = state.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            check_fetch(group, member_id, member_epoch)
        return _look(state, group_id, asked, stable)

    if require_stable:
        return shard.submit(lambda state, _: ((), look(state, True)))
    return Promise[list[Found]].resolved(look(shard.state, False))


def _look(state: GroupsState, group_id: str, asked: Asked | None, stable: bool) -> list[Found]:
    offsets = state.offsets.get(group_id, NO_OFFSETS)
    unstable = _pending(state, group_id) if stable else frozenset[tuple[str, int]]()
    found: list[Found] = []
    if asked is None:
        for (topic, partition), committed in sorted(offsets.items()):
            if (topic, partition) in unstable:
                found.append(Found(topic, ZERO_UUID, partition, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append(Found(topic, ZERO_UUID, partition, committed))
        return found
    for topic, topic_id, partitions in asked:
        for partition in partitions:
            committed = offsets.get((topic, partition), NO_OFFSET)
            if (topic, partition) in unstable:
                found.append(Found(topic, topic_id, partition, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif topic_id not in (ZERO_UUID, committed.topic_id) and committed.topic_id != ZERO_UUID:
                found.append(Found(topic, topic_id, partition, NO_OFFSET))  # of a topic that had this name before
            else:
                found.append(Found(topic, topic_id, partition, committed))
    return found


def _pending(state: GroupsState, group_id: str) -> frozenset[tuple[str, int]]:
    """Partitions whose offsets an open transaction will change if it is committed."""
    writers = state.writers.get(group_id, ())
    return frozenset(partition for producer_id in writers for partition in state.pending[producer_id][group_id])
