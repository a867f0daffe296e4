"""OffsetFetch: where a group goes on, as committed; or, for who needs stable offsets, once nothing is pending.

States are immutable, so that looking at one may take its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.coordinator.group.fencing import check_fetch
from tidelog.coordinator.group.state import NO_OFFSETS, CommittedOffset, GroupsState
from tidelog.env.promise import Promise
from tidelog.env.slices import CHEAP_A_STEP, Steps, mapped, ordered
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.state import Offsets
    from tidelog.wire.topic_partition import TopicPartition

T = TypeVar("T")

NO_OFFSET = CommittedOffset(-1)


class Found(NamedTuple):
    """One partition; `committed` is NO_OFFSET where nothing was committed."""

    partition: int
    committed: CommittedOffset
    code: ErrorCode = ErrorCode.NONE


class AskedTopic(NamedTuple):
    """`id` zero: of whatever topic has this name."""

    name: str
    id: bytes
    partitions: Sequence[int]


def stand(
    coordinator: GroupCoordinator, group_id: str, member_id: str | None, member_epoch: int, *, require_stable: bool
) -> Promise[GroupsState]:
    """The state in which the group's offsets are to be looked up. Fails, or raises, where the member is refused.

    `require_stable` waits for commits that are on their way.
    """
    shard = coordinator.shards.of(group_id)

    def check(state: GroupsState) -> GroupsState:
        group = state.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            check_fetch(group, member_id, member_epoch)
        return state

    if require_stable:
        return shard.submit(lambda state, _: Decision((), check(state)))
    return Promise[GroupsState].resolved(check(shard.state))


class Lookup:
    """The offsets of a group in one state. `stable`: what an open transaction may yet change is marked as such."""

    def __init__(self, state: GroupsState, group_id: str, *, stable: bool) -> None:
        self._offsets: Offsets = state.offsets.get(group_id, NO_OFFSETS)
        self._pending = [state.pending[producer_id][group_id] for producer_id in state.writers.get(group_id, ())]
        self._unstable: set[TopicPartition] = set()
        self._stable = stable

    def prepare(self) -> Steps[None]:
        if self._stable:
            for pending in self._pending:
                for partition in pending:
                    self._unstable.add(partition)
                    if not len(self._unstable) % CHEAP_A_STEP:
                        yield
                yield

    def everything(self) -> Steps[list[AskedTopic]]:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in (yield from ordered(list(self._offsets))):
            partitions = by_topic.setdefault(topic, [])
            partitions.append(partition)
            if not len(partitions) % CHEAP_A_STEP:
                yield
        return [AskedTopic(topic, ZERO_UUID, partitions) for topic, partitions in by_topic.items()]

    def of(self, topic: AskedTopic, answer: Callable[[Found], T]) -> Steps[list[T]]:
        """What was found of a topic's partitions, as `told` tells it."""
        find = partial(self._find, topic.name, topic.id)
        return mapped(lambda partition: answer(find(partition)), topic.partitions)

    def _find(self, topic: str, topic_id: bytes, partition: int) -> Found:
        place = (topic, partition)
        if place in self._unstable:
            return Found(partition, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self._offsets.get(place, NO_OFFSET)
        if topic_id not in (ZERO_UUID, committed.topic_id) and committed.topic_id != ZERO_UUID:
            return Found(partition, NO_OFFSET)  # of a topic that had this name before
        return Found(partition, committed)
