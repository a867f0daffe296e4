"""SyncGroup, decided: the leader hands in what it assigned, everyone gets its part once that is committed."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.coordinator.group.classic import answers, records
from tidelog.coordinator.group.classic.effects import Answer, Assigned, Effect, Moment, Write
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import NEVER, LiveMember, some
from tidelog.coordinator.group.classic.phases import IN_GENERATION, Phase
from tidelog.coordinator.group.classic.rebalance import Limits, forget_assignments, prepare, release_sync
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


def sync(group: LiveClassicGroup, request: Sync, now: Moment) -> list[Effect]:
    out: list[Effect] = []
    try:
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        _check_protocol(group, request)
    except KafkaError as error:
        return [Answer(request.ticket, answers.unsynced(error.code))]
    if group.phase in IN_GENERATION:
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            group.sync_deadline_ms = NEVER
    if group.phase is Phase.STABLE:
        out.append(Answer(request.ticket, answers.synced(group, member)))
    elif group.phase is Phase.COMPLETING:
        _wait(member, request, out)
        if group.leader == member.member_id and group.handed_in != group.generation:
            _assign(group, request, out)
    else:
        out.append(Answer(request.ticket, answers.unsynced(ErrorCode.REBALANCE_IN_PROGRESS)))
    return out


def _check_protocol(group: LiveClassicGroup, request: Sync) -> None:
    for said, held in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
        if said is not None and held is not None and said != held:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group.group_id} works with {held}, the member with {said}"
            )


def _wait(member: LiveMember, request: Sync, out: list[Effect]) -> None:
    if member.syncing is not None:  # asked twice: the first is told to begin anew, the second waits
        out.append(Answer(member.syncing, answers.unsynced(ErrorCode.REBALANCE_IN_PROGRESS)))
    member.syncing = request.ticket


def _assign(group: LiveClassicGroup, request: Sync, out: list[Effect]) -> None:
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
    out.append(Write(records.metadata(group, assignments), Assigned(group.generation, assignments)))


def assigned(group: LiveClassicGroup, write: Assigned, error: ErrorCode, limits: Limits, now: Moment) -> list[Effect]:
    """The assignment is committed, or failed: then everyone joins again. Too late for its generation, it is nothing."""
    out: list[Effect] = []
    if group.phase is not Phase.COMPLETING or group.generation != write.generation:
        return out
    if error is not ErrorCode.NONE:
        forget_assignments(group, error, now, out)
        prepare(group, f"the assignment could not be stored: {error.name}", limits, now, out)
        return out
    group.enter(Phase.STABLE, now)
    for member in group.members.values():
        member.assignment = write.assignments[member.member_id]
        release_sync(group, member, answers.synced(group, member), now, out)
    return out
