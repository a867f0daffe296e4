"""From one generation of a classic group to the next: gather the members, choose, hand out, and who is late.

Every function moves the live group and returns what follows: a decision, or answers alone where nothing is written.
Which phase may follow which, and why that is safe, stands in `phases`.
"""

import logging
from dataclasses import dataclass

from tidelog.coordinator.group.classic import answers, records
from tidelog.coordinator.group.classic.decision import NOTHING, Answer, ClassicDecision, Emptied, after, tell, write
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import NEVER, LiveMember
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.phases import IN_GENERATION, Phase
from tidelog.coordinator.group.names import some
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.sync_group import SyncGroupResponse

log = logging.getLogger("tidelog.groups")

LOOK_AGAIN_MS = 1000
"""How long a group that nobody joined waits at least: members may ask for a rebalance timeout of nothing."""

STORE_AGAIN_MS = 1000
"""How long a group waits whose assignment could not be stored: members join again at once, and a disk stays full."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The broker's settings for classic groups."""

    session_min_ms: int = 6000
    session_max_ms: int = 1_800_000
    members_max: int = 2**31 - 1
    initial_delay_ms: int = 100


def prepare(group: LiveClassicGroup, reason: str, limits: Limits, now: Moment) -> ClassicDecision:
    """Call everybody to join. A group that was empty waits a little, so that members who start together meet."""
    sync_answers: list[Answer] = []
    if group.phase is Phase.COMPLETING:
        sync_answers = forget_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
    _end_sync(group)
    was_empty = group.phase is Phase.EMPTY
    group.enter(Phase.PREPARING, now)
    log.info("group %s prepares the generation after %d: %s", group.group_id, group.generation, reason)
    if was_empty:
        group.newcomer = bool(group.pending)
        group.initial_left_ms = max(group.rebalance_timeout_ms - limits.initial_delay_ms, 0)
        _join_by(group, now.steady_ms + limits.initial_delay_ms)
    elif group.all_joined:
        return after(sync_answers, complete_join(group, now))
    else:
        _join_by(group, now.steady_ms + group.rebalance_timeout_ms)
    return tell(*sync_answers)


def prepare_or_complete(group: LiveClassicGroup, reason: str, limits: Limits, now: Moment) -> ClassicDecision:
    """The members changed: begin a rebalance, or go on with the one that is under way."""
    if group.phase is Phase.PREPARING:
        return complete_if_joined(group, now)
    return prepare(group, reason, limits, now)


def complete_if_joined(group: LiveClassicGroup, now: Moment, *, even_at_first: bool = False) -> ClassicDecision:
    """End the join phase once nobody is missing; the initial delay is waited for even so, unless told otherwise."""
    if group.phase is Phase.PREPARING and group.all_joined and (even_at_first or group.initial_left_ms is None):
        if now.steady_ms >= group.not_before_ms:
            return complete_join(group, now)
        _join_by(group, group.not_before_ms)
    return NOTHING


def join_time_is_up(group: LiveClassicGroup, limits: Limits, now: Moment) -> ClassicDecision:
    """The deadline of the join phase: an initial delay during which somebody came is prolonged, within its bound."""
    left_ms = group.initial_left_ms
    if left_ms and group.newcomer:
        group.newcomer = False
        delay_ms = min(limits.initial_delay_ms, left_ms)
        group.initial_left_ms = max(left_ms - delay_ms, 0)
        _join_by(group, now.steady_ms + delay_ms)
        return NOTHING
    return complete_join(group, now)


def complete_join(group: LiveClassicGroup, now: Moment) -> ClassicDecision:
    """Go on with those who joined; static members may be away for a restart, so they stay."""
    late = [member for member in group.members.values() if member.joining is None and not member.is_static]
    for member in late:
        group.remove(member)
    if late:
        log.info("group %s goes on without %s: not joined in time", group.group_id, some([m.member_id for m in late]))
    if group.members and not _elect_leader(group):
        log.warning("group %s: no member joined in time; it waits until sessions end", group.group_id)
        group.initial_left_ms = None
        _join_by(group, now.steady_ms + max(group.rebalance_timeout_ms, LOOK_AGAIN_MS))
        return NOTHING
    group.join_deadline_ms = NEVER
    group.initial_left_ms = None
    group.generation += 1
    return _begin_generation(group, now) if group.members else _become_empty(group, now)


