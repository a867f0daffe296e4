"""A pipeline whose topic holds an open transaction says so: it is neither done nor without lag."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tests.compat.members import until
from tests.spark.conftest import JVM_TIMEOUT_S
from tests.spark.writing import Query
from tidelog.cli.app import app
from tidelog.client.transactions import Transactions
from tidelog.spark.pipeline.file.model import Pipeline, load
from tidelog.spark.pipeline.run import current_lag
from tidelog.spark.pipeline.run.board import Board
from tidelog.spark.pipeline.run.current_lag import Ends
from tidelog.spark.pipeline.run.held_up import HeldUp, check_done, held_up
from tidelog.spark.pipeline.run.runner import run
from tidelog.spark.pipeline.run.status import read_status
from tidelog.spark.pipeline.run.stop_signals import Stop
from tidelog.testing import Broker

pytestmark = pytest.mark.usefixtures("own_connections")

FILE = """
name = "downstream"
state = "state"
bootstrap = "{bootstrap}"

[source.rows]
{source}

[[sink]]
from = "rows"
topic = "after-{topic}"
partitions = 1
"""


@pytest.fixture
def upstream(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Query:
    """A query that wrote a batch, and was killed with the next one open; then another wrote behind that."""
    query = Query(broker.bootstrap)
    query.commit(0, query.task(0, b"a", b"b", b"c"))
    query.task(1, *(b"open-%d" % number for number in range(10)), run="killed")
    other = query.under(f"other-{query.sink}")
    other.commit(0, other.task(0, *(b"behind-%d" % number for number in range(30)), run="other"))
    return query


def made(folder: Path, query: Query, source: str = 'topics = ["{topic}"]') -> Pipeline:
    text = FILE.format(bootstrap=query.bootstrap, topic=query.topic, source=source.format(topic=query.topic))
    (folder / "downstream.toml").write_text(text)
    return load(folder / "downstream.toml")


@pytest.fixture
def ended(upstream: Query) -> Callable[[], None]:
    def end() -> None:
        with Transactions(upstream.bootstrap) as transactions:
            for name in upstream.open():
                transactions.abort(name)
        until(lambda: not upstream.open(), "it is aborted")

    return end


@pytest.mark.parametrize("source", ['topics = ["{topic}"]', 'pattern = "^{topic}$"'])
def test_what_is_behind_an_open_transaction_is_found(upstream: Query, tmp_path: Path, source: str) -> None:
    held = held_up(made(tmp_path, upstream, source))
    assert {each.id for each in held} == set(upstream.open())
    assert sum(each.records for each in held) >= 40  # markers have offsets, too
    assert {each.ended_by for each in held} == {"lease"}
    uncommitted = made(tmp_path, upstream, source + "\ncommitted = false")
    assert held_up(uncommitted) == []


def test_only_what_stood_open_before_a_run_keeps_it_from_being_done(
    upstream: Query, tmp_path: Path, ended: Callable[[], None]
) -> None:
    pipeline = made(tmp_path, upstream)
    before = held_up(pipeline)
    [name] = upstream.open()
    with pytest.raises(
        HeldUp, match=rf"but for \d+ records behind an open transaction of {name} since 2.*{upstream.topic}-0"
    ):
        check_done(pipeline, before)
    ended()
    upstream.task(1, b"at work", run="next")
    assert held_up(pipeline)
    check_done(pipeline, before)
    check_done(pipeline, [])


def test_it_is_shown_and_counted_as_lag(upstream: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_lag, "ASK_S", 0.05)
    monkeypatch.setattr(current_lag, "STANDING_S", 0.5)
    pipeline = made(tmp_path, upstream)
    watching = Ends(pipeline, print)
    done = {(upstream.topic, 0): 0, (upstream.topic, 1): 0}
    watching.watch(done)
    watching.begin()
    until(lambda: watching.behind(done) is not None, "brokers have told")
    assert watching.held_up == [], "it may be somebody at work"
    until(lambda: watching.held_up, "it stands for long")
    watching.end()
    assert sum(each.records for each in watching.held_up) >= 40
    stable = sum(each.first_offset for each in watching.held_up)
    assert watching.behind(done) == stable + sum(each.records for each in watching.held_up)


def test_it_is_lag_also_of_a_run_that_ends_at_once(upstream: Query, tmp_path: Path) -> None:
    """Spark counts up to the open transaction only: brokers have to be asked, however short the run was."""
    pipeline = made(tmp_path, upstream)
    pipeline.state.mkdir()
    waiting = sum(each.records for each in held_up(pipeline))
    read = {each.partition: each.first_offset for each in held_up(pipeline)}
    offsets = json.dumps({upstream.topic: {str(partition): offset for partition, offset in read.items()}})
    progress: dict[str, Any] = {
        "batchId": 0,
        "numInputRows": 3,
        "processedRowsPerSecond": 3.0,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "durationMs": {},
        "stateOperators": [],
        "sources": [{"endOffset": offsets, "latestOffset": offsets}],
    }
    query = SimpleNamespace(isActive=False, status={"message": "Stopped"}, exception=lambda: None)
    query.lastProgress, query.recentProgress = progress, [progress]
    with Board(pipeline, print, Stop()) as board:
        board.look({"after": query}, "done")
    status = read_status(pipeline.state)
    assert status is not None
    assert status["queries"]["after"]["lag"] == waiting >= 40


def test_status_says_how_many_records_wait_for_whom_since_when(upstream: Query, tmp_path: Path) -> None:
    pipeline = made(tmp_path, upstream)
    pipeline.state.mkdir()
    status = {"pipeline": "downstream", "outcome": "stopped", "pid": 1, "at": 0.0, "queries": {}}
    status |= {"held_up": [each.to_json() for each in held_up(pipeline)]}
    (pipeline.state / "status.json").write_text(json.dumps(status))
    shown = CliRunner().invoke(app, ["pipeline", "status", str(pipeline.file)]).output
    [name] = upstream.open()
    assert f" records behind an open transaction of {name} since 2" in shown


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(JVM_TIMEOUT_S)
def test_a_run_to_the_end_fails_on_it_and_goes_on_when_it_is_ended(
    spark: Any, upstream: Query, tmp_path: Path, ended: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = made(tmp_path, upstream)
    monkeypatch.setattr(
        "tidelog.spark.pipeline.run.runner.run_at", lambda master, *given, **more: run(*given, spark, **more)
    )

    def once() -> Result:
        return CliRunner().invoke(app, ["pipeline", "run", str(pipeline.file), "--once"])

    first = once()
    assert (first.exit_code, "downstream is done with all that it can read, but for" in first.output) == (3, True)
    assert "`tidelog txn hanging --open` tells who ends it" in first.output
    status = read_status(pipeline.state)
    assert status is not None
    assert (status["outcome"], "behind an open transaction of" in status["why"]) == ("failed", True)
    ended()
    assert once().exit_code == 0
    after = Query.__new__(Query)
    after.bootstrap, after.topic = upstream.bootstrap, f"after-{upstream.topic}"
    assert len(after.seen()) == 33
