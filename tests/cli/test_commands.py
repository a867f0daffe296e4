"""The client commands against a real broker, as a user and as a program sees them."""

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidelog.cli.app import app
from tidelog.testing import Broker

_numbers = itertools.count(1)
Run = Callable[..., Result]


@pytest.fixture
def run(tidelog_broker: Broker) -> Run:
    def run(*arguments: object, stdin: str | bytes = "", code: int = 0) -> Result:
        environment = {"TIDELOG_BOOTSTRAP": tidelog_broker.bootstrap}
        result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env=environment)
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def name() -> str:
    return f"cli-{os.getpid()}-{next(_numbers)}"


def rows(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_topics_life(run: Run, name: str) -> None:
    assert run("topic", "create", name, "-p", 2, "-c", "retention.ms=60000").stdout == f"Created topic {name}.\n"
    assert {"topic": name, "partitions": 2, "replication": 1, "bytes": 0} in json.loads(
        run("topic", "list", "--json").stdout
    )
    assert name in run("topic", "list").stdout
    run("topic", "alter", name, "--config", "segment.ms=5000", "--unset", "retention.ms", "--partitions", 3)
    (described,) = json.loads(run("topic", "describe", name, "--json").stdout)
    assert described["configs"] == {"segment.ms": "5000"}
    assert len(described["id"]) == 22
    assert described["partitions"] == [
        {"partition": n, "leader": p["leader"], "replicas": [p["leader"]], "isr": [p["leader"]], "start": 0, "end": 0}
        for n, p in enumerate(described["partitions"])
    ]
    assert "segment.ms=5000" in run("topic", "describe", name).stdout
    assert run("topic", "delete", name, "--yes").stdout == f"Deleted topic {name}.\n"
    assert name not in run("topic", "list").stdout


def test_lines_become_records_and_lines_again(run: Run, name: str) -> None:
    run("topic", "create", name)
    done = run("produce", name, stdin="one\ntwo\nthree\n")
    assert done.stderr == f"Wrote 3 records (11 B) to {name}.\n"
    assert run("consume", name, "--exit").stdout == "one\ntwo\nthree\n"
    assert run("consume", name, "--count", 2).stdout == "one\ntwo\n"
    assert run("consume", name, "--exit", "--from", 1).stdout == "two\nthree\n"
    assert run("consume", name, "--exit", "--from", "-1").stdout == "three\n"
    assert run("consume", name, "--exit", "--from", "1h").stdout == "one\ntwo\nthree\n"
    assert run("consume", name, "--exit", "--from", "end").stdout == ""


def test_keys_headers_and_nulls_travel(run: Run, name: str) -> None:
    run("topic", "create", name)
    run("produce", name, "-k", ":", "-H", "source=test", "--null", "-", stdin="a:1\nb:-\n-:3\n")
    assert run("consume", name, "-e", "-k", "-H").stdout == (
        "source=test\ta\t1\nsource=test\tb\tnull\nsource=test\tnull\t3\n"
    )
    found = rows(run("consume", name, "-e", "--json"))
    assert [(row["offset"], row["key"], row["value"]) for row in found] == [
        (0, "a", "1"),
        (1, "b", None),
        (2, None, "3"),
    ]
    assert found[0]["headers"] == [{"name": "source", "value": "test"}]
    assert found[0]["timestamp_type"] == "create"


def test_json_of_one_topic_is_read_into_another(run: Run, name: str, tmp_path: Path) -> None:
    given = [
        {
            "key": "k",
            "value": "v",
            "headers": [{"name": "h", "value": "1"}, {"name": "h", "value": None}],
            "timestamp": 1000,
        },
        {"key": None, "value_base64": "/wA=", "headers": [], "timestamp": 2000},
    ]
    file = tmp_path / "records.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in given))
    run("topic", "create", name, "-c", "message.timestamp.before.max.ms=9223372036854775807", "-c", "retention.ms=-1")
    summary = json.loads(run("produce", name, "--input", "json", "--file", file, "--json").stdout)
    assert summary == {"topic": name, "records": 2, "bytes": 3, "last_offsets": {"0": 1}}
    found = rows(run("consume", name, "-e", "--json"))
    assert [{field: row.get(field) for field in given[n]} for n, row in enumerate(found)] == given


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compression_and_partition_are_chosen(run: Run, name: str, compression: str) -> None:
    run("topic", "create", name, "-p", 3)
    run("produce", name, "--compression", compression, "--partition", 2, stdin="x\n" * 50)
    assert run("consume", name, "-e", "-p", 2).stdout == "x\n" * 50
    assert run("consume", name, "-e", "-p", 0).stdout == ""


def test_bench_measures_and_cleans_up(run: Run) -> None:
    results = json.loads(run("bench", "-n", 2000, "--seconds", 1, "--rate", 200, "-p", 2, "--json").stdout)
    assert [(row["work"], row["records"]) for row in results] == [
        ("write", 2000),
        ("read", 2000),
        ("acknowledged", 200),
        ("end to end", 200),
    ]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] for row in results[2:])
    assert "tidelog-bench" not in run("topic", "list").output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["topic", "describe", "no-such"], "there is no topic no-such"),
        (["topic", "delete", "no-such", "-y"], "UNKNOWN_TOPIC_OR_PART"),
        (["topic", "create", "bad/name"], "bad/name"),
        (["topic", "create", "t", "-c", "no.such=1"], "no.such"),
        (["consume", "no-such", "-e"], "`tidelog topic create` makes one"),
        (["produce", "no-such-partition-0", "-p", "99"], "cannot write to no-such-partition-0"),
    ],
)
def test_errors_say_what_failed_and_what_to_do(run: Run, arguments: list[str], expected: str) -> None:
    result = run(*arguments, stdin="x\n", code=1)
    assert result.stdout == ""
    assert expected in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "create", "large", "-p", 100_000_000),
        ("topic", "create", "large", "-p", 10**12),
        ("topic", "create", "large", "-r", 100_000),
        ("topic", "alter", "large", "--partitions", 100_000_000),
        ("topic", "alter", "large", "--partitions", 10**12),
    ],
)
def test_numbers_beyond_all_bounds_are_refused_in_words(run: Run, arguments: tuple[object, ...]) -> None:
    result = run(*arguments, code=1)
    assert "Error: cannot " in result.stderr
    assert "topic large" in result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["topic", "list"], 0),
        (["--version"], 0),
        (["consume", "--help"], 0),
        (["topic", "describe", "no-such"], 1),
        (["topic", "list", "-b", "127.0.0.1:1"], 1),
        (["topic", "list", "-b", "nowhere"], 2),
        (["topic", "lst"], 2),
        (["consume", "any", "--frm", "end"], 2),
        (["consume", "any", "--from", "yesterday"], 2),
        (["consume"], 2),
        (["produce", "any", "--acks", "2"], 2),
    ],
)
def test_exit_codes_are_as_documented(run: Run, arguments: list[str], code: int) -> None:
    run(*arguments, code=code)


