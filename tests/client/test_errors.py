"""One error for everything: what was tried, what came of it, and what to do."""

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidelog.client.cluster import client_errors
from tidelog.client.connect import knock, settings
from tidelog.client.errors import ClientError, accepts, from_kafka, nobody_answers
from tidelog.rpc.errors import Unsupported


@pytest.fixture
def mute() -> Iterator[str]:
    """Somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:99999999", "127.0.0.1:port", ""])
def test_an_address_where_nobody_is_accepts_nothing(address: str) -> None:
    assert not accepts(address, 1.0)
    with pytest.raises(ClientError, match="no broker answers") as told:
        knock(address)
    assert told.value.hint is not None


def test_one_of_several_addresses_is_enough(bootstrap: str) -> None:
    assert accepts(f"127.0.0.1:1, {bootstrap}", 1.0)
    knock(f"127.0.0.1:1,{bootstrap}")


def test_who_accepts_and_does_not_answer_is_told_apart_from_nobody(mute: str, nobody: str) -> None:
    assert "accepts connections, but does not answer" in nobody_answers(mute).message
    assert "no broker answers" in nobody_answers(nobody).message


def test_a_broker_that_answers_is_not_blamed_for_one_that_does_not(bootstrap: str) -> None:
    """Such as while no controller is there: librdkafka times out, and says no more than that."""
    told = from_kafka(KafkaError(KafkaError._TIMED_OUT), bootstrap, "create topic t")
    assert f"the broker at {bootstrap} answers, but somebody else" in told.message
    assert told.hint == "`tidelog status` says who isn't there"


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT])
def test_an_error_of_the_way_there_says_who_did_not_answer(nobody: str, code: int) -> None:
    assert from_kafka(KafkaError(code), nobody, "list").message == f"no broker answers at {nobody}"


def test_an_error_of_the_broker_says_what_was_tried_and_what_to_do(nobody: str) -> None:
    told = from_kafka(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)), nobody, "delete topic t")
    assert told.message.startswith("cannot delete topic t: UNKNOWN_TOPIC_OR_PART: ")
    assert "tidelog topic list" in (told.hint or "")
    assert from_kafka(KafkaError(KafkaError.INVALID_CONFIG), nobody, "x").hint is None
    assert from_kafka(KafkaException("odd"), nobody, "x").message == "cannot x: odd"


def test_settings_are_librdkafkas_with_dots(nobody: str) -> None:
    made = settings(nobody, fetch_wait_max_ms=100)
    assert (made["bootstrap.servers"], made["fetch.wait.max.ms"]) == (nobody, 100)


def test_a_controller_that_is_asked_as_if_it_were_a_broker_is_told_from_one() -> None:
    told = from_kafka(KafkaError(KafkaError._UNSUPPORTED_FEATURE), "localhost:9093", "write records")
    assert "the listener of a controller" in (told.hint or "")
    with pytest.raises(ClientError) as unsupported, client_errors("localhost:9093", "look"):
        raise Unsupported("METADATA: the broker at localhost:9093 does not serve it")
    assert "the listener of a controller" in (unsupported.value.hint or "")
