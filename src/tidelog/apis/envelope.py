"""Envelope (key 58): a client's request that a broker passes on to the active controller (KIP-590).

The request lies in it as the client sent it, with its header; so does the response in the answer. Who asked and from
where is what the broker says of its client. Only what brokers pass on is taken.
"""

from __future__ import annotations

import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from tidelog.apis.listeners import FORWARDED, ListenerKind, served_on
from tidelog.apis.shared.api import Api, error_of
from tidelog.apis.shared.context import Context
from tidelog.apis.shared.errors_within import says
from tidelog.env.slices import outcome
from tidelog.wire.codec import decode_steps, encode_steps
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.header import read_header
from tidelog.wire.keys import RANGES
from tidelog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tidelog.wire.principal import DefaultPrincipalData, decode_principal, encode_principal

if TYPE_CHECKING:
    from tidelog.env.slices import Steps

log = logging.getLogger("tidelog.server")

SIZE_BYTES = 4
ANONYMOUS = DefaultPrincipalData(type="User", name="ANONYMOUS")


def wrap(request: bytes, client_host: str) -> EnvelopeRequest:
    """The request of a client at this address."""
    return EnvelopeRequest(
        request_data=request,
        request_principal=encode_principal(ANONYMOUS),
        client_host_address=ip_address(client_host).packed,
    )


def handle(context: Context, request: EnvelopeRequest) -> EnvelopeResponse | Steps[EnvelopeResponse]:
    frame = memoryview(request.request_data)
    try:
        decode_principal(request.request_principal or b"")
    except MalformedError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        host = str(ip_address(request.client_host_address))
        header = read_header(frame, 0)
        key, version = header.key, header.version
        if key in RANGES and key not in FORWARDED:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if key not in served_on(ListenerKind.CONTROLLER) or not RANGES[key].min <= version <= RANGES[key].max:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    except MalformedError:  # told apart from what is wrong with the envelope itself
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    except ValueError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    asked = Context(
        context.services,
        version,
        header.client_id,
        host,
        context.listener,
        context.connection_id,
        header.correlation_id,
    )
    return _read(Api(key, version), asked, frame, header.body_pos)


def _read(api: Api, context: Context, frame: memoryview, pos: int) -> Steps[EnvelopeResponse]:
    """In steps, as the answer: it may be a change of thousands of topics."""
    try:
        request, _ = yield from decode_steps(api.request, api.version)(frame, pos)
    except MalformedError:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not context.services.channel.is_here:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return (yield from _answer(api, context, request))


def _answer(api: Api, context: Context, request: Any) -> Steps[EnvelopeResponse]:
    """NOT_CONTROLLER as a whole where anything in the answer says so: whoever passed it on passes it on again."""
    machine = context.services.controller.machine
    epoch = machine.epoch
    try:
        response = yield from outcome(api.handle(context, request))
        if machine.epoch != epoch and (yield from says(response, ErrorCode.NOT_CONTROLLER)):
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    except MalformedError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    except Exception as error:
        code, message = error_of(error)
        if code is ErrorCode.NOT_CONTROLLER:  # whoever passed it on looks for the one that is
            return EnvelopeResponse(error_code=code)
        if not isinstance(error, KafkaError):
            log.error("%s from %s (%s) failed", api.name, context.client_host, context.client_id, exc_info=error)
        try:
            response = api.failure(context, code, message)
        except MalformedError:
            return EnvelopeResponse(error_code=code)
    pieces = yield from encode_steps(api.response, api.version)(response)
    head = api.head(context.correlation_id, sum(map(len, pieces)))
    return EnvelopeResponse(response_data=b"".join((head[SIZE_BYTES:], *pieces)))
