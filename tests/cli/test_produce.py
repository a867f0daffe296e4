"""`tidelog produce` where something goes wrong: what it wrote, what it did not, and why, are said on every end."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.reading import create_topic, stored
from tests.served import Tidelog, free_port
from tests.stories.proxy import Proxy
from tidelog.cli.app import app
from tidelog.client import Producer
from tidelog.client.delivery_error import is_full
from tidelog.testing import Broker

_numbers = itertools.count(1)
Run = Callable[..., Result]
DEADLINE_S = 30.0


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
    name = f"cli-produce-{os.getpid()}-{next(_numbers)}"
    run("topic", "create", name)
    return name


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy(in_flight=2, answers_between=1)
    yield proxy
    proxy.close()


def start(bootstrap: str, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog", "produce", *arguments, "-b", bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_answers_that_are_lost_double_nothing(tmp_path: Path, proxy: Proxy) -> None:
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    with Tidelog(tmp_path / "data", settings, port=free_port()) as broker:
        proxy.connect_to(broker.port)
        create_topic(broker.bootstrap, "numbers")
        with start(f"127.0.0.1:{proxy.port}", "numbers") as producing:
            assert producing.stdin is not None
            count = 0
            deadline = time.monotonic() + DEADLINE_S
            while len(proxy.losses) < 3:
                producing.stdin.write(b"%d\n" % count)
                producing.stdin.flush()
                count += 1
                time.sleep(0.001)
                assert time.monotonic() < deadline
            proxy.calm_down()
            _, said = producing.communicate(timeout=DEADLINE_S)
        assert (producing.returncode, said.decode()[:15]) == (0, f"Wrote {count:,} records"[:15])
        assert [int(value or b"") for _, value in stored(broker.bootstrap, "numbers")] == list(range(count))


def test_a_broker_that_does_not_come_back_is_named_with_what_was_acknowledged(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "numbers")
        with start(broker.bootstrap, "numbers", "--timeout", "5", "--json") as producing:
            assert producing.stdin is not None
            producing.stdin.write(b"one\ntwo\n")
            producing.stdin.flush()
            deadline = time.monotonic() + DEADLINE_S
            while len(stored(broker.bootstrap, "numbers")) < 2:
                assert time.monotonic() < deadline
            broker.kill()
            out, err = producing.communicate(b"three\n", timeout=DEADLINE_S)
        said = err.decode()
        told = json.loads(out)
        assert (producing.returncode, told["records"], told["line"]) == (1, 2, 3)
        assert "line 3 was not acknowledged" in said
        assert f"no broker answers at {broker.bootstrap}" in said
        assert "2 records were acknowledged; 1 that was sent may be written or not" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_with_what_was_acknowledged(
    tidelog_broker: Broker, name: str, run: Run, number: signal.Signals
) -> None:
    with start(tidelog_broker.bootstrap, name) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"one\ntwo\n")
        producing.stdin.flush()
        deadline = time.monotonic() + DEADLINE_S
        while run("consume", name, "-e").stdout != "one\ntwo\n":
            assert time.monotonic() < deadline
        producing.send_signal(number)
        assert producing.stderr is not None
        said = producing.stderr.read().decode()
        assert producing.wait(DEADLINE_S) == 128 + number
    assert f"stopped by {number.name} after line 2" in said
    assert "2 records were acknowledged" in said
    assert "Traceback" not in said


def test_who_ends_the_wait_for_answers_is_not_told_that_all_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines were read; the broker hangs, and Ctrl-C comes twice."""
    send, wait = Producer.send, Producer.wait
    with Tidelog(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "greetings")

        def send_to_nobody(*args: Any, **more: Any) -> None:
            broker.freeze()
            send(*args, **more)

        def wait_and_lose_patience(*args: Any) -> int:
            signal.raise_signal(signal.SIGINT)
            return wait(*args)

        monkeypatch.setattr(Producer, "send", send_to_nobody)
        monkeypatch.setattr(Producer, "wait", wait_and_lose_patience)
        flags = ["--timeout", "600", "--json", "-b", broker.bootstrap]
        result = CliRunner().invoke(app, ["produce", "greetings", *flags], input="one\n")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["records"], told["line"]) == (128 + signal.SIGINT, 0, 1)
    assert "stopped by SIGINT after line 1" in result.stderr
    assert "no record was acknowledged; 1 that was sent may be written or not" in result.stderr


def test_a_disk_that_is_full_is_named(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data", module="tests.cli.full_disk") as broker:
        create_topic(broker.bootstrap, "grows")
        with start(broker.bootstrap, "grows", "--timeout", "2") as producing:
            _, err = producing.communicate(b"one\ntwo\n", timeout=DEADLINE_S)
        said = err.decode()
        assert producing.returncode == 1
        assert "line 1 was not acknowledged" in said
        assert f"its disk is full: {broker.folder} has 0 B left" in said
        assert "no record was acknowledged" in said


def test_lines_before_a_bad_one_are_written_and_counted(run: Run, name: str) -> None:
    bad = '{"value": "fine"}\n{"valeu": "misspelt"}\n{"value": "after"}\n'
    result = run("produce", name, "--input", "json", "--json", stdin=bad, code=1)
    assert "line 2 is no record in JSON: unknown key valeu" in result.stderr
    assert "1 record was acknowledged" in result.stderr
    told = json.loads(result.stdout)
    assert (told["records"], told["line"], "valeu" in told["error"]) == (1, 2, True)
    assert run("consume", name, "-e").stdout == "fine\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"value": "a", "value_base64": "YQ=="}', "value and value_base64"),
        ('{"value": "a", "headers": [{"name": "h", "vaule": "x"}]}', "unknown key vaule in a header"),
        ('{"value": "a", "headers": [{"value": "x"}]}', "a header needs a name"),
        ('["a"]', "expected an object"),
        ('{"value": "a", "timestamp": "soon"}', "timestamp"),
        ("{}", "neither key nor value"),
    ],
)
def test_json_that_is_no_record_is_refused(run: Run, name: str, line: str, expected: str) -> None:
    result = run("produce", name, "--input", "json", stdin=line + "\n", code=1)
    assert expected in result.stderr
    assert "no record was acknowledged" in result.stderr


def test_a_record_that_the_broker_refuses_is_named_by_its_line(run: Run, name: str) -> None:
    run("topic", "alter", name, "--config", "max.message.bytes=1000")
    result = run("produce", name, stdin="small\n" + "x" * 5000 + "\n", code=1)
    assert "line 2 was not written" in result.stderr
    assert "max.message.bytes" in result.stderr
    assert "1 record was acknowledged" in result.stderr
    assert run("consume", name, "-e").stdout == "small\n"


def test_one_key_for_all(run: Run, name: str) -> None:
    run("produce", name, "--key", "alice", stdin="1\n2\n")
    assert run("consume", name, "-e", "-k").stdout == "alice\t1\nalice\t2\n"


@pytest.mark.parametrize("more", [["--key-separator", ":"], ["--input", "json"]])
def test_a_key_from_two_places_is_refused(run: Run, name: str, more: list[str]) -> None:
    assert "--key" in run("produce", name, "--key", "a", *more, stdin="", code=2).stderr


def test_a_file_that_is_not_there_or_not_readable_is_named(run: Run, name: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing.txt"
    result = run("produce", name, "--file", missing, code=1)
    assert f"{missing}: No such file or directory" in result.stderr


@pytest.mark.parametrize(("left", "full"), [(63 << 20, False), (0, True)])
def test_a_disk_with_room_is_not_called_full(left: int, full: bool) -> None:
    assert is_full(left) == full
    assert not is_full(-1), "unknown"
