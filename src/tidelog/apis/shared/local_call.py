"""A request that this node has for itself, answered by the handler that answers those of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.apis import handler
from tidelog.apis.shared.context import Context
from tidelog.controller.heartbeats import LOCAL
from tidelog.env.promise import Promise
from tidelog.env.slices import outcome
from tidelog.wire.codec import declaration
from tidelog.wire.keys import RANGES

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Services


def call_here(services: Services, request: object) -> Promise[Any]:
    """The response, in the newest version; it fails with what the handler raised."""
    key = declaration(type(request)).key
    assert key is not None, "a message, not a part of one"
    context = Context(services, RANGES[key].max, f"broker-{services.node_id}", "localhost", "", LOCAL, 0)
    return services.env.loop.drive(outcome(handler(key)(context, request)))
