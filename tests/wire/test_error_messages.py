"""Messages of errors fit into a string, whatever they repeat."""

import pkgutil
from importlib import import_module
from typing import Any

import pytest

from tidelog.env.slices import whole
from tidelog.wire import messages
from tidelog.wire.bounds import MESSAGE_CHARACTERS_MAX
from tidelog.wire.codec import decoder, encode_steps, encoder
from tidelog.wire.encode import MESSAGE_FIELD
from tidelog.wire.errors import ErrorCode, KafkaError, shortened
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.wire.schema import Text, schema

LONG = "\N{EURO SIGN}" * 100_000


@pytest.mark.parametrize("version", [2, 7])
def test_a_long_message_loses_its_middle(version: int) -> None:
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="n", error_message=LONG + "the end")])
    data = encoder(CreateTopicsResponse, version)(response)
    found, _ = decoder(CreateTopicsResponse, version)(data, 0)
    message = found.topics[0].error_message
    assert message == shortened(LONG + "the end")
    assert len(message) == MESSAGE_CHARACTERS_MAX + len("...")
    assert message.endswith("the end")
    assert b"".join(whole(encode_steps(CreateTopicsResponse, version)(response))) == data


def test_short_messages_and_null_stay_as_they_are() -> None:
    for message in (None, "", "no", "x" * MESSAGE_CHARACTERS_MAX):
        response = CreateTopicsResponse(topics=[CreatableTopicResult(name="n", error_message=message)])
        found, _ = decoder(CreateTopicsResponse, 7)(encoder(CreateTopicsResponse, 7)(response), 0)
        assert found.topics[0].error_message == message


def test_an_error_is_cut_when_it_is_made() -> None:
    assert KafkaError(ErrorCode.INVALID_REQUEST, LONG).message == shortened(LONG)


def test_all_fields_with_messages_are_known_by_their_names() -> None:
    """A new one that is named otherwise would not be cut."""
    names: set[str] = set()
    for module in pkgutil.iter_modules(messages.__path__):
        for made in vars(import_module(f"tidelog.wire.messages.{module.name}")).values():
            names |= texts(made) if hasattr(made, "__wire__") else set()
    told = {name for name in names if "message" in name or "reason" in name or name.endswith("text")}
    assert told == {"error_message", "batch_index_error_message", "reason"}
    assert {name for name in told if not name.endswith(MESSAGE_FIELD)} == {"reason"}, "only requests have that"


def texts(cls: Any) -> set[str]:
    return {field.name for field in schema(cls).fields if isinstance(field.kind, Text)}
