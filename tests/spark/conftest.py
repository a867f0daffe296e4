"""One Spark for all tests here: a JVM takes seconds to start."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.connector import NoConnector, connector_jars
from tidelog.testing import Broker

JVM_TIMEOUT_S = 600  # a busy machine takes a minute to start a JVM


def java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") or (str(Path(home, "bin", "java")) if home else None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")
    if java() is None:
        pytest.skip("Spark needs Java 17: apt-get install openjdk-17-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    try:
        jars = ",".join(connector_jars())
    except NoConnector:
        jars = ""
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.jars", jars)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def connector(spark: Any) -> str:
    """The format of Spark's own connector."""
    try:
        connector_jars()
    except NoConnector as error:
        pytest.skip(str(error))
    return "kafka"


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    settings = {"transaction.two.phase.commit.enable": True, "transaction.state.log.num.partitions": 4}
    with Broker(settings, offsets_topic_num_partitions=4) as broker:
        yield broker


@pytest.fixture
def own_connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks and drivers of the sink that are processes of their own have connections of their own."""
    from tidelog.rpc import Cluster, Options

    made: list[Cluster] = []

    def cluster_of(bootstrap: str, options: Options) -> Cluster:
        made.append(Cluster(bootstrap, options))
        return made[-1]

    monkeypatch.setattr("tidelog.spark.sink.data_sink.cluster_of", cluster_of)
    yield
    for cluster in made:
        cluster.close()
