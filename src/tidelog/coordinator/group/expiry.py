"""Offsets that are kept no longer, and groups that have neither members nor offsets.

A shard looks through its groups every `offsets.retention.check.interval.ms`. An offset expires when
`offsets.retention.minutes` have passed since its group became empty; of a group that never had members, or of a topic
that its members no longer read, since it was committed. An offset with an expiry of its own (OffsetCommit v2 to v4)
goes by that. Offsets of a topic that was deleted go at once, from the shards that are loaded then, and with the next
look from the others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.bounds import EXPIRED_AT_ONCE
from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.removal import add_group, add_some, forget, is_empty, is_pending, partitions_of
from tidelog.coordinator.group.state import NO_OFFSETS, CommittedOffset
from tidelog.coordinator.group.views import group_ids, view
from tidelog.coordinator.shard_log import EncodedEntries
from tidelog.env.promise import Promise
from tidelog.env.slices import ITEMS_A_STEP, Steps, ordered, settled
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.metadata.image import ClusterImage, TopicImage
    from tidelog.wire.topic_partition import TopicPartition

log = logging.getLogger("tidelog.groups")


IsGone = Callable[["TopicPartition"], bool]
Gone = Callable[["GroupsState", str, int], IsGone | None]
"""Tells which offsets of a group go, by its state and the time; None: none of them."""


def begin(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """The shard is loaded: look through it from now on."""

    def look() -> None:
        sweep(shard, partial(_expired, coordinator, shard), with_groups=True)
        if shard.leads:  # what it wrote may have shown that the log is gone
            again()

    def again() -> None:
        shard.schedule(coordinator.config.offsets_retention_check_interval_ms / 1000, look)

    again()


def topics_deleted(
    coordinator: GroupCoordinator, old: ClusterImage, new: ClusterImage, changed: Iterable[bytes]
) -> None:
    """Offsets of topics that are in the old image only go."""
    deleted = {
        topic.name: topic
        for topic_id in changed
        if (topic := old.topics_by_id.get(topic_id)) is not None and topic_id not in new.topics_by_id
    }
    if deleted:
        for shard in coordinator.shards.loaded():
            sweep(shard, partial(_of_topics, deleted, shard.partition.log.log_end))


def sweep(shard: GroupShard, gone: Gone, *, with_groups: bool = False) -> None:
    """Remove the offsets of each group that `gone` names; `with_groups`: and groups without members or offsets."""
    shard.drive(_Sweep(shard, gone, with_groups).run()).on_done(_swept)


def _swept(promise: Promise[None]) -> None:
    error = promise.error
    if isinstance(error, KafkaError):
        log.warning("offsets that expired stay until the next look: %s", error)
    else:
        promise.result()


class _Sweep:
    """Looks for what goes in steps, and decides about what it found when there is enough for a decision."""

    def __init__(self, shard: GroupShard, gone: Gone, with_groups: bool) -> None:
        self._shard = shard
        self._gone = gone
        self._with_groups = with_groups
        self._found: dict[str, list[TopicPartition]] = {}
        """By group, of those that were looked through: what seemed to go."""
        self._count = 0

    def run(self) -> Steps[None]:
        for group_id in (yield from ordered(list(group_ids(self._shard.machine.newest)))):
            # Nothing is removed while the state is held that was looked through: to let go of it would take long then.
            going = yield from self._look(group_id)
            for start in range(0, len(going), EXPIRED_AT_ONCE):
                yield from self._find(group_id, going[start : start + EXPIRED_AT_ONCE])
            if self._with_groups:
                yield from self._find(group_id, ())
            yield
        yield from self._remove()

    def _look(self, group_id: str) -> Steps[list[TopicPartition]]:
        state = self._shard.machine.newest
        is_gone = self._gone(state, group_id, self._shard.clock.now_ms())
        going: list[TopicPartition] = []
        if is_gone is not None:
            for place, partition in enumerate(partitions_of(state, group_id), 1):
                if is_gone(partition):
                    going.append(partition)
                if not place % ITEMS_A_STEP:
                    yield
        return going

    def _find(self, group_id: str, partitions: Sequence[TopicPartition]) -> Steps[None]:
        self._found.setdefault(group_id, []).extend(partitions)
        self._count += 1 + len(partitions)
        if self._count >= EXPIRED_AT_ONCE:
            yield from self._remove()

    def _remove(self) -> Steps[None]:
        """What can't be written is tried again group by group, and the group that is the reason left alone."""
        expired, self._found, self._count = self._found, {}, 0
        try:
            yield from self._write(expired)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                raise
        else:
            return
        for group_id, partitions in expired.items():
            try:
                yield from self._write({group_id: partitions})
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                    raise
                log.warning("group %s can't be removed, it stays until the next look: %s", group_id, error)

    def _write(self, expired: Mapping[str, Sequence[TopicPartition]]) -> Steps[None]:
        left = deque(expired.items())
        while left:
            removed, through = yield from settled(self._shard.submit(partial(self._decide, left)))
            for group_id in removed:
                forget(self._shard, group_id)
            for _ in range(through):
                left.popleft()
            yield

    def _decide(
        self, left: Sequence[tuple[str, Sequence[TopicPartition]]], state: GroupsState, now_ms: int
    ) -> Decision[Entry, tuple[list[str], int]]:
        """Look again, on the state as it is now. The groups that go, and how many of `left` are done with."""
        entries, removed = EncodedEntries(now_ms), list[str]()
        for place, (group_id, partitions) in enumerate(left):
            is_gone = self._gone(state, group_id, now_ms)
            offsets = state.offsets.get(group_id, NO_OFFSETS)
            going = {} if is_gone is None else dict.fromkeys(filter(is_gone, partitions))
            present = [one for one in going if one in offsets or is_pending(state, group_id, one)]
            if add_some(self._shard, group_id, present, entries) < len(present):
                return Decision(entries, (removed, place))
            if not self._with_groups or len(present) < len(offsets) or group_id in state.writers:
                continue
            group = view(self._shard, state, group_id)
            if group is not None and is_empty(group):
                if not add_group(self._shard, group, entries):
                    return Decision(entries, (removed, place))
                removed.append(group_id)
        return Decision(entries, (removed, len(left)))


