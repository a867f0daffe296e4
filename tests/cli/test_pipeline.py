"""`tidelog pipeline` without Spark: files checked, listed, told of; records sent once more."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer as TransactionalProducer

from tidelog.cli.app import app
from tidelog.client import Admin, Producer, read
from tidelog.testing import Broker

READY = Path(__file__).parents[2] / "pipelines"


def tidelog(*args: object) -> Result:
    return CliRunner().invoke(app, ["pipeline", *map(str, args)])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def write_status(file: Path, outcome: str, pid: int) -> None:
    state = file.parent / "state/orders-to-lake"
    state.mkdir(parents=True, exist_ok=True)
    query = {"active": True, "batch": 7, "rows": 1200, "rows_per_s": 3456.7, "batch_ms": 250, "lag": 42}
    told = {"pipeline": "x", "outcome": outcome, "pid": pid, "at": time.time(), "queries": {"orders": query}}
    (state / "status.json").write_text(json.dumps(told))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    copy = tmp_path / "orders.toml"
    copy.write_text((READY / "lake-append.toml").read_text())
    return copy


def test_a_file_is_checked_without_spark(file: Path) -> None:
    result = tidelog("check", file, "--no-spark")
    assert (result.exit_code, result.output) == (0, f"{file}: orders-to-lake is fine.\n")
    assert json.loads(tidelog("check", file, "--no-spark", "--json").output)[str(file)]["pipeline"] == "orders-to-lake"


def test_a_problem_is_said_with_its_line(file: Path) -> None:
    file.write_text(file.read_text().replace("decode", "decod"))
    result = tidelog("check", file, "--no-spark")
    assert result.exit_code == 1
    assert f"{file}:7: unknown key decod; did you mean decode?" in result.output


def test_pipelines_are_listed_with_their_state(file: Path) -> None:
    (file.parent / "other.toml").write_text("[project]\n")
    (file.parent / "broken.toml").write_text("[source.a]\n")
    found = json.loads(tidelog("list", file.parent, "--json").output)
    assert [(each["file"], each["state"].partition(":")[0]) for each in found] == [
        ("broken.toml", "broken"),
        ("orders.toml", "never run"),
    ]


def test_status_tells_rates_and_lag_and_whether_it_still_runs(file: Path) -> None:
    assert "never ran" in tidelog("status", file).output
    write_status(file, "running", os.getpid())
    text = tidelog("status", file).output
    assert all(part in text for part in ("running", "3,457", "42", "250", "orders"))
    write_status(file, "running", 2**22 + 1)
    assert json.loads(tidelog("status", file, "--json").output)["outcome"] == "gone"


def test_dead_letters_are_sent_back_once(broker: Broker) -> None:
    for topic in ("shop", "shop-dead"):
        Admin(broker.bootstrap).create_topic(topic, 1)
    with Producer(broker.bootstrap) as producer:
        for number in range(3):
            headers = [("tidelog.topic", b"shop"), ("tidelog.reason", b"broken"), ("mine", b"1")]
            producer.send("shop-dead", b"%d" % number, headers=headers)
    assert tidelog("redrive", "shop-dead", "--dry-run", "-b", broker.bootstrap).output == "Would send 3 to shop.\n"
    assert tidelog("redrive", "shop-dead", "--limit", 2, "-b", broker.bootstrap).output == "Sent 2 to shop.\n"
    sent = json.loads(tidelog("redrive", "shop-dead", "--json", "-b", broker.bootstrap).output)
    assert sent == {"sent": {"shop": 1}, "dry_run": False}
    assert "that were not sent already" in tidelog("redrive", "shop-dead", "-b", broker.bootstrap).output
    found = list(read(broker.bootstrap, "shop", stop_at_end=True))
    assert [(message.value, message.headers) for message in found] == [
        (b"%d" % number, [("mine", b"1")]) for number in range(3)
    ]


def test_a_redrive_that_was_killed_is_taken_up_without_sending_twice(broker: Broker) -> None:
    for topic, partitions in (("port", 3), ("port-dead", 1)):
        Admin(broker.bootstrap).create_topic(topic, partitions)
    with Producer(broker.bootstrap) as producer:
        for number in range(5):
            headers = [("tidelog.topic", b"port"), ("tidelog.partition", b"%d" % (number % 3))]
            producer.send("port-dead", b"%d" % number, headers=headers)
    killed = TransactionalProducer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "redrive-port-dead", "log_level": 0}
    )
    killed.init_transactions(10)
    killed.begin_transaction()
    for number in range(3):
        killed.produce("port", b"%d" % number, partition=number)
    killed.flush(10)  # sent, and no more: as after kill -9
    assert tidelog("redrive", "port-dead", "-b", broker.bootstrap).output == "Sent 5 to port.\n"
    found = list(read(broker.bootstrap, "port", stop_at_end=True, isolation_level="read_committed"))
    assert sorted((each.partition, each.value) for each in found) == [
        (0, b"0"),
        (0, b"3"),
        (1, b"1"),
        (1, b"4"),
        (2, b"2"),
    ]
    Admin(broker.bootstrap).delete_topic("port")
    with Producer(broker.bootstrap) as producer:
        producer.send("port-dead", b"6", headers=[("tidelog.topic", b"port")])
        producer.send("port-dead", b"7")
    result = tidelog("redrive", "port-dead", "-b", broker.bootstrap)
    assert (result.exit_code, "there is no topic port" in result.output, "--to" in result.output) == (1, True, True)
    result = tidelog("redrive", "port-dead", "--to", "tides-dead", "-b", broker.bootstrap)
    assert "there is no topic tides-dead" in result.output


def test_a_stretch_of_a_topic_is_replayed(broker: Broker) -> None:
    for topic in ("tides", "tides-again"):
        Admin(broker.bootstrap).create_topic(topic, 1)
    with Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send("tides", b"%d" % number, key=b"k")
    result = tidelog("replay", "tides-again", "--topic", "tides", "--from", 3, "--until", 6, "-b", broker.bootstrap)
    assert result.output == "Sent 3 records to tides-again.\n"
    found = list(read(broker.bootstrap, "tides-again", stop_at_end=True))
    assert [(message.key, message.value) for message in found] == [(b"k", b"3"), (b"k", b"4"), (b"k", b"5")]
    assert found[0].headers == [("tidelog.replayed", b"tides-0:3")]
    assert tidelog("replay", "tides-again", "-b", broker.bootstrap).exit_code == 2
