"""The same pipeline file through Spark Connect: the driver is a server's, and the same rows come out."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark import orders
from tests.spark.conftest import JVM_TIMEOUT_S, java
from tidelog.client import read
from tidelog.testing import Broker

pyarrow = pytest.importorskip("pyarrow.parquet", reason="needs pip install tidelog[spark]")
MISSING = [name for name in ("grpc", "grpc_status", "google") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(2 * JVM_TIMEOUT_S),
    pytest.mark.skipif(java() is None, reason="Spark needs Java 17: apt-get install openjdk-17-jre-headless"),
    pytest.mark.skipif(bool(MISSING), reason=f"no {MISSING}: needs pip install 'pyspark[connect]'"),
]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_S = 180


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server as a process of its own, from pip's pyspark."""
    import pyspark

    folder = tmp_path_factory.mktemp("connect")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        deadline = time.monotonic() + START_S
        while "Spark Connect server started" not in (said := (folder / "log").read_text(errors="replace")):
            assert process.poll() is None, said[-2000:]
            assert time.monotonic() < deadline, said[-2000:]
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_a_server_behind_connect_gives_the_rows_that_must_come_out(server: str, tmp_path: Path) -> None:
    (tmp_path / "orders.toml").write_text(orders.FILE)
    with Broker(orders.SETTINGS) as broker:
        orders.fill(broker.bootstrap)
        done = orders.run(tmp_path, broker.bootstrap, server)
        assert done.returncode == 0, done.stderr[-3000:]
        lake = pyarrow.read_table(tmp_path / "lake").to_pylist()
        assert orders.result(broker.bootstrap, lake) == orders.expected()


INFERRED = """
name = "orders"
state = "state"

[source.orders]
topics = ["orders"]
decode = "json"
schema = "infer"

[[sink]]
from = "orders"
topic = "copied"
key = "customer"
partitions = 1

[bad_rows]
topic = "dead"
partitions = 1
"""


def test_a_schema_is_inferred_through_connect(server: str, tmp_path: Path) -> None:
    (tmp_path / "orders.toml").write_text(INFERRED)
    with Broker(orders.SETTINGS) as broker:
        orders.fill(broker.bootstrap)
        done = orders.run(tmp_path, broker.bootstrap, server)
        assert done.returncode == 0, done.stderr[-3000:]
        copied = [json.loads(each.value or b"{}") for each in read(broker.bootstrap, "copied", stop_at_end=True)]
    assert sorted(copied, key=lambda row: row["id"]) == list(orders.rows())


def test_sql_that_is_wrong_is_said_with_its_line_before_anything_runs(server: str, tmp_path: Path) -> None:
    """Spark Connect looks at a query late, unless it is asked."""
    text = orders.FILE.replace("select id, customer,", "select id, no_such_column,", 1)
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "no_such_column" in each)
    (tmp_path / "orders.toml").write_text(text)
    with Broker(orders.SETTINGS) as broker:
        orders.fill(broker.bootstrap)
        done = orders.run(tmp_path, broker.bootstrap, server)
    assert done.returncode == 1
    assert f"orders.toml:{line}: [UNRESOLVED_COLUMN" in done.stderr
    assert not (tmp_path / "state" / "checkpoints").exists()
