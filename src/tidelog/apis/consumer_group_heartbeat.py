"""ConsumerGroupHeartbeat (key 68): join, stay in, reconcile with and leave a group of the consumer protocol (KIP-848).

Member epoch 0 joins, -1 leaves, -2 leaves for a while (static members). Between them a heartbeat tells what changed and
what the member still uses, and is answered with what it may use when that changed. How the group gets from one
assignment to the next stands in `coordinator/group/consumer`.

v1 subscription by a regular expression, and member ids made by the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.caller import Caller
from tidelog.coordinator.group.consumer.requests import prepared
from tidelog.coordinator.group.router import consumer_heartbeat

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps
    from tidelog.wire.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )


def handle(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> Promise[ConsumerGroupHeartbeatResponse] | Steps[Promise[ConsumerGroupHeartbeatResponse]]:
    first = prepared(context.services.groups, request.group_id)
    return _beat(context, request) if first is None else _beat_after(first, context, request)


def _beat_after(
    first: Steps[None], context: Context, request: ConsumerGroupHeartbeatRequest
) -> Steps[Promise[ConsumerGroupHeartbeatResponse]]:
    yield from first
    return _beat(context, request)


def _beat(context: Context, request: ConsumerGroupHeartbeatRequest) -> Promise[ConsumerGroupHeartbeatResponse]:
    caller = Caller(context.client_id or "", f"/{context.client_host}")
    return consumer_heartbeat(context.services.groups, request, context.version, caller)
