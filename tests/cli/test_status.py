"""`tidelog status` where all is well, where nobody answers, and what it makes of a broker that tells little."""

import json
import shlex
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer

from tests.served import Tidelog, free_port
from tidelog import __version__
from tidelog.cli.app import app
from tidelog.client.advice import days_left, notes, problems
from tidelog.client.health import BrokerHealth, GroupHealth, Health
from tidelog.client.in_sync import Lagging
from tidelog.client.lag import Progress
from tidelog.client.log_dirs import LogDir
from tidelog.client.offline import Offline
from tidelog.rpc.open_transactions import OpenTransaction
from tidelog.rpc.transactions import Described, Producer
from tidelog.testing import Broker
from tidelog.wire.leases import NO_TIMEOUT_MS

GB = 1 << 30


def status(bootstrap: str, *flags: str) -> Result:
    return CliRunner().invoke(app, ["status", "--bootstrap", bootstrap, *flags])


@pytest.fixture
def young_broker() -> Iterator[Broker]:
    """One that has not lived long enough to tell how fast it grows, whatever other tests wrote before."""
    with Broker() as broker:
        yield broker


def test_a_healthy_broker_is_one_screen_and_exit_code_0(young_broker: Broker) -> None:
    told = json.loads(status(young_broker.bootstrap, "--json").stdout)
    [broker] = told["brokers"]
    assert broker["version"] == __version__
    assert broker["start_time_ms"] > 0
    assert broker["recovery"] == {
        "clean": True,
        "done": broker["recovery"]["done"],
        "partitions": 0,
        "time_ms": 0,
        "cut_partitions": 0,
        "cut_bytes": 0,
        "journal_partitions": 0,
        "journal_records": 0,
    }
    [folder] = broker["folders"]
    assert 0 < folder["usable_bytes"] <= folder["total_bytes"]
    assert folder["days_left"] is None
    shown = status(young_broker.bootstrap)
    assert f"Tidelog {__version__}" in shown.output
    assert "days left: unknown" in shown.output
    assert len(shown.output.splitlines()) <= 24 or told["problems"]


def test_no_broker_is_exit_code_1_and_says_what_to_do() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    result = status(nobody)
    assert result.exit_code == 1
    assert f"no broker answers at {nobody}" in result.output
    assert "tidelog serve" in result.output
    assert json.loads(status(nobody, "--json").stdout)["problems"][0]["kind"] == "unreachable"
    assert status("nowhere").exit_code == 2


def test_an_address_that_clients_are_told_and_nobody_answers_at_is_named(tmp_path: Path) -> None:
    port, elsewhere = free_port(), free_port()
    told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{elsewhere}"}
    with Tidelog(tmp_path / "data", told, port=port) as broker:
        result = status(broker.bootstrap)
    assert result.exit_code == 1
    assert f"tells clients to connect to 127.0.0.1:{elsewhere}, where nobody answers" in result.output
    assert "advertised.listeners" in result.output


def apache() -> Health:
    """As a broker tells that has none of our extras."""
    folder = LogDir("/data", None, None, None, {("orders", 0): 5})
    return Health("kafka:9092", "c" * 22, [BrokerHealth(1, "kafka:9092", {}, [folder])], 1, 1, [])


def test_what_a_broker_does_not_tell_is_unknown() -> None:
    found = apache()
    found.unknown.append("transactions: LIST_TRANSACTIONS: the broker does not serve it")
    told, note = shown(found).split("Note: ")
    assert "A broker of unknown version" in told
    assert told.count("unknown") == 6, told
    assert note.startswith("unknown: transactions: LIST_TRANSACTIONS")
    assert problems(found) == []
    assert notes(found) == ["unknown: transactions: LIST_TRANSACTIONS: the broker does not serve it"]


def disk(usable: int, rate: str) -> Health:
    folder = LogDir("/data", None, 100 * GB, usable, {("orders", 0): 5, ("orders", 1): 6, ("__consumer_offsets", 0): 9})
    broker = BrokerHealth(1, "here:9092", {"tidelog.disk.taken.bytes.per.day": rate}, [folder])
    return replace(apache(), brokers=[broker])


