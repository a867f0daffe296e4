"""`tidelog pipeline reset` without Spark: what goes, what stays, and what a sink has open that nobody would end."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tests.cli.test_txn_two_phase import kill_in_commit
from tests.spark.writing import Query
from tidelog.cli.app import app
from tidelog.spark.pipeline.file.model import Pipeline, load
from tidelog.spark.pipeline.quarantine import notes
from tidelog.spark.pipeline.quarantine.notes import Row, Unfit
from tidelog.spark.pipeline.run.resets import beginning, last_reset, note_reset, writes_as
from tidelog.spark.pipeline.sinks import left_out
from tidelog.spark.sink.sink_name import Job, job_sink
from tidelog.testing import Broker

FILE = """name = "orders"
state = "state"

[source.orders]
topics = ["orders"]

[[sink]]
from = "orders"
path = "lake"

[[sink]]
from = "orders"
topic = "copied"
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """One that ran: two sinks, of which each has finished seven micro-batches."""
    (tmp_path / "orders.toml").write_text(FILE)
    made = load(tmp_path / "orders.toml", "127.0.0.1:1")
    made.take_state()
    for sink in ("lake", "copied"):
        for folder in ("commits", "offsets", "state"):
            (made.state / "checkpoints" / sink / folder).mkdir(parents=True)
        (made.state / "checkpoints" / sink / "commits" / "6").touch()
        (made.state / "checkpoints" / sink / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    return made


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True, "transaction.state.log.num.partitions": 1}) as broker:
        yield broker


def reset(pipeline: Pipeline, *args: object) -> Result:
    return CliRunner().invoke(app, ["pipeline", "reset", str(pipeline.file), *map(str, args)])


def checkpoints(pipeline: Pipeline) -> list[str]:
    return sorted(each.name for each in (pipeline.state / "checkpoints").iterdir())


def test_a_sink_forgets_its_checkpoint_and_what_was_kept_of_its_batches_and_no_other_does(pipeline: Pipeline) -> None:
    before = writes_as(pipeline, "lake")
    for query in ("lake", "lake-late", "copied"):
        left_out.add(pipeline.state, query, 6, 3, "left out", "")
    row = Row("orders", 0, 5, 0)
    notes.add(pipeline.state, "lake", 6, [Unfit(row, "big", "no number")])
    result = reset(pipeline, "--sink", "lake", "--from", "latest")
    assert (result.exit_code, result.output) == (0, "Reset lake: the next run has it begin at latest.\n")
    assert checkpoints(pipeline) == ["copied"]
    assert list(left_out.left_out(pipeline.state)) == ["copied"]
    assert notes.aside(pipeline.state, "lake", 6) == []  # another batch has that number from now on
    assert (notes.known(pipeline.state), notes.read(pipeline.state, "lake").open) == ({row}, True)
    assert writes_as(pipeline, "lake") != before  # or else its batches were repetitions
    assert (last_reset(pipeline, "lake").start, beginning(pipeline, "copied")) == ("latest", None)
    told = json.loads(reset(pipeline, "--sink", "lake", "--json").output)
    assert told == {"reset": {"lake": 2}, "from": None}
    assert len({before, writes_as(pipeline, "lake"), f"{before}-1"}) == 3


def test_it_is_asked_for_and_says_what_it_means(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.cli.pipeline_reset.sys", type("Terminal", (), {"stdin": _Terminal()}))
    result = reset(pipeline, "--sink", "lake")
    assert result.exit_code == 1
    assert "lake forgets its checkpoint and its state (7 micro-batches were finished), and begins at earliest." in (
        result.output
    )
    assert "rows that are read again are written again: readers have them twice." in result.output
    assert checkpoints(pipeline) == ["copied", "lake"]


class _Terminal:
    def isatty(self) -> bool:
        return True


def test_what_can_not_be_reset_is_told_and_nothing_goes(pipeline: Pipeline) -> None:
    result = reset(pipeline, "--sink", "lak")
    assert (result.exit_code, "orders has no sink lak\n       did you mean lake?" in result.output) == (1, True)
    result = reset(pipeline, "--sink", "lake", "--from", "soon")
    assert (result.exit_code, "write earliest, latest, 2h or 2026-01-31T12:00" in result.output) == (2, True)
    with pipeline.hold_state():
        assert "orders runs already" in reset(pipeline, "--sink", "lake").output
    result = reset(pipeline, "--sink", "copied", "-b", "127.0.0.1:1")  # it may have something open there
    assert (result.exit_code, "no broker at 127.0.0.1:1 could" in result.output) == (1, True)
    assert checkpoints(pipeline) == ["copied", "lake"]
    (pipeline.state / "pipeline.json").unlink()
    assert "orders never ran: there is nothing to reset" in reset(pipeline, "--sink", "lake").output


def test_one_that_was_cut_off_is_repeated(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.spark.pipeline.reset.note_reset", lambda *_: 1 / 0)
        assert isinstance(reset(pipeline, "--sink", "lake").exception, ZeroDivisionError)
    assert last_reset(pipeline, "lake").number == 0
    assert reset(pipeline, "--sink", "lake").exit_code == 0
    assert (checkpoints(pipeline), last_reset(pipeline, "lake").number) == (["copied"], 1)


def test_what_a_sink_has_open_is_ended_before_its_checkpoint_goes(pipeline: Pipeline, broker: Broker) -> None:
    """A run that was killed left it: readers of the topic would wait for the query to come back, and it never does."""
    query, other = Query(broker.bootstrap), Query(broker.bootstrap)
    (pipeline.state / "checkpoints/copied/metadata").write_text(json.dumps({"id": query.sink}))
    query.commit(6, query.task(6, b"a"))
    query.task(7, b"b")
    other.task(0, b"c", run="another")
    assert (len(query.open()), len(other.open())) == (1, 1)
    assert reset(pipeline, "--sink", "copied", "-b", broker.bootstrap).exit_code == 0
    assert (query.open(), query.seen(), len(other.open())) == ([], [b"a"], 1)
    assert checkpoints(pipeline) == ["lake"]


def test_what_another_sink_has_open_is_left_alone_however_alike_its_name_is(tmp_path: Path, broker: Broker) -> None:
    """Its decisions are in a topic of its own: ended by those of the other sink, what is decided would be aborted."""
    (tmp_path / "orders.toml").write_text(f'{FILE}\n[[sink]]\nfrom = "orders"\ntopic = "copied-late"\n')
    made = load(tmp_path / "orders.toml", broker.bootstrap)
    made.take_state()
    (made.state / "checkpoints/copied").mkdir(parents=True)
    other = Query(broker.bootstrap, "late", decisionsTopic="decisions-of-late")
    other = other.under(job_sink(Job(other.topic, str(uuid4()), writes_as(made, "copied-late"))))
    kill_in_commit(other, 0, other.task(0, b"a"))
    [name] = other.open()
    assert reset(made, "--sink", "copied", "-b", broker.bootstrap).exit_code == 0
    assert other.open() == [name]


def test_no_sink_is_taken_for_another_that_was_reset(pipeline: Pipeline) -> None:
    note_reset(pipeline, "copied", None)
    assert writes_as(pipeline, "copied") != writes_as(pipeline, "copied-1")
