"""`tidelog group` against a real broker, as a user and as a program sees it, for both group protocols."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from tidelog.cli.app import app
from tidelog.cli.group_describe import show_groups
from tidelog.cli.group_tables import behind, human_duration, notes, ranges_text
from tidelog.client import Admin, Producer
from tidelog.client.groups import Group
from tidelog.client.lag import Lag, Progress
from tidelog.rpc import Cluster
from tidelog.rpc.groups import commit_offsets

_numbers = itertools.count(1)
Run = Callable[..., Result]
Join = Callable[..., Consumer]

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The broker under test; COMPAT_BOOTSTRAP names another one, such as an Apache Kafka, to check the tests."""
    return os.environ.get("COMPAT_BOOTSTRAP") or request.getfixturevalue("tidelog_broker").bootstrap


@pytest.fixture
def run(bootstrap: str) -> Run:
    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(app, list(map(str, arguments)), env={"TIDELOG_BOOTSTRAP": bootstrap})
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def name() -> str:
    return f"cli-group-{os.getpid()}-{time.monotonic_ns()}-{next(_numbers)}"


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    """Three partitions with ten records each, at the times 1,000 to 10,000 ms before now, a second apart."""
    Admin(bootstrap).create_topic(name, 3)
    now_ms = int(time.time() * 1000)
    with Producer(bootstrap) as producer:
        for partition, number in itertools.product(range(3), range(10)):
            stamp = now_ms - (10 - number) * 1000
            producer.send(name, b"%d" % number, partition=partition, timestamp_ms=stamp)
    return name


@pytest.fixture
def join(bootstrap: str) -> Iterator[Join]:
    """Lets a consumer join a group and waits until it has partitions."""
    joined: list[Consumer] = []

    def join(group: str, topic: str, protocol: str = "classic", **more: str) -> Consumer:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        consumer = Consumer(settings)
        joined.append(consumer)
        consumer.subscribe([topic])
        deadline = time.monotonic() + DEADLINE_S
        while not consumer.assignment():
            consumer.consume(1, 0.05)
            assert time.monotonic() < deadline, f"{group} gives no partitions to its member"
        return consumer

    yield join
    for consumer in joined:
        consumer.close()


def commit(consumer: Consumer, topic: str, *offsets: int) -> None:
    consumer.commit(
        offsets=[TopicPartition(topic, place, offset) for place, offset in enumerate(offsets)], asynchronous=False
    )


def offsets(run: Run, group: str) -> list[int | None]:
    [told] = json.loads(run("group", "describe", group, "--json").stdout)
    return [partition["committed"] for partition in told["partitions"]]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_listed_and_described_with_its_member_and_lag(
    run: Run, join: Join, name: str, topic: str, protocol: str
) -> None:
    consumer = join(name, topic, protocol, client_id="till")
    commit(consumer, topic, 10, 4)
    listed = {row["group"]: row for row in json.loads(run("group", "list", "--json").stdout)}
    assert listed[name] == {"group": name, "state": "stable", "type": protocol, "members": 1}
    [told] = json.loads(run("group", "describe", name, "--json").stdout)
    [member] = told["members"]
    assert (told["state"], told["type"], told["lag"]) == ("stable", protocol, 16)
    assert (member["client"], member["host"], member["instance"]) == ("till", "127.0.0.1", None)
    assert member["partitions"] == [{"topic": topic, "partition": partition} for partition in range(3)]
    rows = [(row["committed"], row["end"], row["lag"], row["member"]) for row in told["partitions"]]
    assert rows == [(10, 10, 0, member["member"]), (4, 10, 6, member["member"]), (None, 10, 10, member["member"])]
    ages_ms = [row["behind_ms"] for row in told["partitions"]]
    assert ages_ms[0] == 0
    assert 6_000 <= ages_ms[1] < 6_000 + DEADLINE_S * 1000  # record 4 was written 6 s before the others' now
    assert ages_ms[2] > ages_ms[1]
    assert told["behind_ms"] == ages_ms[2]
    shown = run("group", "describe", name).stdout
    assert "up to 16 messages, " in shown
    assert " s behind" in shown
    assert f"{topic} 0-2" in shown


def test_partitions_without_a_commit_count_from_their_start(run: Run, join: Join, name: str, topic: str) -> None:
    """Where such a group begins is its consumers' secret, so that all that lies before it may be left to consume."""
    consumer = join(name, topic)
    [told] = json.loads(run("group", "describe", name, "--json").stdout)
    assert (told["lag"], told["uncommitted"]) == (30, 3)
    assert [(row["committed"], row["lag"]) for row in told["partitions"]] == [(None, 10)] * 3
    assert all(row["behind_ms"] >= 10_000 for row in told["partitions"])
    shown = run("group", "describe", name).stdout
    assert "nothing is left" not in shown
    assert "up to 30 messages" in shown
    assert "nothing is committed in 3 partitions" in shown
    commit(consumer, topic, 10, 4)
    [told] = json.loads(run("group", "describe", name, "--json").stdout)
    assert (told["lag"], told["uncommitted"]) == (16, 1)