def test_asking_does_not_create(run: Run, name: str) -> None:
    run("topic", "describe", name, code=1)
    run("consume", name, "-e", code=1)
    assert name not in run("topic", "list", "--internal").output


def test_no_broker_is_a_clear_error() -> None:
    result = CliRunner().invoke(app, ["topic", "list", "--bootstrap", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "no broker answers at 127.0.0.1:1" in result.stderr
    assert "tidelog serve" in result.stderr


@pytest.mark.parametrize("stdin", ["not json\n", "[]\n", '{"headers": 5}\n', '{"value_base64": "%"}\n'])
def test_input_that_is_no_record_names_the_line(run: Run, name: str, stdin: str) -> None:
    run("topic", "create", name)
    result = run("produce", name, "--input", "json", stdin='{"value": "fine"}\n' + stdin, code=1)
    assert "line 2 is no record in JSON" in result.stderr


def test_a_line_without_its_separator_is_named(run: Run, name: str) -> None:
    run("topic", "create", name)
    assert "line 2 has no key separator ':'" in run("produce", name, "-k", ":", stdin="a:1\nb\n", code=1).stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert result.exit_code == 0
    assert "_TIDELOG_COMPLETE" in result.stdout


def test_topic_names_are_completed(run: Run, name: str, tidelog_broker: Broker) -> None:
    run("topic", "create", name)
    words = {"COMP_WORDS": f"tidelog topic describe {name[:-1]}", "COMP_CWORD": "3"}
    environment = {**words, "_TIDELOG_COMPLETE": "bash_complete", "TIDELOG_BOOTSTRAP": tidelog_broker.bootstrap}
    result = CliRunner().invoke(app, [], env=environment, prog_name="tidelog")
    assert f"plain,{name}\n" in result.stdout
