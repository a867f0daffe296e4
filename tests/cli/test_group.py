"""`tidelog group` against a real broker, as a user and as a program sees it, for both group protocols."""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition

from tidelog.cli.app import app
from tidelog.cli.group_tables import behind, human_duration, ranges_text
from tidelog.client import Admin, Producer

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
    assert (told["state"], told["type"], told["lag"]) == ("stable", protocol, 6)
    assert (member["client"], member["host"], member["instance"]) == ("till", "127.0.0.1", None)
    assert member["partitions"] == [{"topic": topic, "partition": partition} for partition in range(3)]
    rows = [(row["committed"], row["end"], row["lag"], row["member"]) for row in told["partitions"]]
    assert rows == [(10, 10, 0, member["member"]), (4, 10, 6, member["member"]), (None, 10, None, member["member"])]
    ages_ms = [row["behind_ms"] for row in told["partitions"]]
    assert ages_ms[0] == 0
    assert 6_000 <= ages_ms[1] < 6_000 + DEADLINE_S * 1000  # record 4 was written 6 s before the others' now
    assert ages_ms[2] is None
    assert told["behind_ms"] == ages_ms[1]
    shown = run("group", "describe", name).stdout
    assert "6 messages, " in shown
    assert " s behind" in shown
    assert f"{topic} 0-2" in shown


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


def test_lag_is_a_number_and_a_time() -> None:
    assert behind(4210, 38_000) == "4,210 messages, 38 s behind"
    assert behind(1, 999) == "1 message, 999 ms behind"
    assert behind(0, 0) == "at the end: nothing is left to consume"
    spans = (38_999, 60_000, 250_000, 11_100_000, 187_200_000)
    assert [human_duration(each) for each in spans] == ["38 s", "1 min", "4 min 10 s", "3 h 5 min", "2 d 4 h"]
    assert ranges_text([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