def test_a_group_of_which_nothing_is_known_is_not_at_the_end(run: Run, join: Join, name: str, topic: str) -> None:
    consumer = join(name, topic)
    consumer.unsubscribe()
    deadline = time.monotonic() + DEADLINE_S
    while True:
        [told] = json.loads(run("group", "describe", name, "--json").stdout)
        if not told["members"]:
            break
        consumer.poll(0.05)
        assert time.monotonic() < deadline
    assert (told["lag"], told["behind_ms"], told["partitions"]) == (None, None, [])
    assert "how far behind it is, is unknown: nothing is committed" in run("group", "describe", name).stdout


def test_what_stands_behind_an_open_transaction_is_behind(run: Run, name: str, bootstrap: str) -> None:
    Admin(bootstrap).create_topic(name, 1)
    writer = KafkaProducer({"bootstrap.servers": bootstrap, "transactional.id": name})
    writer.init_transactions()
    writer.begin_transaction()
    long_ago = int(time.time() * 1000) - 60_000
    for _ in range(5):
        writer.produce(name, b"x", timestamp=long_ago)
    writer.flush()
    run("group", "reset", name, "--to", "earliest", "-t", name)
    [told] = json.loads(run("group", "describe", name, "--json").stdout)
    assert (told["lag"], told["behind_open_transactions"]) == (5, 5)
    assert told["behind_ms"] >= 60_000
    assert told["partitions"][0]["behind_ms"] == told["behind_ms"]
    shown = run("group", "describe", name).stdout
    assert "5 messages, 1 min" in shown
    assert f"5 stand behind an open transaction: `tidelog txn hanging {name} --open` shows whose" in shown
    writer.commit_transaction()
    [told] = json.loads(run("group", "describe", name, "--json").stdout)
    assert (told["lag"], told["behind_open_transactions"]) == (6, 0)  # its marker has an offset, too


def test_a_marker_alone_is_nothing_to_consume(run: Run, name: str, bootstrap: str) -> None:
    Admin(bootstrap).create_topic(name, 1)
    writer = KafkaProducer({"bootstrap.servers": bootstrap, "transactional.id": name})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(name, b"x")
    writer.commit_transaction()
    run("group", "reset", name, "--to", 1, "-t", name)
    [told] = json.loads(run("group", "describe", name, "--json").stdout)
    assert (told["lag"], told["behind_ms"]) == (1, 0)
    assert "nothing is left to consume" in run("group", "describe", name).stdout


def test_without_a_name_all_groups_are_described(run: Run, name: str, topic: str, bootstrap: str) -> None:
    kept = f"tidelog-spark-{name}"
    with Cluster(bootstrap) as cluster:
        for group, offset in ((name, 3), (f"{name}-2", 9), (kept, 1)):
            commit_offsets(cluster, group, {(topic, 0): offset})
    told = {each["group"]: each for each in json.loads(run("group", "describe", "--json").stdout)}
    assert (told[name]["lag"], told[f"{name}-2"]["lag"], kept in told) == (7, 1, False)
    assert 7_000 <= told[name]["behind_ms"] < 7_000 + DEADLINE_S * 1000
    assert 1_000 <= told[f"{name}-2"]["behind_ms"] < told[name]["behind_ms"]
    shown = run("group", "describe")
    assert f"{name}-2  empty" in shown.stdout
    assert "kept by Spark sinks, not shown" in shown.stderr
    assert kept in run("group", "describe", "--all").stdout


def test_a_group_is_watched_until_ctrl_c(name: str, topic: str, bootstrap: str) -> None:
    with Cluster(bootstrap) as cluster:
        commit_offsets(cluster, name, {(topic, 0): 3})
        command = [sys.executable, "-m", "tidelog", "group", "describe", name, "--watch", "--every", "0.1", "--json"]
        environment = {**os.environ, "TIDELOG_BOOTSTRAP": bootstrap}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as watching:
            assert watching.stdout is not None
            try:
                assert json.loads(watching.stdout.readline())[0]["lag"] == 7
                commit_offsets(cluster, name, {(topic, 0): 10})
                while json.loads(watching.stdout.readline())[0]["lag"]:
                    pass
                watching.send_signal(signal.SIGINT)
                _, said = watching.communicate(timeout=DEADLINE_S)
            finally:
                watching.kill()
            assert (watching.returncode, said) == (0, b"")


