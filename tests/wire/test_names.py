"""Uuids, error codes, API keys."""

import importlib
import pkgutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog.wire.messages
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.keys import RANGES, ApiKey
from tidelog.wire.schema import schema
from tidelog.wire.uuids import METADATA_TOPIC_ID, ZERO_UUID, uuid_bytes, uuid_text

NEVER = 32767


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_comes_back_from_its_text(uuid: bytes) -> None:
    assert uuid_bytes(uuid_text(uuid)) == uuid


def test_uuids_are_written_as_kafka_writes_them() -> None:
    assert uuid_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_text(b"\xfb\xff" * 8) == "-__7__v_-__7__v_-__7_w"


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "A" * 21 + "=", "+" * 22, "/" * 22, "é" * 22, "A" * 21 + " "])
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a uuid"):
        uuid_bytes(text)


def test_error_codes_have_no_gap() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))


def test_errors_say_whether_asking_again_helps() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable


def test_an_error_shows_its_code_and_message() -> None:
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "no such config")) == "INVALID_CONFIG: no such config"
    assert str(KafkaError(ErrorCode.INVALID_CONFIG)) == "INVALID_CONFIG"


def test_every_api_has_a_range() -> None:
    assert set(RANGES) == {int(key) for key in ApiKey}
    assert all(range_.min <= range_.max for range_ in RANGES.values())


def test_a_message_is_found_by_the_name_of_its_api() -> None:
    for info in pkgutil.iter_modules(tidelog.wire.messages.__path__):
        key = ApiKey[info.name.upper()]
        name = "".join(word.capitalize() for word in info.name.split("_"))
        module = importlib.import_module(f"tidelog.wire.messages.{info.name}")
        for cls in (getattr(module, f"{name}Request"), getattr(module, f"{name}Response")):
            assert schema(cls).key == key
            assert schema(cls).versions == RANGES[key][:2]
            flexible = schema(cls).flexible
            assert (NEVER if flexible.last < flexible.first else flexible.first) == RANGES[key].flexible_from
