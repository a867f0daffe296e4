"""OffsetFetch: where a group goes on, as committed; or, for who needs stable offsets, once nothing is pending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.coordinator.group.fencing import check_fetch
from tidelog.coordinator.group.removal import pending_partitions
from tidelog.coordinator.group.state import NO_OFFSETS, CommittedOffset
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.state import GroupsState, Offsets, TopicPartition

NO_OFFSET = CommittedOffset(-1)


class Found(NamedTuple):
    """One partition; `committed` is NO_OFFSET where nothing was committed."""

    partition: int
    committed: CommittedOffset
    code: ErrorCode = ErrorCode.NONE


class FoundTopic(NamedTuple):
    name: str
    id: bytes
    partitions: list[Found]


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
) -> Promise[list[FoundTopic]]:
    """What was asked for, or everything (None), in order. Fails as a whole where the member is refused.

    `require_stable` also waits for commits that are on their way, and marks what an open transaction may yet change.
    """
    shard = coordinator.shards.of(group_id)

    def look(state: GroupsState, stable: bool) -> list[FoundTopic]:
        group = state.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            check_fetch(group, member_id, member_epoch)
        return _look(state, group_id, asked, stable)

    if require_stable:
        return shard.submit(lambda state, _: ((), look(state, True)))
    return Promise[list[FoundTopic]].resolved(look(shard.state, False))


def _look(state: GroupsState, group_id: str, asked: Asked | None, stable: bool) -> list[FoundTopic]:
    offsets = state.offsets.get(group_id, NO_OFFSETS)
    unstable: set[TopicPartition] = pending_partitions(state, group_id) if stable else set()
    if asked is None:
        asked = _everything(offsets)
    found: list[FoundTopic] = []
    for topic, topic_id, partitions in asked:
        answers: list[Found] = []
        for partition in partitions:
            committed = offsets.get((topic, partition), NO_OFFSET)
            if (topic, partition) in unstable:
                answers.append(Found(partition, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif topic_id not in (ZERO_UUID, committed.topic_id) and committed.topic_id != ZERO_UUID:
                answers.append(Found(partition, NO_OFFSET))  # of a topic that had this name before
            else:
                answers.append(Found(partition, committed))
        found.append(FoundTopic(topic, topic_id, answers))
    return found


def _everything(offsets: Offsets) -> Asked:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(offsets):
        by_topic.setdefault(topic, []).append(partition)
    return [(topic, ZERO_UUID, partitions) for topic, partitions in by_topic.items()]
