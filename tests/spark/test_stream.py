"""A stream's reader without Spark around it: what the next micro-batch is, and what is never read twice or skipped."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidelog.client import Admin, Producer
from tidelog.client.groups import Groups
from tidelog.rpc import Cluster
from tidelog.rpc.groups import committed_offset
from tidelog.spark.source import plan, stream
from tidelog.spark.source.options import read_options
from tidelog.spark.source.reader import DataLost
from tidelog.spark.source.stream import TopicStreamReader
from tidelog.testing import Broker

Offsets = dict[str, dict[str, int]]
counter = iter(range(1000))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"flood-{next(counter)}"
    make(broker, name, 5)
    return name


@pytest.fixture
def reader(broker: Broker, topic: str) -> Iterator[Callable[..., TopicStreamReader]]:
    """A new one at each call, as after a restart."""
    made: list[TopicStreamReader] = []

    def open_(unknown_s: float = 0.5, **more: str) -> TopicStreamReader:
        given = {"kafka.bootstrap.servers": broker.bootstrap, **more}
        if "subscribePattern" not in given:
            given["subscribe"] = topic
        options = read_options(given, streaming=True)
        hasty = replace(options.rpc, unknown_topic_s=unknown_s)
        made.append(TopicStreamReader(replace(options, rpc=hasty)))
        return made[-1]

    yield open_
    for each in made:
        each.stop()


def make(broker: Broker, topic: str, records: int) -> None:
    Admin(broker.bootstrap).create_topic(topic, 1)
    send(broker, topic, records)


def send(broker: Broker, topic: str, records: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number)


def ends(reader: TopicStreamReader, start: Offsets) -> Offsets:
    return reader.latestOffset(start, ReadAllAvailable())


def plain(offsets: Offsets) -> Offsets:
    """Without what stands beside the offsets."""
    return plan.to_json(plan.from_json(offsets))


def ranges(tasks: Any) -> list[tuple[str, int, int]]:
    return [(each.topic, each.start, each.end) for task in tasks for each in task.ranges]


def test_a_topic_that_is_not_told_for_a_moment_is_not_read_again_from_its_beginning(
    broker: Broker, topic: str, reader: Callable[..., TopicStreamReader]
) -> None:
    late = f"{topic}-late"
    start = {topic: {"0": 5}, late: {"0": 2}}
    running = reader(unknown_s=5, subscribePattern=topic)
    timer = threading.Timer(0.7, make, (broker, late, 3))
    timer.start()  # until then the broker knows as little of it as one that has only just started
    end = ends(running, start)
    assert plain(end) == {topic: {"0": 5}, late: {"0": 3}}
    assert plan.topic_ids(end).keys() == {topic, late}
    timer.join()
    assert ranges(running.partitions(start, {topic: {"0": 5}, late: {"0": 3}})) == [(late, 2, 3)]
    with pytest.raises(DataLost, match=f"{late}-0 is gone"):  # an end without it, as it was written before
        running.partitions(start, {topic: {"0": 5}})


def test_a_topic_of_a_pattern_that_is_gone_is_told_before_a_batch_is_made_without_it(
    broker: Broker, topic: str, reader: Callable[..., TopicStreamReader]
) -> None:
    start = {topic: {"0": 5}, f"{topic}-gone": {"0": 2}}
    with pytest.raises(DataLost, match=f"{topic}-gone-0 is gone"):
        ends(reader(subscribePattern=topic), start)
    ignoring = reader(subscribePattern=topic, failOnDataLoss="false")
    assert plain(ends(ignoring, start)) == {topic: {"0": 5}}
    assert ranges(ignoring.partitions(start, {topic: {"0": 5}})) == []


def test_a_start_beyond_the_end_reads_nothing_where_loss_is_ignored(
    topic: str, reader: Callable[..., TopicStreamReader]
) -> None:
    beyond = f'{{"{topic}":{{"0":50}}}}'
    running = reader(startingOffsets=beyond)
    with pytest.raises(DataLost, match=f"{topic}-0 ends at offset 5, before 50 where it was to start"):
        ends(running, running.initialOffset())
    running = reader(startingOffsets=beyond, failOnDataLoss="false")
    start = running.initialOffset()
    end = ends(running, start)
    assert ranges(running.partitions(start, end)) == []


def test_a_first_batch_that_began_at_the_latest_offsets_is_not_begun_elsewhere_after_a_crash(
    broker: Broker, topic: str, reader: Callable[..., TopicStreamReader], tmp_path: Path
) -> None:
    kept = {"initialOffsetsPath": str(tmp_path / "initial.json")}

    def crash(**options: str) -> tuple[int, Offsets]:
        """A run that plans its first batch and is gone: where that began, and its end."""
        running = reader(**options)
        start = running.initialOffset()
        send(broker, topic, 2)
        end = ends(running, start)
        assert ranges(running.partitions(start, end)) == [(topic, start[topic]["0"], end[topic]["0"])]
        return start[topic]["0"], end

    for options in (kept, {"startingOffsets": "earliest"}, {}):
        began, end = crash(**options)
        again = reader(**options)
        moved = again.initialOffset()
        assert ranges(again.partitions(moved, end)) == [(topic, began, end[topic]["0"])]
        assert ranges(again.partitions(end, end)) == []  # as batches without rows are, for watermarks
        assert ends(again, end) == end
        now = {topic: {"0": end[topic]["0"]}}
        assert ends(again, now) == now  # with latest, that is where the query would begin if it were new
    of_the_connector = {topic: {"0": end[topic]["0"]}}
    again = reader()
    with pytest.raises(DataLost, match=r"was not finished, and it began at what were the latest offsets.*startingOff"):
        again.partitions(again.initialOffset(), of_the_connector)
    ignoring = reader(failOnDataLoss="false")
    assert ranges(ignoring.partitions(ignoring.initialOffset(), of_the_connector)) == []


def test_partitions_that_came_after_a_first_batch_was_planned_are_the_next_batchs(
    broker: Broker, topic: str, reader: Callable[..., TopicStreamReader]
) -> None:
    running = reader()
    start = running.initialOffset()
    send(broker, topic, 2)
    end = ends(running, start)
    Admin(broker.bootstrap).add_partitions(topic, 2)
    again = reader()
    assert ranges(again.partitions(again.initialOffset(), end)) == [(topic, 5, 7)]
    assert plain(ends(again, end)) == {topic: {"0": 7, "1": 0}}


def test_a_subscription_that_had_no_topics_keeps_that_it_had_none(
    broker: Broker, topic: str, reader: Callable[..., TopicStreamReader], tmp_path: Path
) -> None:
    options = {"subscribePattern": f"{topic}-new", "initialOffsetsPath": str(tmp_path / "initial.json")}
    assert reader(**options).initialOffset() == {}
    make(broker, f"{topic}-new", 3)
    running = reader(**options)
    assert running.initialOffset() == {}
    assert ranges(running.partitions({}, ends(running, {}))) == [(f"{topic}-new", 0, 3)]


def test_few_records_wait_for_more_but_for_those_of_the_first_batch(
    broker: Broker, topic: str, reader: Callable[..., TopicStreamReader]
) -> None:
    running = reader(minOffsetsPerTrigger="4", maxTriggerDelay="600000")
    assert plain(ends(running, {topic: {"0": 3}})) == {topic: {"0": 5}}
    send(broker, topic, 3)
    assert plain(ends(running, {topic: {"0": 5}})) == {topic: {"0": 5}}
    send(broker, topic, 1)
    assert plain(ends(running, {topic: {"0": 5}})) == {topic: {"0": 9}}
    hasty = reader(minOffsetsPerTrigger="4", maxTriggerDelay="1")
    assert plain(ends(hasty, {topic: {"0": 8}})) == {topic: {"0": 9}}
    time.sleep(0.002)
    assert plain(ends(hasty, {topic: {"0": 8}})) == {topic: {"0": 9}}


def test_who_asks_what_comes_next_is_done_with_what_was(
    broker: Broker, topic: str, reader: Callable[..., TopicStreamReader], tmp_path: Path
) -> None:
    running = reader(commitOffsetsTo=f"{topic}-group", progressPath=str(tmp_path), startingOffsets="earliest")
    start = running.initialOffset()
    with Cluster(broker.bootstrap) as cluster:
        end = ends(running, start)
        assert committed_offset(cluster, f"{topic}-group", (topic, 0)) is None
        for task in running.partitions(start, end):
            assert sum(made.num_rows for made in running.read(task)) == 5
        assert ends(running, end) == end  # as at the end of an AvailableNow run, whose last commit never comes
        assert committed_offset(cluster, f"{topic}-group", (topic, 0)) == (5, "")
    assert json.loads((tmp_path / "progress.json").read_text())["rows"] == 5


def test_offsets_are_committed_to_no_group_that_was_not_named_for_it(
    broker: Broker, topic: str, reader: Callable[..., TopicStreamReader]
) -> None:
    """A group may be a consumer's, which would go on from there."""
    before = set(Groups(broker.bootstrap).names())
    running = reader(**{"kafka.group.id": f"{topic}-billing", "groupIdPrefix": f"{topic}-spark"})
    running.commit({topic: {"0": 5}})
    assert ends(running, {topic: {"0": 5}}) == {topic: {"0": 5}}
    assert set(Groups(broker.bootstrap).names()) == before


def test_what_is_for_people_to_look_at_does_not_hold_up_a_query(
    broker: Broker, topic: str, reader: Callable[..., TopicStreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MONITORING_PATIENCE_S", 0.5)
    running = reader(commitOffsetsTo="watched")
    ends(running, {topic: {"0": 0}})
    broker.pause()
    try:
        running.commit({topic: {"0": 5}})  # with the patience of others it would take longer than a test may
    finally:
        broker.resume()
    running.commit({topic: {"0": 5}})
    with Cluster(broker.bootstrap) as cluster:
        assert committed_offset(cluster, "watched", (topic, 0)) == (5, "")
