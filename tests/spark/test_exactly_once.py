"""From topic to topic and lake, exactly once, while driver and broker are killed -9 in turn."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.conftest import java
from tidelog.client import Admin, Message, Producer, read
from tidelog.testing import Broker

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(1500)]

RECORDS = int(os.environ.get("TIDELOG_EXACTLY_ONCE_RECORDS", "100000"))
FILE = """
name = "exactly"
state = "state"

[source.numbers]
topics = ["numbers"]
decode = "json"
schema = "n long, bucket int"
max_rows = {max_rows}

[bad_rows]
topic = "numbers-dead"
partitions = 1

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


def test_counts_and_sums_are_equal_to_the_last_digit(tmp_path: Path) -> None:
    if java() is None:
        pytest.skip("Spark needs Java 17: apt-get install openjdk-17-jre-headless")
    file = tmp_path / "exactly.toml"
    file.write_text(FILE.format(max_rows=max(1, RECORDS // 10)))
    chance = random.Random(1)
    settings = {"transaction.two.phase.commit.enable": True}
    with Broker(settings, listen=f"127.0.0.1:{free_port()}", data=tmp_path / "data") as broker:
        Admin(broker.bootstrap).create_topic("numbers", 3)
        with Producer(broker.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("numbers", json.dumps({"n": number, "bucket": number % 7}).encode(), key=b"%d" % number)
        for victim in ("driver", "broker", "driver", "driver"):
            driver = start(file, broker)
            wait_for_batches(file.parent / "state", driver)
            assert driver.poll() is None, (file.parent / "driver.log").read_text()[-3000:]
            time.sleep(chance.uniform(0.0, 3.0))
            if victim == "broker":
                broker.kill()
                broker.start()
                time.sleep(2.0)
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        last = start(file, broker, "--once")
        assert last.wait(600) == 0
        copied = [json.loads(m.value or b"") for m in committed(broker, "copied")]
        assert len(copied) == RECORDS
        assert sum(row["n"] for row in copied) == RECORDS * (RECORDS - 1) // 2
        newest = {row["bucket"]: row for row in (json.loads(m.value or b"") for m in committed(broker, "summed"))}
        assert sum(row["count"] for row in newest.values()) == RECORDS
        assert sum(row["sum"] for row in newest.values()) == RECORDS * (RECORDS - 1) // 2
    import pyarrow.dataset

    lake = pyarrow.dataset.dataset(str(tmp_path / "lake"), format="parquet", exclude_invalid_files=True)
    assert sorted(lake.to_table(columns=["n"]).column("n").to_pylist()) == list(range(RECORDS))


def start(file: Path, broker: Broker, *flags: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file), "--master", "local[2]", *flags]
    with open(file.parent / "driver.log", "ab") as log:
        return subprocess.Popen(
            [*command, "-b", broker.bootstrap], stdout=log, stderr=log, start_new_session=True
        )  # a group of its own: the JVM and its workers go with it


def committed(broker: Broker, topic: str) -> list[Message]:
    return list(read(broker.bootstrap, topic, stop_at_end=True, isolation_level="read_committed"))


def wait_for_batches(state: Path, driver: "subprocess.Popen[bytes]") -> None:
    """Until a sink has begun a batch that wasn't there before."""
    before = offsets(state)
    deadline = time.monotonic() + 240
    while offsets(state) == before and driver.poll() is None:
        assert time.monotonic() < deadline, "the pipeline does not get on"
        time.sleep(0.2)


def offsets(state: Path) -> int:
    return len(list(state.glob("checkpoints/*/offsets/*")))


def free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
