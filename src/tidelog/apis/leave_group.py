"""LeaveGroup (key 13): members go at once, rather than when their session ends.

Up to v2 one member, whose error is the answer's; from v3 on many, each with a result, and static ones by their instance
id alone, as an administrator takes them out. v4 flexible; v5 a reason, for the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.router import leave_group
from tidelog.env.slices import Steps, settled
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise

FIRST_WITH_MANY = 3
AT_ONCE = 256


def handle(context: Context, request: LeaveGroupRequest) -> Promise[LeaveGroupResponse] | Steps[LeaveGroupResponse]:
    if context.version < FIRST_WITH_MANY:
        alone = [MemberIdentity(member_id=request.member_id)]
        return leave_group(context.services.groups, request.group_id, alone).map(_of_one)
    if len(request.members) <= AT_ONCE:
        return leave_group(context.services.groups, request.group_id, request.members)
    return _leave(context, request)


def _leave(context: Context, request: LeaveGroupRequest) -> Steps[LeaveGroupResponse]:
    """Very many, some at a time."""
    results: list[MemberResponse] = []
    for start in range(0, len(request.members), AT_ONCE):
        some = request.members[start : start + AT_ONCE]
        answer = yield from settled(leave_group(context.services.groups, request.group_id, some))
        if answer.error_code:
            return LeaveGroupResponse(error_code=answer.error_code)
        results += answer.members
        yield
    return LeaveGroupResponse(members=results)


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """The one member's result is the answer's error."""
    code = response.error_code or next((member.error_code for member in response.members), 0)
    return LeaveGroupResponse(error_code=code)
