"""What is shown of a run: its status file, its log, a word now and then; and what Spark's processes say besides."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from tidelog.client import Admin, Producer
from tidelog.client.groups import Groups
from tidelog.rpc import Cluster
from tidelog.rpc.groups import committed_offset
from tidelog.spark.pipeline.file.model import Pipeline, load
from tidelog.spark.pipeline.run import board as boards
from tidelog.spark.pipeline.run import current_lag
from tidelog.spark.pipeline.run.board import Board
from tidelog.spark.pipeline.run.status import done_by, figures, read_status
from tidelog.spark.pipeline.run.stderr_capture import StderrCapture
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
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "orders.toml").write_text(FILE)
    made = load(tmp_path / "orders.toml")
    made.state.mkdir()
    return made


def outcome(pipeline: Pipeline) -> dict[str, Any]:
    return json.loads((pipeline.state / "status.json").read_text())


class Query:
    """What is asked of Spark's: so many micro-batches, of which the last is behind by 5."""

    def __init__(self, batches: int) -> None:
        self.isActive = True
        self.status = {"message": "Processing new data"}
        self.recentProgress = [batch(number) for number in range(batches)]
        self.lastProgress = self.recentProgress[-1]

    def exception(self) -> None:
        return None


def batch(number: int) -> dict[str, Any]:
    return {
        "batchId": number,
        "numInputRows": 10 * number,
        "processedRowsPerSecond": 40.0,
        "durationMs": {"triggerExecution": 250},
        "timestamp": "2026-01-31T12:00:00.000Z",
        "observedMetrics": {
            "read-orders": {"bytes": 100 * number},
            "read-people": {"bytes": None},
            "read-all": Row()(),
        },
        "stateOperators": [{"numRowsDroppedByWatermark": number}],
        "sources": [{"endOffset": '{"orders": {"0": 10}}', "latestOffset": '{"orders": {"0": 12, "1": 3}}'}],
    }


def test_every_batch_has_a_line_with_rows_bytes_and_lag(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "TELL_S", 0.0)
    words: list[str] = []
    with Board(pipeline, words.append, Stop()) as board:
        assert outcome(pipeline)["outcome"] == "starting"
        board.look({"lake": Query(2)}, "running")
        board.look({"lake": Query(3)}, "running")
        assert outcome(pipeline)["queries"]["lake"]["bytes"] == 200
        board.done = True
    lines = (pipeline.state / "pipeline.log").read_text().splitlines()
    assert [line.partition(" INFO ")[2] for line in lines] == [
        f"lake: batch {number}: {10 * number} rows, {100 * number} bytes, 40 rows/s, 250 ms, 5 behind"
        for number in range(3)
    ]
    assert outcome(pipeline)["outcome"] == "done"
    assert outcome(pipeline)["left_out"]["lake-late"]["rows"] == 3
    assert any("lake batch 2, " in each and each.endswith(" rows/s, 5 behind") for each in words)
    assert sum("came later than the watermark allows" in each for each in words) == 2


