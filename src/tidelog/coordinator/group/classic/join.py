"""JoinGroup, decided: who may come in, under which id, and whether that means a rebalance.

A member without an id gets one: from version 4 on it is told so first and comes again with it, so that a client which
gives up leaves no dead member behind. A static member (with an instance id) takes its former self's place, and where
nothing else changes the generation goes on.
"""

import logging
from typing import NamedTuple

from tidelog.coordinator.bounds import PENDING_MEMBERS_MAX, REASON_CHARACTERS_MAX, SAID_BYTES_MAX
from tidelog.coordinator.group.classic import answers, records
from tidelog.coordinator.group.classic.decision import (
    NOTHING,
    Answer,
    ClassicDecision,
    Created,
    Replaced,
    after,
    tell,
    write,
)
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import LiveMember, Protocols, bytes_of
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.rebalance import (
    Limits,
    complete_if_joined,
    drop,
    prepare,
    prepare_or_complete,
)
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

log = logging.getLogger("tidelog.groups")

FIRST_WITH_ID_REQUIRED = 4
FIRST_WITH_SKIPPING = 9
NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long the JoinGroup of a new member may wait: whether its client is still there can't be seen."""


class Join(NamedTuple):
    """A JoinGroup. `new_id` is the id that the member gets if it has none."""

    ticket: object
    version: int
    member_id: str
    new_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int
    reason: str

    @classmethod
    def of(
        cls, request: JoinGroupRequest, version: int, client_id: str, client_host: str, new_id: str, ticket: object
    ) -> "Join":
        """A protocol named twice counts once."""
        named: dict[str, bytes] = {}
        for protocol in request.protocols:
            named.setdefault(protocol.name, protocol.metadata)
        return cls(
            ticket=ticket,
            version=version,
            member_id=request.member_id,
            new_id=new_id,
            instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=client_host,
            protocol_type=request.protocol_type,
            protocols=tuple(named.items()),
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            reason=(request.reason or "not provided")[:REASON_CHARACTERS_MAX],
        )


def join(group: LiveClassicGroup, request: Join, limits: Limits, now: Moment) -> ClassicDecision:
    if not _has_room(group, request.member_id, limits):
        return _turn_away(group, request, now)
    if _says_too_much(group, request):
        return _refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.accepts(request.protocol_type, request.protocols):
        return _refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id:
        return _join_again(group, request, limits, now)
    if request.instance_id is not None:
        return _join_static(group, request, request.instance_id, limits, now)
    if request.version >= FIRST_WITH_ID_REQUIRED:
        return _hand_out_id(group, request, now)
    return _add(group, request, request.new_id, limits, now)


def create(group: LiveClassicGroup) -> ClassicDecision:
    """The first record of a group that a JoinGroup brought about."""
    return write(records.entry(group.group_id, records.new_group(group.since_ms)), Created())


def _has_room(group: LiveClassicGroup, member_id: str, limits: Limits) -> bool:
    """While a group rebalances, those who have joined count: where the limit fell, the last ones stay outside."""
    member = group.members.get(member_id)
    if group.phase is Phase.PREPARING:
        return (member is not None and member.joining is not None) or group.joined < limits.members_max
    return group.phase is Phase.EMPTY or member is not None or len(group.members) < limits.members_max


def _says_too_much(group: LiveClassicGroup, request: Join) -> bool:
    member = group.members.get(request.member_id or group.static.get(request.instance_id or "", ""))
    said_before = 0 if member is None else bytes_of(member.protocols)
    return group.said_bytes - said_before + bytes_of(request.protocols) > SAID_BYTES_MAX


def _turn_away(group: LiveClassicGroup, request: Join, now: Moment) -> ClassicDecision:
    member = group.members.get(request.member_id)
    group.pending.pop(request.member_id, None)
    refusals = [] if member is None else drop(group, member)
    refusals.append(Answer(request.ticket, answers.refused(ErrorCode.GROUP_MAX_SIZE_REACHED)))
    return after(refusals, complete_if_joined(group, now))


def _refuse(request: Join, code: ErrorCode) -> ClassicDecision:
    return tell(Answer(request.ticket, answers.refused(code, request.member_id)))


def _hand_out_id(group: LiveClassicGroup, request: Join, now: Moment) -> ClassicDecision:
    if len(group.pending) >= PENDING_MEMBERS_MAX:
        return _refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED)
    deadline_ms = now.steady_ms + request.session_timeout_ms
    group.pending[request.new_id] = deadline_ms
    group.newcomer = True
    group.wake_by(deadline_ms)
    return tell(Answer(request.ticket, answers.refused(ErrorCode.MEMBER_ID_REQUIRED, request.new_id)))


