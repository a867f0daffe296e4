"""`tidelog serve` as whoever starts it sees it: its ready line, its errors, its exit codes."""

import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.served import Tidelog
from tidelog.cli.app import app
from tidelog.cli.serve import explain
from tidelog.config.broker import BrokerConfig

TIDELOG = [sys.executable, "-P", "-m", "tidelog", "serve"]


@contextmanager
def serving(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    command = [*TIDELOG, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def refused(*arguments: object, code: int = 1) -> str:
    """What it says when it does not start. 1: something failed; 2: its flags or settings are wrong."""
    done = subprocess.run([*TIDELOG, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def served(*arguments: object) -> None:
    """A life of a broker, from a start to a clean stop."""
    with serving(*arguments) as process:
        ready_line(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


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


def test_a_terminal_that_is_closed_does_not_end_it(tmp_path: Path) -> None:
    with serving("--data", tmp_path / "d", "--listen", "127.0.0.1:0") as process:
        port = int(ready_line(process).rpartition(":")[2])
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        while "SIGHUP" not in (line := process.stderr.readline()):
            assert line, "it ended"
        assert "SIGHUP: nothing is read anew on it; the broker goes on" in line
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_metadata_that_cannot_be_read_while_it_serves_ends_it_with_what_to_do(tmp_path: Path) -> None:
    code = f"""
import sys
from tidelog.cli import serve
from tidelog.cli.serve_flags import Given
from tidelog.raft.replay import ReplayBatch

class Following(serve.Broker):
    def start(self):
        def follow():
            self.services.quorum.resign()
            self.services.controller.replay([ReplayBatch(99, 2, 0, [b"\\x01\\x7f\\x00\\x00"])])
        started = super().start()
        started.on_done(lambda _: self.env.loop.call_soon(follow))
        return started

serve.Broker = Following
sys.exit(serve.run(Given(data={str(tmp_path)!r}, listen="127.0.0.1:0")))
"""
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    told = rf"the record at offset 99 of the metadata log in {tmp_path}/__cluster_metadata-0: .* type 127.* ends: start"
    assert re.search(told, done.stderr)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


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


def test_a_start_that_found_its_port_in_use_was_no_crash(tmp_path: Path) -> None:
    served("--data", tmp_path, "--listen", "127.0.0.1:0")
    mark = (tmp_path / ".kafka_cleanshutdown").read_bytes()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused("--data", tmp_path, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == mark


def test_a_start_on_a_full_disk_does_not_send_its_data_elsewhere() -> None:
    """Another --data would be an empty broker."""
    said = explain(OSError(errno.ENOSPC, "No space left on device"), BrokerConfig.parse({"log.dirs": "/full"}))
    assert said.startswith("/full: no space left")
    assert "log.dirs" in said
    assert "--data" not in said


def test_a_folder_in_use_is_named_with_a_way_out(tmp_path: Path) -> None:
    with serving("--data", tmp_path, "--listen", "127.0.0.1:0") as process:
        ready_line(process)
        said = refused("--data", tmp_path, "--listen", "127.0.0.1:0")
    assert f"{tmp_path} is in use by another broker" in said


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--listen", "0.0.0.0:0"], 2, "advertised.listeners"),
        (["--listen", "nowhere"], 2, "expected HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--set", "log.segment.bites=1"], 2, "did you mean log.segment.bytes"),
        (["--listen", "127.0.0.1:0", "--set", "log.segment.bytes=many"], 2, "log.segment.bytes"),
        (["--listen", "127.0.0.1:0", "--config", "missing.toml"], 2, "cannot read the settings in missing.toml"),
        (["--listen", "127.0.0.1:0", "--log-level", "loud"], 2, "expected one of debug, info"),
        (["--listen", "127.0.0.1:0", "--set", "log.dirs=other"], 2, "--data and --set log.dirs"),
        (["--listen", "127.0.0.1:0", "--set", "log.dir=other"], 2, "--data and --set log.dir"),
        (["--listen", "127.0.0.1:0", "--set", "listeners=PLAINTEXT://:9"], 2, "--listen and --set listeners"),
        (["--lisen", "127.0.0.1:0"], 2, "No such option"),
        (["--listen", "256.256.256.256:0"], 1, "the host name is not known here"),
        (["--listen", "192.0.2.1:0"], 1, "no such address"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, arguments: list[str], code: int, expected: str) -> None:
    said = refused("--data", tmp_path, *arguments, code=code)
    assert expected in said


def test_a_folder_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    assert str(file) in refused("--data", file / "below", "--listen", "127.0.0.1:0")


def checked(*arguments: object) -> tuple[int, str]:
    command = [*TIDELOG, "--check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_a_check_says_whether_a_start_would_work_and_leaves_nothing_behind(tmp_path: Path) -> None:
    code, said = checked("--data", tmp_path / "new", "--listen", "127.0.0.1:0")
    assert code == 0
    assert "A start would work." in said
    assert not (tmp_path / "new").exists()
    with serving("--data", tmp_path / "d", "--listen", "127.0.0.1:0") as process:
        address = ready_line(process).rpartition(" ")[2].strip()
        code, said = checked("--data", tmp_path / "d", "--listen", address)
        assert code == 1
        assert "in use by another broker" in said
        assert "the port is in use" in said
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    before = sorted(path.name for path in (tmp_path / "d").iterdir())
    code, said = checked("--data", tmp_path / "d", "--listen", address)
    assert code == 0
    assert "broker 1 of cluster" in said
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == before
    assert "belongs to node 1, but node.id is 2" in checked("--data", tmp_path / "d", "--set", "node.id=2")[1]
    assert "did you mean log.segment.bytes" in checked("--set", "log.segment.bites=1")[1]


def test_a_check_refuses_folders_that_a_start_refuses(tmp_path: Path) -> None:
    here, copy = tmp_path / "here", tmp_path / "copy"
    with serving("--data", here, "--listen", "127.0.0.1:0") as process:
        ready_line(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    shutil.copytree(here, copy)
    listen = ("--listen", "127.0.0.1:0")
    for named, reason in ((f"{here},{copy}", "one is a copy of the other"), (f"{tmp_path / 'new'},{here}", "metadata")):
        flags = ("--set", f"log.dirs={named}", *listen)
        code, said = checked(*flags)
        assert (code, reason in said) == (1, True), said
        assert reason in refused(*flags)


def test_a_check_misses_a_data_folder_that_a_start_would_miss(tmp_path: Path) -> None:
    flags = ("--set", f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}", "--listen", "127.0.0.1:0")
    served(*flags)
    assert checked(*flags)[0] == 0
    shutil.move(tmp_path / "b", tmp_path / "away")
    code, said = checked(*flags)
    assert not (tmp_path / "b").exists()
    assert (code, "no folder of log.dirs has directory.id" in said) == (1, True), said
    [reason] = [line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("wrong:")]
    assert reason in refused(*flags)
    lost = reason.rpartition("=")[2]
    assert checked(*flags, "--set", f"tidelog.log.dirs.lost={lost}")[0] == 0


def test_a_check_of_a_folder_that_can_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    result = CliRunner().invoke(app, ["serve", "--check", "--data", str(tmp_path), "--listen", "127.0.0.1:0"])
    assert result.exit_code == 1, result.output
    assert str(tmp_path) in result.output
    assert "Usage:" not in result.output


def test_a_setting_of_the_start_that_does_not_hold_is_told(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data", {"log.retention.ms": "1000000"}) as broker:
        change = ["config", "set", "broker", "1", "log.retention.ms=2000000", "-b", broker.bootstrap]
        assert CliRunner().invoke(app, change).exit_code == 0
        broker.stop()
        assert "doesn't hold" not in broker.said()
        broker.start()
        said = broker.says("log.retention.ms of the start doesn't hold")
    assert "what was set for broker 1 goes before it (2000000)" in said
    assert "`tidelog config set broker 1 --unset log.retention.ms`" in said
