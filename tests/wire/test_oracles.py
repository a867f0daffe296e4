"""Two other implementations read what we write: the same fields in the same places, and the same bytes written back."""

import dataclasses
import importlib
import io
import pkgutil
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tests.wire.values import each_version, values, version_id
from tidelog.wire.codec import encoder
from tidelog.wire.schema import Field, schema

few = settings(
    max_examples=5, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)

API_VERSIONS = [(cls, version) for cls, version in each_version() if cls.__name__.endswith(("Request", "Response"))]


@cache
def kafka_python_messages() -> dict[str, Any]:
    """The messages that kafka-python knows, by name."""
    found: dict[str, Any] = {}
    for package in ("admin", "consumer", "metadata", "producer"):
        folder = importlib.import_module(f"kafka.protocol.{package}")
        for info in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
            module = vars(importlib.import_module(info.name))
            found |= {
                name: each for name, each in module.items() if isinstance(each, type) and issubclass(each, ApiMessage)
            }
    return found


def known_to_kafka_python() -> list[tuple[type, int]]:
    known = kafka_python_messages()
    return [
        (cls, version)
        for cls, version in API_VERSIONS
        # It reads every ApiVersionsResponse that bears an error as version 0.
        if cls.__name__ in known
        and cls.__name__ != "ApiVersionsResponse"
        and version <= known[cls.__name__].max_version
    ]


def kafka_python_attributes(theirs: Any, fields: list[Field]) -> list[Any]:
    """Bit fields of operations become sets under other names: the bytes written back are compared instead."""
    return [... if each.name.endswith("authorized_operations") else getattr(theirs, each.name) for each in fields]


def plain(value: Any) -> Any:
    """A value of another library in our terms."""
    match value:
        case UUID():
            return value.bytes
        case timedelta():
            return round(value / timedelta(milliseconds=1))
        case datetime():
            return round(value.timestamp() * 1000)
        case memoryview():
            return bytes(value)
        case tuple() | list():
            return [plain(item) for item in value]
        case _:
            return value


def assert_same(ours: Any, theirs: Any, version: int, attributes: Any) -> None:
    """Field by field; `attributes` gives those of their object that belong to our fields, in order."""
    if dataclasses.is_dataclass(ours):
        fields = [field for field in schema(type(ours)).fields if version in field.versions]
        for field, other in zip(fields, attributes(theirs, fields), strict=True):
            if other is not ...:
                assert_same(getattr(ours, field.name), other, version, attributes)
    elif isinstance(ours, list) and ours and dataclasses.is_dataclass(ours[0]):
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_same(our_item, their_item, version, attributes)
    elif ours == bytes(16):
        assert theirs is None or plain(theirs) == ours
    elif isinstance(ours, list) and bytes(16) in ours:
        assert [plain(item) or bytes(16) for item in theirs] == ours
    else:
        assert plain(theirs) == ours


@pytest.mark.parametrize(("cls", "version"), API_VERSIONS, ids=version_id)
@few
@given(data=st.data())
def test_kio_reads_and_writes_the_same(cls: type[Any], version: int, data: st.DataObject) -> None:
    load = load_request_schema if cls.__name__.endswith("Request") else load_response_schema
    entity = load(schema(cls).key or 0, version)
    value = data.draw(values(cls, version, tame=True))
    encoded = encoder(cls, version)(value)

    theirs, size = entity_reader(entity)(encoded, 0)
    assert size == len(encoded)
    assert_same(
        value, theirs, version, lambda other, _: [getattr(other, field.name) for field in dataclasses.fields(other)]
    )
    written = io.BytesIO()
    entity_writer(entity)(written, theirs)
    assert written.getvalue() == encoded


@pytest.mark.parametrize(("cls", "version"), known_to_kafka_python(), ids=version_id)
@few
@given(data=st.data())
def test_kafka_python_reads_and_writes_the_same(cls: type[Any], version: int, data: st.DataObject) -> None:
    message = kafka_python_messages()[cls.__name__]
    value = data.draw(values(cls, version))
    encoded = encoder(cls, version)(value)

    theirs = message.decode(encoded, version=version)
    assert_same(value, theirs, version, kafka_python_attributes)
    # kafka-python's `decode` leaves it unset, its `encode` reads it, and a response that `with_header` gave one fails.
    theirs._header = None  # noqa: SLF001
    assert bytes(theirs.encode(version=version)) == encoded
