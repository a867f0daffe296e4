"""What the Spark cases share: a broker, and a driver (spark_player.py) that is asked over a pipe."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.brokers import Broker
from bench.case import Metrics
from bench.process import cpu_s, descendants
from bench.programs import BenchError
from bench.spark_meter import Meter

CONNECTOR = "connector"
ANSWER_TIMEOUT_S = 600.0
END_TIMEOUT_S = 30.0
LOOK_S = 0.05


@dataclass(slots=True)
class Seen:
    """The largest resident set of one Python worker, so far."""

    worker_bytes: int = 0


@dataclass(slots=True)
class Stage:
    broker: Broker
    jars: list[str]
    work: Path
    topics: set[str] = field(default_factory=set[str])
    """Those that are filled."""
    lost_s: float = 0.0
    """CPU of Spark's processes that Linux tells nobody of ours."""
    _player: subprocess.Popen[str] | None = None
    _meter: Meter | None = None
    _plain: bool = False

    def measure(self, do: str, rows: int, **asked: Any) -> Metrics:
        """Rows a second, and what they cost: CPU of JVM, Python workers and broker together."""
        self._playing()
        meter = self._meter
        assert meter is not None, "it is made with the player"
        before = meter.look() + cpu_s(self.broker.pid)
        with meter.watching():
            told = self.ask(do, rows=rows, **asked)
        spent = meter.look() + cpu_s(self.broker.pid) - before
        return {"rows_per_s": rows / told["seconds"], "cpu_s_per_million": spent / (rows / 1e6)}

    def ask(self, do: str, **asked: Any) -> dict[str, float]:
        player = self._playing()
        assert player.stdin is not None, "it was started with pipes"
        player.stdin.write(json.dumps({"do": do, "bootstrap": self.broker.at, **asked}) + "\n")
        player.stdin.flush()
        return self._answer(do)

    def _answer(self, what: str) -> dict[str, float]:
        player = self._player
        assert player is not None, "it was started"
        assert player.stdout is not None, "it was started with pipes"
        timer = threading.Timer(ANSWER_TIMEOUT_S, player.kill)
        timer.start()
        try:
            line = player.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self.end_player()
            said = (self.work / "spark.out").read_text(errors="replace")[-500:]
            raise BenchError(f"Spark ended during {what}; it said:\n{said}")
        told = json.loads(line)
        if "error" in told:
            raise BenchError(told["error"])
        return told

    def use(self, *, plain: bool) -> None:
        """A driver whose workers decode with plain Python, or with what is compiled."""
        if plain != self._plain:
            self.end_player()
            self._plain = plain

    @contextmanager
    def watched(self) -> Iterator[Seen]:
        """Watch the memory of the Python workers meanwhile."""
        seen, done = Seen(), threading.Event()
        player = self._playing()

        def look() -> None:
            while not done.wait(LOOK_S):
                seen.worker_bytes = max([seen.worker_bytes, *map(_worker_bytes, descendants(player.pid))])

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield seen
        finally:
            done.set()
            thread.join()

    def end_player(self) -> None:
        """Its JVM ends with it, so that its CPU is counted as ours."""
        player, self._player = self._player, None
        if player is None:
            return
        assert player.stdin is not None, "it was started with pipes"
        meter, self._meter = self._meter, None
        if meter is not None:
            meter.look()
        with suppress(BrokenPipeError):
            player.stdin.close()
        try:
            player.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            player.kill()
            player.wait()
        if meter is not None:
            self.lost_s += meter.lost_s()

    def end(self) -> None:
        self.end_player()

    def _playing(self) -> subprocess.Popen[str]:
        if self._player is not None and self._player.poll() is not None:
            self.end_player()  # it died
        if self._player is None:
            self.work.mkdir(parents=True, exist_ok=True)
            environment = {**os.environ, "SPARK_LOCAL_DIRS": str(self.work), "SPARK_LOCAL_IP": "127.0.0.1"}
            environment["TIDELOG_NATIVE"] = "off" if self._plain else "require"
            with open(self.work / "spark.out", "ab") as output:
                self._player = subprocess.Popen(
                    [sys.executable, "-m", "bench.spark_player", ",".join(self.jars)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    env=environment,
                    text=True,
                )
            self._meter = Meter(self._player.pid)
            self._answer("its start")
        return self._player


def _worker_bytes(pid: int) -> int:
    """The resident set of a Python worker that was forked for a task; 0 for other processes."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"pyspark.daemon" not in command or b"pyspark.sql.worker" in command:
            return 0
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0
