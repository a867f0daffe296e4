"""The same pipeline file on this machine and on a Spark cluster, a master and two workers: the same rows come out."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark import orders
from tests.spark.conftest import JVM_TIMEOUT_S, java
from tests.spark.standalone import Standalone
from tidelog.client import Admin
from tidelog.testing import Broker

pyarrow = pytest.importorskip("pyarrow.parquet", reason="needs pip install tidelog[spark]")

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(2 * JVM_TIMEOUT_S),
    pytest.mark.skipif(java() is None, reason="Spark needs Java 17: apt-get install openjdk-17-jre-headless"),
]


REGISTERED = "Registering app orders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("cluster"), workers=2, cores=1, memory="1g") as cluster:
        yield cluster


def test_a_cluster_gives_the_same_rows_as_this_machine(cluster: Standalone, tmp_path: Path) -> None:
    results: dict[str, orders.Result] = {}
    before = cluster.log("master").count(REGISTERED)
    for place, master in (("local", "local[2]"), ("cluster", cluster.master_url)):
        folder = tmp_path / place
        folder.mkdir()
        (folder / "orders.toml").write_text(orders.FILE)
        with Broker(orders.SETTINGS) as broker:
            orders.fill(broker.bootstrap)
            done = orders.run(folder, broker.bootstrap, master, cluster.environment)
            assert done.returncode == 0, done.stderr[-3000:]
            results[place] = orders.result(broker.bootstrap, pyarrow.read_table(folder / "lake").to_pylist())
    assert results["local"] == orders.expected()
    assert results["cluster"] == results["local"]
    assert cluster.log("master").count(REGISTERED) == before + 1


def test_executors_that_lack_what_the_pipeline_needs_are_named_before_it_starts(
    cluster: Standalone, tmp_path: Path
) -> None:
    (tmp_path / "orders.toml").write_text(orders.FILE)
    with Broker(orders.SETTINGS) as broker:
        orders.fill(broker.bootstrap)
        absent = {**cluster.environment, "PYSPARK_PYTHON": "/nowhere/bin/python"}
        done = orders.run(tmp_path, broker.bootstrap, cluster.master_url, absent)
        assert done.returncode == 1
        assert "Error: executors have no /nowhere/bin/python: set PYSPARK_PYTHON" in done.stderr
        assert "Traceback" not in done.stderr
        assert {topic.name for topic in Admin(broker.bootstrap).topics()} & orders.MADE == set()
    assert not (tmp_path / "state" / "checkpoints").exists()
    assert os.listdir(tmp_path / "lake") == []
