"""Who leaves a classic group, and who is no longer heard of: LeaveGroup, Heartbeat and deadlines, decided."""

import logging
from collections.abc import Sequence

from tidelog.coordinator.group.classic.effects import Answer, Effect, Emptied, Moment, Write
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import NEVER, some
from tidelog.coordinator.group.classic.phases import IN_GENERATION, Phase
from tidelog.coordinator.group.classic.rebalance import (
    Limits,
    complete_if_joined,
    drop,
    join_time_is_up,
    prepare,
    sync_time_is_up,
)
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse

log = logging.getLogger("tidelog.groups")

REASON_MAX = 255


def leave(
    group: LiveClassicGroup, ticket: object, leavers: Sequence[MemberIdentity], limits: Limits, now: Moment
) -> list[Effect]:
    """Each by its member id, or by its instance id alone (an administrator does that); a result for each."""
    out: list[Effect] = []
    results = [
        MemberResponse(
            member_id=leaver.member_id,
            group_instance_id=leaver.group_instance_id,
            error_code=_take_out(group, leaver, out),
        )
        for leaver in leavers
    ]
    if any(result.error_code == ErrorCode.NONE for result in results):
        if group.phase in IN_GENERATION:
            prepare(group, "members left", limits, now, out)
        else:
            complete_if_joined(group, now, out)
    answer = Answer(ticket, LeaveGroupResponse(members=results))
    for place, effect in enumerate(out):
        if isinstance(effect, Write) and isinstance(effect.purpose, Emptied):
            out[place] = Write(effect.value, Emptied(answer))
            return out
    out.append(answer)
    return out


def _take_out(group: LiveClassicGroup, leaver: MemberIdentity, out: list[Effect]) -> ErrorCode:
    member_id = leaver.member_id
    reason = (leaver.reason or "not provided")[:REASON_MAX]
    if not member_id and leaver.group_instance_id is not None:
        member_id = group.static.get(leaver.group_instance_id, "")
    if group.pending.pop(member_id, None) is None:
        try:
            drop(group, group.check_member(member_id, leaver.group_instance_id), out)
        except KafkaError as error:
            return error.code
    log.info("group %s: %s leaves, reason: %s", group.group_id, member_id, reason)
    return ErrorCode.NONE


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


def expire(group: LiveClassicGroup, limits: Limits, now: Moment) -> list[Effect]:
    """Everything whose time has come; afterwards `wake_ms` is the next deadline."""
    out: list[Effect] = []
    due = now.steady_ms
    _expire_pending(group, now, out)
    _expire_sessions(group, limits, now, out)
    if group.join_deadline_ms <= due:
        join_time_is_up(group, limits, now, out)
    if group.sync_deadline_ms <= due:
        sync_time_is_up(group, limits, now, out)
    group.wake_ms = group.next_deadline_ms()
    return out


def _expire_pending(group: LiveClassicGroup, now: Moment, out: list[Effect]) -> None:
    gone = [member_id for member_id, deadline_ms in group.pending.items() if deadline_ms <= now.steady_ms]
    for member_id in gone:
        del group.pending[member_id]
        log.info("group %s: %s never came back with its id", group.group_id, member_id)
    if gone:
        complete_if_joined(group, now, out, even_at_first=True)


def _expire_sessions(group: LiveClassicGroup, limits: Limits, now: Moment, out: list[Effect]) -> None:
    late = [member for member in group.members.values() if member.deadline_ms <= now.steady_ms]
    gone = [member for member in late if not member.is_excused]
    for member in late:
        member.deadline_ms = NEVER  # of those that wait for us: their session begins anew with the answer
    if not gone:
        return
    for member in gone:
        log.info("group %s: nothing heard of %s, it is taken out", group.group_id, member.member_id)
        drop(group, member, out)
    if group.phase in IN_GENERATION:
        prepare(group, some([member.member_id for member in gone]) + " not heard of", limits, now, out)
    else:
        complete_if_joined(group, now, out, even_at_first=True)
