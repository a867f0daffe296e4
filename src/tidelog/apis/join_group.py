"""JoinGroup (key 11): enter a group of the classic protocol, or its next generation.

The answer is parked until the generation begins: everybody joined, or the rebalance timeout is over. Later answers of
the connection wait behind it, so clients send heartbeats over another one or not at all meanwhile.

v0 has no rebalance timeout, its session's counts; from v4 on a new member is told its id first (MEMBER_ID_REQUIRED); v5
static members; v6 flexible; v7 tells the protocol type, and no protocol as null; v8 a reason, for the log; v9 a static
leader that comes back is told to leave the assignment as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.caller import Caller
from tidelog.coordinator.group.router import join_group
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise

FIRST_WITH_NULL_PROTOCOL = 7


def handle(context: Context, request: JoinGroupRequest) -> Promise[JoinGroupResponse]:
    caller = Caller(context.client_id or "", f"/{context.client_host}")
    answer = join_group(context.services.groups, request, context.version, caller)
    return answer.map(lambda response: _worded(response, context.version))


def _worded(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """No protocol is null where the version can say so."""
    if not response.protocol_name:
        response.protocol_name = None if version >= FIRST_WITH_NULL_PROTOCOL else ""
    return response