def test_what_spark_sinks_keep_as_groups_is_not_listed_among_consumers(
    run: Run, name: str, topic: str, bootstrap: str
) -> None:
    kept = f"tidelog-spark-{name}"
    with Cluster(bootstrap) as cluster:
        commit_offsets(cluster, name, {(topic, 0): 3})
        commit_offsets(cluster, kept, {(topic, 0): 3})
    listed = run("group", "list")
    assert (name in listed.stdout, kept in listed.output) == (True, False)
    assert "kept by Spark sinks, not shown: --all shows" in listed.stderr
    everything = {row["group"] for row in json.loads(run("group", "list", "--all", "--json").stdout)}
    shown = {row["group"] for row in json.loads(run("group", "list", "--json").stdout)}
    assert {name, kept} <= everything
    assert (name in shown, kept in shown) == (True, False)


def test_a_static_members_instance_is_shown(run: Run, join: Join, name: str, topic: str) -> None:
    join(name, topic, group_instance_id="till-1")
    assert "till-1" in run("group", "describe", name).stdout


def test_lists_are_filtered(run: Run, join: Join, name: str, topic: str) -> None:
    def names(*flags: str) -> set[str]:
        return {row["group"] for row in json.loads(run("group", "list", "--json", *flags).stdout)} & {name, f"{name}-2"}

    join(name, topic, "consumer")
    commit(join(f"{name}-2", topic), topic, 1)
    assert names() == {name, f"{name}-2"}
    assert names("--type", "consumer") == {name}
    assert names("--type", "classic", "--state", "stable") == {f"{name}-2"}
    assert names("--state", "empty") == set()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (("--to", "earliest"), [0, 0, 0]),
        (("--to", "latest"), [10, 10, 10]),
        (("--to", "7"), [7, 7, 7]),
        (("--to", "99"), [10, 10, 10]),
        (("--to", "-2"), [8, 8, 8]),
        (("--to", "1d"), [0, 0, 0]),
        (("--to", "2100-01-01"), [10, 10, 10]),
        (("--shift", "-2"), [3, 2, 1]),
        (("--shift", "6"), [10, 10, 9]),
    ],
)
def test_reset_goes_to_every_place(
    run: Run, name: str, topic: str, where: tuple[str, str], expected: list[int]
) -> None:
    for partition, offset in enumerate((5, 4, 3)):
        run("group", "reset", name, "--to", offset, "--topic", f"{topic}:{partition}")
    dry = json.loads(run("group", "reset", name, *where, "--dry-run", "--json").stdout)
    assert dry["changed"] is False
    assert [(each["old"], each["new"]) for each in dry["offsets"]] == list(zip((5, 4, 3), expected, strict=True))
    assert offsets(run, name) == [5, 4, 3]
    assert f"Reset group {name}." in run("group", "reset", name, *where, "--yes").stdout
    assert offsets(run, name) == expected


def test_a_dry_run_shows_old_and_new(run: Run, name: str, topic: str) -> None:
    run("group", "reset", name, "--to", 5, "--topic", f"{topic}:0,2")
    shown = run("group", "reset", name, "--to", "earliest", "--topic", topic, "--dry-run")
    rows = [line.split() for line in shown.stdout.splitlines() if line.startswith(topic)]
    assert rows == [[topic, "0", "5", "0", "-5"], [topic, "1", "-", "0", "new"], [topic, "2", "5", "0", "-5"]]
    assert "dry run" in shown.stderr


def test_a_consumer_goes_on_where_it_was_set_to(run: Run, name: str, topic: str, bootstrap: str) -> None:
    run("group", "reset", name, "--to", 8, "--topic", topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "error"})
    consumer.subscribe([topic])
    seen: set[tuple[int | None, int | None]] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(seen) < 6 and time.monotonic() < deadline:
        seen |= {(message.partition(), message.offset()) for message in consumer.consume(10, 0.1)}
    consumer.close()
    assert seen == {(partition, offset) for partition in range(3) for offset in (8, 9)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_with_members_are_left_alone(run: Run, join: Join, name: str, topic: str, protocol: str) -> None:
    consumer = join(name, topic, protocol)
    commit(consumer, topic, 1, 2, 3)
    for command in (("reset", name, "--to", "latest"), ("reset", name, "--shift", "1", "--dry-run"), ("delete", name)):
        result = run("group", *command, code=1)
        assert f"group {name} can't be changed: it has " in result.stderr
        assert f"stop its consumers first; `tidelog group describe {name}`" in result.stderr
    assert offsets(run, name) == [1, 2, 3]
    consumer.unsubscribe()
    deadline = time.monotonic() + DEADLINE_S
    while json.loads(run("group", "describe", name, "--json").stdout)[0]["members"]:
        consumer.poll(0.05)
        assert time.monotonic() < deadline
    run("group", "reset", name, "--to", "latest")
    assert offsets(run, name) == [10, 10, 10]
    assert run("group", "delete", name, "-y").stdout == f"Deleted group {name}.\n"
    assert name not in run("group", "list").output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["describe", "no-such"], "there is no group no-such"),
        (["delete", "no-such", "-y"], "`tidelog group list` shows the groups there are"),
        (["reset", "no-such", "--to", "latest"], "name the topics to begin with: --topic NAME"),
        (["reset", "no-such", "--to", "latest", "-t", "no-such-topic"], "there is no topic no-such-topic"),
    ],
)
def test_errors_say_what_failed_and_what_to_do(run: Run, arguments: list[str], expected: str) -> None:
    result = run("group", *arguments, code=1)
    assert result.stdout == ""
    assert expected in result.stderr
    assert "Traceback" not in result.stderr


