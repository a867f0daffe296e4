"""`tidelog status`, `config` and `topic trim` against Apache Kafka: what it doesn't tell is unknown, the rest works."""

import json
import uuid

import pytest
from click.testing import CliRunner

from tests.kafka.apache import ApacheKafka
from tidelog.cli.app import app


@pytest.fixture
def bootstrap(apache_kafka: ApacheKafka) -> str:
    return apache_kafka.bootstrap


def run(bootstrap: str, *arguments: object, stdin: str = "") -> str:
    environment = {"TIDELOG_BOOTSTRAP": bootstrap}
    result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_what_kafka_does_not_tell_is_unknown(bootstrap: str) -> None:
    told = json.loads(CliRunner().invoke(app, ["status", "--json", "--bootstrap", bootstrap]).stdout)
    [broker] = told["brokers"]
    assert (broker["version"], broker["start_time_ms"], broker["recovery"]) == (None, None, None)
    [folder] = broker["folders"]
    assert 0 < folder["usable_bytes"] <= folder["total_bytes"]
    assert (folder["taken_bytes_per_day"], folder["days_left"]) == (None, None)
    assert told["offline"] == []
    assert told["hanging_transactions"] is not None
    assert told["groups"] is not None
    assert [note for note in told["notes"] if note.startswith("unknown")] == []
    shown = CliRunner().invoke(app, ["status", "--bootstrap", bootstrap]).output
    assert "A broker of unknown version" in shown
    assert "up since      unknown" in shown
    assert "days left: unknown" in shown


def test_the_other_commands_work_the_same(bootstrap: str) -> None:
    topic = f"status-{uuid.uuid4()}"
    run(bootstrap, "topic", "create", topic, "--partitions", 2)
    run(bootstrap, "produce", topic, "--partition", 0, stdin="a\nb\nc\n")
    assert any(
        each["topic"] == topic and each["bytes"] > 0 for each in json.loads(run(bootstrap, "topic", "list", "--json"))
    )
    run(bootstrap, "config", "set", "topic", topic, "retention.ms=600000")
    [entry] = json.loads(run(bootstrap, "config", "get", "topic", topic, "retention.ms", "--json"))
    assert (entry["value"], entry["from"]) == ("600000", "topic")
    told = json.loads(run(bootstrap, "topic", "trim", topic, "--before", 2, "--json"))
    assert told["deleted"] == 2
    assert run(bootstrap, "consume", topic, "--exit") == "c\n"
    assert "root" in run(bootstrap, "config", "get", "logger")
    [described] = json.loads(run(bootstrap, "topic", "describe", topic, "--json"))
    assert [each["start"] for each in described["partitions"]] == [2, 0]
