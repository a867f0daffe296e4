"""A frame to its API and the answer back: what can't be understood closes the connection, what fails is answered."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apis.sim_broker import Asked, SimBroker, batch, produce_fields
from tests.raw import build, request_class
from tidelog.apis.listeners import ListenerKind, served_on
from tidelog.env.promise import Promise
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.header import request_header
from tidelog.wire.keys import RANGES, ApiKey
from tidelog.wire.messages.api_versions import ApiVersionsResponse


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide")
    return made


def frame(key: ApiKey, version: int, fields: dict[str, Any] | None = None, client_id: str | None = "tester") -> bytes:
    body = encoder(request_class(key), version)(build(request_class(key), fields or {}))
    return request_header(key, version, 7, client_id) + body


# -- what can't be understood


@pytest.mark.parametrize("size", range(10))
def test_a_frame_too_short_for_a_header_closes_the_connection(broker: SimBroker, size: int) -> None:
    assert "too short" in (broker.send_frame(bytes(size)).closed or "")


@pytest.mark.parametrize("key", [-1, 4, 7, 77, 1000, 32767])
def test_an_api_that_is_not_served_closes_the_connection_and_says_which(broker: SimBroker, key: int) -> None:
    asked = broker.send_frame(struct.pack(">hhih", key, 0, 7, -1))
    assert f"API key {key} (version 0) is not served" in (asked.closed or "")


@pytest.mark.parametrize("key", sorted(served_on(ListenerKind.BROKER) - {ApiKey.API_VERSIONS}))
def test_a_version_outside_of_the_range_closes_the_connection_and_says_the_range(broker: SimBroker, key: int) -> None:
    allowed = RANGES[key]
    for version in (allowed.min - 1, allowed.max + 1, -1):
        asked = broker.send_frame(struct.pack(">hhih", key, version, 7, -1) + bytes(20))
        assert f"{allowed.min} to {allowed.max}" in (asked.closed or "")


@pytest.mark.parametrize("version", [-1, 5, 99, 32767])
def test_api_versions_too_new_is_answered_in_version_0_with_the_range(broker: SimBroker, version: int) -> None:
    asked = broker.send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 7, -1) + b"\0anything")
    asked.version = 0
    response: ApiVersionsResponse = asked.response
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (ApiKey.API_VERSIONS, 0) in [(one.api_key, one.min_version) for one in response.api_keys]


@pytest.mark.parametrize("cut", [1, 2, 5, 12])
def test_a_request_that_is_cut_off_closes_the_connection_and_names_the_client(broker: SimBroker, cut: int) -> None:
    whole = frame(ApiKey.METADATA, 12, {"topics": [{"name": "tide"}]})
    asked = broker.send_frame(whole[:-cut])
    assert asked.closed is not None
    assert "METADATA v12" in asked.closed
    assert "tester" in asked.closed


def test_a_client_id_longer_than_the_frame_closes_the_connection(broker: SimBroker) -> None:
    asked = broker.send_frame(struct.pack(">hhih", ApiKey.METADATA, 12, 7, 32767) + b"short")
    assert "client id" in (asked.closed or "")


def test_bytes_behind_the_request_are_let_pass(broker: SimBroker) -> None:
    asked = broker.send_frame(frame(ApiKey.METADATA, 12, {"topics": [{"name": "tide"}]}) + b"\0\0\0")
    assert broker.answer(asked).topics[0].error_code == 0


@pytest.mark.parametrize("client_id", [None, "", "bö", "c" * 32767])
def test_any_client_id_will_do(broker: SimBroker, client_id: str | None) -> None:
    asked = broker.send_frame(frame(ApiKey.METADATA, 12, {"topics": [{"name": "tide"}]}, client_id))
    assert broker.answer(asked).topics[0].error_code == 0


def test_tags_in_the_header_are_passed_over(broker: SimBroker) -> None:
    plain = frame(ApiKey.METADATA, 12, {"topics": [{"name": "tide"}]}, client_id=None)
    tagged = plain[:10] + b"\2\0\3abc\7\0" + plain[11:]
    assert broker.answer(broker.send_frame(tagged)) == broker.answer(broker.send_frame(plain))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(served_on(ListenerKind.BROKER))).flatmap(
        lambda key: st.tuples(st.just(key), st.integers(RANGES[key].min, RANGES[key].max))
    ),
    st.binary(max_size=60),
)
def test_any_bytes_are_answered_or_close_the_connection(api: tuple[int, int], body: bytes) -> None:
    """Never an exception that nobody translates, and never UNKNOWN_SERVER_ERROR because of the client's bytes."""
    broker = SimBroker()
    key, version = api
    asked = broker.send_frame(request_header(key, version, 7, None) + body)
    if asked.done and asked.frame is not None:
        assert struct.unpack_from(">i", asked.frame)[0] == 7
        assert getattr(asked.response, "error_code", 0) != ErrorCode.UNKNOWN_SERVER_ERROR


