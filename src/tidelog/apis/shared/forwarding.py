"""A client's request that is for the active controller, passed on to it by a broker; and the answer, passed back.

The client needn't know who the controller is: any broker will do. So no client of a broker is ever told NOT_CONTROLLER.
Where this node is the active controller, and no longer is when the request was to be decided or committed, it is passed
on to the next one; where nobody decides until the time is over, the answer is REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Any

from tidelog.apis.envelope import wrap
from tidelog.apis.shared.errors_within import PARTS_A_STEP, says, with_errors
from tidelog.apis.shared.loggers import LOGGER_RESOURCE
from tidelog.env.slices import outcome, settled
from tidelog.metadata.image import BROKER_RESOURCE
from tidelog.rpc.errors import Unsupported
from tidelog.wire.codec import encode_steps
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey

if TYPE_CHECKING:
    from tidelog.apis.shared.api import Api
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps

NOBODY = "no active controller decided that in time"
ALTERS_CONFIGS = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)


def forward(context: Context, request: bytes) -> Promise[bytes]:
    """The answer's frame. Fails where no controller answered in time, or it took the request for none."""
    services = context.services
    timeout_ms = services.config.request_timeout_ms
    return services.channel.ask(wrap(request, context.client_host), timeout_ms).map(_frame)


def decided_here(api: Api, context: Context, request: Any) -> Steps[Any]:
    """The answer of this node, which is the active controller; if it ends being that, the frame of the next one's."""
    controller = context.services.controller
    epoch = controller.machine.epoch
    response: Any = None
    try:
        response = yield from outcome(api.handle(context, request))
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
    else:
        if controller.machine.epoch == epoch or not (yield from says(response, ErrorCode.NOT_CONTROLLER)):
            return response
    frame = yield from _again(api, context, request)
    try:
        return (yield from settled(forward(context, frame)))
    except (KafkaError, Unsupported):
        return (yield from _timed_out(response))


def not_decided(api: Api, context: Context, request: Any) -> Steps[Any]:
    """What the handler here has to say of a request that no controller answered in time."""
    response: Any = None
    try:
        response = yield from outcome(api.handle(context, request))
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
    return (yield from _timed_out(response))


def _timed_out(response: Any) -> Steps[Any]:
    """The same, with REQUEST_TIMED_OUT where it says NOT_CONTROLLER."""
    if response is None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, NOBODY)
    for number, part in enumerate(with_errors(response), 1):
        if part.error_code == ErrorCode.NOT_CONTROLLER:
            part.error_code = ErrorCode.REQUEST_TIMED_OUT
            if getattr(part, "error_message", None) is not None:
                part.error_message = NOBODY
        if not number % PARTS_A_STEP:
            yield
    return response


def _again(api: Api, context: Context, request: Any) -> Steps[bytes]:
    """The request's frame, as the client might have sent it."""
    pieces = yield from encode_steps(api.request, api.version)(request)
    header = request_header(api.key, api.version, context.correlation_id, context.client_id)
    return b"".join((header, *pieces))


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
