"""OffsetCommit and TxnOffsetCommit: a group's progress, written down once the member was found to be who it says.

Offsets of a transaction are pending until its marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.fencing import Check, Member, check_commit
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.env.promise import Promise

NO_RETENTION = -1
VERSION_WITH_EXPIRY = 1
"""The version of an offset's record that says when it expires: the newest doesn't."""


class Wanted(NamedTuple):
    """One offset to commit. The topic is there, and so is its partition."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


def commit(
    coordinator: GroupCoordinator,
    group_id: str,
    member: Member,
    wanted: list[Wanted],
    version: int,
    retention_ms: int = NO_RETENTION,
) -> Promise[list[ErrorCode]]:
    """A code for each of `wanted`; fails as a whole where the group or the member is refused."""
    shard = coordinator.shards.of(group_id)
    longest = coordinator.config.offset_metadata_max_bytes

    def decide(state: GroupsState, now_ms: int) -> tuple[list[Entry], list[ErrorCode]]:
        check = check_commit(shard, state, group_id, member, version, now_ms)
        expire_ms = -1 if retention_ms == NO_RETENTION else now_ms + retention_ms
        return _write(group_id, wanted, longest, check, now_ms, expire_ms)

    return shard.submit(decide)


def commit_in_transaction(
    coordinator: GroupCoordinator,
    group_id: str,
    member: Member,
    producer: tuple[int, int],
    wanted: list[Wanted],
    version: int,
) -> Promise[list[ErrorCode]]:
    """The same as part of the producer's transaction (`producer` is its id and epoch)."""
    shard = coordinator.shard_of(group_id)
    longest = coordinator.config.offset_metadata_max_bytes

    def decide(state: GroupsState, now_ms: int) -> tuple[list[Entry], list[ErrorCode]]:
        try:
            check = check_commit(shard, state, group_id, member, version, now_ms, transactional=True)
            # The id of the topic isn't written: the request doesn't name it, and it may have changed since.
            return _write(group_id, wanted, longest, check, now_ms, -1, with_ids=False)
        except KafkaError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise

    return shard.submit(decide, producer=producer)


def _write(
    group_id: str,
    wanted: list[Wanted],
    longest: int,
    check: Check | None,
    now_ms: int,
    expire_ms: int,
    *,
    with_ids: bool = True,
) -> tuple[list[Entry], list[ErrorCode]]:
    entries: list[Entry] = []
    codes: list[ErrorCode] = []
    version = None if expire_ms < 0 else VERSION_WITH_EXPIRY
    for topic, topic_id, partition, offset, leader_epoch, metadata in wanted:
        if metadata is not None and is_longer(metadata, longest):
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        if check is not None:
            check(topic, topic_id, partition)
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expire_ms,
        )
        if with_ids:
            value.topic_id = topic_id
        key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        entries.append(Entry(key, value, version=version))
        codes.append(ErrorCode.NONE)
    return entries, codes


def is_longer(text: str, longest: int) -> bool:
    """Whether it has more than `longest` characters, counted as Java does: those outside of the first plane twice."""
    return len(text) > longest or (not text.isascii() and len(text.encode("utf-16-le")) // 2 > longest)
