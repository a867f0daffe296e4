"""Envelope (key 58): a client's request, passed on to the active controller with who asked and from where."""

from tidelog.wire.codec import i16, message, wire


@message(key=58, versions="0", flexible="0+")
class EnvelopeRequest:
    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


@message(key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    response_data: bytes | None = wire(default=None)
    error_code: i16 = 0
