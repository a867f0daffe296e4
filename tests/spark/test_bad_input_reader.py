"""A stream's reader before Spark sees anything: topics that vanish, are others, or are not its own; a broker away."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelog.client import Admin, Producer
from tidelog.rpc.errors import Unreachable
from tidelog.spark.source import plan
from tidelog.spark.source.options import OptionError, read_options
from tidelog.spark.source.reader import DataLost
from tidelog.testing import Broker
from tidelog.wire.errors import KafkaError

pyspark = pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

counter = iter(range(1000))
Json = dict[str, dict[str, int]]


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
def reader(broker: Broker, topic: str) -> Any:
    """A new one at each call, as after a restart: what was read is known by the checkpoint alone."""
    from tidelog.spark.source.data_source import TopicStreamReader

    made: list[TopicStreamReader] = []

    def make(**more: str) -> TopicStreamReader:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "kafka.default.api.timeout.ms": "2000",
            "kafka.request.timeout.ms": "1000",
        }
        options = read_options(given | more, streaming=True)
        made.append(TopicStreamReader(replace(options, rpc=replace(options.rpc, unknown_topic_s=0.5))))
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


def planned(reader: Any, start: Json) -> Json:
    """The end of the next batch, as it comes to stand in the checkpoint."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))


def ends(reader: Any, start: Json) -> Json:
    return plan.to_json(plan.from_json(planned(reader, start)))


def ranges(tasks: Any) -> list[tuple[int, int]]:
    return [(each.start, each.end) for task in tasks for each in task.ranges]


def test_a_topic_that_vanished_is_named(broker: Broker, topic: str, reader: Callable[..., Any]) -> None:
    send(broker, topic, 3)
    running = reader()
    assert ends(running, {topic: {"0": 0}}) == {topic: {"0": 3}}
    Admin(broker.bootstrap).delete_topic(topic)
    with pytest.raises(KafkaError, match=f"there is no topic {topic} at .*topic create"):
        ends(running, {topic: {"0": 3}})
    with pytest.raises(DataLost, match=f"{topic}-0 is gone, and with it the offsets 2 to 2"):
        reader().partitions({topic: {"0": 2}}, {topic: {"0": 3}})


@pytest.mark.parametrize("records", [2, 3, 5])
def test_a_topic_made_again_is_noticed_however_many_records_it_has(
    broker: Broker, topic: str, reader: Callable[..., Any], records: int
) -> None:
    send(broker, topic, 3)
    running = reader()
    first = planned(running, {topic: {"0": 0}})
    send(broker, topic, 1)
    second = planned(running, first)
    assert [plan.from_json(each) for each in (first, second)] == [{(topic, 0): 3}, {(topic, 0): 4}]
    again(broker, topic)
    send(broker, topic, records)
    for each in (running, reader()):
        with pytest.raises(DataLost, match=f"{topic} was deleted and made again since it was read"):
            planned(each, second)
        with pytest.raises(DataLost, match="was deleted and made again"):
            each.partitions(first, second)


@pytest.mark.parametrize("records", [2, 5, 9])
def test_where_loss_is_ignored_a_topic_made_again_is_read_from_its_beginning(
    broker: Broker, topic: str, reader: Callable[..., Any], records: int
) -> None:
    send(broker, topic, 5)
    read = planned(reader(), {topic: {"0": 0}})
    again(broker, topic)
    send(broker, topic, records)
    running = reader(failOnDataLoss="false")
    end = planned(running, read)
    assert plan.from_json(end) == {(topic, 0): records}
    for each in (running, reader(failOnDataLoss="false")):
        assert ranges(each.partitions(read, end)) == [(0, records)]
    assert planned(running, end) == end
    with pytest.raises(DataLost, match="was deleted and made again"):  # who would not have planned it
        reader().partitions(read, end)


def test_a_batch_of_a_topic_that_is_no_more_has_nothing_of_the_one_made_after_it(
    broker: Broker, topic: str, reader: Callable[..., Any]
) -> None:
    send(broker, topic, 5)
    read = planned(reader(), {topic: {"0": 0}})
    send(broker, topic, 5)
    end = planned(reader(), read)
    again(broker, topic)
    send(broker, topic, 20)
    running = reader(failOnDataLoss="false")
    assert ranges(running.partitions(read, end)) == []
    following = planned(running, end)
    assert ranges(running.partitions(end, following)) == [(0, 20)]


def test_a_stream_that_did_not_begin_yet_knows_where_it_is_to_begin_by_the_topics_id(
    broker: Broker, topic: str, reader: Callable[..., Any], tmp_path: Path
) -> None:
    kept = {"initialOffsetsPath": str(tmp_path / "initial.json")}
    send(broker, topic, 5)
    reader(**kept).initialOffset()
    again(broker, topic)
    send(broker, topic, 9)
    running = reader(**kept)
    with pytest.raises(DataLost, match="was deleted and made again"):
        planned(running, running.initialOffset())
    running = reader(**kept, failOnDataLoss="false")
    start = running.initialOffset()
    end = planned(running, start)
    for each in (running, reader(**kept, failOnDataLoss="false")):
        assert ranges(each.partitions(each.initialOffset(), end)) == [(0, 9)]


def test_a_task_that_comes_late_reads_nothing_of_another_topic(
    broker: Broker, topic: str, reader: Callable[..., Any]
) -> None:
    send(broker, topic, 5)
    running = reader()
    [task] = running.partitions({topic: {"0": 2}}, planned(running, {topic: {"0": 2}}))
    again(broker, topic)
    send(broker, topic, 9)
    with pytest.raises(DataLost, match=f"the offsets 2 to 4 of {topic}-0 are gone: it was deleted and made again"):
        list(running.read(task))


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
