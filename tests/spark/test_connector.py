"""Spark's own Kafka connector works against Tidelog, and both read the same rows."""

from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, read
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
    found = sorted(message.value or b"" for message in read(broker.bootstrap, "connector-out", stop_at_end=True))
    assert found == sorted(b"value-%d" % number for number in range(100))
