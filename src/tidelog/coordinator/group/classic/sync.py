"""SyncGroup, decided: the leader hands in what it assigned, everyone gets its part once that is committed."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.coordinator.group.classic import answers, records
from tidelog.coordinator.group.classic.decision import NOTHING, Answer, Assigned, ClassicDecision, after, tell, write
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import NEVER, LiveMember
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.phases import IN_GENERATION, Phase
from tidelog.coordinator.group.classic.rebalance import (
    STORE_AGAIN_MS,
    Limits,
    forget_assignments,
    prepare,
    release_sync,
)
from tidelog.coordinator.group.names import some
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.sync_group import SyncGroupRequest

log = logging.getLogger("tidelog.groups")


class Sync(NamedTuple):
    """A SyncGroup. Protocol type and name are None where the client's version doesn't send them."""

    ticket: object
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]

    @classmethod
    def of(cls, request: SyncGroupRequest, assignments: Mapping[str, bytes], ticket: object) -> "Sync":
        return cls(
            ticket=ticket,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments=assignments,
        )


def sync(group: LiveClassicGroup, request: Sync, now: Moment) -> ClassicDecision:
    try:
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        _check_protocol(group, request)
    except KafkaError as error:
        return tell(Answer(request.ticket, answers.unsynced(error.code)))
    if group.phase in IN_GENERATION:
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            group.sync_deadline_ms = NEVER
    if group.phase is Phase.STABLE:
        return tell(Answer(request.ticket, answers.synced(group, member)))
    if group.phase is Phase.COMPLETING:
        superseded = _wait(member, request)
        if group.leader == member.member_id and group.handed_in != group.generation:
            return after(superseded, _assign(group, request))
        return tell(*superseded)
    return tell(Answer(request.ticket, answers.unsynced(ErrorCode.REBALANCE_IN_PROGRESS)))


def _check_protocol(group: LiveClassicGroup, request: Sync) -> None:
    for said, held in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
        if said is not None and held is not None and said != held:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group.group_id} works with {held}, the member with {said}"
            )


def _wait(member: LiveMember, request: Sync) -> tuple[Answer, ...]:
    superseded, member.syncing = member.syncing, request.ticket
    if superseded is None:
        return ()
    # Asked twice: the first is told to begin anew, the second waits.
    return (Answer(superseded, answers.unsynced(ErrorCode.REBALANCE_IN_PROGRESS)),)


def _assign(group: LiveClassicGroup, request: Sync) -> ClassicDecision:
    """Members that the leader forgot get nothing to do; what it assigned to strangers is let go.

    Once a generation: what is on its way to the log is what members will be told. Where that fails, all join anew.
    """
    group.handed_in = group.generation
    assignments = {member_id: request.assignments.get(member_id, b"") for member_id in group.members}
    forgotten = [member_id for member_id in group.members if member_id not in request.assignments]
    if forgotten:
        log.warning(
            "group %s, generation %d: the leader left out %s; they get an empty assignment",
            group.group_id,
            group.generation,
            some(forgotten),
        )
    return write(records.group_entry(group, assignments), Assigned(group.generation, assignments))


def assigned(
    group: LiveClassicGroup, purpose: Assigned, error: ErrorCode, limits: Limits, now: Moment
) -> ClassicDecision:
    """The assignment is committed, or failed: then everyone joins again. Too late for its generation, it is nothing."""
    if group.phase is not Phase.COMPLETING or group.generation != purpose.generation:
        return NOTHING
    if error is not ErrorCode.NONE:
        forgotten = forget_assignments(group, error, now)
        group.not_before_ms = now.steady_ms + STORE_AGAIN_MS
        return after(forgotten, prepare(group, f"the assignment could not be stored: {error.name}", limits, now))
    group.enter(Phase.STABLE, now)
    sync_answers: list[Answer] = []
    for member in group.members.values():
        member.assignment = purpose.assignments[member.member_id]
        sync_answers += release_sync(group, member, answers.synced(group, member), now)
    return tell(*sync_answers)
