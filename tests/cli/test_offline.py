"""Partitions that went offline, as the commands tell of them: what is sound is served, what is not is named."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from tests.reading import create_topic
from tests.served import Tidelog
from tidelog.cli.app import app

Run = Callable[..., Result]
DEADLINE_S = 30.0
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Tidelog]:
    """With orders-0, which has the record `lost`, damaged; orders-1 has `sound`."""
    with Tidelog(tmp_path / "data", SETTINGS) as broker:
        create_topic(broker.bootstrap, "orders", 2)
        create_topic(broker.bootstrap, "greetings", 1)
        for topic, partition, value in (("orders", 0, "lost"), ("orders", 1, "sound"), ("greetings", 0, "hello")):
            run_on(broker, "produce", topic, "-p", partition, stdin=f"{value}\n")
        run_on(broker, "consume", "greetings", "--group", "readers", "-e")
        damage(broker, "orders-0")
        yield broker


def damage(broker: Tidelog, folder: str) -> None:
    """Its file is shorter than what was known to be durable."""
    broker.stop()
    (broker.folder / ".kafka_cleanshutdown").unlink(missing_ok=True)
    file = broker.folder / folder / f"{0:020}.log"
    file.write_bytes(file.read_bytes()[:20])
    broker.output.write_text("")
    broker.start()
    broker.says("recovery is done")


def run_on(broker: Tidelog, *arguments: object, stdin: str = "", code: int = 0) -> Result:
    environment = {"TIDELOG_BOOTSTRAP": broker.bootstrap}
    result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env=environment)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def run(broker: Tidelog) -> Run:
    return lambda *arguments, **more: run_on(broker, *arguments, **more)


@pytest.mark.parametrize("start", ["beginning", "-10", "1h", "0"])
def test_sound_partitions_are_read_and_the_offline_one_is_named(run: Run, start: str) -> None:
    result = run("consume", "orders", "greetings", "-e", "--from", start, code=1)
    assert sorted(result.stdout.splitlines()) == ["hello", "sound"]
    assert "orders-0 is offline: " in result.stderr
    assert "damaged" in result.stderr
    assert "Error: 1 partition was not read" in result.stderr


def test_a_group_reads_what_is_sound_too(run: Run) -> None:
    result = run("consume", "orders", "-e", "--group", "all", code=1)
    assert result.stdout == "sound\n"
    assert "orders-0 is offline: " in result.stderr


def test_who_waits_is_told_when_a_partition_goes_offline(broker: Tidelog) -> None:
    command = [sys.executable, "-m", "tidelog", "consume", "greetings", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consuming:
        assert consuming.stdout is not None
        assert consuming.stderr is not None
        assert consuming.stdout.readline() == "hello\n"
        damage(broker, "greetings-0")
        assert any("greetings-0 is offline: " in line for line in consuming.stderr)
        consuming.terminate()
        consuming.wait(DEADLINE_S)


def test_a_partition_that_is_asked_for_and_offline_is_not_passed_over(run: Run) -> None:
    """Or else a group would be thought to have been reset, and records to have been deleted."""
    refused = run("group", "reset", "late", "--to", "earliest", "--topic", "orders", "--yes", code=1).stderr
    assert "cannot reset group late: orders-0 can't be reached now" in refused
    assert "--topic orders:1" in refused
    assert run("group", "reset", "late", "--to", "earliest", "--topic", "orders:1", "--yes").stdout.count("orders") == 1
    refused = run("topic", "trim", "orders", "--before", "end", "--partition", 0, "--yes", code=1).stderr
    assert "orders-0 is offline: " in refused
    trimmed = run("topic", "trim", "orders", "--before", "end", "--yes")
    assert "Deleted 1 record of orders" in trimmed.stdout
    assert "orders-0 is offline, and was left out" in trimmed.stderr


def test_a_record_for_an_offline_partition_is_told_which_and_why(run: Run) -> None:
    said = run("produce", "orders", "-p", 0, "--timeout", 1, stdin="x\n", code=1).stderr
    assert "orders-0 is offline: " in said
    assert "damaged" in said
    assert "`tidelog status`" in said


def test_groups_of_an_offline_coordinator_are_unknown(broker: Tidelog, run: Run) -> None:
    damage(broker, "__consumer_offsets-0")
    told = run("group", "list")
    assert "No groups yet" not in told.stderr
    assert "__consumer_offsets-0 is offline: groups that it keeps are unknown" in told.stderr
    status = json.loads(run("status", "--json", code=3).stdout)
    assert status["groups"] is None
    result = run("consume", "greetings", "--group", "readers", "-e", code=1)
    assert "the coordinator of group readers is not available" in result.stderr
    assert "`tidelog status`" in result.stderr
    assert "No groups yet" not in run("group", "describe").stderr


def test_a_transaction_whose_coordinator_is_offline_is_not_called_hanging(broker: Tidelog, run: Run) -> None:
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce("greetings", b"open")
    writer.flush()
    damage(broker, "__transaction_state-0")
    status = json.loads(run("status", "--json", code=3).stdout)
    assert {problem["kind"] for problem in status["problems"]} == {"offline"}
    assert (status["open_transactions"], status["hanging_transactions"]) == (None, None)
    assert any("__transaction_state-0" in note for note in status["notes"])


def test_who_reads_on_is_told_and_has_what_is_sound(broker: Tidelog) -> None:
    command = [sys.executable, "-m", "tidelog", "consume", "orders", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consuming:
        assert consuming.stdout is not None
        assert consuming.stderr is not None
        assert "orders-0 is offline: " in consuming.stderr.readline()
        assert consuming.stdout.readline() == "sound\n"
        run_on(broker, "produce", "orders", "-p", 1, stdin="more\n")
        assert consuming.stdout.readline() == "more\n"
        consuming.terminate()
        _, err = consuming.communicate(timeout=DEADLINE_S)
    assert (consuming.returncode, err) == (0, "")


def test_a_group_that_can_not_be_joined_is_told(broker: Tidelog) -> None:
    damage(broker, "__consumer_offsets-0")
    command = [sys.executable, "-m", "tidelog", "consume", "greetings", "-g", "readers", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consuming:
        assert consuming.stderr is not None
        assert "waits: the coordinator of group readers is not available" in consuming.stderr.readline()
        consuming.terminate()
        consuming.communicate(timeout=DEADLINE_S)
