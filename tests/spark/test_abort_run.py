"""Queries that are stopped in the middle of a batch leave nothing open."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

import pyarrow

from tests.spark.conftest import JVM_TIMEOUT_S, java
from tests.spark.writing import TWO_PHASE, Killed, Query, dying_at
from tidelog.client import Admin, Producer
from tidelog.client.transactions import Transactions
from tidelog.rpc.errors import Unsupported
from tidelog.spark.sink import abort_run, decisions
from tidelog.spark.sink.abort_run import end_run
from tidelog.spark.sink.producers import Producers
from tidelog.spark.sink.sink_options import read_sink_options
from tidelog.testing import Broker

arrow: Any = pyarrow
pytestmark = pytest.mark.usefixtures("own_connections")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE, offsets_topic_num_partitions=2) as broker:
        yield broker


def test_what_a_stopped_run_has_open_is_aborted_and_others_are_left_alone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abort_run, "QUIET_LOOKS", 2)
    query, other = Query(broker.bootstrap), Query(broker.bootstrap)
    query.commit(0, query.task(0, b"a"))
    assert end_run(query.options, "run") == 0
    query.task(1, b"b")
    kept = other.task(0, b"c", run="other")

    def late() -> Iterator[Any]:
        yield arrow.record_batch({"value": [b"b"]})
        assert end_run(query.options, "run") == 1

    assert query.write(1, late(), worker=Producers()).producer is None
    assert (query.open(), len(other.open())) == ([], 1)
    other.commit(0, kept)
    query.commit(1, query.task(1, b"b", run="next"))
    assert (query.seen(), other.seen()) == ([b"a", b"b"], [b"c"])


def test_what_a_stopped_run_has_decided_is_committed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abort_run, "QUIET_LOOKS", 2)
    query = Query(broker.bootstrap)
    first, second = query.task(0, b"a"), query.task(0, b"b")
    query.task(0, b"a")  # an attempt too many
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "end_transaction", dying_at(decisions.end_transaction, 2))
        with pytest.raises(Killed):
            query.commit(0, first, second)
    assert end_run(query.options, "run") == 2
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])
    query.commit(0, query.task(0, b"a", b"b", run="next"))
    assert query.seen() == [b"a", b"b"]


def test_what_a_run_has_open_that_was_stopped_before_anything_was_ever_decided_is_aborted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abort_run, "QUIET_LOOKS", 2)
    query = Query(broker.bootstrap, decisionsTopic="not-yet-made")
    query.task(0, b"a")
    assert end_run(query.options, "run") == 1
    assert (query.seen(), query.open()) == ([], [])
    query.commit(0, query.task(0, b"a", run="next"))
    assert query.seen() == [b"a"]


def at_least_once(query: Query) -> Query:
    given = {"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic, "delivery": "at-least-once"}
    other = query.under(query.sink)
    other.options = read_sink_options(given, streaming=True)
    return other


def test_a_query_that_goes_on_at_least_once_ends_what_it_left_as_was_decided(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abort_run, "QUIET_LOOKS", 1)
    query, other = Query(broker.bootstrap), Query(broker.bootstrap)
    query.commit(0, query.task(0, b"a"))
    first, second = query.task(1, b"b"), query.task(1, b"c")
    other.task(0, b"d", run="stranger")  # it stays open: other tests end runs of the usual name
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "end_transaction", dying_at(decisions.end_transaction, 1))
        with pytest.raises(Killed):
            query.commit(1, first, second)
    again = at_least_once(query)
    again.commit(1, again.task(1, b"b", b"c", run="next"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"b", b"c", b"c"], [])
    assert len(other.open()) == 1
    asked: list[object] = []
    monkeypatch.setattr(abort_run, "open_transactions", lambda *args: asked.append(args) or [])
    again.commit(2, again.task(2, b"e", run="next"))
    assert not asked, "once in a run is enough"


def test_brokers_that_cannot_list_transactions_hold_up_nobody_who_writes_at_least_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> list[object]:
        raise Unsupported("the brokers don't know ListTransactions")

    monkeypatch.setattr(abort_run, "open_transactions", refused)
    query = at_least_once(Query(broker.bootstrap))
    query.commit(0, query.task(0, b"a"))
    assert query.seen() == [b"a"]
    assert "could not look for what an earlier run left open" in caplog.text


FILE = """
name = "stopped"
state = "state"
bootstrap = "{bootstrap}"

[spark]
"spark.driver.host" = "127.0.0.1"
"spark.ui.enabled" = "false"
"spark.sql.execution.arrow.maxRecordsPerBatch" = "1"

[source.numbers]
topics = ["slow-in"]

[[step]]
name = "slowly"
sql = "select * from numbers where reflect('java.lang.Thread', 'sleep', 100L) is null or true"

[[sink]]
from = "slowly"
topic = "slow-out"
options = {{ "kafka.batch.size" = "1" }}

[[sink]]
from = "slowly"
topic = "slow-updates"
mode = "update"
options = {{ "kafka.batch.size" = "1" }}
"""


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(JVM_TIMEOUT_S)
def test_a_pipeline_that_is_stopped_in_the_middle_of_a_batch_leaves_nothing_open(
    broker: Broker, tmp_path: Path
) -> None:
    if java() is None:
        pytest.skip("Spark needs Java 17: apt-get install openjdk-17-jre-headless")
    for topic in ("slow-in", "slow-out", "slow-updates"):
        Admin(broker.bootstrap).create_topic(topic, 2)
    with Producer(broker.bootstrap) as producer:
        for number in range(2000):
            producer.send("slow-in", b"%d" % number, partition=number % 2)
    (tmp_path / "stopped.toml").write_text(FILE.format(bootstrap=broker.bootstrap))
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(tmp_path / "stopped.toml"), "--from", "earliest"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        deadline = time.monotonic() + JVM_TIMEOUT_S / 2
        while len(writing(broker)) < 2 and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        open_then = writing(broker)
        os.kill(running.pid, signal.SIGINT)
        said, _ = running.communicate(timeout=120)
    assert len(open_then) >= 2, said
    assert writing(broker) == [], said


def writing(broker: Broker) -> list[str]:
    with Transactions(broker.bootstrap) as transactions:
        return [each.name for each in transactions.all(["Ongoing"]) if "-task-" in each.name]