def _add(group: LiveClassicGroup, request: Join, member_id: str, limits: Limits, now: Moment) -> ClassicDecision:
    member = LiveMember(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
    )
    member.is_new = True
    group.newcomer = True
    group.add(member, request.protocol_type)
    group.park(member, request.ticket)
    group.expect(member, now, NEW_MEMBER_TIMEOUT_MS)
    return prepare_or_complete(group, f"{member_id} joins, reason: {request.reason}", limits, now)


def _join_again(group: LiveClassicGroup, request: Join, limits: Limits, now: Moment) -> ClassicDecision:
    """With an id: one that was just handed out, or a member's."""
    if request.member_id in group.pending and request.instance_id is None:
        return _add(group, request, request.member_id, limits, now)
    try:
        member = group.check_member(request.member_id, request.instance_id)
    except KafkaError as error:
        return _refuse(request, error.code)
    same = member.protocols == request.protocols
    leads = group.leader == member.member_id
    if same and (group.phase is Phase.COMPLETING or (group.phase is Phase.STABLE and not leads)):
        # Nothing is new, so it missed the answer: the generation goes on. A stable group's leader that joins again
        # has seen something that calls for another assignment, such as more partitions.
        return tell(Answer(request.ticket, answers.joined(group, member)))
    former_answers = _update(group, member, request)
    what = "the leader joins again" if leads and same else "has something new to say"
    reason = f"{member.member_id}: {what}, reason: {request.reason}"
    return after(former_answers, prepare_or_complete(group, reason, limits, now))


def _join_static(
    group: LiveClassicGroup, request: Join, instance_id: str, limits: Limits, now: Moment
) -> ClassicDecision:
    """Without an id: its first time, or a restart, whose former self is fenced from now on."""
    former_id = group.static.get(instance_id)
    if former_id is None:
        return _add(group, request, request.new_id, limits, now)
    former, former_leader = group.members[former_id], group.leader
    former_answers = _fence(group, former)
    member = group.rename(former, request.new_id)
    group.expect(member, now)
    log.info("group %s: %s is %s now, was %s", group.group_id, instance_id, request.new_id, former_id)
    former_answers += _update(group, member, request)
    if group.phase is Phase.STABLE and group.elect_protocol() == group.protocol:
        assignments = {other.member_id: other.assignment for other in group.members.values()}
        may_skip = request.version >= FIRST_WITH_SKIPPING
        purpose = Replaced(request.ticket, former, request.new_id, former_leader, may_skip)
        return after(former_answers, write(records.group_entry(group, assignments), purpose))
    if group.phase is Phase.PREPARING:
        return after(former_answers, complete_if_joined(group, now))
    # In the middle of an assignment, the leader was told of the former id: it must be told of this one.
    return after(
        former_answers, prepare(group, f"static member {instance_id} is back, reason: {request.reason}", limits, now)
    )


def _fence(group: LiveClassicGroup, member: LiveMember) -> list[Answer]:
    refusals: list[Answer] = []
    ticket = group.unpark(member)
    if ticket is not None:
        refusals.append(Answer(ticket, answers.fenced(member.member_id)))
    if member.syncing is not None:
        refusals.append(Answer(member.syncing, answers.unsynced(ErrorCode.FENCED_INSTANCE_ID)))
        member.syncing = None
    return refusals


def _update(group: LiveClassicGroup, member: LiveMember, request: Join) -> list[Answer]:
    group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    superseded = group.park(member, request.ticket)
    if superseded is None:
        return []
    return [Answer(superseded, answers.refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))]


def replaced(group: LiveClassicGroup, purpose: Replaced, error: ErrorCode, now: Moment) -> ClassicDecision:
    """The record of a replaced static member is committed, or failed: then its former self is back.

    Where a rebalance began meanwhile the member waits for that, as everybody does.
    """
    member = group.members.get(purpose.member_id)
    if member is None or member.joining is not purpose.ticket or group.phase is not Phase.STABLE:
        return NOTHING
    group.unpark(member)
    if error is ErrorCode.NONE:
        return tell(Answer(purpose.ticket, _taken_over(group, member, purpose)))
    former = purpose.former
    group.update(member, former.protocols, former.rebalance_timeout_ms, former.session_timeout_ms)
    group.expect(group.rename(member, former.member_id), now)
    response = answers.refused(error)
    response.generation_id, response.leader = group.generation, purpose.former_leader or ""
    response.protocol_type, response.protocol_name = group.protocol_type, group.protocol
    return tell(Answer(purpose.ticket, response))


def _taken_over(group: LiveClassicGroup, member: LiveMember, purpose: Replaced) -> JoinGroupResponse:
    """A leader is told that it leads and that there is nothing to assign; clients that don't know of that are told
    the former leader's name, so that they take themselves for followers."""
    response = answers.joined(group, member)
    if purpose.may_skip:
        response.skip_assignment = group.leader == member.member_id
    else:
        response.leader, response.members = purpose.former_leader or "", []
    return response
