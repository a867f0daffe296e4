"""A pipeline as an operator has it: run, watched, asked for twice, stopped, cut off; nothing is left behind."""

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

from tests.spark import orders
from tests.spark.conftest import JVM_TIMEOUT_S, java
from tests.spark.standalone import command, descendants
from tidelog.testing import Broker

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(2 * JVM_TIMEOUT_S),
    pytest.mark.skipif(java() is None, reason="Spark needs Java 17: apt-get install openjdk-17-jre-headless"),
]

GONE_S = 60.0


class Running:
    """`tidelog pipeline run` as a process, and what it shows."""

    def __init__(self, folder: Path, bootstrap: str, *flags: str) -> None:
        self.folder = folder
        self.output = folder / "output"
        self._command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(folder / "orders.toml")]
        self._command += ["-b", bootstrap, "--master", "local[2]", *flags]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def status(self) -> dict[str, Any]:
        try:
            return json.loads((self.folder / "state" / "status.json").read_text())
        except FileNotFoundError:
            return {"outcome": "none", "queries": {}}

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + JVM_TIMEOUT_S
        while not condition(status := self.status()):
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, status
            time.sleep(0.2)
        return status

    def again(self) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self._command, capture_output=True, text=True, timeout=JVM_TIMEOUT_S, check=False)

    def ended(self, number: signal.Signals) -> int:
        """Its exit code, once it and everything below it is gone."""
        below = descendants([self.process.pid])
        assert any("SparkSubmit" in command(pid) for pid in below)
        self.process.send_signal(number)
        code = self.process.wait(JVM_TIMEOUT_S)
        deadline = time.monotonic() + GONE_S
        while left := [name for pid in below if (name := command(pid))]:
            assert time.monotonic() < deadline, left
            time.sleep(0.2)
        return code


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Whoever runs the tests in the background has SIGINT ignored, and what is started there keeps that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    (tmp_path / "orders.toml").write_text(orders.FILE)
    made: list[Running] = []
    with Broker(orders.SETTINGS) as broker:
        orders.fill(broker.bootstrap)

        def start(*flags: str) -> Running:
            made.append(Running(tmp_path, broker.bootstrap, *flags))
            return made[-1]

        yield start
        for each in made:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait()


def test_it_is_watched_refused_a_second_time_and_stopped_without_a_trace(started: Callable[..., Running]) -> None:
    running = started()
    status = running.until(
        lambda status: bool(status["queries"]) and all("batch" in each for each in status["queries"].values())
    )
    assert status["outcome"] in ("starting", "running")
    assert all(each["bytes"] > 0 and each["rows_per_s"] > 0 for each in status["queries"].values() if each["rows"])
    running.until(lambda status: status["outcome"] == "running")
    second = running.again()
    assert second.returncode == 1
    assert f"orders runs already, as process {running.process.pid}" in second.stderr
    assert running.ended(signal.SIGTERM) == 0
    assert running.status()["outcome"] == "stopped"
    said = running.output.read_text()
    assert said.endswith("orders stopped; run it again to go on from there.\n")
    assert "Traceback" not in said
    assert "WARN" not in said
    log = (running.folder / "state" / "pipeline.log").read_text()
    assert "lake: batch 0: " in log
    once = started("--once")
    once.until(lambda status: status["outcome"] == "starting" and status["pid"] == once.process.pid)
    once.until(lambda status: any("SparkSubmit" in command(pid) for pid in descendants([once.process.pid])))
    assert once.ended(signal.SIGINT) == 128 + signal.SIGINT
    assert "Traceback" not in once.output.read_text()


def test_what_is_cut_off_takes_its_java_along_and_says_so_when_it_can(started: Callable[..., Running]) -> None:
    running = started()
    running.until(lambda status: status["outcome"] == "running")
    [java_pid] = [pid for pid in descendants([running.process.pid]) if "SparkSubmit" in command(pid)]
    os.kill(java_pid, signal.SIGKILL)
    assert running.process.wait(JVM_TIMEOUT_S) == 1
    assert "Spark's Java process was killed, by a person or for want of memory" in running.output.read_text()
    assert "Traceback" not in running.output.read_text()
    assert running.status()["outcome"] == "failed"
    running = started()
    running.until(lambda status: status["outcome"] == "running" and status["pid"] == running.process.pid)
    assert running.ended(signal.SIGKILL) == -signal.SIGKILL