def _expired(
    coordinator: GroupCoordinator, shard: GroupShard, state: GroupsState, group_id: str, now_ms: int
) -> IsGone | None:
    group = view(shard, state, group_id)
    if group is None:
        return None
    topics = coordinator.metadata.image.topics_by_id
    retention_ms = coordinator.config.offsets_retention_minutes * 60_000
    offsets = state.offsets.get(group_id, NO_OFFSETS)
    is_subscribed, expires_from = group.subscribed(), group.expires_from()

    def is_gone(partition: TopicPartition) -> bool:
        committed = offsets.get(partition)
        if committed is None or is_pending(state, group_id, partition):
            return False
        is_orphan = committed.topic_id != ZERO_UUID and committed.topic_id not in topics
        return is_orphan or (
            not is_subscribed(partition[0])
            and _is_expired(committed, expires_from(committed.commit_timestamp_ms), now_ms, retention_ms)
        )

    return is_gone


def _is_expired(committed: CommittedOffset, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if since_ms is None:
        return False
    if committed.expire_timestamp_ms >= 0:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms


def _of_topics(deleted: Mapping[str, TopicImage], end: int, state: GroupsState, group_id: str, now_ms: int) -> IsGone:
    """Offsets of one of the topics, or of its name where the record doesn't tell the id.

    Those were written before `end`, when the topic was there: one may have been made under its name meanwhile.
    """
    maps = (
        state.offsets.get(group_id, NO_OFFSETS),
        *(state.pending[writer][group_id] for writer in state.writers.get(group_id, ())),
    )

    def is_gone(partition: TopicPartition) -> bool:
        topic = deleted.get(partition[0])
        if topic is None:
            return False
        committed = (offsets.get(partition) for offsets in maps)
        return any(one and one.record_offset < end and one.topic_id in (ZERO_UUID, topic.id) for one in committed)

    return is_gone
