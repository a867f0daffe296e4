"""OffsetCommit and TxnOffsetCommit: a group's progress, written down once the member was found to be who it says.

Offsets of a transaction are pending until its marker. What doesn't depend on the group's state, to make records of the
offsets and to encode them, is done ahead: of many, in steps. So a decision, and a batch, holds up to four thousand;
beyond that, and beyond what a batch may have, a commit is several of them, and each partition is told what came of it.
Other changes of the group's offsets wait until the last piece is committed (offset_changes.py). Each decision looks
again whether the member is one, and whether the topics are there: one made under the name meanwhile is another topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.fencing import Check, Member, check_commit, heard_by_commit
from tidelog.coordinator.shard_log import EncodedEntries
from tidelog.env.slices import ITEMS_A_STEP, Steps, settled
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState

FEW = 64
"""So many are made and encoded when they are decided."""
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
    wanted: Sequence[Wanted],
    version: int,
    retention_ms: int = NO_RETENTION,
    missing: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> Steps[list[ErrorCode]]:
    """A code for each of `wanted`, `missing` for those whose topic was deleted meanwhile; raises KafkaError where the
    group has no coordinator here."""
    shard = coordinator.shards.of(group_id)

    def check(state: GroupsState) -> Check | None:
        return check_commit(shard, state, group_id, member, version)

    committing = _Commit(
        coordinator,
        shard,
        group_id,
        check,
        appended=lambda: heard_by_commit(shard, group_id, member),
        retention_ms=retention_ms,
        missing=missing,
    )
    return (yield from committing.of(wanted))


def commit_in_transaction(
    coordinator: GroupCoordinator,
    group_id: str,
    member: Member,
    producer: tuple[int, int],
    wanted: Sequence[Wanted],
    version: int,
    verify: Callable[[], None],
) -> Steps[list[ErrorCode]]:
    """The same as part of the producer's transaction (`producer` is its id and epoch). `verify` raises where that
    has ended: it is called when offsets are about to be written, since that may happen meanwhile."""
    shard = coordinator.shard_of(group_id)

    def check(state: GroupsState) -> Check | None:
        verify()
        return check_commit(shard, state, group_id, member, version, transactional=True)

    return (yield from _Commit(coordinator, shard, group_id, check, producer=producer).of(wanted))


class _TopicGoneError(Exception):
    """What is about to be decided has offsets of a topic that isn't there any more."""


class _Piece(NamedTuple):
    """What one decision writes: offsets of `wanted` from `start` on, as many as there are codes."""

    start: int
    codes: list[ErrorCode]
    entries: Sequence[Entry]
    topic_ids: set[bytes]


class _Commit:
    """One request. Where a piece of it is refused, so is what is left."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        shard: GroupShard,
        group_id: str,
        check: Callable[[GroupsState], Check | None],
        *,
        appended: Callable[[], None] = lambda: None,
        producer: tuple[int, int] | None = None,
        retention_ms: int = NO_RETENTION,
        missing: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ) -> None:
        self._metadata = coordinator.metadata
        self._shard = shard
        self._group_id = group_id
        self._check = check
        self._appended = appended
        self._producer = producer
        self._retention_ms = retention_ms
        self._missing = missing
        self._at_once = coordinator.committed_at_once
        self._longest = coordinator.config.offset_metadata_max_bytes

    def of(self, wanted: Sequence[Wanted]) -> Steps[list[ErrorCode]]:
        changes = self._shard.live.offset_changes
        piece = yield from self._piece(wanted, 0)
        steps = self._write(wanted, piece)
        if len(piece.codes) == len(wanted) and not changes.under_way(self._group_id):
            return (yield from steps)
        return (yield from changes.alone(self._group_id, steps))

    def _write(self, wanted: Sequence[Wanted], piece: _Piece) -> Steps[list[ErrorCode]]:
        codes: list[ErrorCode] = []
        while True:
            try:
                promise, decided = self._shard.hand_in(self._decision(wanted, piece), producer=self._producer)
                if decided:
                    self._appended()
                yield from settled(promise)
            except _TopicGoneError:
                pass  # its offsets are left out then
            except KafkaError as error:
                code = error.code
                if self._producer is not None and code is ErrorCode.STALE_MEMBER_EPOCH:
                    code = ErrorCode.ILLEGAL_GENERATION
                return codes + [code] * (len(wanted) - len(codes))
            else:
                codes += piece.codes
            if len(codes) == len(wanted):
                return codes
            piece = yield from self._piece(wanted, len(codes))

    def _decision(self, wanted: Sequence[Wanted], piece: _Piece) -> Callable[[GroupsState, int], Decision[Entry, bool]]:
        def decide(state: GroupsState, now_ms: int) -> Decision[Entry, bool]:
            check = self._check(state)
            if check is not None:
                mine = wanted[piece.start : piece.start + len(piece.codes)]
                for one, code in zip(mine, piece.codes, strict=True):
                    if not code:
                        check(one.topic, one.topic_id, one.partition)
            topics = self._metadata.image.topics_by_id
            if any(topic_id not in topics for topic_id in piece.topic_ids):
                raise _TopicGoneError
            return Decision(piece.entries, True)

        return decide

    def _piece(self, wanted: Sequence[Wanted], start: int) -> Steps[_Piece]:
        """As many from `start` on as one decision takes, and one batch has room for."""
        now_ms = self._shard.clock.now_ms()
        codes: list[ErrorCode] = []
        topic_ids: set[bytes] = set()
        if len(wanted) <= min(FEW, self._at_once):
            few: list[Entry] = []
            for one in wanted:
                codes.append(self._code(one))
                if not codes[-1]:
                    few.append(self._entry(one, now_ms))
                    topic_ids.add(one.topic_id)
            return _Piece(0, codes, few, topic_ids)
        entries = EncodedEntries(now_ms)
        for one in wanted[start : start + self._at_once]:
            code = self._code(one)
            if not code:
                if not self._shard.encode(self._entry(one, now_ms), entries):
                    break
                topic_ids.add(one.topic_id)
            codes.append(code)
            if not len(codes) % ITEMS_A_STEP:
                yield
        return _Piece(start, codes, entries, topic_ids)

    def _code(self, one: Wanted) -> ErrorCode:
        if one.topic_id not in self._metadata.image.topics_by_id:
            return self._missing
        is_fine = one.metadata is None or not is_longer(one.metadata, self._longest)
        return ErrorCode.NONE if is_fine else ErrorCode.OFFSET_METADATA_TOO_LARGE

    def _entry(self, one: Wanted, now_ms: int) -> Entry:
        retention_ms = self._retention_ms
        expire_ms = -1 if retention_ms == NO_RETENTION else min(now_ms + retention_ms, TIMESTAMP_MAX)
        value = OffsetCommitValue(
            offset=one.offset,
            leader_epoch=one.leader_epoch,
            metadata=one.metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expire_ms,
        )
        key = OffsetCommitKey(group=self._group_id, topic=one.topic, partition=one.partition)
        version = None if expire_ms < 0 else VERSION_WITH_EXPIRY
        if self._producer is None:
            value.topic_id = one.topic_id
            return Entry(key, value, version=version)
        # The id of the topic isn't written: the request doesn't name it.
        return Entry(key, value, *self._producer, version=version)


def is_longer(text: str, longest: int) -> bool:
    """Whether it has more than `longest` characters, counted as Java does: those outside of the first plane twice."""
    return len(text) > longest or (not text.isascii() and len(text.encode("utf-16-le")) // 2 > longest)
