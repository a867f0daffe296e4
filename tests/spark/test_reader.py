"""A table's reader without Spark around it: where ranges begin and end, and what happens to a topic meanwhile."""

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from pyspark.sql.datasource import GreaterThanOrEqual

from tidelog.client import Admin
from tidelog.spark.source.data_source import TopicReader
from tidelog.spark.source.options import OptionError, read_options
from tidelog.spark.source.reader import DataLost
from tidelog.testing import Broker

counter = iter(range(1000))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.state.log.num.partitions": 1}, offsets_topic_num_partitions=1) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return create(broker, f"waves-{next(counter)}")


@pytest.fixture
def table(broker: Broker, topic: str) -> Callable[..., TopicReader]:
    def make(**options: str) -> TopicReader:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.default.api.timeout.ms": "20000"}
        given |= options if "subscribePattern" in options else {"subscribe": topic, **options}
        return TopicReader(read_options(given, streaming=False))

    return make


def create(broker: Broker, name: str, **configs: str) -> str:
    Admin(broker.bootstrap).create_topic(name, 1, configs={"retention.ms": "-1", **configs})
    return name


def send(broker: Broker, topic: str, first: int, end: int, **settings: Any) -> None:
    """Records that are numbers; a batch of its own each, with linger.ms=0 and a flush."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **settings})
    for number in range(first, end):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1000 + number)
        producer.flush()


def delete(broker: Broker, topic: str) -> None:
    admin = Admin(broker.bootstrap)
    admin.delete_topic(topic)
    deadline = time.monotonic() + 10
    while topic in {each.name for each in admin.topics()} and time.monotonic() < deadline:
        time.sleep(0.02)


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in client.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result(10)


def numbers(reader: TopicReader, tasks: Any = None) -> list[int]:
    tasks = reader.partitions() if tasks is None else tasks
    return [int(row["value"]) for task in tasks for made in reader.read(task) for row in made.to_pylist()]


def test_a_start_behind_the_end_is_a_mistake_and_nothing_else_is_read_instead(
    broker: Broker, topic: str, table: Callable[..., TopicReader]
) -> None:
    send(broker, topic, 0, 9)
    for loss in ("true", "false"):
        with pytest.raises(OptionError, match=f"{topic}-0 is to be read from offset 7, which is after its end"):
            table(startingOffsets=f'{{"{topic}":{{"0":7}}}}', endingTimestamp="1003", failOnDataLoss=loss).partitions()
    beyond = f'{{"{topic}":{{"0":50}}}}'
    with pytest.raises(DataLost, match=f"{topic}-0 ends at offset 9, before 50 where it was to start"):
        table(startingOffsets=beyond).partitions()
    assert numbers(table(startingOffsets=beyond, failOnDataLoss="false")) == []


def test_what_retention_takes_before_a_task_runs_is_no_loss_where_the_start_is_earliest(
    broker: Broker, topic: str, table: Callable[..., TopicReader]
) -> None:
    send(broker, topic, 0, 10)
    earliest, named = table(minPartitions="2"), table(startingOffsets=f'{{"{topic}":{{"0":0}}}}')
    first, second = earliest.partitions()
    [whole] = named.partitions()
    delete_before(broker, topic, 3)
    assert numbers(earliest, [first]) == [3, 4]
    with pytest.raises(DataLost, match=r"the offsets 0 to 2 of .* are gone: it begins at 3"):
        numbers(named, [whole])
    delete_before(broker, topic, 7)
    assert numbers(earliest, [first]) == []
    with pytest.raises(DataLost, match=r"the offsets 5 to 6 of .* are gone: it begins at 7"):
        numbers(earliest, [second])
    assert numbers(table(endingOffsets=f'{{"{topic}":{{"0":4}}}}')) == []  # it began behind that


def test_a_pattern_is_found_anywhere_in_a_name(broker: Broker, table: Callable[..., TopicReader]) -> None:
    for name in ("eu.tides-x.v1", "tides-x", "tide"):
        send(broker, create(broker, name), 0, 1)
    assert len(numbers(table(subscribePattern="tides-x"))) == 2
    assert len(numbers(table(subscribePattern="^tides-x$"))) == 1


def test_times_before_1970_are_no_ends(broker: Broker, topic: str, table: Callable[..., TopicReader]) -> None:
    send(broker, topic, 0, 3)
    for millis in (1, 2, 3):  # to ListOffsets -1 is the end and -2 the beginning
        reader = table()
        moment = dt.datetime.fromtimestamp(0, dt.UTC) - dt.timedelta(milliseconds=millis)
        reader.pushFilters([GreaterThanOrEqual(("timestamp",), moment)])
        assert numbers(reader) == [0, 1, 2]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_ranges_end_and_begin_at_markers_and_inside_aborted_transactions(
    broker: Broker, topic: str, table: Callable[..., TopicReader], level: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{level}", "linger.ms": 0})
    producer.init_transactions(10)
    for number in range(6):  # two records and a marker each, every other one aborted
        producer.begin_transaction()
        for which in range(2):
            producer.produce(topic, b"%d" % (2 * number + which), partition=0)
            producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(10)
    expected = [n for n in range(12) if level == "read_uncommitted" or n // 2 % 2 == 0]
    options = {"kafka.isolation.level": level}
    assert numbers(table(**options)) == expected
    assert numbers(table(**options, maxRecordsPerPartition="1")) == expected
    for end in range(19):
        low = numbers(table(**options, endingOffsets=f'{{"{topic}":{{"0":{end}}}}}'))
        high = numbers(table(**options, startingOffsets=f'{{"{topic}":{{"0":{end}}}}}'))
        assert low + high == expected


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_larger_than_a_fetch_come_whole(broker: Broker, table: Callable[..., TopicReader], codec: str) -> None:
    name = create(broker, f"large-{codec}", **{"max.message.bytes": "4000000"})
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 4_000_000, "compression.type": codec}
    )
    values = [bytes([number]) * 600_000 + b"%d" % number for number in range(4)]
    for value in values:
        producer.produce(name, value, partition=0)
    producer.flush()
    reader = table(**{"subscribe": name, "kafka.max.partition.fetch.bytes": "1000"})
    records = [row["value"] for task in reader.partitions() for made in reader.read(task) for row in made.to_pylist()]
    assert records == values


def test_a_topic_that_is_made_again_while_it_is_read_is_not_read_on(
    broker: Broker, topic: str, table: Callable[..., TopicReader]
) -> None:
    def remade(**options: str) -> Iterator[int]:
        """The numbers of a topic that becomes another after the first."""
        delete(broker, topic)
        create(broker, topic)
        send(broker, topic, 0, 5)
        reader = table(**{"kafka.max.partition.fetch.bytes": "1", **options})
        [task] = reader.partitions()
        reading = reader.read(task)
        yield int(next(reading).column("value")[0].as_py())
        delete(broker, topic)
        create(broker, topic)
        send(broker, topic, 100, 105)
        for made in reading:
            yield int(made.column("value")[0].as_py())

    records: list[int] = []
    with pytest.raises(DataLost, match=f"of {topic}-0 are gone: it was deleted and made again while it was read"):
        records.extend(remade())
    rest = list(remade(failOnDataLoss="false"))
    assert rest[0] == 0
    assert max(rest) < 5  # what the next fetch had brought by then may come


def test_what_retention_takes_in_the_middle_of_a_range_is_a_loss(
    broker: Broker, topic: str, table: Callable[..., TopicReader]
) -> None:
    def overtaken(last: int, **options: str) -> list[int]:
        """The numbers that are read where all before `last` goes after the first."""
        reader = table(**{"kafka.max.partition.fetch.bytes": "1", **options})
        [task] = reader.partitions()
        reading = (int(made.column("value")[0].as_py()) for made in reader.read(task))
        records = [next(reading)]
        delete_before(broker, topic, last)
        return records + list(reading)

    send(broker, topic, 0, 30)
    records = overtaken(10, failOnDataLoss="false")
    assert [number for number in records if number >= 10] == list(range(10, 30))
    assert len(records) < 25  # the fetch that was under way may have brought another
    with pytest.raises(DataLost, match=f"the offsets .* to 19 of {topic}-0 are gone: it begins at 20"):
        overtaken(20)


def test_an_answer_that_waits_for_a_slow_task_is_not_taken_for_late(
    broker: Broker, topic: str, table: Callable[..., TopicReader], caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, topic, 0, 3)
    reader = table(**{"kafka.max.partition.fetch.bytes": "1", "kafka.request.timeout.ms": "100"})
    [task] = reader.partitions()
    records: list[int] = []
    for made in reader.read(task):
        records.append(int(made.column("value")[0].as_py()))
        if len(records) == 1:
            time.sleep(0.7)  # more than a fetch may take; the next one was answered long before
    assert records == [0, 1, 2]
    assert "trying again" not in caplog.text


def test_a_broker_that_is_away_for_a_moment_is_waited_for(
    broker: Broker, topic: str, table: Callable[..., TopicReader]
) -> None:
    send(broker, topic, 0, 20)
    reader = table(**{"kafka.max.partition.fetch.bytes": "1", "kafka.request.timeout.ms": "500"})
    [task] = reader.partitions()
    records: list[int] = []
    for made in reader.read(task):
        records.append(int(made.column("value")[0].as_py()))
        if len(records) == 5:
            broker.pause()
            threading.Timer(1.5, broker.resume).start()
    assert records == list(range(20))
