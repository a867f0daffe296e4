"""`tidelog config` and `tidelog topic trim` against a real broker."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from tidelog import __version__
from tidelog.cli.app import app
from tidelog.testing import Broker

Run = Callable[..., Result]
_numbers = itertools.count(1)


@pytest.fixture
def run(tidelog_broker: Broker) -> Run:
    def run(*arguments: object, stdin: str = "", code: int = 0) -> Result:
        environment = {"TIDELOG_BOOTSTRAP": tidelog_broker.bootstrap}
        result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env=environment)
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def topic(run: Run) -> str:
    name = f"config-{os.getpid()}-{next(_numbers)}"
    run("topic", "create", name, "--partitions", 2, "--config", "retention.ms=600000")
    return name


def values(result: Result) -> dict[str, str]:
    return {each["setting"]: each["value"] for each in json.loads(result.stdout)}


def test_settings_of_a_topic_are_shown_and_changed(run: Run, topic: str) -> None:
    shown = run("config", "get", "topic", topic).output
    assert "retention.ms" in shown
    assert "segment.ms" not in shown, "it has its default"
    assert "segment.ms" in values(run("config", "get", "topic", topic, "--all", "--json"))
    run("config", "set", "topic", topic, "segment.ms=70000", "--unset", "retention.ms")
    told = values(run("config", "get", "topic", topic, "segment.ms", "retention.ms", "--json"))
    assert told == {"segment.ms": "70000", "retention.ms": "604800000"}
    run("config", "set", "topic", topic, "segment.ms=80000", "--dry-run")
    assert values(run("config", "get", "topic", topic, "segment.ms", "--json")) == {"segment.ms": "70000"}


def test_settings_of_brokers_groups_and_loggers(run: Run) -> None:
    assert values(run("config", "get", "broker", 1, "tidelog.version", "--json")) == {"tidelog.version": __version__}
    run("config", "set", "broker", "all", "log.retention.ms=604800001")
    assert "log.retention.ms" in run("config", "get", "broker", "all").output
    run("config", "set", "broker", "all", "--unset", "log.retention.ms")
    run("config", "set", "group", "billing", "consumer.session.timeout.ms=50000")
    assert values(run("config", "get", "group", "billing", "--json")) == {"consumer.session.timeout.ms": "50000"}
    run("config", "set", "logger", 1, "tidelog.requests=DEBUG")
    assert values(run("config", "get", "logger", "--json"))["tidelog.requests"] == "DEBUG"
    run("config", "set", "logger", 1, "tidelog.requests=INFO")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["get", "topic", "{}x"], "did you mean {}?"),
        (["get", "topic", "{}", "retention.sm"], "did you mean retention.ms?"),
        (["set", "topic", "{}", "retenton.ms=5"], "did you mean retention.ms?"),
        (["set", "topic", "{}", "retention.ms=soon"], "Invalid value soon"),
        (["set", "broker", "1", "log.retenton.ms=5"], "did you mean log.retention.ms?"),
        (["set", "broker", "1", "log.dirs=/elsewhere"], "can't be changed while the broker runs"),
        (["set", "broker", "1", "tidelog.version=9"], "can't be changed while the broker runs"),
        (["get", "broker", "7"], "there is no broker 7"),
        (["set", "logger", "1", "tidelog.requsts=DEBUG"], "did you mean tidelog.requests?"),
        (["get", "topic"], "which topic?"),
    ],
)
def test_mistakes_are_told_with_what_was_meant(run: Run, topic: str, arguments: list[str], expected: str) -> None:
    run("config", "get", "logger")
    said = run("config", *(each.format(topic) for each in arguments), code=1).output
    assert expected.format(topic) in said
    assert "Traceback" not in said


def test_a_topic_is_trimmed_to_an_offset_a_time_or_as_a_whole(run: Run, topic: str) -> None:
    run("produce", topic, "--partition", 0, stdin="a\nb\nc\nd\n")
    assert f"Deleted 1 record of {topic}." in run("topic", "trim", topic, "--before", 1).output
    assert run("consume", topic, "--exit").stdout == "b\nc\nd\n"
    told = json.loads(run("topic", "trim", topic, "--before", "1h", "--json").stdout)
    assert told["deleted"] == 0, "nothing is older than an hour"
    told = json.loads(run("topic", "trim", topic, "--before", "-1", "--partition", 0, "--json").stdout)
    assert told == {"topic": topic, "deleted": 2, "partitions": [{"partition": 0, "start": 3, "deleted": 2}]}
    run("topic", "trim", topic, "--before", "end", "--yes")
    assert run("consume", topic, "--exit").stdout == ""
    assert f"{topic} has no records before that" in run("topic", "trim", topic, "--before", "end").output
    assert "has no partition 9" in run("topic", "trim", topic, "--before", "end", "--partition", 9, code=1).output
    assert "is no place to start" in run("topic", "trim", topic, "--before", "soon", code=2).output


def test_a_trim_asks_first_on_a_terminal(tidelog_broker: Broker, run: Run, topic: str) -> None:
    run("produce", topic, "--partition", 0, stdin="a\nb\n")
    command = [sys.executable, "-m", "tidelog", "topic", "trim", topic, "--before", "end"]
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"n\n")
        done = subprocess.run(
            [*command, "--bootstrap", tidelog_broker.bootstrap],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 1
    assert f"Delete 2 records of {topic} for good?" in done.stdout
    assert run("consume", topic, "--exit").stdout == "a\nb\n"