def _elect_leader(group: LiveClassicGroup) -> bool:
    """The former leader where it joined, else the first member who did; whether there is one."""
    former = group.members[group.leader or ""]
    if former.joining is None:
        joined = next((member for member in group.members.values() if member.joining is not None), None)
        if joined is None:
            return False
        log.info("group %s is led by %s: %s did not join", group.group_id, joined.member_id, former.member_id)
        group.leader = joined.member_id
    return True


def _begin_generation(group: LiveClassicGroup, now: Moment) -> ClassicDecision:
    group.protocol = group.elect_protocol()
    group.enter(Phase.COMPLETING, now)
    log.info(
        "group %s is in generation %d: %d members, led by %s, protocol %s",
        group.group_id,
        group.generation,
        len(group.members),
        group.leader,
        group.protocol,
    )
    join_answers: list[Answer] = []
    for member in group.members.values():
        ticket = group.unpark(member)
        if ticket is not None:
            join_answers.append(Answer(ticket, answers.joined(group, member)))
        member.is_new = False
        group.expect(member, now)
        group.unsynced.add(member.member_id)
    group.sync_deadline_ms = now.steady_ms + group.rebalance_timeout_ms
    group.wake_by(group.sync_deadline_ms)
    return tell(*join_answers)


def _become_empty(group: LiveClassicGroup, now: Moment) -> ClassicDecision:
    group.protocol = None
    group.enter(Phase.EMPTY, now)
    log.info("group %s is empty in generation %d", group.group_id, group.generation)
    return write(records.group_entry(group, {}), Emptied(None))


def sync_time_is_up(group: LiveClassicGroup, limits: Limits, now: Moment) -> ClassicDecision:
    """Members that joined and never asked for their assignment are gone: without them, again."""
    assert group.phase in IN_GENERATION
    late = [group.members[member_id] for member_id in sorted(group.unsynced)]
    drop_answers = [answer for member in late for answer in drop(group, member)]
    names = some([member.member_id for member in late])
    return after(drop_answers, prepare(group, f"{names} did not sync in time", limits, now))


def forget_assignments(group: LiveClassicGroup, code: ErrorCode, now: Moment) -> list[Answer]:
    """What was or would have been assigned in this generation isn't: who waits for it hears so."""
    sync_answers: list[Answer] = []
    for member in group.members.values():
        member.assignment = b""
        sync_answers += release_sync(group, member, answers.unsynced(code), now)
    return sync_answers


def release_sync(
    group: LiveClassicGroup, member: LiveMember, response: SyncGroupResponse, now: Moment
) -> tuple[Answer, ...]:
    """Answer a SyncGroup that waits. The session begins anew: while it waited, silence was excused."""
    ticket = member.syncing
    if ticket is None:
        return ()
    member.syncing = None
    group.expect(member, now)
    return (Answer(ticket, response),)


def drop(group: LiveClassicGroup, member: LiveMember) -> list[Answer]:
    """Take a member out; a request of it that waits is told to begin anew, should there still be somebody."""
    refusals: list[Answer] = []
    ticket = group.unpark(member)
    if ticket is not None:
        refusals.append(Answer(ticket, answers.refused(ErrorCode.UNKNOWN_MEMBER_ID)))
    if member.syncing is not None:
        refusals.append(Answer(member.syncing, answers.unsynced(ErrorCode.UNKNOWN_MEMBER_ID)))
        member.syncing = None
    group.remove(member)
    return refusals


def _join_by(group: LiveClassicGroup, deadline_ms: float) -> None:
    group.join_deadline_ms = deadline_ms
    group.wake_by(deadline_ms)


def _end_sync(group: LiveClassicGroup) -> None:
    group.unsynced.clear()
    group.sync_deadline_ms = NEVER