def test_partitions_that_are_not_there_are_named(run: Run, name: str, topic: str) -> None:
    assert f"{topic} has no partition 3" in run("group", "reset", name, "--to", 1, "-t", f"{topic}:3", code=1).stderr
    run("group", "reset", name, "--to", 1, "-t", f"{topic}:0")
    shifted = run("group", "reset", name, "--shift", 1, "-t", topic, code=1).stderr
    assert f"no offset in {topic}-1 that could be shifted" in shifted


@pytest.mark.parametrize(
    "arguments",
    [[], ["--to", "latest", "--shift", "1"], ["--to", "soon"], ["--to", "1", "-t", "a:b"], ["--to", "1", "-t", ":1"]],
)
def test_flags_that_make_no_sense_are_refused(run: Run, arguments: list[str]) -> None:
    run("group", "reset", "any", *arguments, code=2)


def test_a_deleted_topic_is_gone_from_the_group_or_said_to_be(run: Run, name: str, topic: str, bootstrap: str) -> None:
    run("group", "reset", name, "--to", 5, "-t", topic)
    Admin(bootstrap).delete_topic(topic)
    result = CliRunner().invoke(app, ["group", "describe", name], env={"TIDELOG_BOOTSTRAP": bootstrap})
    assert "Traceback" not in result.output
    assert result.exit_code in (0, 1)


def test_group_names_are_completed(run: Run, name: str, topic: str, bootstrap: str) -> None:
    run("group", "reset", name, "--to", 1, "-t", topic)
    words = {"COMP_WORDS": f"tidelog group describe {name[:-1]}", "COMP_CWORD": "3"}
    environment = {**words, "_TIDELOG_COMPLETE": "bash_complete", "TIDELOG_BOOTSTRAP": bootstrap}
    assert f"plain,{name}\n" in CliRunner().invoke(app, [], env=environment, prog_name="tidelog").stdout


def test_what_is_unknown_of_one_partition_is_unknown_of_the_group() -> None:
    known = Progress("t", 0, 4, start=0, stable_end=10, end=10, behind_ms=5)
    unreachable = Progress("t", 1, 4)
    gone = Progress("u", 0, 4, gone=True)
    assert Lag.of([known, gone]) == Lag(6, 5, 0, 0)
    assert Lag.of([known, unreachable]) == Lag(None, None, None, 0)
    assert Lag.of([gone]) == Lag(0, 0, 0, 0)
    assert Lag.of([]) == Lag(None, None, None, 0)
    cut = Progress("t", 0, 4, start=6, stable_end=8, end=10)
    assert (cut.lag, cut.behind_open_transaction) == (4, 2)


def test_lag_is_a_number_and_a_time() -> None:
    assert behind(Lag(4210, 38_000, 0, 0)) == "4,210 messages, 38 s behind"
    assert behind(Lag(1, 999, 0, 0)) == "1 message, 999 ms behind"
    assert behind(Lag(0, 0, 0, 0)) == "at the end: nothing is left to consume"
    assert behind(Lag(5, None, 0, 2)) == "up to 5 messages, for how long is unknown"
    assert "is unknown" in behind(Lag(None, None, None, 0))
    spans = (38_999, 60_000, 250_000, 11_100_000, 187_200_000)
    assert [human_duration(each) for each in spans] == ["38 s", "1 min", "4 min 10 s", "3 h 5 min", "2 d 4 h"]
    assert ranges_text([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_an_offset_beyond_the_end_is_not_the_end() -> None:
    beyond = Progress("orders", 0, 500, 0, 3, 3)
    assert beyond.beyond_end
    lag = Lag.of([beyond])
    assert lag.messages is None
    assert "unknown" in behind(lag)
    [note] = notes([beyond], lag)
    assert "the committed offset 500 of orders-0 is beyond its end, 3" in note
    assert "auto.offset.reset" in note
    assert not Progress("orders", 0, 3, 0, 3, 3).beyond_end


def test_what_a_client_called_its_group_does_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_groups([Group("evil\x1b[2J\n", "empty", "classic", "range\x1b[1m", "127.0.0.1:9092")], [[]], as_json=False)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.startswith("evil")
    assert "coordinator" in shown.splitlines()[0]
