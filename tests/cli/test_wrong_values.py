"""Values that make no sense, and outputs that can't be written: refused in words, never by a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidelog.cli.app import app
from tidelog.testing import Broker

Run = Callable[..., Result]
TOPIC = f"wrong-values-{os.getpid()}"


@pytest.fixture
def run(tidelog_broker: Broker) -> Run:
    def run(*arguments: object, stdin: str = "", code: int = 0) -> Result:
        environment = {"TIDELOG_BOOTSTRAP": tidelog_broker.bootstrap}
        result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env=environment)
        assert result.exit_code == code, result.output
        return result

    run("topic", "create", TOPIC, "--if-not-exists")
    return run


@pytest.mark.parametrize("value", ["99999999999d", "999999999h", "9223372036854775808", "-9223372036854775808", ""])
def test_a_place_that_no_log_can_have_is_refused(run: Run, value: str) -> None:
    assert "--from" in run("consume", TOPIC, "-e", "--from", value, code=2).stderr
    assert "--to" in run("group", "reset", "nobody", "--to", value, code=2).stderr
    assert "--before" in run("topic", "trim", TOPIC, "--before", value, code=2).stderr


def test_a_time_before_there_were_any_is_the_beginning(run: Run) -> None:
    run("produce", TOPIC, stdin="x\n")
    assert "x\n" in run("consume", TOPIC, "-e", "--from", "40000d").stdout


def test_trim_beyond_the_end_deletes_nothing(run: Run) -> None:
    run("topic", "create", f"{TOPIC}-trim")
    run("produce", f"{TOPIC}-trim", stdin="x\ny\n")
    said = run("topic", "trim", f"{TOPIC}-trim", "--before", 99999999, "--yes", code=1).stderr
    assert f"{TOPIC}-trim-0 ends at offset 2" in said
    assert "--before end" in said
    assert run("consume", f"{TOPIC}-trim", "-e").stdout == "x\ny\n"


def test_a_setting_that_is_not_there_can_not_be_unset(run: Run) -> None:
    said = run("topic", "alter", TOPIC, "-u", "retention.mss", code=1).stderr
    assert "retention.mss: did you mean retention.ms?" in said


@pytest.mark.parametrize("command", [["consume", TOPIC, "-e"], ["status"]])
def test_an_output_that_is_full_is_told(tidelog_broker: Broker, run: Run, command: list[str]) -> None:
    run("produce", TOPIC, stdin="x\n")
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-m", "tidelog", *command, "-b", tidelog_broker.bootstrap]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "Error: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("tail", [b"", b"damaged"])
def test_a_dump_whose_reader_is_gone_is_no_failure(tmp_path: Path, tail: bytes) -> None:
    lines = "".join(f"topic-{number} 0 {number}\n" for number in range(20_000))
    file = tmp_path / "recovery-point-offset-checkpoint"
    file.write_bytes(f"0\n20000\n{lines}".encode() + tail)
    command = [sys.executable, "-m", "tidelog", "log", "dump", str(file)]
    reader, writer = os.pipe()
    os.close(reader)  # before anything is written: what is said of a damaged file has room in a pipe
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["topic", "config", "group", "txn", "log"])
def test_help_of_a_group_of_commands_has_examples(name: str) -> None:
    assert "Examples:" in CliRunner().invoke(app, [name, "--help"]).output
