"""What follows when a record of a classic group is committed, or isn't."""

import logging

from tidelog.coordinator.group.classic import answers
from tidelog.coordinator.group.classic.decision import (
    NOTHING,
    Answer,
    Assigned,
    ClassicDecision,
    Created,
    Emptied,
    Purpose,
    Replaced,
    tell,
)
from tidelog.coordinator.group.classic.join import replaced
from tidelog.coordinator.group.classic.live import LiveClassicGroup
from tidelog.coordinator.group.classic.member import NEVER
from tidelog.coordinator.group.classic.moment import Moment
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.rebalance import Limits
from tidelog.coordinator.group.classic.sync import assigned
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.leave_group import LeaveGroupResponse

log = logging.getLogger("tidelog.groups")

_TOLD_AS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def told_as(error: ErrorCode) -> ErrorCode:
    """The error of a write to the log, in words that members understand."""
    return _TOLD_AS.get(error, error)


def written(
    group: LiveClassicGroup, purpose: Purpose, error: ErrorCode, limits: Limits, now: Moment
) -> ClassicDecision:
    """`error` is NONE for a record that is committed."""
    error = told_as(error)
    if error is not ErrorCode.NONE:
        log.warning("group %s: its record could not be written: %s", group.group_id, error.name)
    match purpose:
        case Emptied(answer):
            # An empty group has nobody to mislead: should the log keep the former members, their sessions end again.
            if answer is None:
                return NOTHING
            return tell(answer if not error else Answer(answer.ticket, LeaveGroupResponse(error_code=error)))
        case Created():
            return bury(group, error, now) if error and group.phase is not Phase.DEAD else NOTHING
        case Assigned():
            return assigned(group, purpose, error, limits, now)
        case Replaced():
            return replaced(group, purpose, error, now)


def bury(group: LiveClassicGroup, code: ErrorCode, now: Moment) -> ClassicDecision:
    """The group isn't coordinated here any more: everyone who waits is told why."""
    refusals: list[Answer] = []
    for member in group.members.values():
        ticket = group.unpark(member)
        if ticket is not None:
            refusals.append(Answer(ticket, answers.refused(code, member.member_id)))
        if member.syncing is not None:
            refusals.append(Answer(member.syncing, answers.unsynced(code)))
            member.syncing = None
    group.join_deadline_ms = group.sync_deadline_ms = NEVER
    group.enter(Phase.DEAD, now)
    return tell(*refusals)
