"""Spark's own Kafka connector works against Tidelog, and both read the same rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, read
from tidelog.spark.source.plan import topic_ids
from tidelog.testing import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]

ROWS = ("cast(id as string) as key", "concat('value-', id) as value")


def table(spark: Any, name: str, broker: Broker, topic: str) -> Any:
    reading = spark.read.format(name).option("kafka.bootstrap.servers", broker.bootstrap)
    return reading.option("includeHeaders", "true").option("subscribe", topic).load()


def test_the_connector_writes_and_reads_and_both_see_the_same(spark: Any, connector: str, broker: Broker) -> None:
    Admin(broker.bootstrap).create_topic("connector", 3)
    writing = spark.range(500).selectExpr(*ROWS, "array(named_struct('key', 'k', 'value', binary('v'))) as headers")
    writing.write.format(connector).option("kafka.bootstrap.servers", broker.bootstrap).option(
        "topic", "connector"
    ).option("includeHeaders", "true").save()
    theirs = table(spark, connector, broker, "connector").orderBy("partition", "offset").collect()
    ours = table(spark, "tidelog", broker, "connector").orderBy("partition", "offset").collect()
    assert len(theirs) == 500
    assert ours == theirs


def test_a_stream_of_the_connector_runs_from_topic_to_topic(
    spark: Any, connector: str, broker: Broker, tmp_path: Path
) -> None:
    for topic in ("connector-in", "connector-out"):
        Admin(broker.bootstrap).create_topic(topic, 2)
    spark.range(100).selectExpr(*ROWS).write.format(connector).option(
        "kafka.bootstrap.servers", broker.bootstrap
    ).option("topic", "connector-in").save()
    reading = spark.readStream.format(connector).option("kafka.bootstrap.servers", broker.bootstrap)
    rows = reading.option("subscribe", "connector-in").option("startingOffsets", "earliest").load()
    writing = rows.select("key", "value").writeStream.format(connector).option("topic", "connector-out")
    writing = writing.option("kafka.bootstrap.servers", broker.bootstrap)
    query = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    values = sorted(message.value or b"" for message in read(broker.bootstrap, "connector-out", stop_at_end=True))
    assert values == sorted(b"value-%d" % number for number in range(100))


def test_both_read_the_same_of_topics_that_have_everything(spark: Any, connector: str, broker: Broker) -> None:
    """Nulls, headers without values, each compression, broker's times, transactions that were and weren't aborted."""
    admin = Admin(broker.bootstrap)
    kept = {"retention.ms": "-1"}  # records here are from 2001
    admin.create_topic("everything-a", 2, configs=kept)
    admin.create_topic("my-everything-b", 1, configs={**kept, "message.timestamp.type": "LogAppendTime"})
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": f"every-{codec}", "compression.type": codec}
        )
        producer.init_transactions(30)
        for abort in (True, False):
            producer.begin_transaction()
            for row in range(10):
                headers = [("a", None), ("a", b"1"), ("", b"")] if row % 2 else []
                value, key = None if row == 3 else b"%d" % row * row, None if row == 4 else b"%d" % number
                for topic in ("everything-a", "my-everything-b"):
                    producer.produce(topic, value, key, partition=0, headers=headers, timestamp=10**12 + row)
            producer.flush()
            (producer.abort_transaction if abort else producer.commit_transaction)(30)

    def rows(name: str, **options: str) -> list[Any]:
        reading = spark.read.format(name).option("kafka.bootstrap.servers", broker.bootstrap)
        options |= {
            "subscribePattern": "everything",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
        }
        table = reading.options(**options).load()
        return table.orderBy("topic", "partition", "offset").collect()

    theirs = rows(connector)
    assert {(row.topic, row.timestampType) for row in theirs} == {("everything-a", 0), ("my-everything-b", 1)}
    assert len(theirs) == 100
    assert rows("tidelog", minPartitions="5") == theirs


def test_a_checkpoint_moves_between_the_connector_and_this_source(
    spark: Any, connector: str, broker: Broker, tmp_path: Path
) -> None:
    Admin(broker.bootstrap).create_topic("moving", 3)
    values: list[int] = []

    def keep(rows: Any, _: int) -> None:
        values.extend(int(row.value) for row in rows.select("value").collect())

    def run(name: str, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in numbers:
            producer.produce("moving", b"%d" % number, partition=number % 3)
        producer.flush()
        reading = spark.readStream.format(name).option("kafka.bootstrap.servers", broker.bootstrap)
        rows = reading.option("subscribe", "moving").option("startingOffsets", "earliest").load()
        writing = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
        writing.trigger(availableNow=True).start().awaitTermination()

    for turn, name in enumerate(("tidelog", "tidelog", connector, connector, "tidelog", connector)):
        run(name, range(10 * turn, 10 * turn + 10))
    assert sorted(values) == list(range(60))
    ends = [(tmp_path / "offsets" / str(batch)).read_text().splitlines()[-1] for batch in range(6)]
    assert [bool(topic_ids(json.loads(end))) for end in ends] == [True, True, False, False, True, False]
