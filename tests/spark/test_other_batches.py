"""Another batch under a number that is decided is refused; a repetition is known, also across an upgrade."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

import pyarrow

from tests.spark.writing import TWO_PHASE, Killed, Query, decided_before, dying_at
from tidelog.client import Admin
from tidelog.rpc.transactions import Producer
from tidelog.spark.sink import decisions as module
from tidelog.spark.sink import sink_progress
from tidelog.spark.sink.data_sink import Written, settle, write_rows
from tidelog.spark.sink.decisions import OtherBatch, Replaced, RolledBack
from tidelog.spark.sink.producers import Attempt, Producers, driver_id
from tidelog.spark.sink.sink_name import Job, job_sink, older_name
from tidelog.spark.sink.sink_options import read_sink_options
from tidelog.testing import Broker

arrow: Any = pyarrow
pytestmark = pytest.mark.usefixtures("own_connections")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE, offsets_topic_num_partitions=2) as broker:
        yield broker


@pytest.fixture
def query(broker: Broker) -> Query:
    return Query(broker.bootstrap)


def test_the_same_rows_in_another_order_and_other_tasks_are_the_same_batch(query: Query) -> None:
    query.commit(0, query.task(0, b"a", b"b"), query.task(0, b"c"))
    query.commit(0, query.task(0, b"c", b"b"), query.task(0, b"a"), query.task(0))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


@pytest.mark.parametrize("rows", [(b"a", b"c"), (b"a",), (b"a", b"b", b"c"), (b"a", b"b", b"b"), ()])
def test_other_rows_under_a_decided_number_are_refused(query: Query, rows: tuple[bytes, ...]) -> None:
    query.commit(0, query.task(0, b"a", b"b"))
    with pytest.raises(
        OtherBatch, match=rf"batch 0 of query {query.sink} was committed before on .* UTC, but this one"
    ):
        query.commit(0, query.task(0, *rows, run="next"))
    query.commit(1, query.task(1, b"d", run="next"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"d"], [])


def test_what_was_decided_is_carried_out_though_what_comes_is_refused(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = query.task(0, b"a"), query.task(0, b"b")
    with monkeypatch.context() as patch:
        patch.setattr(module, "end_transaction", dying_at(module.end_transaction, 2))
        with pytest.raises(Killed):
            query.commit(0, first, second)  # the second is decided, and still open
    with pytest.raises(OtherBatch):
        query.commit(0, query.task(0, b"c", run="next"))
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_batch_that_was_decided_can_be_kept_whatever_comes_again(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    query.commit(0, query.task(0, b"a"))
    kept = Query(query.bootstrap, repetition="kept")
    kept.sink, kept.topic = query.sink, query.topic
    kept.options = read_sink_options(
        {"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic, "repetition": "kept"}, streaming=True
    )
    kept.commit(0, kept.task(0, b"b", b"c"))
    assert "and that one holds, though this one has 2 rows and that one had 1" in caplog.text
    assert query.seen() == [b"a"]


def test_a_batch_to_another_topic_is_another_one(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    other = Query(query.bootstrap)
    other.sink, own_topic = query.sink, query.topic
    with pytest.raises(
        OtherBatch, match=f"that one was written to topic {own_topic}, and this one is to go to topic {other.topic}"
    ):
        other.commit(0, other.task(0, b"a"))
    assert (query.seen(), other.seen()) == ([b"a"], [])


def test_a_batch_to_a_topic_that_was_made_again_is_another_one(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    Admin(query.bootstrap).delete_topic(query.topic)
    Admin(query.bootstrap).create_topic(query.topic, 2)
    with pytest.raises(OtherBatch, match=f"topic {query.topic} was deleted and made again since, and holds nothing"):
        query.commit(0, query.task(0, b"a"))


class ByColumn(Query):
    """Its rows say where to; half of them to a topic of their own."""

    def __init__(self, bootstrap: str, **options: str) -> None:
        super().__init__(bootstrap)
        self.other = f"{self.topic}-other"
        Admin(bootstrap).create_topic(self.other, 1)
        self.options = read_sink_options({"kafka.bootstrap.servers": bootstrap, **options}, streaming=True)

    def rows(self, batch: int, run: str = "run") -> Written:
        table = arrow.record_batch({"value": [b"a", b"b"], "topic": [self.topic, self.other]})
        return self.write(batch, iter([table]), run=run)


def test_a_batch_to_topics_that_its_rows_name_is_another_one_when_one_was_made_again(broker: Broker) -> None:
    query = ByColumn(broker.bootstrap)
    query.commit(0, query.rows(0))
    query.commit(0, query.rows(0, run="next"))
    assert query.seen() == [b"a"]
    Admin(query.bootstrap).delete_topic(query.other)
    Admin(query.bootstrap).create_topic(query.other, 1)
    with pytest.raises(OtherBatch, match=f"topic {query.other} was deleted and made again since, and holds nothing"):
        query.commit(0, query.rows(0, run="third"))


def elsewhere(query: Query) -> Query:
    """The same with another topic for its decisions."""
    moved = query.under(query.sink)
    given = {"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic, "decisionsTopic": "moved-decisions"}
    moved.options = read_sink_options(given, streaming=True)
    return moved


def test_a_batch_that_is_decided_in_another_topic_of_decisions_is_not_written_again(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = query.task(0, b"a"), query.task(0, b"b")
    with monkeypatch.context() as patch:
        patch.setattr(module, "end_transaction", dying_at(module.end_transaction, 2))
        with pytest.raises(Killed):
            query.commit(0, first, second)  # the second is decided, and still open
    moved = elsewhere(query)
    with pytest.raises(OtherBatch, match=r"batch 0 of query .* is decided in topic tidelog-spark-decisions, and this"):
        moved.commit(0, moved.task(0, b"a", b"b", run="next"))
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])
    moved.commit(1, moved.task(1, b"c", run="third"))
    moved.commit(1, moved.task(1, b"c", run="fourth"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d}\n{"in":{"0":%d}}\n'


class Checkpointed(Query):
    """A query with a checkpoint of its own, in which Spark has planned its batches."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        super().__init__(bootstrap, checkpointLocation=str(folder))
        self._offsets = folder / "offsets"
        self._offsets.mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": self.sink}))

    def plan(self, batch: int, at_ms: int, end: int) -> None:
        (self._offsets / str(batch)).write_text(OFFSETS % (at_ms, end))

    def forget_plans(self) -> None:
        shutil.rmtree(self._offsets)


