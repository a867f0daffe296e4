"""What an executor lacks is found by small tasks before a pipeline starts: executors are made worse here on purpose."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.spark.pipeline.file.check import PipelineError
from tidelog.spark.pipeline.file.model import Pipeline, load
from tidelog.spark.pipeline.run.cluster import check_cluster
from tidelog.spark.pipeline.run.java import NoSpark

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]

FILE = """name = "orders"
state = "state"

[source.orders]
topics = ["orders"]

[[sink]]
from = "orders"
path = "lake"
"""


@pytest.fixture
def address() -> Iterator[str]:
    """Something that takes connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def pipeline(tmp_path: Path, address: str) -> Pipeline:
    (tmp_path / "orders.toml").write_text(FILE)
    return load(tmp_path / "orders.toml", address)


def left_in(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def test_executors_that_have_everything_pass_and_nothing_is_left_behind(
    spark: Any, pipeline: Pipeline, tmp_path: Path
) -> None:
    check_cluster(spark, pipeline, 2)
    assert left_in(tmp_path) == ["lake", "orders.toml", "state"]


def test_a_broker_that_executors_do_not_reach_is_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "orders.toml").write_text(FILE)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(PipelineError, match=rf"reaches no broker at 127.0.0.1:{port} \(.*refused\): name brokers"):
        check_cluster(spark, load(tmp_path / "orders.toml", f"127.0.0.1:{port}"), 1)


def test_a_python_that_is_not_there_is_named(
    spark: Any, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/bin/python")
    with pytest.raises(NoSpark, match="executors have no /nowhere/bin/python: set PYSPARK_PYTHON"):
        check_cluster(spark, pipeline, 1)
    assert left_in(tmp_path) == ["lake", "orders.toml", "state"]


def can_hide() -> bool:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.skipif(not can_hide(), reason="needs root and the right to mount in a namespace of its own (unshare -m)")
def test_a_folder_that_executors_do_not_share_is_named_with_its_line(
    spark: Any, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The task's Python sees another file system where the lake is, as on another machine."""
    (tmp_path / "lake").mkdir()
    elsewhere = tmp_path / "python"
    command = f"mount -t tmpfs none '{tmp_path / 'lake'}' && exec '{sys.executable}' \"$@\""
    elsewhere.write_text(f"#!/bin/sh\nexec unshare -m sh -c '{command.replace(chr(39), '')}' sh \"$@\"\n")
    elsewhere.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(elsewhere))
    with pytest.raises(PipelineError, match=rf"orders.toml:9: {tmp_path / 'lake'} is not seen by the executor on "):
        check_cluster(spark, pipeline, 1)
