"""`query.stop()` of plain PySpark in the middle of a batch: what the query has open is ended before it returns."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.members import until
from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, Producer
from tidelog.client.transactions import Transactions
from tidelog.spark import end_run
from tidelog.spark.sink.sink_options import read_sink_options
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]


@pytest.fixture
def row_by_row(spark: Any) -> Iterator[None]:
    """So that a transaction is open from its task's first row on."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    yield
    spark.conf.set(name, before)


@pytest.fixture
def rows(spark: Any, broker: Broker) -> Callable[[str], Any]:
    """A stream of two partitions, of which the second, or both, take minutes."""

    def stream(name: str, *, both: bool = False) -> Any:
        Admin(broker.bootstrap).create_topic(f"{name}-in", 2)
        Admin(broker.bootstrap).create_topic(f"{name}-out", 2)
        with Producer(broker.bootstrap) as producer:
            for number in range(5000):
                producer.send(f"{name}-in", b"%d" % number, partition=number % 2 if number < 6 else 1)
                if both:
                    producer.send(f"{name}-in", b"%d" % number, partition=0)
        reading = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        rows = (
            reading.option("subscribe", f"{name}-in")
            .option("startingOffsets", "earliest")
            .option("minPartitions", "2")
            .load()
        )
        return rows.where("reflect('java.lang.Thread', 'sleep', 100L) is null or true").select("value")

    return stream


def writing(broker: Broker, topic: str) -> list[str]:
    with Transactions(broker.bootstrap) as transactions:
        return sorted({each.name or "" for each in transactions.open_transactions([topic])})


def options(broker: Broker, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "kafka.batch.size": "1"}


def is_ended_by_stop(query: Any, broker: Broker, topic: str) -> bool:
    """Stop it; whether it left nothing open. If not, `end_run` ends it.

    Spark cancels a query's jobs and then interrupts its thread. On a busy machine that thread may have come to the
    sink's abort in between: Spark gives that up then ("failed to abort"), before any of it has run.
    """
    query.stop()
    if writing(broker, topic) == []:
        return True
    assert end_run(read_sink_options(options(broker, topic), streaming=True), str(query.runId), is_ending=True)
    assert writing(broker, topic) == []
    return False


STOPS_MAX = 3
"""Of so many queries that are stopped at least one isn't interrupted at that very moment."""


@pytest.mark.parametrize("both", [True, False], ids=["no task was done", "a task was done"])
def test_a_query_that_is_stopped_leaves_nothing_open(
    spark: Any, rows: Callable[..., Any], broker: Broker, tmp_path: Path, row_by_row: None, both: bool
) -> None:
    def is_ended(name: str) -> bool:
        stream = rows(name, both=both).writeStream.format("tidelog").options(**options(broker, f"{name}-out"))
        query = stream.option("checkpointLocation", str(tmp_path / name)).start()
        until(lambda: len(writing(broker, f"{name}-out")) == 2, "two tasks write", JVM_TIMEOUT_S / 4)
        if not both:
            until(lambda: finished(spark) == 1, "one of them is done", JVM_TIMEOUT_S / 4)
        return is_ended_by_stop(query, broker, f"{name}-out")

    assert any(is_ended(f"stopped-{both}-{number}".lower()) for number in range(STOPS_MAX))


@pytest.mark.long
def test_a_query_whose_checkpoint_the_session_places_leaves_nothing_open(
    spark: Any, rows: Callable[..., Any], broker: Broker, tmp_path: Path, row_by_row: None
) -> None:
    def is_ended(name: str) -> bool:
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
        stream = rows(name, both=True).writeStream.format("tidelog").options(**options(broker, f"{name}-out"))
        query = stream.queryName(name).start()
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
        until(lambda: len(writing(broker, f"{name}-out")) == 2, "two tasks write", JVM_TIMEOUT_S / 4)
        return is_ended_by_stop(query, broker, f"{name}-out")

    assert any(is_ended(f"placed_{number}") for number in range(STOPS_MAX))


def finished(spark: Any) -> int:
    """How many tasks of the stage that runs are done."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    return sum(each.numCompletedTasks for each in stages if each is not None)


def test_a_query_that_is_stopped_in_its_callback_leaves_nothing_open(
    rows: Callable[..., Any], broker: Broker, tmp_path: Path, row_by_row: None
) -> None:
    def each(batch: Any, number: int) -> None:
        job = {"jobId": "stopped-each", "jobBatch": str(number)}
        batch.write.format("tidelog").options(**options(broker, "stopped-each-out"), **job).mode("append").save()

    stream = rows("stopped-each", both=True).writeStream.foreachBatch(each)
    query = stream.option("checkpointLocation", str(tmp_path)).start()
    until(lambda: len(writing(broker, "stopped-each-out")) == 2, "two tasks write", JVM_TIMEOUT_S / 4)
    query.stop()
    until(lambda: writing(broker, "stopped-each-out") == [], "nothing is open")
