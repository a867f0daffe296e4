"""The Spark that a pipeline runs on: this machine's, a cluster's, or one behind Spark Connect.

What a person can put right is said before anything runs, as one sentence: no Java, no such master, executors that
differ from this machine (cluster.py).
"""

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.run.cluster import check_cluster, wait_for_executors
from tidelog.spark.pipeline.run.java import NoSpark, ready_java
from tidelog.spark.pipeline.run.reason import words_of
from tidelog.spark.pipeline.run.stderr_capture import StderrCapture

__all__ = ["NoSpark", "ended", "is_local", "is_remote", "session"]

REACH_S = 10.0
CONNECT_PORT = 15002
DEFAULT_MASTER = "local[*]"
CONNECT_NEEDS = {"grpc": "grpcio", "grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos"}
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
SQL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.stopTimeout": "30s",
}
PARTITIONS = "spark.sql.shuffle.partitions"
TRIES = 4
"""Of a task, as on a cluster: on one machine Spark gives a query up with the first task that fails."""
LOG = "spark.log"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def is_local(master: str | None) -> bool:
    """Spark in this process's child, for which nobody else has to reach this machine."""
    return master is None or master.startswith("local")


def is_remote(master: str | None) -> bool:
    """Spark Connect: the driver is somebody else's process."""
    return master is not None and master.startswith("sc://")


def session(
    pipeline: Pipeline, master: str | None, *, log: bool = True, tell: Callable[[str], None] | None = None
) -> Any:
    """A session at `master`, checked to be able to run the pipeline; NoSpark or PipelineError says why not.

    What Spark's own log says goes to `spark.log` in the pipeline's state, and nowhere without `log`. `tell` is told
    what its processes say besides.
    """
    _quiet_errors()
    if is_remote(master):
        return _connected(pipeline, str(master))
    ready_java()
    _check_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody else has to reach this one
    elif str(master).startswith("spark://"):
        _reach(str(master), str(master).removeprefix("spark://"), 7077, "a Spark master")
    settings = {**_logging(pipeline, log), **pipeline.spec.spark}
    spark = _started(pipeline, _patient(master or DEFAULT_MASTER), settings, StderrCapture(tell))
    try:
        cores = os.cpu_count() or 1
        if not is_local(master):
            cores = wait_for_executors(spark, str(master))
            check_cluster(spark, pipeline, cores)
        if PARTITIONS not in pipeline.spec.spark:
            spark.conf.set(PARTITIONS, str(2 * cores))
    except BaseException:
        spark.stop()
        raise
    return spark


def ended(spark: Any, within_s: float = 0.0) -> str | None:
    """That the Java process of a session is gone, where it is one of this process's and is."""
    process = getattr(getattr(getattr(spark, "_sc", None), "_gateway", None), "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None
    how = "was killed, by a person or for want of memory" if code == -signal.SIGKILL else f"ended with {code}"
    return f"Spark's Java process {how}"


def _check_home() -> None:
    """PySpark starts the Spark of SPARK_HOME, where that is set; one of another version fails in a hundred ways."""
    import pyspark

    home = os.environ.get("SPARK_HOME")
    jars = sorted(Path(home, "jars").glob("spark-core_*.jar")) if home else []
    versions = [re.sub(r"spark-core_[\d.]+-|\.jar$", "", jar.name) for jar in jars]
    if home and pyspark.__version__.split(".")[:2] not in [version.split(".")[:2] for version in versions]:
        there = f"is Spark {versions[0]}" if versions else "holds no Spark"
        raise NoSpark(
            f"SPARK_HOME is {home}, which {there}, and PySpark here is {pyspark.__version__}: unset SPARK_HOME, or "
            "install the PySpark of that version"
        )


def _quiet_errors() -> None:
    """Spark's Python writes every error of SQL over the terminal, as a line of JSON; we say it in a sentence."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _logging(pipeline: Pipeline, log: bool) -> dict[str, str]:
    """Spark's log to a file, from its first line on: so it is told to the JVM, not to the session."""
    folder = pipeline.state.resolve() if log else Path(tempfile.mkdtemp(prefix="tidelog-spark-"))
    if not log:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    options = {"log4j2.configurationFile": LOG_SETTINGS.as_uri(), "tidelog.spark.log": folder / LOG}
    return {"spark.driver.defaultJavaOptions": " ".join(f'"-D{name}={value}"' for name, value in options.items())}


def _patient(master: str) -> str:
    """`local[2]` with the tries that a task has; any other master as it is."""
    cores = re.fullmatch(r"local\[([^,\]]+)\]", master)
    return f"local[{cores[1]},{TRIES}]" if cores else master


def _started(pipeline: Pipeline, master: str, settings: dict[str, str], capture: StderrCapture) -> Any:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    building: Any = SparkSession.builder
    building = building.appName(pipeline.name).master(master)
    for name, value in {**QUIET, **SQL, **settings}.items():
        building = building.config(name, value)
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        with capture.children(), _taken_along():
            return building.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise NoSpark(f"Spark can't start at {master}: {capture.failure() or words_of(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupted)  # PySpark takes it for itself


@contextmanager
def _taken_along() -> Generator[None]:
    """Java goes with who leaves while it starts.

    It ends by itself when its starter does, but not when PySpark was interrupted before Java told its port: the file
    that it would tell it in is gone then, and Java waits for ever.
    """
    from pyspark import java_gateway

    module: Any = java_gateway
    start = module.Popen
    begun: list[subprocess.Popen[bytes]] = []

    def begin(*given: Any, **more: Any) -> Any:
        begun.append(start(*given, **more))
        return begun[-1]

    module.Popen = begin
    try:
        yield
    except Exception:
        raise
    except BaseException:
        for process in begun:
            process.kill()
            process.wait()
        raise
    finally:
        module.Popen = start


def _connected(pipeline: Pipeline, master: str) -> Any:
    """A session of a server that others run: it has its own Java, jars and settings, of which SQL's can be set."""
    missing = [package for module, package in CONNECT_NEEDS.items() if not _is_there(module)]
    if missing:
        raise NoSpark(f"Spark Connect needs {', '.join(missing)}: pip install 'pyspark[connect]'")
    for name in pipeline.spec.spark:
        if not name.startswith("spark.sql."):
            raise pipeline.problem(
                ("spark", name), f"{name} can't be set through Spark Connect: set it where its server is started"
            )
    _reach(master, master.removeprefix("sc://").partition("/")[0], CONNECT_PORT, "a Spark Connect server")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    building: Any = SparkSession.builder
    building = building.remote(master)
    for name, value in {**SQL, **pipeline.spec.spark}.items():
        building = building.config(name, value)
    try:
        spark = building.getOrCreate()
        spark.version  # noqa: B018  asks the server, which getOrCreate does not
    except PySparkException as error:
        raise NoSpark(f"{master} does not answer as a Spark Connect server: {words_of(error)}") from error
    try:
        check_cluster(spark, pipeline, os.cpu_count() or 1)
    except BaseException:
        spark.stop()
        raise
    return spark


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _reach(master: str, hosts: str, port: int, what: str) -> None:
    """Whether one of these takes a connection: Spark itself would try for a minute and end with a stack trace."""
    reasons: list[str] = []
    for each in hosts.split(","):
        host, _, given = each.rpartition(":") if ":" in each else (each, "", "")
        try:
            socket.create_connection((host.strip("[]"), int(given or port)), REACH_S).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{each}: {error}")
        else:
            return
    raise NoSpark(f"{what} was not found at {master} ({'; '.join(reasons)}): is it running, and is that its address?")
