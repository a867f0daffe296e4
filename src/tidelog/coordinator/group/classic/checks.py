"""What others may do to a classic group: commit offsets, delete them, delete the group. Pure; KafkaError says no.

`group` is the group's record in the log and `live` what is known while it is coordinated: either may be missing, for a
group that is new, that is empty, or that only ever committed offsets.
"""

from collections.abc import Callable

from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.state import ClassicGroup
from tidelog.coordinator.group.classic.subscription import subscribed_topics
from tidelog.wire.errors import ErrorCode, KafkaError

CONSUMER = "consumer"
"""The protocol type of consumers, whose subscriptions the broker can read."""


def phase_of(group: ClassicGroup | None, live: LiveClassicGroup | None) -> Phase:
    if live is not None:
        return live.phase
    return Phase.STABLE if group is not None and group.members else Phase.EMPTY


def check_commit(
    live: LiveClassicGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    *,
    transactional: bool = False,
) -> None:
    """Members commit in their generation; anybody may (generation -1) while the group has no members.

    Not while an assignment is on its way: who owns what isn't known to all. Producers are let through then, and their
    old versions name neither member nor generation.
    """
    if generation < 0 and live.phase is Phase.EMPTY:
        return
    if generation >= 0 or member_id or instance_id is not None:
        live.check_member(member_id, instance_id)
        live.check_generation(generation)
    elif not transactional:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{live.group_id} has members: who isn't one commits when they are gone"
        )
    if live.phase is Phase.COMPLETING and not transactional:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"{live.group_id} is assigning partitions")


def note_commit(live: LiveClassicGroup | None, member_id: str, now: Moment) -> None:
    """A commit is a sign of life."""
    if live is not None and live.phase in (Phase.STABLE, Phase.PREPARING):
        member = live.members.get(member_id)
        if member is not None:
            live.expect(member, now)


def check_delete(group: ClassicGroup | None, live: LiveClassicGroup | None) -> None:
    """A group with members, or with somebody about to be one, stays."""
    if phase_of(group, live) is not Phase.EMPTY:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "the group has members: stop them first")


def check_offset_delete(group: ClassicGroup | None, live: LiveClassicGroup | None) -> None:
    """Consumers' offsets may go topic by topic (`subscribed`); of others with members nothing is known."""
    protocol_type = live.protocol_type if live is not None else group.protocol_type if group is not None else None
    if phase_of(group, live) is not Phase.EMPTY and protocol_type != CONSUMER:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "the group has members: stop them first")


def subscribed(live: LiveClassicGroup | None) -> Callable[[str], bool]:
    """Whether a member reads a topic; True where that can't be read from what consumers said.

    What they said may be long, and a group has many offsets: it is read once, here.
    """
    if live is None or not live.members or live.protocol_type != CONSUMER:
        return lambda topic: False
    topics = subscribed_topics(live)
    return (lambda topic: True) if topics is None else topics.__contains__


def expires_from(group: ClassicGroup | None, live: LiveClassicGroup | None) -> Callable[[int], int | None]:
    """By an offset's commit timestamp, from when `offsets.retention.minutes` counts; None while it may not expire.

    Of a group that had members, from when it became empty; while consumers are at work, from the commit, and then only
    for topics that none of them reads; of a group that never had members, from the commit.
    """
    protocol_type = live.protocol_type if live is not None else group.protocol_type if group is not None else None
    if protocol_type is None:
        return _from_commit
    phase = phase_of(group, live)
    if phase is Phase.EMPTY:
        since_ms = live.since_ms if live is not None else group.state_timestamp_ms if group is not None else -1
        return _from_commit if since_ms == -1 else lambda commit_timestamp_ms: since_ms
    if phase is Phase.STABLE and live is not None and protocol_type == CONSUMER and subscribed_topics(live) is not None:
        return _from_commit
    return lambda commit_timestamp_ms: None


def _from_commit(commit_timestamp_ms: int) -> int:
    return commit_timestamp_ms
