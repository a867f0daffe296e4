"""Who may commit and fetch a group's offsets: its members of the present generation or epoch, nobody's former self."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.group.classic.checks import check_commit as check_classic
from tidelog.coordinator.group.classic.checks import note_commit
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.coordinator.group.consumer.state import Member as ConsumerMember
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.coordinator.group.state import GroupsState

FIRST_WITH_EPOCHS = 9
"""The version of OffsetCommit that knows member epochs, and GROUP_ID_NOT_FOUND."""


class Member(NamedTuple):
    """Who commits: a member in a generation or epoch, or nobody in particular (-1 and empty)."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NOBODY = Member()

Check = Callable[[str, bytes, int], None]
"""Whether the member may commit for a partition, by topic name, id and index; raises KafkaError where it may not."""


def check_commit(
    shard: GroupShard,
    state: GroupsState,
    group_id: str,
    member: Member,
    version: int,
    *,
    transactional: bool = False,
) -> Check | None:
    """Raises unless the member may commit; what is left to be checked for each partition.

    Whoever isn't a member may commit while the group is empty, and for a group that isn't there: that makes a simple
    group. In a transaction, which old clients tell nothing else of, it may so at any time.
    """
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return _check_consumer(group, member, version, transactional)
    live = shard.live.classic.get(group_id)
    if live is not None and live.phase is not Phase.EMPTY:
        check_classic(live, member.member_id, member.instance_id, member.generation, transactional=transactional)
    elif member.generation >= 0:
        if group is not None or group_id in state.offsets or group_id in state.writers:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} has no members")
        known = version >= FIRST_WITH_EPOCHS and not transactional
        code = ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"there is no group {group_id}")
    return None


def heard_by_commit(shard: GroupShard, group_id: str, member: Member) -> None:
    """A commit was appended: of a classic group's member it is a sign of life."""
    now = Moment(shard.clock.monotonic() * 1000, shard.clock.now_ms())
    note_commit(shard.live.classic.get(group_id), member.member_id, now)


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Raises where a member asks that isn't one (any more). Whoever doesn't say who it is may ask."""
    if member_id is None and member_epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id} has no member {member_id}")
    if member_epoch != member.epoch:
        raise _stale(member, f"member {member_id} is in epoch {member.epoch}, not {member_epoch}")


def _check_consumer(group: ConsumerGroup, member: Member, version: int, transactional: bool) -> Check | None:
    epoch, member_id, _ = member
    if (epoch < 0 and group.is_empty) or (transactional and member == NOBODY):
        return None
    known = group.members.get(member_id)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id} has no member {member_id}")
    if not transactional and known.classic is None and version < FIRST_WITH_EPOCHS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"members of the consumer protocol commit with OffsetCommit version {FIRST_WITH_EPOCHS} or above",
        )
    if epoch == known.epoch:
        return None
    if epoch > known.epoch:
        raise _stale(known, f"member {member_id} is in epoch {known.epoch}, not {epoch} yet")

    def check(topic: str, topic_id: bytes, partition: int) -> None:
        """An earlier epoch will do for what the member has had since then, or since before."""
        since = known.assigned.get(topic_id, {}).get(partition)
        if since is None:
            since = known.revoking.get(topic_id, {}).get(partition)
        if since is None:
            raise _stale(known, f"{topic}-{partition} isn't assigned to member {member_id}")
        if epoch < since:
            raise _stale(known, f"{topic}-{partition} is member {member_id}'s since epoch {since}, not since {epoch}")

    return check


def _stale(member: ConsumerMember, message: str) -> KafkaError:
    """In the terms of the protocol that the member speaks."""
    code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    return KafkaError(code, message)
