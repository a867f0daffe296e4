"""`format("tidelog")` in a real Spark: tables, streams, limits, lost data, errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin
from tidelog.rpc import Cluster
from tidelog.rpc.groups import committed_offset
from tidelog.spark.source import plan
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]

counter = iter(range(1000))


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"orders-{next(counter)}"
    Admin(broker.bootstrap).create_topic(name, 3, configs={"retention.ms": "-1"})  # records here are from 1970
    return name


@pytest.fixture
def fill(broker: Broker, topic: str) -> Callable[..., None]:
    """Write records n..m to the topic: value and key from the number, spread over its partitions."""

    def write(first: int, end: int, **settings: Any) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        for number in range(first, end):
            value = None if number % 10 == 9 else b"value-%d" % number
            headers = [("n", b"%d" % number)] if number % 2 else []
            producer.produce(
                topic, value, b"%d" % number, partition=number % 3, timestamp=1_000_000 + number, headers=headers
            )
            producer.poll(0)
        producer.flush()

    return write


@pytest.fixture
def read(spark: Any, broker: Broker, topic: str) -> Callable[..., Any]:
    def table(**options: Any) -> Any:
        reading = spark.read.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        return reading.options(**{"subscribe": topic, **options}).load()

    return table


@pytest.fixture
def run(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> Callable[..., list[list[int]]]:
    """Run a stream until it has read what is there; the numbers of the records that came, a list for each batch."""

    def once(checkpoint: str = "checkpoint", **options: Any) -> list[list[int]]:
        reading = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
        table = reading.options(**{"subscribe": topic, "startingOffsets": "earliest", **options}).load()
        batches: list[list[int]] = []

        def keep(rows: Any, _: int) -> None:
            batches.append(sorted(int(row.key) for row in rows.select("key").collect()))

        query = table.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / checkpoint))
        running = query.trigger(availableNow=True).start()
        try:
            running.awaitTermination()
        finally:
            running.stop()
        return batches

    return once


def test_a_topic_is_a_table(read: Callable[..., Any], fill: Callable[..., None], topic: str) -> None:
    fill(0, 30, **{"compression.type": "lz4"})
    rows = sorted(read(includeHeaders="true").collect(), key=lambda row: int(row.key))
    assert [row.value and bytes(row.value) for row in rows] == [
        None if number % 10 == 9 else b"value-%d" % number for number in range(30)
    ]
    assert [(row.topic, row.partition, row.offset) for row in rows[:4]] == [
        (topic, 0, 0),
        (topic, 1, 0),
        (topic, 2, 0),
        (topic, 0, 1),
    ]
    assert rows[7].timestamp.timestamp() == 1000.007
    assert rows[7].timestampType == 0
    assert [(pair.key, bytes(pair.value)) for pair in rows[7].headers] == [("n", b"7")]
    assert rows[8].headers is None


def test_rows_of_aborted_transactions_are_none_unless_they_are_asked_for(
    read: Callable[..., Any], run: Callable[..., list[list[int]]], broker: Broker, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 3):
        producer.begin_transaction()
        producer.produce(topic, b"x", b"%d" % number, partition=number % 3)
        producer.flush()
        end(30)
    assert sorted(int(row.key) for row in read().collect()) == [0, 2, 4]
    assert run() == [[0, 2, 4]]
    everything = {"kafka.isolation.level": "read_uncommitted"}
    assert (read(**everything).count(), run("other", **everything)) == (6, [[0, 1, 2, 3, 4, 5]])


def test_an_empty_topic_is_an_empty_table(read: Callable[..., Any]) -> None:
    assert read().count() == 0


def test_offsets_and_times_bound_a_table(read: Callable[..., Any], fill: Callable[..., None], topic: str) -> None:
    fill(0, 30)
    some = read(
        startingOffsets=json.dumps({topic: {"0": 2, "1": -2, "2": 9}}),
        endingOffsets=json.dumps({topic: {"0": 5, "1": 1, "2": -1}}),
    )
    assert sorted(int(row.key) for row in some.collect()) == [1, 6, 9, 12, 29]
    assert sorted(int(row.key) for row in read(startingTimestamp="1000027").collect()) == [27, 28, 29]
    assert read(endingTimestamp="1000003").count() == 3
    split = read(minPartitions="6")
    assert (split.rdd.getNumPartitions(), split.count()) == (6, 30)


def test_filters_narrow_what_is_read(
    spark: Any, read: Callable[..., Any], fill: Callable[..., None], topic: str
) -> None:
    fill(0, 30)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        some = read(maxRecordsPerPartition="1").where("partition = 1 and offset >= 7")
        assert some.rdd.getNumPartitions() == 3
        assert sorted(int(row.key) for row in some.collect()) == [22, 25, 28]
        late = read(maxRecordsPerPartition="1").where("timestamp >= timestamp_millis(1000027)")
        assert (late.rdd.getNumPartitions(), late.count()) == (3, 3)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_goes_on_where_it_stopped(
    run: Callable[..., list[list[int]]], fill: Callable[..., None], tmp_path: Path, topic: str, broker: Broker
) -> None:
    options = {"progressPath": str(tmp_path / "progress"), "commitOffsetsTo": topic}
    fill(0, 20)
    assert run(**options) == [list(range(20))]
    fill(20, 30)
    assert run(**options) == [list(range(20, 30))]
    with Cluster(broker.bootstrap) as cluster:
        assert committed_offset(cluster, topic, (topic, 2)) == (10, "")
    assert run() == []
    progress = json.loads((tmp_path / "progress/progress.json").read_text())
    assert progress["end"] == {topic: dict.fromkeys("012", 10)}
    assert [progress[name] for name in ("planned", "lag", "rows")] == [10, 0, 10]
    offsets = (tmp_path / "checkpoint/offsets/1").read_text().splitlines()[-1]
    assert plan.to_json(plan.from_json(json.loads(offsets))) == {topic: {"0": 10, "1": 10, "2": 10}}


def test_a_limit_makes_small_batches(run: Callable[..., list[list[int]]], fill: Callable[..., None]) -> None:
    fill(0, 25)
    batches = run(maxOffsetsPerTrigger="10")
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert sorted(number for batch in batches for number in batch) == list(range(25))


def test_lost_data_fails_the_stream_unless_told_otherwise(
    run: Callable[..., list[list[int]]], fill: Callable[..., None], broker: Broker, topic: str
) -> None:
    fill(0, 9)
    assert run() == [list(range(9))]
    fill(9, 30)
    delete_before(broker, topic, 0, 6)
    with pytest.raises(
        Exception, match=r"the offsets 3 to 5 of orders-.*-0 are gone: it begins at 6.*failOnDataLoss=false"
    ):
        run()
    gone = {9, 12, 15}
    assert run(failOnDataLoss="false") == [[number for number in range(9, 30) if number not in gone]]


def test_a_topic_that_was_made_again_is_not_taken_for_the_one_that_was_read(
    run: Callable[..., list[list[int]]], fill: Callable[..., None], broker: Broker, topic: str
) -> None:
    """It has more records by now than were read of the one before it: its offsets look as if nothing had happened."""
    fill(0, 9)
    assert run() == [list(range(9))]
    Admin(broker.bootstrap).delete_topic(topic)
    Admin(broker.bootstrap).create_topic(topic, 3, configs={"retention.ms": "-1"})
    fill(100, 130)
    with pytest.raises(Exception, match=rf"{topic} was deleted and made again since it was read.*failOnDataLoss=false"):
        run()
    assert run(failOnDataLoss="false") == [list(range(100, 130))]
    fill(130, 133)
    assert run() == [[130, 131, 132]]


def test_partitions_that_are_added_are_read_from_their_start(
    run: Callable[..., list[list[int]]], fill: Callable[..., None], broker: Broker, topic: str
) -> None:
    fill(0, 3)
    assert run() == [[0, 1, 2]]
    Admin(broker.bootstrap).add_partitions(topic, 4)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"new", b"100", partition=3)
    producer.flush()
    assert run() == [[100]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "never-made"}, "there is no topic never-made"),
        ({"startingOffsets": '{"other":{"0":1}}'}, "must name every partition of the subscription"),
        ({"minPartition": "3"}, "unknown option minpartition; did you mean minPartitions"),
        ({"kafka.Isolation.levle": "x"}, "unknown option kafka.isolation.levle; did you mean kafka.isolation.level"),
        ({"startingTimestamp": "99999999999999"}, "no record of .* is as new as the time to start from"),
    ],
)
def test_mistakes_are_said(read: Callable[..., Any], fill: Callable[..., None], options: Any, said: str) -> None:
    fill(0, 3)
    with pytest.raises(Exception, match=said):
        read(**options).count()


def test_a_topic_is_a_view_in_sql_and_has_the_columns_that_it_has(
    spark: Any, broker: Broker, topic: str, fill: Callable[..., None]
) -> None:
    fill(0, 12)
    options = f"`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe '{topic}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING tidelog OPTIONS ({options})")
    [row] = spark.sql("SELECT count(*) AS rows, max(offset) AS last FROM orders").collect()
    assert (row.rows, row.last) == (12, 3)
    reading = spark.read.format("tidelog").schema("id INT").option("kafka.bootstrap.servers", broker.bootstrap)
    with pytest.raises(Exception, match=r"a topic's columns are fixed, leave schema.* out: they are struct<key:binary"):
        reading.option("subscribe", topic).load().count()


def delete_before(broker: Broker, topic: str, partition: int, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in client.delete_records([TopicPartition(topic, partition, offset)]).values():
        done.result(10)
