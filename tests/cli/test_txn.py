"""`tidelog txn` against a real broker, as a user and as a program sees it."""

import json
import uuid
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from tests.batches import TRANSACTIONAL, Batch, Producer, Sent
from tests.compat.test_transactions import confluent_producer, read_confluent
from tests.raw import Connection
from tidelog.cli.app import app
from tidelog.client import Admin
from tidelog.testing import Broker
from tidelog.wire.keys import ApiKey

Run = Callable[..., Result]
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker that takes transactional records unverified, as an old one would: so that a transaction can hang."""
    with Broker({"transaction.partition.verification.enable": "false"}) as broker:
        yield broker.bootstrap


@pytest.fixture
def run(bootstrap: str) -> Run:
    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(app, ["txn", *map(str, arguments)], env={"TIDELOG_BOOTSTRAP": bootstrap})
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"txn-{uuid.uuid4()}"
    Admin(bootstrap).create_topic(name, 2)
    return name


@pytest.fixture
def open_(bootstrap: str, topic: str) -> tuple[str, confluent_kafka.Producer]:
    """A transactional id with a record in an open transaction, and its producer."""
    name = f"id-{uuid.uuid4()}"
    producer = confluent_producer(bootstrap, name)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(DEADLINE_S)
    return name, producer


def test_list_shows_ids_and_states(run: Run, open_: tuple[str, confluent_kafka.Producer]) -> None:
    name, producer = open_
    assert name in run("list").output
    told = json.loads(run("list", "--state", "ongoing", "--match", "id-.*", "--json").output)
    assert {"id": name, "state": "Ongoing"}.items() <= next(each for each in told if each["id"] == name).items()
    assert name not in run("list", "--longer-than", "3600").output
    assert name not in run("list", "--state", "Empty").output
    producer.commit_transaction(DEADLINE_S)
    assert "INVALID_REGULAR_EXPRESSION" in run("list", "--match", "(", code=1).output


def test_describe_shows_the_partitions(run: Run, topic: str, open_: tuple[str, confluent_kafka.Producer]) -> None:
    name, producer = open_
    output = run("describe", name).output
    assert "Ongoing" in output
    assert f"{topic}-1" in output
    assert "timeout 60 s" in output
    (told,) = json.loads(run("describe", name, "--json").output)
    assert told["partitions"] == [{"topic": topic, "partition": 1}]
    producer.abort_transaction(DEADLINE_S)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in run("describe", "nobody", code=1).output


def test_abort_by_id_fences_the_producer(
    run: Run, bootstrap: str, topic: str, open_: tuple[str, confluent_kafka.Producer]
) -> None:
    name, producer = open_
    assert json.loads(run("abort", name, "--yes", "--json").output) == {"id": name, "aborted": True}
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(DEADLINE_S)
    assert read_confluent(bootstrap, topic, 1) == []
    assert "had none open" in run("abort", name, "--yes").output


def test_a_transaction_that_hangs_is_found_and_aborted(run: Run, bootstrap: str, topic: str) -> None:
    producer_id = hang(bootstrap, topic)
    assert read_confluent(bootstrap, topic, 0) == []
    (found,) = json.loads(run("hanging", topic, "--json").output)
    assert (found["topic"], found["partition"], found["offset"]) == (topic, 0, 0)
    assert found["producer_id"] == producer_id
    assert topic in run("hanging").output
    place = ("--topic", topic, "--partition", 0)
    assert "no transaction is open" in run("abort", *place, "--offset", 7, "--yes", code=1).output
    assert "Aborted" in run("abort", *place, "--offset", 0, "--yes").output
    assert json.loads(run("hanging", topic, "--json").output) == []
    after = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    after.produce(topic, b"after", partition=0)
    after.flush(DEADLINE_S)
    assert read_confluent(bootstrap, topic, 0) == [b"after"]


def hang(bootstrap: str, topic: str) -> int:
    """A record of a transaction that its coordinator doesn't know of; the producer id."""
    name = f"hangs-{uuid.uuid4()}"
    with Connection(bootstrap) as connection:
        connection.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [name]})
        made = connection.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": name, "transaction_timeout_ms": 60_000})
        assert made.error_code == 0
        producer = Producer(made.producer_id, made.producer_epoch, 0)
        records = Batch([Sent(b"stray")], producer=producer, attributes=TRANSACTIONAL).encode()
        fields = {
            "transactional_id": name,
            "acks": -1,
            "timeout_ms": 5000,
            "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
        }
        answer = connection.ask(ApiKey.PRODUCE, 9, fields)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return made.producer_id


def test_open_ones_that_are_known_do_not_hang(
    run: Run, topic: str, open_: tuple[str, confluent_kafka.Producer]
) -> None:
    assert "None" in run("hanging", topic).output
    (found,) = json.loads(run("hanging", topic, "--open", "--json").output)
    assert found["partition"] == 1
    assert "there is no topic" in run("hanging", "nowhere", code=1).output
    open_[1].abort_transaction(DEADLINE_S)


def test_abort_needs_to_know_what(run: Run) -> None:
    assert "give a transactional id" in run("abort", code=2).output
    assert "give a transactional id" in run("abort", "a", "--topic", "b", code=2).output
    assert "give a transactional id" in run("abort", "--topic", "b", code=2).output


def test_nobody_there_is_said() -> None:
    result = CliRunner().invoke(app, ["txn", "list", "--bootstrap", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "no broker answers" in result.output
