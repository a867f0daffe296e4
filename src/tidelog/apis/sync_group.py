"""SyncGroup (key 14): the leader hands out the assignment of the generation, everyone gets its part.

The answer is parked until the leader's assignment is committed to `__consumer_offsets`.

v3 static members; v4 flexible; v5 must name protocol type and protocol, which are checked against the group's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.router import sync_group
from tidelog.env.slices import CHEAP_A_STEP, Steps
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise

FIRST_WITH_PROTOCOL = 5


def handle(
    context: Context, request: SyncGroupRequest
) -> SyncGroupResponse | Promise[SyncGroupResponse] | Steps[Promise[SyncGroupResponse]]:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.version >= FIRST_WITH_PROTOCOL and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return _sync(context, request)


def _sync(context: Context, request: SyncGroupRequest) -> Steps[Promise[SyncGroupResponse]]:
    assignments: dict[str, bytes] = {}
    for start in range(0, len(request.assignments), CHEAP_A_STEP):
        assignments |= {one.member_id: one.assignment for one in request.assignments[start : start + CHEAP_A_STEP]}
        yield
    return sync_group(context.services.groups, request, assignments)
