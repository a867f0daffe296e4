"""What comes in an envelope, and what is wrong with one: the answers are Apache Kafka's."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.apis.controllers import ControllerNode
from tests.metadata.images import topic
from tidelog.apis import envelope
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest
from tidelog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tidelog.wire.messages.metadata import MetadataRequest

ELECT = request_header(ApiKey.ELECT_LEADERS, 2, 5, "c") + encoder(ElectLeadersRequest, 2)(ElectLeadersRequest())
LOOK = request_header(ApiKey.METADATA, 9, 5, "c") + encoder(MetadataRequest, 9)(MetadataRequest())
UNKNOWN_KEY = b"\x03\xe7" + ELECT[2:]


def ask(request: EnvelopeRequest, *, active: bool = True) -> EnvelopeResponse:
    cluster = ControllerNode()
    cluster.join(2, 3)
    cluster.node.write(*topic(replicas=(2, 3)))
    cluster.services.channel = SimpleNamespace(is_here=active)
    return cluster.ask(_with_a_listener, request)


def _with_a_listener(context: Any, request: EnvelopeRequest) -> Any:
    context.listener = "CONTROLLER"
    context.correlation_id = 1
    return envelope.handle(context, request)


def wrapped(data: bytes = ELECT, **other: Any) -> EnvelopeRequest:
    request = envelope.wrap(data, "10.0.0.7")
    for name, value in other.items():
        setattr(request, name, value)
    return request


def test_request_in_an_envelope_is_answered() -> None:
    answer = ask(wrapped())
    assert answer.error_code == ErrorCode.NONE
    assert answer.response_data is not None
    assert bytes(answer.response_data)[:4] == b"\0\0\0\5"


@pytest.mark.parametrize(
    "principal", [None, b"", b"\0\7abc", b"\0\0", b"\0\0\5User"], ids=["null", "empty", "version", "nothing", "cut"]
)
def test_principal_that_cannot_be_read_is_told(principal: bytes | None) -> None:
    assert ask(wrapped(request_principal=principal)).error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


@pytest.mark.parametrize("address", [b"", b"\1\2\3", bytes(17)], ids=["none", "three bytes", "seventeen"])
def test_address_is_of_four_or_sixteen_bytes(address: bytes) -> None:
    assert ask(wrapped(client_host_address=address)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("data", [b"", b"\0\1", ELECT[:-2], UNKNOWN_KEY], ids=["none", "two bytes", "cut", "unknown"])
def test_request_that_cannot_be_read_is_told_from_an_envelope_that_is_wrong(data: bytes) -> None:
    assert ask(wrapped(data)).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_only_what_brokers_pass_on_is_taken() -> None:
    assert ask(wrapped(LOOK)).error_code == ErrorCode.INVALID_REQUEST


def test_an_envelope_is_for_the_active_controller() -> None:
    assert ask(wrapped(), active=False).error_code == ErrorCode.NOT_CONTROLLER
    assert ask(wrapped(LOOK), active=False).error_code == ErrorCode.INVALID_REQUEST
