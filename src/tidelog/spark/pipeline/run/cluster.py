"""Is a cluster able to run a pipeline: its executors have this Python and Tidelog, see its folders, reach its brokers.

Asked by a few small tasks before anything starts. The folders are what matters most: where executors write to disks of
their own, Spark calls the job done, and the rows are nowhere.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tidelog.rpc.address import addresses
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import FolderSink, UpsertSink
from tidelog.spark.pipeline.file.toml_lines import KeyPath
from tidelog.spark.pipeline.run.java import NoSpark

EXECUTORS_S = 120.0
POLL_S = 0.2
TASKS_A_CORE = 2
ANSWER = "host string, python string, tidelog string, unseen string, unreached string"


def wait_for_executors(spark: Any, master: str) -> int:
    """How many cores there are, once there are any; NoSpark where the master gives none."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001  PySpark doesn't tell of executors
    deadline = time.monotonic() + EXECUTORS_S
    while context.getExecutorMemoryStatus().size() < 2:  # the driver is one
        if time.monotonic() > deadline:
            raise NoSpark(
                f"{master} gave no executor within {EXECUTORS_S:g} s: either no worker has the cores and memory free "
                "(see the master's page), or executors can't reach this machine (SPARK_LOCAL_IP, spark.driver.host)"
            )
        time.sleep(POLL_S)
    return max(2, int(spark.sparkContext.defaultParallelism))


def check_cluster(spark: Any, pipeline: Pipeline, cores: int) -> None:
    """NoSpark or PipelineError where what the pipeline needs isn't there for an executor."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    brokers = [(each.host, each.port) for each in addresses(pipeline.bootstrap)]
    marks = _leave_marks(pipeline)
    tasks = TASKS_A_CORE * cores
    look = _looking([str(mark) for mark in marks.values()], brokers)
    try:
        answers = spark.range(0, tasks, 1, tasks).mapInArrow(look, ANSWER).distinct().collect()
    except (Py4JError, PySparkException) as error:
        raise NoSpark(_why(str(error))) from error
    finally:
        for mark in marks.values():
            mark.unlink(missing_ok=True)
    for each in answers:
        _judge(pipeline, each, {str(mark): path for path, mark in marks.items()})


def _judge(pipeline: Pipeline, answer: Any, marks: dict[str, KeyPath]) -> None:
    mine = version("tidelog")
    if answer.tidelog != mine:
        has = f"tidelog {answer.tidelog}" if answer.tidelog else "no tidelog"
        raise NoSpark(
            f"{answer.python} on {answer.host} has {has}, this is {mine}: pip install 'tidelog[spark]=={mine}' there, "
            "or set PYSPARK_PYTHON to a Python that has it on every machine"
        )
    if answer.unseen:
        unseen = answer.unseen.splitlines()[0]
        raise pipeline.problem(
            marks[unseen],
            f"{Path(unseen).parent} is not seen by the executor on {answer.host}: what it writes would be lost. "
            "Put it on a file system that all machines mount at the same path",
        )
    if answer.unreached:
        raise pipeline.problem(
            ("bootstrap",),
            f"the executor on {answer.host} reaches no broker at {pipeline.bootstrap} ({answer.unreached}): "
            "name brokers (--bootstrap) by an address that the cluster's machines can reach",
        )


def _leave_marks(pipeline: Pipeline) -> dict[KeyPath, Path]:
    """A file in each folder that executors have to share with this machine, by the key that names the folder."""
    folders: dict[KeyPath, Path] = {("state",): pipeline.state}
    for sink in pipeline.sinks:
        if isinstance(sink, UpsertSink) or (isinstance(sink, FolderSink) and not sink.is_address):
            folders[*sink.key_path, "path"] = pipeline.beside(sink.path)
    marks: dict[KeyPath, Path] = {}
    for key, folder in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        marks[key] = folder.resolve() / f".tidelog-{secrets.token_hex(8)}"
        marks[key].touch()
    return marks


def _looking(marks: list[str], brokers: list[tuple[str, int]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a task does. It is sent as code, not by name, since Tidelog may be missing there."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib
        import importlib.metadata
        import os
        import socket
        import sys
        import time

        arrow: Any = importlib.import_module("pyarrow")
        for _ in batches:
            time.sleep(0.1)  # so that each core gets a task
        try:
            tidelog_version = importlib.metadata.version("tidelog")
        except importlib.metadata.PackageNotFoundError:
            tidelog_version = ""
        unreached = ""
        for place in brokers:
            try:
                socket.create_connection(place, 10).close()
                unreached = ""
                break
            except OSError as error:
                unreached = str(error)
        unseen = "\n".join(mark for mark in marks if not os.path.exists(mark))
        row = [socket.gethostname(), sys.executable, tidelog_version, unseen, unreached]
        names = ["host", "python", "tidelog", "unseen", "unreached"]
        yield arrow.RecordBatch.from_arrays([arrow.array([each], arrow.string()) for each in row], names)

    return look


def _why(text: str) -> str:
    """One sentence for what executors that can't run Python at all make Spark say."""
    differs = re.search(r"different version: (\S+) than that in driver: (\S+?),", text)
    if differs:
        return (
            f"executors run Python {differs[1]}, this is Python {differs[2]}: set PYSPARK_PYTHON to a Python "
            f"{differs[2]} that has tidelog[spark] on every machine"
        )
    absent = re.search(r'Cannot run program "([^"]+)"', text)
    if absent:
        return (
            f"executors have no {absent[1]}: set PYSPARK_PYTHON to a path at which every machine has a Python with "
            "tidelog[spark]"
        )
    lacks = re.search(r"No module named '?([\w.]+)'?", text)
    if lacks:
        return f"the executors' Python has no {lacks[1]}: pip install 'tidelog[spark]' on every machine"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"the cluster can't run Python tasks: {lines[0] if lines else 'no reason given'}"