@pytest.fixture
def checkpointed(broker: Broker, tmp_path: Path) -> Checkpointed:
    made = Checkpointed(broker.bootstrap, tmp_path / "state")
    made.plan(0, 1, 10)
    made.commit(0, made.task(0, b"a"))
    return made


def test_a_batch_that_is_repeated_after_a_crash_is_the_same_whatever_rows_it_makes(
    checkpointed: Checkpointed, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark repeats what it planned, and nobody has to come and see."""
    caplog.set_level(logging.INFO, "tidelog.spark")
    checkpointed.commit(0, checkpointed.task(0, b"a", run="next"))
    assert [each.levelname for each in caplog.records if "was committed before" in each.message] == ["INFO"]
    checkpointed.commit(0, checkpointed.task(0, b"random", b"more", run="third"))
    [warned] = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert f"batch 0 of query {checkpointed.sink} was committed before" in warned
    assert "its repetition makes other rows of the same input (this one has 2 rows and that one had 1)" in warned
    assert "those that were written first hold" in warned
    checkpointed.plan(1, 3, 20)
    checkpointed.commit(1, checkpointed.task(1, b"b", run="third"))
    assert (checkpointed.seen(), checkpointed.open()) == ([b"a", b"b"], [])


def test_a_batch_that_was_planned_anew_is_the_same_only_if_its_rows_are(checkpointed: Checkpointed) -> None:
    """By a checkpoint that was cut back, or another query that began from a copy of it."""
    checkpointed.plan(0, 2, 10)
    with pytest.raises(OtherBatch, match=r"but this one was planned anew, and has other rows, 1 as well\. Nothing of"):
        checkpointed.commit(0, checkpointed.task(0, b"fixed", run="next"))
    with pytest.raises(
        OtherBatch, match=r"planned anew, and has 2 rows and that one had 1.*The checkpoint was cut back"
    ):
        checkpointed.commit(0, checkpointed.task(0, b"a", b"b", run="third"))
    checkpointed.commit(0, checkpointed.task(0, b"a", run="fourth"))
    assert (checkpointed.seen(), checkpointed.open()) == ([b"a"], [])


def test_a_batch_of_other_offsets_is_another_one(checkpointed: Checkpointed) -> None:
    checkpointed.plan(0, 1, 11)  # the checkpoint was cut back, and more has come
    with pytest.raises(OtherBatch, match=r"but that one was made from other input.*The checkpoint was cut back"):
        checkpointed.commit(0, checkpointed.task(0, b"a", run="next"))
    assert (checkpointed.seen(), checkpointed.open()) == ([b"a"], [])


def test_where_nothing_is_told_of_what_a_batch_was_made_from_its_rows_count(checkpointed: Checkpointed) -> None:
    checkpointed.forget_plans()
    with pytest.raises(OtherBatch, match="has other rows, 1 as well"):
        checkpointed.commit(0, checkpointed.task(0, b"b", run="next"))
    checkpointed.commit(0, checkpointed.task(0, b"a", run="third"))
    assert (checkpointed.seen(), checkpointed.open()) == ([b"a"], [])


# -- jobs


class JobOf(Query):
    """A job that writes under an identity of its own, as a query's `foreachBatch` may."""

    def __init__(self, bootstrap: str, job: str, in_query: str = "", topic: str | None = None, **options: str) -> None:
        super().__init__(bootstrap, "job")
        self.topic = topic or self.topic
        given = {"kafka.bootstrap.servers": bootstrap, "topic": self.topic, "jobId": job, **options}
        self.options = read_sink_options(given, streaming=False)
        self.sink = job_sink(Job(self.topic, in_query, job))


@pytest.fixture
def job(query: Query) -> str:
    return f"job-of-{query.sink}"


def test_one_job_in_two_queries_and_to_two_topics_is_four(query: Query, job: str) -> None:
    made = [JobOf(query.bootstrap, job, in_query) for in_query in ("q1", "q2")]
    made += [JobOf(query.bootstrap, job, in_query, made[0].topic) for in_query in ("q2", "")]
    for each in made:
        for _ in range(2):
            each.commit(0, each.task(0, each.sink.encode()))
    assert made[0].seen() == sorted(made[index].sink.encode() for index in (0, 2, 3))
    assert made[1].seen() == [made[1].sink.encode()]


def test_what_a_job_is_made_from_may_be_said(query: Query, job: str) -> None:
    first = JobOf(query.bootstrap, job, jobInput="monday")
    first.commit(0, first.task(0, b"a"))
    again = JobOf(query.bootstrap, job, topic=first.topic, jobInput="monday")
    again.commit(0, again.task(0, b"a", b"b"))  # the table has grown since
    other = JobOf(query.bootstrap, job, topic=first.topic, jobInput="tuesday")
    with pytest.raises(OtherBatch, match="but that one was made from other input"):
        other.commit(0, other.task(0, b"a"))
    assert first.seen() == [b"a"]


# -- decisions of the version before


class Upgraded(JobOf):
    """A job that the version before has written batch 5 of, and its own tasks of that time."""

    def __init__(self, bootstrap: str, job: str, in_query: str = "q", *, end: bool = True) -> None:
        super().__init__(bootstrap, job, in_query)
        self.older = older_name(self.sink) or ""
        self.left = self.before(5, b"a", b"b")
        decided_before(self.options, self.older, 5, self.left, end=end)

    def before(self, batch: int, *values: bytes) -> Written:
        table = arrow.record_batch({"key": list(values), "value": list(values)})
        options = replace(self.options, leased=False)
        return write_rows(options, Attempt(self.older, "before", batch), iter([table]), Producers())

    def open(self) -> list[str]:
        return [*super().open(), *Query.open(self.under(self.older))]


@pytest.mark.parametrize("end", [True, False])
def test_a_query_that_goes_on_after_an_upgrade_writes_each_batch_once(query: Query, job: str, end: bool) -> None:
    upgraded = Upgraded(query.bootstrap, job, end=end)  # not ended: its driver was killed with the batch decided
    upgraded.before(6, b"lost")
    upgraded.commit(5, upgraded.task(5, b"a", b"b"))
    assert upgraded.seen() == [b"a", b"b"]
    upgraded.commit(6, upgraded.task(6, b"c"))
    upgraded.commit(6, upgraded.task(6, b"c", run="next"))
    assert (upgraded.seen(), upgraded.open()) == ([b"a", b"b", b"c"], [])


def test_a_query_that_goes_on_after_an_upgrade_may_begin_with_the_next_batch(query: Query, job: str) -> None:
    upgraded = Upgraded(query.bootstrap, job, end=False)
    upgraded.commit(6, upgraded.task(6, b"c"))
    with pytest.raises(RolledBack):
        upgraded.commit(5, upgraded.task(5, b"a", b"b", run="next"))
    assert (upgraded.seen(), upgraded.open()) == ([b"a", b"b", b"c"], [])


def test_a_batch_of_the_version_before_is_known_by_the_number_of_its_rows(query: Query, job: str) -> None:
    upgraded = Upgraded(query.bootstrap, job)
    with pytest.raises(OtherBatch, match=r"was committed before, but this one has 3 rows and that one had 2"):
        upgraded.commit(5, upgraded.task(5, b"a", b"b", b"c"))
    assert (upgraded.seen(), upgraded.open()) == ([b"a", b"b"], [])


def test_another_query_begins_anew_once_one_has_gone_on_from_the_version_before(query: Query, job: str) -> None:
    upgraded = Upgraded(query.bootstrap, job)
    anew, elsewhere = JobOf(query.bootstrap, job, "anew", upgraded.topic), JobOf(query.bootstrap, job, "q")
    with pytest.raises(RolledBack):  # it may be the same query, of which the checkpoint was cut back
        anew.commit(0, anew.task(0, b"0"))
    upgraded.commit(6, upgraded.task(6, b"c"))
    anew.commit(0, anew.task(0, b"0"))
    elsewhere.commit(6, elsewhere.task(6, b"e"))
    assert (upgraded.seen(), elsewhere.seen()) == ([b"0", b"a", b"b", b"c"], [b"e"])


@pytest.mark.parametrize("ago", [0, 1])
def test_a_driver_of_the_version_before_that_wakes_decides_nothing(query: Query, job: str, ago: int) -> None:
    upgraded = Upgraded(query.bootstrap, job)
    asleep = upgraded.before(6, b"c")
    asleep = replace(asleep, term=(asleep.term or 0) - ago)  # another driver may have taken over before the upgrade
    upgraded.commit(6, upgraded.task(6, b"c"))
    with pytest.raises(Replaced):
        settle(upgraded.options, 6, [asleep], commit=True)
    assert (upgraded.seen(), upgraded.open()) == ([b"a", b"b", b"c"], [])


def test_what_went_on_from_the_version_before_outlives_its_offsets(query: Query, job: str) -> None:
    upgraded = Upgraded(query.bootstrap, job)
    upgraded.commit(6, upgraded.task(6, b"c"))
    upgraded.forget()  # of the new name alone
    upgraded.commit(6, upgraded.task(6, b"c", run="next"))
    upgraded.commit(7, upgraded.task(7, b"d", run="next"))
    assert (upgraded.seen(), upgraded.open()) == ([b"a", b"b", b"c", b"d"], [])


STEPS = {
    module: (
        "init_producer",
        "describe_all",
        "prepare",
        "produce",
        "commit_offsets_in",
        "end_transaction",
        "open_transactions",
        "commit_exactly",
    ),
    sink_progress: ("committed_offset",),
}


@pytest.fixture
def version_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """A stream's group had its query's id for a name: inside of it that is so."""

    @contextmanager
    def inside() -> Iterator[None]:
        with monkeypatch.context() as patch:
            for place in (module, sink_progress):
                patch.setattr(place, "group_of", str)
            yield

    return inside


@pytest.mark.parametrize("wakes_before", [6, 7])
def test_a_stream_that_goes_on_after_an_upgrade_writes_each_batch_once(
    query: Query, version_before: Callable[[], AbstractContextManager[None]], wakes_before: int
) -> None:
    with version_before():
        query.commit(5, query.task(5, b"a"))
        asleep = query.task(6, b"b")
    query.commit(5, query.task(5, b"a", run="next"))
    for batch, value in ((6, b"b"), (7, b"c")):
        if batch == wakes_before:
            with version_before(), pytest.raises(Replaced):
                query.commit(6, asleep)  # a driver of that version that wakes
        query.commit(batch, query.task(batch, value, run="next"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


FAST = {(5, 6), (6, 8), (6, 11)}
KILLS = [
    pytest.param(batch, call, marks=() if (batch, call) in FAST else pytest.mark.long)
    for batch in (5, 6)
    for call in range(20)
]


@pytest.mark.parametrize(("batch", "call"), KILLS)
def test_a_driver_killed_while_it_goes_on_from_the_version_before_repeats_the_batch(
    query: Query, monkeypatch: pytest.MonkeyPatch, batch: int, call: int
) -> None:
    upgraded = Upgraded(query.bootstrap, f"job-{query.sink}-{batch}", end=False)
    rows = (b"a", b"b") if batch == 5 else (b"c",)
    written = upgraded.task(batch, *rows, run="first")
    with monkeypatch.context() as patch:
        dying = dying_at(lambda real, *args, **named: real(*args, **named), call)
        for place, names in STEPS.items():
            for name in names:
                patch.setattr(place, name, partial(dying, getattr(place, name)))
        try:
            upgraded.commit(batch, written)
        except Killed:
            pass
        else:
            assert call > 14, "there are fewer steps than that"
    upgraded.commit(batch, upgraded.task(batch, *rows, run="second"))
    upgraded.commit(7, upgraded.task(7, b"d", run="second"))
    assert upgraded.seen() == sorted({b"a", b"b", b"d", *rows})
    assert upgraded.open() == []


def test_a_producer_names_its_job() -> None:
    name = job_sink(Job("out", "q", "a:b:c"))
    assert older_name(name) == "job-a:b:c"
    assert older_name(job_sink(Job("", "", "a"))) == "job-a"
    assert older_name("2f8a-1") is None
    assert Producer(driver_id(name), 1, 0).transactional_id == "tidelog-spark-job:out:q:a:b:c-driver"
