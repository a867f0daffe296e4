"""An operator's evening: whatever goes wrong, `tidelog status` names it, with the command that helps; and it helps."""

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer

from tests.cli.test_txn import hang
from tests.raw import Connection
from tests.reading import create_topic
from tests.served import Tidelog
from tests.stories.conftest import DISK_BYTES
from tests.stories.test_full_disk import RECORD, produce
from tidelog.cli.app import app
from tidelog.wire.keys import ApiKey

WELL, NO_ANSWER, PROBLEMS = 0, 1, 3
DEADLINE_S = 30.0
SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.segment.delete.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.partition.verification.enable": "false",  # as an old broker, so that a transaction can hang
}


class Operator:
    """Types commands, as they are told, into a terminal."""

    def __init__(self, broker: Tidelog) -> None:
        self._broker = broker

    def run(self, command: str, code: int = 0) -> Result:
        program, *words = shlex.split(command)
        assert program == "tidelog"
        result = CliRunner().invoke(app, words, env={"TIDELOG_BOOTSTRAP": self._broker.bootstrap})
        assert result.exit_code == code, result.output
        return result

    def status(self, code: int) -> list[Any]:
        """The problems, as a program and as a person sees them."""
        told = json.loads(self.run("tidelog status --json", code).stdout)
        assert told["healthy"] == (code == WELL)
        shown = self.run("tidelog status", code).output
        for problem in told["problems"]:
            assert problem["what"] in shown
            assert all(command in shown for command in problem["commands"])
        return told["problems"]

    def settles(self) -> None:
        """All is well again, soon."""
        deadline = time.monotonic() + DEADLINE_S
        while CliRunner().invoke(app, ["status"], env={"TIDELOG_BOOTSTRAP": self._broker.bootstrap}).exit_code:
            assert time.monotonic() < deadline, self.status(PROBLEMS)
            time.sleep(0.1)


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_evening(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.client.health.COMMITS_WITHIN_S", 1.0)
    broker = Tidelog(small_disk / "data", SETTINGS)
    broker.output = small_disk.parent / "broker.log"
    with broker:
        operator = Operator(broker)
        for topic in ("orders", "ledger", "grows"):
            create_topic(broker.bootstrap, topic, 2)
        with Connection(broker.bootstrap) as connection:
            for topic in ("orders", "ledger"):
                assert produce(connection, topic, b"one") == (0, 0)
        assert operator.status(WELL) == []
        a_consumer_that_never_commits(operator, broker)
        a_transaction_that_hangs(operator, broker)
        a_full_disk(operator, broker)
        a_killed_broker(operator, broker)
        damaged_partitions(operator, broker)


def a_consumer_that_never_commits(operator: Operator, broker: Tidelog) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "billing",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    until(lambda: consumer.poll(0.1))
    [problem] = operator.status(PROBLEMS)
    assert problem["kind"] == "group"
    assert "billing never committed an offset: its lag is unknown" in problem["what"]
    operator.run(problem["commands"][0])
    consumer.close()
    operator.run(f"{problem['commands'][1]} --yes")
    assert operator.status(WELL) == []


def a_transaction_that_hangs(operator: Operator, broker: Tidelog) -> None:
    hang(broker.bootstrap, "orders")
    [problem] = operator.status(PROBLEMS)
    assert problem["kind"] == "transaction"
    assert "hangs in orders-0: readers of committed records wait at offset 1" in problem["what"]
    [command] = problem["commands"]
    operator.run(f"{command} --yes")
    assert operator.status(WELL) == []


def a_full_disk(operator: Operator, broker: Tidelog) -> None:
    with Connection(broker.bootstrap) as connection:
        written = 0
        while not produce(connection, "grows", RECORD)[0]:
            written += 1
            assert written < 2 * DISK_BYTES // len(RECORD)
        [problem] = operator.status(PROBLEMS)
        assert problem["kind"] == "disk"
        assert str(broker.folder) in problem["what"]
        assert "full" in problem["what"]
        look, _, command = problem["commands"]
        assert operator.run(f"{look} --by-size").output.splitlines()[2].startswith("grows")
        assert command == "tidelog topic trim grows --before end"
        assert f"Deleted {written} records of grows" in operator.run(f"{command} --yes").output
        operator.settles()
        assert produce(connection, "grows", RECORD) == (0, written)


def a_killed_broker(operator: Operator, broker: Tidelog) -> None:
    broker.kill()
    [problem] = operator.status(NO_ANSWER)
    assert problem["what"] == f"no broker answers at {broker.bootstrap}"
    assert problem["commands"] == ["tidelog serve"]
    broker.start()
    broker.says("recovery is done")
    assert operator.status(WELL) == []
    assert "last recovery after a crash" in operator.run("tidelog status").output


def damaged_partitions(operator: Operator, broker: Tidelog) -> None:
    """Their files are shorter than what was known to be durable."""
    broker.stop()
    (broker.folder / ".kafka_cleanshutdown").unlink()  # as after a crash in the next life
    files = [broker.folder / f"{topic}-0" / f"{0:020}.log" for topic in ("orders", "ledger")]
    backup = files[0].read_bytes()
    for file in files:
        file.write_bytes(file.read_bytes()[:20])
    broker.output.write_text("")
    broker.start()
    assert "2 partitions offline" in broker.says("recovery is done")
    found = {problem["what"].split()[0]: problem for problem in operator.status(PROBLEMS)}
    assert found.keys() == {"orders-0", "ledger-0"}
    assert "is damaged: " in found["orders-0"]["what"]
    with Connection(broker.bootstrap) as connection:
        topics = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False}
        partitions = connection.ask(ApiKey.METADATA, 9, topics).topics[0].partitions
        assert [(each.leader_id, each.offline_replicas) for each in partitions] == [(1, [1]), (1, [])]
    described = operator.run(found["orders-0"]["commands"][0]).output
    assert "orders-0 is offline: " in described
    assert described.splitlines()[-2].split() == ["1", "1", "1", "1", "0", "0"], "its other partition is shown"
    operator.run(f"{found['ledger-0']['commands'][1]} --yes")
    broker.stop()
    files[0].write_bytes(backup)
    broker.start()
    broker.says("recovery is done")
    assert operator.status(WELL) == []