def test_a_query_that_was_just_started_again_has_no_lag_to_tell(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []
    with Board(pipeline, words.append, Stop()) as board:
        board.look({"lake": Query(3)}, "running")
        monkeypatch.setattr(boards, "TELL_S", 0.0)
        again = Query(1)
        again.lastProgress, again.recentProgress = None, []
        board.look({"lake": again}, "running")
    assert any("lake batch 2, " in each and each.endswith(" rows/s") for each in words)


def test_through_spark_connect_figures_are_those_of_the_sources() -> None:
    progress = batch(3) | {"numInputRows": None, "processedRowsPerSecond": None}
    progress["sources"] = [{"numInputRows": 30, "processedRowsPerSecond": 7.5}, {"numInputRows": 4}]
    assert [figures(progress)[name] for name in ("rows", "rows_per_s", "lag")] == [34, 7.5, 0]


def test_what_stands_beside_offsets_is_none() -> None:
    progress = batch(3)
    progress["sources"] = [{"endOffset": '{"orders": {"0": 10, "00": 3, "000": 6022140857747}}', "latestOffset": None}]
    assert done_by(progress) == {("orders", 0): 10}


def failing(error: BaseException, pipeline: Pipeline, stop: Stop) -> None:
    with Board(pipeline, print, stop):
        raise error


def test_how_a_run_ended_stands_in_its_status(pipeline: Pipeline) -> None:
    with pytest.raises(RuntimeError):
        failing(RuntimeError("lake: no room\nand a stack"), pipeline, Stop())
    assert (outcome(pipeline)["outcome"], outcome(pipeline)["why"]) == ("failed", "lake: no room")
    with pytest.raises(KeyboardInterrupt):
        failing(KeyboardInterrupt(), pipeline, Stop())
    assert outcome(pipeline)["outcome"] == "stopped"
    stop = Stop()
    stop.wish()
    failing(RuntimeError("job cancelled"), pipeline, stop)  # what fails since it was stopped has not failed
    assert (outcome(pipeline)["outcome"], "why" in outcome(pipeline)) == ("stopped", False)


def test_a_disk_that_is_full_is_told_of_once_and_ends_no_run(pipeline: Pipeline) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full, a disk that is always full")
    words: list[str] = []
    (pipeline.state / "pipeline.log").symlink_to("/dev/full")
    (pipeline.state / f".status.json.{os.getpid()}").symlink_to("/dev/full")
    with Board(pipeline, words.append, Stop()) as board:
        board.look({"lake": Query(1)}, "running")
        board.look({"lake": Query(2)}, "running")
    full = [each for each in words if "No space left on device" in each]
    assert len(full) == 1
    assert "its status can't be written" in full[0]


def test_a_run_that_holds_its_state_no_more_is_gone(pipeline: Pipeline) -> None:
    with pipeline.hold_state(), Board(pipeline, print, Stop()) as board:
        status = read_status(pipeline.state)
        assert status is not None
        assert status["outcome"] == "starting"
        board.write("running")
    (pipeline.state / "status.json").write_text(json.dumps({"outcome": "running", "pid": os.getpid()}))
    status = read_status(pipeline.state)
    assert status is not None
    assert status["outcome"] == "gone"


def test_the_lag_is_what_is_there_by_now_and_brokers_that_are_away_are_told_of(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    monkeypatch.setattr(current_lag, "ASK_S", 0.02)
    monkeypatch.setattr(current_lag, "PATIENCE_S", 0.2)
    monkeypatch.setattr(current_lag, "AWAY_S", 0.0)
    words: list[str] = []
    with Broker() as broker:
        Admin(broker.bootstrap).create_topic("orders", 2)
        with Producer(broker.bootstrap) as producer:
            for _ in range(30):
                producer.send("orders", b"x", partition=0)
        board = Board(load(pipeline.file, broker.bootstrap), words.append, Stop())
        board.__enter__()

        def lag() -> int:
            board.look({"lake": Query(1)}, "running")
            return outcome(pipeline)["queries"]["lake"]["lag"]

        eventually(lambda: lag() == 20)  # of 30 in partition 0, 10 are done; Spark told of two
    eventually(lambda: any("waiting for brokers: no broker at " in each for each in words))
    lag()
    assert outcome(pipeline)["away"] < time.time()
    board.__exit__(None, None, None)


@pytest.mark.parametrize(("asked", "groups"), [("", []), ("lag_groups = true\n", ["pipeline-orders-lake"])])
def test_how_far_a_query_is_stands_in_a_group_of_its_own_where_that_is_asked_for(
    pipeline: Pipeline, asked: str, groups: list[str]
) -> None:
    pipeline.file.write_text(asked + FILE)
    with Broker() as broker, Cluster(broker.bootstrap) as cluster:
        Admin(broker.bootstrap).create_topic("orders", 1)
        with Board(load(pipeline.file, broker.bootstrap), lambda _: None, Stop()) as board:
            board.look({"lake": Query(1)}, "running")
        assert Groups(broker.bootstrap).names() == groups
        assert [committed_offset(cluster, group, ("orders", 0)) for group in groups] == [(10, "")] * len(groups)


SAID = """WARNING: Using incubator modules: jdk.incubator.vector
Traceback (most recent call last):
  File "socket.py", line 724, in write
    return self._sock.send(b)
BrokenPipeError: [Errno 32] Broken pipe

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
orders-0: 12 records are gone; reading goes on with what is left
orders-0: 12 records are gone; reading goes on with what is left
"""


def test_of_what_sparks_processes_say_only_sentences_are_told(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    words: list[str] = []
    capture = StderrCapture(words.append)
    (tmp_path / "said").write_text(SAID)
    with capture.children():
        child = subprocess.Popen(["sh", "-c", f"cat '{tmp_path / 'said'}' >&2"])
    os.write(2, b"mine\n")
    assert child.wait() == 0
    eventually(lambda: bool(words))
    assert words == ["orders-0: 12 records are gone; reading goes on with what is left"]
    assert capfd.readouterr().err == "mine\n"


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    return wait


def test_what_java_said_when_it_did_not_start_is_known() -> None:
    capture = StderrCapture(None)
    capture.hear("Unrecognized VM option 'NoSuch'")
    capture.hear("Error: Could not create the Java Virtual Machine.")
    assert capture.failure() == "Unrecognized VM option 'NoSuch'"
    assert StderrCapture(None).failure() is None
    capture = StderrCapture(None)
    capture.hear('Exception in thread "main" org.apache.spark.SparkException: Master must be one')
    assert capture.failure() == "Master must be one"
