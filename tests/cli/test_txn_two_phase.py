"""`tidelog txn` and what a Spark query left open: it is listed, told whose and since when, and ended as was decided."""

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tests.spark.writing import TWO_PHASE, Killed, Query, counter, dying_at
from tidelog.cli.app import app
from tidelog.rpc import Cluster
from tidelog.rpc.open_transactions import behind_open
from tidelog.spark.sink import abort_run, decisions
from tidelog.spark.sink.data_sink import Written
from tidelog.testing import Broker

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE, offsets_topic_num_partitions=2) as broker:
        yield broker


@pytest.fixture
def run(broker: Broker) -> Run:
    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(app, ["txn", *map(str, arguments)], env={"TIDELOG_BOOTSTRAP": broker.bootstrap})
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def query(broker: Broker) -> Query:
    return Query(broker.bootstrap)


@pytest.fixture
def decided(query: Query) -> Query:
    """Its batch is decided, and its driver was killed before it could end it."""
    kill_in_commit(query, 0, query.task(0, b"a"))
    return query


@pytest.fixture
def elsewhere(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Query:
    """The same of a query that has a topic of its own for its decisions."""
    monkeypatch.setattr(abort_run, "QUIET_LOOKS", 2)
    query = Query(broker.bootstrap, "elsewhere", decisionsTopic=f"decisions-{next(counter)}")
    kill_in_commit(query, 0, query.task(0, b"a", run=query.sink))
    return query


def kill_in_commit(query: Query, batch: int, written: Written, before: str = "end_transaction", call: int = 1) -> None:
    """By default after the decision and before anything of it is ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decisions, before, dying_at(getattr(decisions, before), call))
        with pytest.raises(Killed):
            query.commit(batch, written)


def test_what_a_killed_query_left_is_listed_as_hanging(run: Run, query: Query) -> None:
    query.task(0, b"a", run="listed")
    [name] = query.open()
    assert json.loads(run("hanging", query.topic, "--json").output) == [], "it was begun just now"
    [found] = json.loads(run("hanging", query.topic, "--longer-than", 0, "--json").output)
    assert (found["id"], found["ended_by"], found["topic"]) == (name, "lease", query.topic)
    assert found["since_ms"] > 0
    text = run("hanging", query.topic, "--longer-than", 0).output
    assert name in text
    assert "its owner, or its lease" in text
    assert "none, but a lease (two-phase commit)" in run("describe", name).output


def test_what_is_prepared_is_not_aborted_unless_that_is_meant(run: Run, decided: Query) -> None:
    [name] = decided.open()
    [found] = json.loads(run("hanging", decided.topic, "--longer-than", 0, "--json").output)
    assert found["ended_by"] == "owner"
    assert "none (two-phase commit, prepared)" in run("describe", name).output
    refused = run("abort", name, "--yes", code=1).output
    assert f"{name} is prepared: its commit may be recorded elsewhere" in refused
    assert "tidelog txn settle" in refused
    assert decided.open() == [name]
    assert "Aborted" in run("abort", name, "--yes", "--prepared").output
    assert decided.open() == []


def test_what_a_coordinator_knows_is_not_aborted_behind_its_back(run: Run, decided: Query) -> None:
    """Its commit is decided: with an abort marker in the partition its rows would be lost, whatever comes after it."""
    [name] = decided.open()
    [found] = json.loads(run("hanging", decided.topic, "--longer-than", 0, "--json").output)
    place = ("--topic", found["topic"], "--partition", found["partition"], "--offset", found["offset"])
    refused = run("abort", *place, "--yes", code=1).output
    assert f"is of {name}, which its coordinator knows" in refused
    assert f"tidelog txn abort {name}" in refused
    assert decided.open() == [name]
    assert [each["id"] for each in json.loads(run("hanging", decided.topic, "--open", "--json").output)] == [name]
    run("abort", name, "--yes", "--prepared")


def test_what_is_left_is_ended_as_was_decided(
    run: Run, decided: Query, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abort_run, "QUIET_LOOKS", 2)
    undecided = Query(query.bootstrap)
    undecided.task(0, b"b", run="other")
    for each in (decided, undecided):
        [name] = each.open()
        assert "Ended 1 transactions" in run("settle", name, "--yes").output
    assert (decided.seen(), decided.open()) == ([b"a"], [])
    assert (undecided.seen(), undecided.open()) == ([], [])
    for name in ("payments-1", "tidelog-spark-x-task-nodash"):
        assert f"{name} is no transactional id of Spark's sink" in run("settle", name, code=1).output


def test_what_is_left_is_ended_as_was_decided_in_a_topic_of_its_own(run: Run, elsewhere: Query) -> None:
    """Which topic that is, the group of the sink tells."""
    [name] = elsewhere.open()
    assert "Ended 1 transactions" in run("settle", name, "--yes").output
    assert (elsewhere.seen(), elsewhere.open()) == ([b"a"], [])


@pytest.mark.parametrize("told", [(), ("--decisions", "tidelog-spark-decisions"), ("--decisions", "no-such-topic")])
def test_what_is_prepared_is_left_alone_where_no_decision_of_its_query_is(
    run: Run, elsewhere: Query, told: tuple[str, ...]
) -> None:
    elsewhere.forget()  # as brokers do after a week: nothing tells where its decisions are
    [name] = elsewhere.open()
    refused = run("settle", name, "--yes", *told, code=1).output
    assert f"{name} is prepared, and no decision of query {elsewhere.sink} is in" in refused
    assert "--decisions" in refused
    assert elsewhere.open() == [name]
    run("settle", name, "--yes", "--decisions", elsewhere.options.decisions)
    assert (elsewhere.seen(), elsewhere.open()) == ([b"a"], [])


def test_a_topic_of_decisions_that_is_not_the_one_that_tells_is_refused(run: Run, elsewhere: Query) -> None:
    [name] = elsewhere.open()
    refused = run("settle", name, "--yes", "--decisions", "tidelog-spark-decisions", code=1).output
    assert f"decided in topic {elsewhere.options.decisions}" in refused
    assert elsewhere.open() == [name]


def test_what_was_prepared_and_not_decided_is_aborted(run: Run, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abort_run, "QUIET_LOOKS", 2)
    query.commit(0, query.task(0, b"a", run=query.sink))
    kill_in_commit(query, 1, query.task(1, b"b", run=query.sink), "produce", 0)
    [name] = query.open()
    assert "none (two-phase commit, prepared)" in run("describe", name).output
    run("settle", name, "--yes")
    assert (query.seen(), query.open()) == ([b"a"], [])


def test_of_a_first_batch_that_was_prepared_nobody_can_tell(run: Run, query: Query) -> None:
    kill_in_commit(query, 0, query.task(0, b"a", run=query.sink), "produce", 0)
    [name] = query.open()
    refused = run("settle", name, "--yes", code=1).output
    assert "tidelog txn abort --prepared" in refused
    run("abort", name, "--prepared", "--yes")
    assert query.open() == []


def test_what_lies_behind_it_is_counted(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    query.task(1, b"b", b"c", run="killed")
    other = query.under("other")
    other.commit(0, other.task(0, b"b", b"d", run="other"))  # behind it, in one of the two partitions or both
    with Cluster(query.bootstrap) as cluster:
        found = behind_open(cluster, [(query.topic, 0), (query.topic, 1)])
        assert behind_open(cluster, []) == []
    assert {each.transaction.name for each in found} == set(query.open())
    assert sum(each.records for each in found) >= 3
    assert all(each.transaction.since_ms > 0 for each in found)