def test_a_disk_is_a_problem_when_it_is_full_or_will_be_soon() -> None:
    assert problems(disk(50 * GB, "")) == []
    assert problems(disk(50 * GB, str(-GB))) == []
    assert problems(disk(50 * GB, str(GB))) == []
    [soon] = problems(disk(50 * GB, str(10 * GB)))
    assert "lasts for 5.0 days" in soon.what
    [nearly] = problems(disk(4 * GB, ""))
    assert "nearly full: 4.0% is free" in nearly.what
    assert nearly.commands[1] == "tidelog topic trim orders --before 1d"
    [full] = problems(disk(0, ""))
    assert "is full" in full.what
    [broker] = disk(50 * GB, str(10 * GB)).brokers
    assert days_left(broker, (broker.folders or [])[0]) == 5.0


def test_many_offline_partitions_are_counted() -> None:
    found = replace(apache(), offline=[Offline("orders", number, None) for number in range(1000)])
    told = problems(found)
    assert len(told) == 21
    assert told[-1].what == "980 more partitions are offline"


def test_what_waits_for_one_broker_is_one_problem() -> None:
    absent = [Offline("orders", number, "broker 2, which has it, isn't there", "start it") for number in range(1000)]
    [problem] = problems(replace(apache(), offline=absent))
    assert problem.what == (
        "orders-0, orders-1, orders-2 and 997 more are offline: broker 2, which has it, isn't there"
    )
    assert problem.advice == "start it"


def test_partitions_out_of_sync_are_counted_and_those_below_their_minimum_come_first() -> None:
    behind = [Lagging("orders", number, (1, 2, 3), (1, 2), 2) for number in range(1000)]
    below, rest = problems(replace(apache(), lagging=[*behind, Lagging("ledger", 0, (1, 2, 3), (1,), 2)]))
    assert below.what == (
        "partitions with fewer replicas in sync than min.insync.replicas: 1. Nothing is acknowledged (acks=all) there: "
        "ledger-0 (in sync 1 of 1, 2, 3)"
    )
    assert "see that brokers 2, 3 run" in below.advice
    assert "than they have: 1,000: orders-0 (in sync 1, 2 of 1, 2, 3), " in rest.what
    assert rest.what.endswith("and 997 more")


def test_a_group_without_members_is_no_problem_but_worth_a_look() -> None:
    idle = GroupHealth("old", "empty", 0, 1, 7, 0, ("orders",))
    stuck = GroupHealth("stuck", "rebalancing", 2, 1, 7, 0, ("orders",))
    found = replace(apache(), groups=[idle, stuck], groups_in_all=400)
    [problem] = problems(found)
    assert "group stuck rebalances" in problem.what
    assert notes(found) == [
        "group old has no members and is 7 records behind: start its consumers, or, if nobody needs it any more, "
        "`tidelog group delete old`",
        "398 more groups were not looked at",
    ]


def test_it_stays_one_screen_with_many_groups() -> None:
    idle = [GroupHealth(f"old-{number}", "empty", 0, 1, 7, 0, ("orders",)) for number in range(50)]
    stuck = [GroupHealth(f"stuck-{number}", "rebalancing", 2, 1, 7, 0, ("orders",)) for number in range(50)]
    found = replace(apache(), groups=[*idle, *stuck], groups_in_all=100)
    told = notes(found)
    assert len(told) == 4
    assert told[-1] == "47 more groups have no members and are behind: `tidelog group list --state empty` shows them"
    wrong = problems(found)
    assert len(wrong) == 21
    assert (wrong[-1].what, wrong[-1].commands) == ("30 more groups have problems", ("tidelog group list",))


def test_an_offset_beyond_the_end_is_a_problem() -> None:
    group = GroupHealth("billing", "stable", 1, 1, 0, 0, ("orders",), (Progress("orders", 0, 500, 0, 3, 3),))
    [problem] = problems(replace(apache(), groups=[group], groups_in_all=1))
    assert "group billing committed offset 500 of orders-0, which is beyond the end, 3" in problem.what
    assert problem.commands[-1] == "tidelog group reset billing --to earliest --topic orders:0"


