"""A stream's reader before Spark sees anything: topics that vanish, are others, or are not its own; a broker away."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.client import Admin, Producer
from tidelog.rpc.errors import Unreachable
from tidelog.spark.options import OptionError, read_options
from tidelog.spark.reader import DataLost
from tidelog.testing import Broker
from tidelog.wire.errors import KafkaError

pyspark = pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

counter = iter(range(1000))


@pytest.fixture(scope="module")
def broker() -> Any:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"tides-{next(counter)}"
    Admin(broker.bootstrap).create_topic(name, 1)
    return name


@pytest.fixture
def reader(broker: Broker, topic: str, tmp_path: Path) -> Any:
    """A new one at each call, as after a restart, on the same state."""
    from tidelog.spark.source import TopicStreamReader

    made: list[TopicStreamReader] = []

    def make(**more: str) -> TopicStreamReader:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "topicIdsPath": str(tmp_path / "topics.json"),
            "kafka.default.api.timeout.ms": "2000",
            "kafka.request.timeout.ms": "1000",
        }
        made.append(TopicStreamReader(read_options(given | more, streaming=True)))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def send(broker: Broker, topic: str, count: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


def again(broker: Broker, topic: str) -> None:
    """Delete the topic and make another of its name."""
    admin = Admin(broker.bootstrap)
    admin.delete_topic(topic)
    deadline = time.monotonic() + 10
    while any(each.name == topic for each in admin.topics()) and time.monotonic() < deadline:
        time.sleep(0.05)
    admin.create_topic(topic, 1)


def ends(reader: Any, start: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return reader.latestOffset(start, ReadAllAvailable())


def test_a_topic_that_vanished_is_named(broker: Broker, topic: str, reader: Callable[..., Any]) -> None:
    send(broker, topic, 3)
    running = reader()
    assert ends(running, {topic: {"0": 0}}) == {topic: {"0": 3}}
    Admin(broker.bootstrap).delete_topic(topic)
    with pytest.raises(KafkaError, match=f"there is no topic {topic} at .*topic create"):
        ends(running, {topic: {"0": 3}})
    with pytest.raises(DataLost, match=f"{topic}-0 is gone, and with it the offsets 2 to 2"):
        reader().partitions({topic: {"0": 2}}, {topic: {"0": 3}})


@pytest.mark.parametrize("records", [2, 5])
def test_a_topic_made_again_is_noticed_however_many_records_it_has(
    broker: Broker, topic: str, reader: Callable[..., Any], records: int
) -> None:
    send(broker, topic, 3)
    running = reader()
    assert ends(running, {topic: {"0": 0}}) == {topic: {"0": 3}}
    again(broker, topic)
    send(broker, topic, records)
    for each in (running, reader()):
        with pytest.raises(DataLost, match=f"{topic} was deleted and made again since it was read"):
            ends(each, {topic: {"0": 3}})
        with pytest.raises(DataLost, match="was deleted and made again"):
            each.partitions({topic: {"0": 2}}, {topic: {"0": 3}})


def test_where_loss_is_ignored_a_topic_made_again_is_read_from_its_beginning(
    broker: Broker, topic: str, reader: Callable[..., Any]
) -> None:
    send(broker, topic, 5)
    running = reader(failOnDataLoss="false")
    assert ends(running, {topic: {"0": 0}}) == {topic: {"0": 5}}
    again(broker, topic)
    send(broker, topic, 2)
    assert ends(running, {topic: {"0": 5}}) == {topic: {"0": 2}}
    [task] = running.partitions({topic: {"0": 5}}, {topic: {"0": 2}})
    assert [(each.start, each.end) for each in task.ranges] == [(0, 2)]


def test_the_checkpoint_of_another_query_is_refused(broker: Broker, topic: str, reader: Callable[..., Any]) -> None:
    said = "the checkpoint holds offsets of other, which this query does not read: it is another's"
    with pytest.raises(OptionError, match=said):
        ends(reader(), {"other": {"0": 7}})
    with pytest.raises(OptionError, match=said):
        reader().partitions({"other": {"0": 7}}, {"other": {"0": 9}})
    assert ends(reader(), {"other": {"0": 7}, topic: {"0": 0}}) == {topic: {"0": 0}}  # a topic that was taken out


def test_a_broker_that_is_away_is_waited_for_and_then_named(
    broker: Broker, topic: str, reader: Callable[..., Any]
) -> None:
    send(broker, topic, 3)
    running = reader()
    assert ends(running, {topic: {"0": 0}}) == {topic: {"0": 3}}
    broker.pause()
    try:
        with pytest.raises(Unreachable, match=r"no broker at .* could .* within 2 s"):
            ends(running, {topic: {"0": 3}})
    finally:
        broker.resume()
    send(broker, topic, 1)
    assert ends(running, {topic: {"0": 3}}) == {topic: {"0": 4}}
