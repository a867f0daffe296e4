"""A client's request that is for the active controller, passed on to it by a broker; and the answer, passed back.

The client needn't know who the controller is: any broker will do.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Any

from tidelog.apis.envelope import wrap
from tidelog.apis.shared.loggers import LOGGER_RESOURCE
from tidelog.metadata.image import BROKER_RESOURCE
from tidelog.wire.errors import KafkaError
from tidelog.wire.keys import ApiKey

if TYPE_CHECKING:
    from tidelog.apis.shared.api import Api
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise

ALTERS_CONFIGS = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)


def forward(context: Context, request: bytes) -> Promise[bytes]:
    """The answer's frame. Fails where no controller answered in time, or it took the request for none."""
    services = context.services
    timeout_ms = services.config.request_timeout_ms
    return services.channel.ask(wrap(request, context.client_host), timeout_ms).map(_frame)


def _frame(response: Any) -> bytes:
    if response.error_code or response.response_data is None:
        raise KafkaError(response.error_code, "the active controller doesn't take the request")
    return pack(">i", len(response.response_data)) + response.response_data


def is_for_this_node(api: Api, request: bytes, pos: int, node_id: int) -> bool:
    """Levels of loggers are the broker's own that was asked; and it refuses to change another broker's settings."""
    if api.key not in ALTERS_CONFIGS:
        return False
    asked, _ = api.decode(memoryview(request), pos)
    if any(
        one.resource_type == BROKER_RESOURCE and one.resource_name not in ("", str(node_id)) for one in asked.resources
    ):
        return True
    return bool(asked.resources) and all(one.resource_type == LOGGER_RESOURCE for one in asked.resources)
