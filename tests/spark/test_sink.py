"""Rows to topics in a real Spark: streams exactly once, batches at least once or once a job."""

from pathlib import Path
from typing import Any

import pytest

from tests.compat.members import until
from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, read
from tidelog.client.transactions import Transactions
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]


def committed(broker: Broker, topic: str) -> list[bytes]:
    messages = read(broker.bootstrap, topic, stop_at_end=True, isolation_level="read_committed")
    return sorted(message.value or b"" for message in messages)


def test_a_stream_from_topic_to_topic_is_written_once_though_it_is_repeated(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    for topic in ("sink-in", "sink-out"):
        Admin(broker.bootstrap).create_topic(topic, 3)
    numbers = spark.range(300).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    numbers.write.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "sink-in").mode(
        "append"
    ).save()

    def run() -> None:
        reading = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        rows = reading.option("subscribe", "sink-in").option("startingOffsets", "earliest")
        rows = rows.option("maxOffsetsPerTrigger", "100").load()
        writing = rows.selectExpr("key", "value").writeStream.format("tidelog").option("topic", "sink-out")
        writing = writing.option("kafka.bootstrap.servers", broker.bootstrap)
        query = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    expected = sorted(b"%d" % number for number in range(300))
    assert committed(broker, "sink-out") == expected
    for last in ("2", ".2.crc"):  # as after a crash between the sink's commit and Spark's
        (tmp_path / f"commits/{last}").unlink(missing_ok=True)
    run()
    assert committed(broker, "sink-out") == expected


def test_a_batch_under_a_job_id_is_written_once(spark: Any, broker: Broker) -> None:
    Admin(broker.bootstrap).create_topic("jobs", 2)
    rows = spark.range(50).selectExpr("cast(id as string) as value", "'jobs' as topic")
    for _ in range(2):
        writing = rows.write.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        writing.option("jobId", "nightly-1").mode("append").save()
    assert committed(broker, "jobs") == sorted(b"%d" % number for number in range(50))


def open_of(broker: Broker, job: str) -> list[str]:
    with Transactions(broker.bootstrap) as transactions:
        return [each.name for each in transactions.all(["Ongoing"]) if f":{job}-task-" in each.name]


def test_a_job_that_fails_shows_nothing_and_leaves_nothing_open(spark: Any, broker: Broker) -> None:
    Admin(broker.bootstrap).create_topic("failing", 2)
    good = "if(id < 90, cast(id as string), raise_error('row 90 is bad')) as value"
    for repeated in (False, True):
        rows = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as value" if repeated else good)
        writing = rows.write.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        writing = writing.option("topic", "failing").option("jobId", "failing").mode("append")
        if repeated:
            writing.save()
        else:
            with pytest.raises(Exception, match="row 90 is bad"):
                writing.save()
            # A task that was still at it aborts its transaction itself, when it finds out that the job is over.
            until(lambda: not open_of(broker, "failing"), "nothing of the job is open")
            assert committed(broker, "failing") == []
    assert committed(broker, "failing") == sorted(b"%d" % number for number in range(100))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id as value"], {"topic": "t"}, "column value is bigint, expected string or binary"),
        (["cast(id as string) as value"], {}, "set the option topic, or give the rows a column topic"),
        (["cast(id as string) as value", "id"], {"topic": "t"}, "column id is none of key, value, topic"),
        (["'a' as key"], {"topic": "t"}, "there is no column value among key"),
        (["'a' as value"], {"topic": "t", "delivery": "maybe"}, "neither exactly-once nor at-least-once"),
        (
            ["'a' as value", "array('h') as headers"],
            {"topic": "t"},
            "column headers is array<string>, expected array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_what_cannot_be_written_is_said(spark: Any, broker: Broker, columns: Any, options: Any, said: str) -> None:
    writing = spark.range(1).selectExpr(*columns).write.format("tidelog").mode("append")
    with pytest.raises(Exception, match=said):
        writing.option("kafka.bootstrap.servers", broker.bootstrap).options(**options).save()


def test_a_topic_is_not_overwritten(spark: Any, broker: Broker) -> None:
    Admin(broker.bootstrap).create_topic("kept", 1)
    writing = spark.sql("select 'a' as value").write.format("tidelog").option("topic", "kept").mode("overwrite")
    with pytest.raises(Exception, match="a topic can't be overwritten: write with mode append"):
        writing.option("kafka.bootstrap.servers", broker.bootstrap).save()