def test_a_group_that_never_committed_is_not_told_to_skip_what_is_unread() -> None:
    group = GroupHealth("billing", "stable", 1, 0, None, 7, ("orders",))
    [problem] = problems(replace(apache(), groups=[group], groups_in_all=1))
    assert not any("latest" in command for command in problem.commands)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_nobody_is_told_to_delete_what_the_broker_keeps(topic: str) -> None:
    [problem] = problems(replace(apache(), offline=[Offline(topic, 3, "is damaged: short")]))
    assert f"{topic}-3 is offline" in problem.what
    assert not any("delete" in command for command in problem.commands)
    assert "given up" not in problem.advice


def test_a_reason_that_says_what_to_do_is_not_contradicted() -> None:
    reason = "it starts at 50: if that is wrong, correct its line there, and restart"
    [problem] = problems(replace(apache(), offline=[Offline("orders", 0, reason)]))
    assert "given up" not in problem.advice
    assert not any("delete" in command for command in problem.commands)


def test_an_open_transaction_is_counted_and_an_old_one_is_worth_a_look() -> None:
    now_ms = int(time.time() * 1000)
    old = OpenTransaction("orders", 0, 7, 0, 0, 42, now_ms - 120_000)
    new = replace(old, producer_id=8, last_written_ms=now_ms)
    found = replace(apache(), open_transactions=[new, old, replace(old, partition=1)], hanging=[])
    assert "2 are open, the oldest for 2 minutes" in shown(found)
    [note] = notes(found)
    assert "readers of committed records wait at offset 42 of orders-0" in note
    assert "none is open" in shown(replace(apache(), open_transactions=[], hanging=[]))


def test_commands_can_be_typed_in_whatever_a_client_calls_itself() -> None:
    """Names of groups and transactions are the clients' own: none may become another command."""
    name = "my group; rm -rf ~"
    stuck = GroupHealth(name, "rebalancing", 2, 1, 7, 0, ("orders",))
    new = GroupHealth(name, "stable", 1, 0, None, 7, ("orders",))
    beyond = GroupHealth(name, "stable", 1, 1, 0, 0, ("orders",), (Progress("orders", 0, 500, 0, 3, 3),))
    idle = GroupHealth(name, "empty", 0, 1, 7, 0, ("orders",))
    owner = Described(Producer(name, 7, 0), "Ongoing", NO_TIMEOUT_MS, 0)
    open_ = OpenTransaction("orders", 0, 7, 0, 0, 42, 0, owner)
    found = replace(apache(), groups=[stuck, new, beyond, idle], groups_in_all=4, hanging=[open_])
    commands = [command for problem in problems(found) for command in problem.commands]
    commands.append(notes(found)[0].split("`")[1])
    assert len(commands) == 8
    for command in commands:
        assert shlex.split(command)[3] == name


def shown(found: Health) -> str:
    """What `tidelog status` says of it."""
    with patch("tidelog.client.health.health", Mock(return_value=found)):
        return status(found.bootstrap).stdout


def test_a_broker_that_accepts_and_does_not_answer_is_not_called_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.client.cluster.REQUEST_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        result = status(address)
    assert result.exit_code == 1
    assert f"{address} accepts connections, but does not answer" in result.output
    assert "tidelog serve" not in result.output


def test_one_is_not_many(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker:
        CliRunner().invoke(app, ["topic", "create", "one", "-p", "1", "-b", broker.bootstrap])
        told = (
            status(broker.bootstrap).output
            + CliRunner().invoke(app, ["topic", "describe", "one", "-b", broker.bootstrap]).output
        )
    assert "1, with 1 partition and" in told
    assert "one  1 partition, replication 1" in told


def test_a_group_that_has_just_begun_is_no_problem(tmp_path: Path) -> None:
    """Its consumer commits by itself, but not at once."""
    with Tidelog(tmp_path / "data", {"group.initial.rebalance.delay.ms": "0"}) as broker:
        CliRunner().invoke(app, ["produce", "orders", "-b", broker.bootstrap], input="x\n")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 3000,
            }
        )
        consumer.subscribe(["orders"])
        deadline = time.monotonic() + 30
        while consumer.poll(0.1) is None:
            assert time.monotonic() < deadline
        assert (
            CliRunner().invoke(app, ["group", "describe", "billing", "-b", broker.bootstrap]).output.count("nothing is")
        )
        result = status(broker.bootstrap)
        consumer.close()
    assert result.exit_code == 0, result.output
