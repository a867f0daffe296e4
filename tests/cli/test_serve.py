"""`tidelog serve` as whoever starts it sees it: its ready line, its errors, its exit codes."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TIDELOG = [sys.executable, "-P", "-m", "tidelog", "serve"]


@contextmanager
def serving(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    command = [*TIDELOG, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def refused(*arguments: object) -> str:
    """What it says when it does not start."""
    done = subprocess.run([*TIDELOG, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2), done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def ready_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_once_where_it_is_ready_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with serving("--data", tmp_path / "d", "--listen", "127.0.0.1:0") as process:
        line = ready_line(process)
        found = re.fullmatch(r"Tidelog is ready on 127\.0\.0\.1:(\d+)\n", line)
        assert found, line
        socket.create_connection(("127.0.0.1", int(found[1])), timeout=5).close()
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, ""), err
        assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_it_names_its_own_address_not_the_one_that_clients_are_told(tmp_path: Path) -> None:
    told = "advertised.listeners=PLAINTEXT://queue.example.org:9092"
    with serving("--data", tmp_path, "--listen", "127.0.0.1:0", "--set", told) as process:
        port = int(ready_line(process).rpartition(":")[2])
        assert port != 9092
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_localhost_is_ipv4_and_ipv6(tmp_path: Path) -> None:
    with serving("--data", tmp_path, "--listen", "localhost:0") as process:
        port = int(ready_line(process).rpartition(":")[2])
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=5).close()


def test_a_port_in_use_is_named_with_a_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused("--data", tmp_path, "--listen", address)
    assert f"{address}: the port is in use" in said
    assert "--listen" in said


def test_a_folder_in_use_is_named_with_a_way_out(tmp_path: Path) -> None:
    with serving("--data", tmp_path, "--listen", "127.0.0.1:0") as process:
        ready_line(process)
        said = refused("--data", tmp_path, "--listen", "127.0.0.1:0")
    assert f"{tmp_path} is in use by another broker" in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--listen", "0.0.0.0:0"], "advertised.listeners"),
        (["--listen", "nowhere"], "expected HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--set", "log.segment.bites=1"], "did you mean log.segment.bytes"),
        (["--listen", "127.0.0.1:0", "--set", "log.segment.bytes=many"], "log.segment.bytes"),
        (["--listen", "127.0.0.1:0", "--config", "missing.toml"], "cannot read the settings in missing.toml"),
        (["--listen", "127.0.0.1:0", "--log-level", "loud"], "expected one of debug, info"),
        (["--lisen", "127.0.0.1:0"], "No such option"),
        (["--listen", "256.256.256.256:0"], "the host name is not known here"),
        (["--listen", "192.0.2.1:0"], "no such address"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, arguments: list[str], expected: str) -> None:
    said = refused("--data", tmp_path, *arguments)
    assert expected in said


def test_a_folder_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    assert str(file) in refused("--data", file / "below", "--listen", "127.0.0.1:0")
