"""Heartbeat (key 12): a member of a classic group is alive, and learns whether it must join again.

REBALANCE_IN_PROGRESS says so. While the group is being loaded the answer is that all is well, since nothing else is
known. v3 static members; v4 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.router import classic_heartbeat

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse | Promise[HeartbeatResponse]:
    return classic_heartbeat(context.services.groups, request)