# -- what fails


HandledBy = Callable[[Any], None]


@pytest.fixture
def handled_by(monkeypatch: pytest.MonkeyPatch) -> HandledBy:
    """From now on APIs are handled by a function of the test."""
    return lambda handle: monkeypatch.setattr("tidelog.apis.shared.api.handler", lambda key: handle)


def failing(error: Exception) -> Any:
    def handle(*_: object) -> None:
        raise error

    return handle


def promised(promise: Promise[Any]) -> Any:
    return lambda *_: promise


KEY, VERSION = ApiKey.DESCRIBE_CLUSTER, 0


def test_an_error_of_the_request_is_the_protocols_own(broker: SimBroker, handled_by: HandledBy) -> None:
    handled_by(failing(KafkaError(ErrorCode.INVALID_REQUEST, "no such thing")))
    response = broker.send_frame(frame(KEY, VERSION)).response
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, "no such thing")


def test_a_bug_is_answered_and_logged_once_with_its_trace(
    broker: SimBroker, handled_by: HandledBy, caplog: pytest.LogCaptureFixture
) -> None:
    handled_by(failing(ValueError("a bug")))
    response = broker.send_frame(frame(KEY, VERSION)).response
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(caplog.records) == 1
    assert "a bug" in caplog.text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_promise_that_fails_is_answered_too(
    broker: SimBroker, handled_by: HandledBy, error: Exception, code: ErrorCode
) -> None:
    promise: Promise[Any] = Promise()
    handled_by(promised(promise))
    asked = broker.send_frame(frame(KEY, VERSION))
    assert not asked.done
    promise.fail(error)
    assert asked.response.error_code == code


def test_an_answer_that_can_not_be_encoded_is_an_error(broker: SimBroker, handled_by: HandledBy) -> None:
    promise: Promise[Any] = Promise()
    handled_by(promised(promise))
    asked = broker.send_frame(frame(KEY, VERSION))
    promise.resolve("no response at all")
    assert asked.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("late", [False, True])
def test_where_the_answer_has_no_place_for_an_error_the_connection_closes(
    broker: SimBroker, handled_by: HandledBy, late: bool
) -> None:
    promise: Promise[Any] = Promise()
    handled_by(promised(promise) if late else failing(ValueError("a bug")))
    asked: Asked = broker.send_frame(frame(ApiKey.LIST_OFFSETS, 7))
    if late:
        assert not asked.done
        promise.fail(ValueError("a bug"))
    assert asked.closed is not None
    assert "LIST_OFFSETS v7 can't be answered" in asked.closed


def test_only_produce_runs_ahead_of_its_answers(broker: SimBroker) -> None:
    broker.hold_syncs()
    produce = broker.send(ApiKey.PRODUCE, 8, produce_fields("tide", batch()))
    fast = broker.send(ApiKey.PRODUCE, 9, produce_fields("tide", batch()))
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1}
    create = broker.send(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 1000})
    assert [asked.late.runs_ahead for asked in (produce, fast, create)] == [True, True, False]
    broker.let_sync()
    assert all(asked.done for asked in (produce, fast, create))


# -- what takes long


def test_a_request_that_takes_long_to_read_is_answered_in_steps_and_as_any_other(broker: SimBroker) -> None:
    names = [f"none-{number}" for number in range(20_000)]
    fields = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    asked = broker.send_frame(frame(ApiKey.METADATA, 12, fields))
    assert not asked.done, "it has the loop for a slice only"
    broker.pass_time(5)
    asked.key, asked.version = ApiKey.METADATA, 12
    assert [(topic.name, topic.error_code) for topic in asked.response.topics] == [
        (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in names
    ]


def test_a_long_request_that_can_not_be_understood_closes_the_connection_and_names_the_client(
    broker: SimBroker,
) -> None:
    fields = {"topics": [{"name": f"none-{number}"} for number in range(20_000)]}
    whole = frame(ApiKey.METADATA, 12, fields, client_id="hostile")
    asked = broker.send_frame(whole[:-100])
    broker.pass_time(5)
    assert "METADATA v12 from 'hostile'" in (asked.closed or "")
