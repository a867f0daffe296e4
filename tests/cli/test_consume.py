"""`tidelog consume`: where it begins, how it writes, with whom it shares, why it waits, how it ends."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.reading import create_topic
from tests.served import Tidelog
from tidelog.cli.app import app
from tidelog.client.member import read_as_member
from tidelog.testing import Broker

_numbers = itertools.count(1)
Run = Callable[..., Result]
DEADLINE_S = 30.0
NOW_MS = int(time.time() * 1000)


@pytest.fixture
def run(tidelog_broker: Broker) -> Run:
    def run(*arguments: object, stdin: str | bytes = "", code: int = 0) -> Result:
        environment = {"TIDELOG_BOOTSTRAP": tidelog_broker.bootstrap}
        result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env=environment)
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def name(run: Run) -> str:
    name = f"cli-consume-{os.getpid()}-{next(_numbers)}"
    run("topic", "create", name)
    return name


def start(bootstrap: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tidelog", "consume", *arguments, "-b", bootstrap]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def open_transaction(tidelog_broker: Broker, name: str) -> Producer:
    """Two records of it stand behind one that is committed."""
    writer = Producer({"bootstrap.servers": tidelog_broker.bootstrap, "transactional.id": name})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(name, b"committed")
    writer.commit_transaction()
    writer.begin_transaction()
    writer.produce(name, b"open")
    writer.flush()
    return writer


def test_kafkas_words_for_beginning_and_end_are_known(run: Run, name: str) -> None:
    run("produce", name, stdin="one\ntwo\n")
    assert run("consume", name, "-e", "--from", "earliest").stdout == "one\ntwo\n"
    assert run("consume", name, "-e", "--from", "latest").stdout == ""


def test_several_topics_are_read_together(run: Run, name: str) -> None:
    run("topic", "create", f"{name}-2", "-p", 2)
    run("produce", name, stdin="one\n")
    run("produce", f"{name}-2", "-p", 1, stdin="two\n")
    shown = run("consume", name, f"{name}-2", "-e", "--format", "%t %p %o %s\\n").stdout
    assert sorted(shown.splitlines()) == [f"{name} 0 0 one", f"{name}-2 1 0 two"]
    assert "no-such" in run("consume", name, "no-such", "-e", code=1).stderr


def test_a_format_says_what_is_written(run: Run, name: str) -> None:
    given = {"key": "k", "value": "v1", "headers": {"a": "1", "b": "2"}, "timestamp": NOW_MS}
    run("produce", name, "--input", "json", stdin=json.dumps(given) + "\n")
    run("produce", name, "--null", "-", stdin="-\n")
    shown = run("consume", name, "-e", "--format", r"%t|%p|%o|%k|%s|%v|%h|%K|%S|100%%\t\x41\n").stdout
    assert shown.splitlines()[0] == f"{name}|0|0|k|v1|v1|a=1,b=2|1|2|100%\tA"
    assert shown.splitlines()[1] == f"{name}|0|1|null|null|null||-1|-1|100%\tA"
    assert run("consume", name, "-n", 1, "--format", "%T").stdout == str(NOW_MS)
    assert json.loads(run("consume", name, "-n", 1, "--format", "json").stdout)["key"] == "k"


@pytest.mark.parametrize(
    "arguments", [["--format", "%q"], ["--format", "50%"], ["--format", "%k", "--json"], ["--format", "%k", "--key"]]
)
def test_a_format_that_makes_no_sense_is_refused(run: Run, name: str, arguments: list[str]) -> None:
    assert "--format" in run("consume", name, *arguments, code=2).stderr


def test_a_group_goes_on_where_it_stopped(run: Run, name: str) -> None:
    run("produce", name, stdin="one\ntwo\nthree\n")
    assert run("consume", name, "--group", name, "--count", 2).stdout == "one\ntwo\n"
    [told] = json.loads(run("group", "describe", name, "--json").stdout)
    assert [(row["committed"], row["lag"]) for row in told["partitions"]] == [(2, 1)]
    assert run("consume", name, "--group", name, "--exit").stdout == "three\n"
    assert run("consume", name, "--group", name, "--exit").stdout == ""


def test_a_group_that_is_stopped_has_committed_what_it_showed(tidelog_broker: Broker, run: Run, name: str) -> None:
    run("produce", name, stdin="one\ntwo\n")
    for number in (signal.SIGINT, signal.SIGTERM):
        with start(tidelog_broker.bootstrap, name, "--group", name) as consuming:
            assert consuming.stdout is not None
            assert [consuming.stdout.readline(), consuming.stdout.readline()] == ["one\n", "two\n"]
            consuming.send_signal(number)
            _, err = consuming.communicate(timeout=DEADLINE_S)
            assert (consuming.returncode, err) == (0, "")
        [told] = json.loads(run("group", "describe", name, "--json").stdout)
        assert (told["lag"], told["members"]) == (0, [])
        run("group", "reset", name, "--to", "earliest")


@pytest.mark.parametrize("more", [["--partition", "0"], ["--from", "5"], ["--from", "1h"]])
def test_a_group_decides_itself_what_it_reads(run: Run, name: str, more: list[str]) -> None:
    assert "--group" in run("consume", name, "--group", "g", *more, code=2).stderr


def test_head_ends_it_with_0(tidelog_broker: Broker, run: Run, name: str) -> None:
    run("produce", name, stdin="x\n" * 10_000)
    for waits in (["--exit"], []):
        with start(tidelog_broker.bootstrap, name, *waits) as consuming:
            assert consuming.stdout is not None
            assert consuming.stdout.readline() == "x\n"
            consuming.stdout.close()
            assert consuming.wait(DEADLINE_S) == 0
            assert consuming.stderr is not None
            assert consuming.stderr.read() == ""


def test_it_ends_when_its_reader_did_though_nothing_more_comes(tidelog_broker: Broker, run: Run, name: str) -> None:
    run("produce", name, stdin="x\n")
    with start(tidelog_broker.bootstrap, name) as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == "x\n"
        consuming.stdout.close()
        assert consuming.wait(DEADLINE_S) == 0


def test_it_says_why_it_waits_behind_an_open_transaction(
    tidelog_broker: Broker, run: Run, name: str, open_transaction: Producer
) -> None:
    with start(tidelog_broker.bootstrap, name) as consuming:
        assert consuming.stdout is not None
        assert consuming.stderr is not None
        assert consuming.stdout.readline() == "committed\n"
        said = consuming.stderr.readline()
        assert f"{name}-0 waits at offset 2 for the open transaction of {name}" in said
        assert f"`tidelog txn describe {name}`" in said
        open_transaction.commit_transaction()
        assert consuming.stdout.readline() == "open\n"
        consuming.send_signal(signal.SIGINT)
        _, err = consuming.communicate(timeout=DEADLINE_S)
        assert (consuming.returncode, err) == (0, "")


def test_what_stands_behind_an_open_transaction_is_not_the_end(run: Run, name: str, open_transaction: Producer) -> None:
    result = run("consume", name, "--exit")
    assert result.stdout == "committed\n"
    assert f"{name}-0 ends at offset 2 for now, where the open transaction of {name} begins" in result.stderr
    assert run("consume", name, "--exit", "--uncommitted").stdout == "committed\nopen\n"
    open_transaction.abort_transaction()
    assert run("consume", name, "--exit").stderr == ""


def test_of_partitions_that_are_not_read_nothing_is_said(run: Run, tidelog_broker: Broker, name: str) -> None:
    run("topic", "alter", name, "--partitions", 2)
    writer = Producer({"bootstrap.servers": tidelog_broker.bootstrap, "transactional.id": name})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(name, b"open", partition=1)
    writer.flush()
    assert run("consume", name, "--exit", "--partition", 0).stderr == ""
    assert f"{name}-1 ends at offset 0 for now" in run("consume", name, "--exit", "--partition", 1).stderr
    writer.abort_transaction()


def test_a_count_that_was_not_reached_is_no_reason_to_end(run: Run, name: str, open_transaction: Producer) -> None:
    result = run("consume", name, "--exit", "--count", 2)
    assert result.stdout == "committed\n"
    assert f"{name}-0 ends at offset 2 for now" in result.stderr
    assert run("consume", name, "--exit", "--count", 1).stderr == ""
    open_transaction.abort_transaction()


class BitByBit(Consumer):
    """Is given two partitions one after the other; its broker is slow with the first, or it loses that again."""

    loses_first = False

    def subscribe(self, topics: list[str], *, on_assign: Callable[..., None], on_revoke: Callable[..., None]) -> None:
        self.first, second = (TopicPartition(topics[0], index, OFFSET_BEGINNING) for index in range(2))
        for each in (self.first, second):
            self.incremental_assign([each])
            on_assign(self, [each])
        self.pause([self.first])
        self.on_revoke = on_revoke

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        messages = super().consume(count, timeout_s)
        if any(message.error() for message in messages):  # the end of the second
            if self.loses_first:
                self.incremental_unassign([self.first])
                self.on_revoke(self, [self.first])
            else:
                self.resume([self.first])
        return messages


@pytest.mark.parametrize("loses_first", [False, True])
def test_a_member_that_is_given_partitions_bit_by_bit_reads_all_of_them(
    run: Run, tidelog_broker: Broker, name: str, loses_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cooperative assignors and KIP-848 tell a member what is new, not what it has, and what it loses."""
    run("topic", "alter", name, "--partitions", 2)
    for index in range(2):
        run("produce", name, "--partition", index, stdin=f"of {index}\n")
    monkeypatch.setattr("tidelog.client.member.Consumer", BitByBit)
    monkeypatch.setattr(BitByBit, "loses_first", loses_first)
    read = read_as_member(tidelog_broker.bootstrap, [name], name, stop_at_end=True)
    assert [message.value for message in read] == [b"of 1"] + [b"of 0"] * (not loses_first)


def test_a_batch_whose_checksum_is_wrong_is_not_shown(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "numbers")
        produced = subprocess.run(
            [sys.executable, "-m", "tidelog", "produce", "numbers", "-b", broker.bootstrap], input=b"0123456789\n"
        )
        assert produced.returncode == 0
        [segment] = (tmp_path / "data" / "numbers-0").glob("*.log")
        data = segment.read_bytes()
        with open(segment, "r+b") as file:
            file.seek(data.index(b"0123456789"))
            file.write(b"X")
        with start(broker.bootstrap, "numbers", "--exit") as consuming:
            out, err = consuming.communicate(timeout=DEADLINE_S)
        assert (consuming.returncode, out) == (1, "")
        assert "CRC" in err
        assert "tidelog log dump" in err
