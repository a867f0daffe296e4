"""A pipeline that is killed again and again, and what must have come of it: for the tests of exactly once."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.spark.standalone import command, descendants, kill
from tidelog.client import read
from tidelog.testing import Broker

START_S = 300  # a busy machine takes a minute to start a JVM
BUCKETS = 7
INPUT_PARTITIONS = 3
MEND_BY_ITSELF = ("failed to connect back", "CANNOT_OPEN_SOCKET", "Python worker exited unexpectedly")
"""What ends a driver on a busy machine, or when one of its Python processes is killed: people start it again."""
RESTARTS_MAX = 10
INJECTED = Path(__file__).parent / "injected"
FILE = """
name = "exactly"
state = "state"

[spark]
"spark.driver.host" = "127.0.0.1"
"spark.ui.enabled" = "false"
{spark}
[source.numbers]
topics = ["numbers"]
decode = "json"
schema = "n long, bucket int"
max_rows = {max_rows}
{source}
[bad_rows]
drop = true

[[step]]
name = "sums"
sql = "select bucket, count(*) as count, sum(n) as sum from numbers group by bucket"

[[sink]]
from = "numbers"
topic = "copied"
partitions = 3

[[sink]]
from = "sums"
mode = "update"
topic = "summed"
key = "bucket"
partitions = 1

[[sink]]
from = "numbers"
path = "lake"
compact_files = 5
"""


class Story:
    """A broker, a pipeline's file, and the process that runs it now."""

    def __init__(self, folder: Path, broker: Broker, records: int, master: str = "local[2]") -> None:
        self.folder = folder
        self.broker = broker
        self.records = records
        self.master = master
        self.marker = folder / "stopped"
        self.driver: subprocess.Popen[bytes] | None = None
        self.environment = dict(os.environ)
        self.restarts = 0
        self.write_file()

    def write_file(self, *, spark: str = "", source: str = "", batches: int = 10) -> None:
        text = FILE.format(max_rows=max(1, self.records // batches), spark=spark, source=source)
        (self.folder / "exactly.toml").write_text(text)

    def fill(self) -> None:
        """The input: every number once."""
        from confluent_kafka import Producer

        settings = {
            "bootstrap.servers": self.broker.bootstrap,
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 2_000_000,
        }
        producer = Producer(settings)
        for number in range(self.records):
            value = b'{"n":%d,"bucket":%d}' % (number, number % BUCKETS)
            producer.produce("numbers", value, partition=number % INPUT_PARTITIONS)
            if not number % 10_000:
                producer.poll(0)
        assert producer.flush(120) == 0

    def start(self, *flags: str, **plan: Any) -> None:
        """Run the pipeline; the plan says where the sink's driver stops (injected/sitecustomize.py)."""
        self._again = lambda: self.start(*flags, **plan)
        self.marker.unlink(missing_ok=True)
        environment = {**self.environment, **self.injected(plan)}
        arguments = [sys.executable, "-m", "tidelog", "pipeline", "run", str(self.folder / "exactly.toml")]
        with open(self.folder / "driver.log", "ab") as log:
            self._logged = log.tell()
            self.driver = subprocess.Popen(
                [*arguments, "--master", self.master, "-b", self.broker.bootstrap, *flags],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def injected(self, plan: dict[str, Any]) -> dict[str, str]:
        """The environment of Python processes in which the plan is followed."""
        if not plan:
            return {}
        path = f"{INJECTED}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        return {"TIDELOG_TEST_STOP": json.dumps({"marker": str(self.marker), **plan}), "PYTHONPATH": path}

    def kill_driver(self) -> None:
        """kill -9: the driver, its JVM and their Python processes."""
        assert self.driver is not None
        for pid in [self.driver.pid, *descendants([self.driver.pid])]:
            kill(pid)
        self.driver.wait()

    def kill_worker(self) -> None:
        """kill -9 of a Python process that runs tasks."""
        assert self.driver is not None
        below = [pid for pid in descendants([self.driver.pid]) if "pyspark.daemon" in command(pid)]
        kill(max(below))

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_S
        while not happened():
            assert self.alive(), f"the driver ended before {what}:\n{self.log()}"
            assert time.monotonic() < deadline, f"{what} does not happen:\n{self.log()}"
            time.sleep(0.05)

    def alive(self) -> bool:
        """Whether the driver runs; one that ended for want of a Python process is started again."""
        assert self.driver is not None
        if self.driver.poll() is None:
            return True
        wanting = self.driver.returncode and any(words in self.log() for words in MEND_BY_ITSELF)
        if wanting and self.restarts < RESTARTS_MAX:
            self.restarts += 1
            self._again()
            return True
        return False

    def wait_for_stop(self) -> None:
        self.wait(self.marker.exists, "the sink's driver stops where it should")

    def wait_for_batches(self, count: int = 1) -> None:
        """Until sinks have begun so many batches that weren't there before."""
        before = self.begun()
        self.wait(lambda: self.begun() >= before + count, "a batch is begun")

    def begun(self) -> int:
        return len([each for each in self.folder.glob("state/checkpoints/*/offsets/*") if each.name.isdecimal()])

    def finish(self, *flags: str, **plan: Any) -> None:
        """Run to the end of what is there."""
        self.start("--once", *flags, **plan)
        deadline = time.monotonic() + 3 * START_S
        while self.alive():
            assert time.monotonic() < deadline, f"it does not come to its end:\n{self.log()}"
            time.sleep(0.2)
        assert self.driver is not None
        assert self.driver.returncode == 0, self.log()

    def log(self) -> str:
        """The last that the driver of now said."""
        return (self.folder / "driver.log").read_bytes()[self._logged :].decode(errors="replace")[-3000:]

    def check(self) -> None:
        """Counts and sums are equal to the last digit, in the topics and in the lake."""
        total = self.records * (self.records - 1) // 2
        copied = [json.loads(value)["n"] for value in self.committed("copied")]
        assert (len(copied), len(set(copied)), sum(copied)) == (self.records, self.records, total)
        newest = {row["bucket"]: row for row in map(json.loads, self.committed("summed"))}
        assert sum(row["count"] for row in newest.values()) == self.records
        assert sum(row["sum"] for row in newest.values()) == total
        lake = self.lake()
        assert (len(lake), len(set(lake)), sum(lake)) == (self.records, self.records, total)

    def committed(self, topic: str) -> list[bytes]:
        messages = read(self.broker.bootstrap, topic, stop_at_end=True, isolation_level="read_committed")
        return [message.value or b"" for message in messages]

    def lake(self) -> list[int]:
        import pyarrow.dataset

        lake = pyarrow.dataset.dataset(str(self.folder / "lake"), format="parquet", exclude_invalid_files=True)
        return lake.to_table(columns=["n"]).column("n").to_pylist()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
