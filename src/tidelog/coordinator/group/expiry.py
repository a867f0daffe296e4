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
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.removal import BATCH_BYTES, ENTRY_BYTES, forget, pending_partitions, that_fit
from tidelog.coordinator.group.state import NO_OFFSETS, CommittedOffset
from tidelog.coordinator.group.views import View, group_ids, view
from tidelog.env.promise import Promise
from tidelog.wire.errors import KafkaError
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState, TopicPartition
    from tidelog.metadata.image import ClusterImage, TopicImage

log = logging.getLogger("tidelog.groups")

OFFSETS_AT_ONCE = 2000
"""How many offsets one decision looks at, about: a few milliseconds' worth."""

Gone = Callable[["GroupsState", str, int], tuple["list[TopicPartition]", bool]]
"""Which offsets of a group go at `now_ms`, and whether the group goes with them."""


def begin(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """The shard is loaded: look through it from now on."""

    def look() -> None:
        sweep(shard, lambda state, group_id, now_ms: _expired(coordinator, shard, state, group_id, now_ms))
        if shard.leads:  # what it wrote may have shown that the log is gone
            again()

    def again() -> None:
        shard.schedule(coordinator.config.offsets_retention_check_interval_ms / 1000, look)

    again()


def topics_deleted(coordinator: GroupCoordinator, old: ClusterImage, new: ClusterImage, changed: set[bytes]) -> None:
    """Offsets of topics that are in the old image only go."""
    deleted = {
        topic.name: topic
        for topic_id in changed
        if (topic := old.topics_by_id.get(topic_id)) is not None and topic_id not in new.topics_by_id
    }
    if deleted:
        for shard in coordinator.shards.loaded():
            sweep(shard, lambda state, group_id, now_ms: (_of_topics(state, group_id, deleted), False))


def sweep(shard: GroupShard, gone: Gone) -> None:
    """Ask `gone` for each group, a piece at a time, and remove what it names."""
    left = deque(sorted(group_ids(shard.state)))
    removed: list[str] = []

    def decide(state: GroupsState, now_ms: int) -> tuple[list[Entry], None]:
        entries: list[Entry] = []
        room, looks = BATCH_BYTES, OFFSETS_AT_ONCE
        while left and looks > 0 and room > 0:
            group_id = left[0]
            looks -= 1 + len(state.offsets.get(group_id, NO_OFFSETS))
            partitions, whole = gone(state, group_id, now_ms)
            found, room = that_fit(group_id, partitions, room)
            entries += found
            if len(found) < len(partitions):
                break
            left.popleft()
            group = view(shard, state, group_id) if whole else None
            if group is not None:
                tombstones = group.tombstones()
                room -= len(tombstones) * (len(group_id) + ENTRY_BYTES)
                entries += tombstones
                removed.append(group_id)
        return entries, None

    def decided(promise: Promise[None]) -> None:
        error = promise.error
        if isinstance(error, KafkaError):
            log.warning("offsets that expired stay until the next look: %s", error)
            return
        promise.result()
        for group_id in removed:
            forget(shard, group_id)
        removed.clear()
        if left and shard.leads:
            shard.schedule(0, step)

    def step() -> None:
        shard.submit(decide).on_done(decided)

    if left:
        step()


def _expired(
    coordinator: GroupCoordinator, shard: GroupShard, state: GroupsState, group_id: str, now_ms: int
) -> tuple[list[TopicPartition], bool]:
    group = view(shard, state, group_id)
    if group is None:
        return [], False
    topics = coordinator.metadata.image.topics_by_id
    retention_ms = coordinator.config.offsets_retention_minutes * 60_000
    offsets = state.offsets.get(group_id, NO_OFFSETS)
    pending = pending_partitions(state, group_id)
    is_subscribed, expires_from = group.subscribed(), group.expires_from()
    expired: list[TopicPartition] = []
    for partition, committed in offsets.items():
        if partition in pending:
            continue
        is_orphan = committed.topic_id != ZERO_UUID and committed.topic_id not in topics
        if is_orphan or (
            not is_subscribed(partition[0])
            and _is_expired(committed, expires_from(committed.commit_timestamp_ms), now_ms, retention_ms)
        ):
            expired.append(partition)
    return expired, len(expired) == len(offsets) and not pending and _is_empty(group)


def _is_expired(committed: CommittedOffset, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if since_ms is None:
        return False
    if committed.expire_timestamp_ms >= 0:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms


def _is_empty(group: View) -> bool:
    try:
        group.check_delete()
    except KafkaError:
        return False
    return True


def _of_topics(state: GroupsState, group_id: str, deleted: dict[str, TopicImage]) -> list[TopicPartition]:
    """Offsets of one of the topics, or of its name where the record doesn't tell the id."""
    found = {
        partition: None
        for partition, committed in state.offsets.get(group_id, NO_OFFSETS).items()
        if partition[0] in deleted and committed.topic_id in (ZERO_UUID, deleted[partition[0]].id)
    }
    found.update((partition, None) for partition in pending_partitions(state, group_id) if partition[0] in deleted)
    return list(found)
