"""OffsetCommit and TxnOffsetCommit: a group's progress, written down once the member was found to be who it says.

Offsets of a transaction are pending until its marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.fencing import Check, Member, check_commit
from tidelog.coordinator.shard_log import for_client
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.env.promise import Promise

RECORD_BYTES_MIN = 38
"""What an offset takes in the log besides its names and metadata, at least."""
NO_RETENTION = -1
TIMESTAMP_MAX = 2**63 - 1
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
        _check_size(coordinator, shard, group_id, wanted)
        expire_ms = -1 if retention_ms == NO_RETENTION else min(now_ms + retention_ms, TIMESTAMP_MAX)
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
            _check_size(coordinator, shard, group_id, wanted)
            # The id of the topic isn't written: the request doesn't name it, and it may have changed since.
            return _write(group_id, wanted, longest, check, now_ms, -1, with_ids=False)
        except KafkaError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise

    return shard.submit(decide, producer=producer)


def _check_size(coordinator: GroupCoordinator, shard: GroupShard, group_id: str, wanted: list[Wanted]) -> None:
    """Refuse what no batch can hold before records are made of it: a request may name partitions by the ten thousand.

    What is compressed may fit all the same, so that is left to the append.
    """
    most = shard.partition.log.config.max_message_bytes
    if (
        len(wanted) * (RECORD_BYTES_MIN + len(group_id)) > most
        and not coordinator.config.offsets_topic_compression_codec
    ):
        raise for_client(
            KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{len(wanted)} offsets of {group_id} don't fit a batch of {most} bytes: commit in several requests",
            )
        )


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
