"""Who leaves a classic group, and who is no longer heard of: LeaveGroup, Heartbeat and deadlines, decided."""

import logging
from collections.abc import Sequence

from tidelog.coordinator.bounds import REASON_CHARACTERS_MAX
from tidelog.coordinator.group.classic.decision import (
    NOTHING,
    Answer,
    ClassicDecision,
    Emptied,
    Outcome,
    after,
    tell,
    together,
)
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import NEVER
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.phases import IN_GENERATION, Phase
from tidelog.coordinator.group.classic.rebalance import (
    Limits,
    complete_if_joined,
    drop,
    join_time_is_up,
    prepare,
    sync_time_is_up,
)
from tidelog.coordinator.group.names import some
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse

log = logging.getLogger("tidelog.groups")


def leave(
    group: LiveClassicGroup, ticket: object, leavers: Sequence[MemberIdentity], limits: Limits, now: Moment
) -> ClassicDecision:
    """Each by its member id, or by its instance id alone (an administrator does that); a result for each."""
    drop_answers: list[Answer] = []
    results: list[MemberResponse] = []
    for leaver in leavers:
        code, dropped = _take_out(group, leaver)
        drop_answers += dropped
        results.append(
            MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=code)
        )
    follows = NOTHING
    if any(result.error_code == ErrorCode.NONE for result in results):
        if group.phase in IN_GENERATION:
            follows = prepare(group, "members left", limits, now)
        else:
            follows = complete_if_joined(group, now)
    answer = Answer(ticket, LeaveGroupResponse(members=results))
    records, (more, purpose) = follows
    if isinstance(purpose, Emptied):
        return Decision(records, Outcome((*drop_answers, *more), Emptied(answer)))
    return together(after(drop_answers, follows), tell(answer))


def _take_out(group: LiveClassicGroup, leaver: MemberIdentity) -> tuple[ErrorCode, list[Answer]]:
    """What came of it, and who is told of it."""
    drop_answers: list[Answer] = []
    member_id = leaver.member_id
    reason = (leaver.reason or "not provided")[:REASON_CHARACTERS_MAX]
    if not member_id and leaver.group_instance_id is not None:
        member_id = group.static.get(leaver.group_instance_id, "")
    if group.pending.pop(member_id, None) is None:
        try:
            drop_answers = drop(group, group.check_member(member_id, leaver.group_instance_id))
        except KafkaError as error:
            return error.code, drop_answers
    log.info("group %s: %s leaves, reason: %s", group.group_id, member_id, reason)
    return ErrorCode.NONE, drop_answers


def heartbeat(
    group: LiveClassicGroup, member_id: str, instance_id: str | None, generation: int, now: Moment
) -> ErrorCode:
    """Alive until the session's end. REBALANCE_IN_PROGRESS is how members learn that they must join again."""
    try:
        member = group.check_member(member_id, instance_id)
        group.check_generation(generation)
    except KafkaError as error:
        return error.code
    group.expect(member, now)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.PREPARING else ErrorCode.NONE


def expire(group: LiveClassicGroup, limits: Limits, now: Moment) -> ClassicDecision:
    """Everything whose time has come; afterwards `wake_ms` is the next deadline."""
    due = now.steady_ms
    follows = _expire_pending(group, now)
    follows = together(follows, _expire_sessions(group, limits, now))
    if group.join_deadline_ms <= due:
        follows = together(follows, join_time_is_up(group, limits, now))
    if group.sync_deadline_ms <= due:
        follows = together(follows, sync_time_is_up(group, limits, now))
    group.wake_ms = group.next_deadline_ms()
    return follows


def _expire_pending(group: LiveClassicGroup, now: Moment) -> ClassicDecision:
    gone = [member_id for member_id, deadline_ms in group.pending.items() if deadline_ms <= now.steady_ms]
    for member_id in gone:
        del group.pending[member_id]
        log.info("group %s: %s never came back with its id", group.group_id, member_id)
    return complete_if_joined(group, now, even_at_first=True) if gone else NOTHING


def _expire_sessions(group: LiveClassicGroup, limits: Limits, now: Moment) -> ClassicDecision:
    late = [member for member in group.members.values() if member.deadline_ms <= now.steady_ms]
    gone = [member for member in late if not member.is_excused]
    for member in late:
        member.deadline_ms = NEVER  # of those that wait for us: their session begins anew with the answer
    if not gone:
        return NOTHING
    drop_answers: list[Answer] = []
    for member in gone:
        log.info("group %s: nothing heard of %s, it is taken out", group.group_id, member.member_id)
        drop_answers += drop(group, member)
    if group.phase in IN_GENERATION:
        return after(
            drop_answers, prepare(group, some([member.member_id for member in gone]) + " not heard of", limits, now)
        )
    return after(drop_answers, complete_if_joined(group, now, even_at_first=True))
