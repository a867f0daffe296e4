"""What a query has open is found by the name of its writer when it is stopped, and what others have is left alone."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

import pyarrow

from tests.spark.writing import TWO_PHASE, Query
from tidelog.spark.sink import abort_run
from tidelog.spark.sink.data_sink import TopicStreamWriter, TopicWriter, Written, settle, write_rows
from tidelog.spark.sink.decisions import Replaced
from tidelog.spark.sink.producers import Attempt, Producers
from tidelog.spark.sink.sink_name import Job, job_sink
from tidelog.spark.sink.sink_options import SinkOptions, read_sink_options
from tidelog.testing import Broker

arrow: Any = pyarrow
pytestmark = pytest.mark.usefixtures("own_connections")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE, offsets_topic_num_partitions=2) as broker:
        yield broker


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark tells the processes of a driver."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/of-a-driver")
    monkeypatch.setattr(abort_run, "QUIET_LOOKS", 1)


def streaming(**options: str) -> SinkOptions:
    return read_sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "out", **options}, streaming=True)


def test_each_process_of_a_driver_finds_the_name_of_a_query_with_a_place_or_a_name() -> None:
    """The checkpoint's place may be told by `spark.sql.streaming.checkpointLocation`: of that a sink is not told."""
    given = [{"checkpointLocation": "/a"}, {"queryName": "a"}, {"checkpointLocation": "/b"}, {"queryName": "b"}]
    names = [TopicStreamWriter(streaming(**each)).name for each in given]
    assert names == [TopicStreamWriter(streaming(**each)).name for each in given]
    assert len({*names, ""}) == 5


def test_a_query_that_is_known_by_its_name_leaves_nothing_open_when_it_is_stopped(broker: Broker) -> None:
    query = Query(broker.bootstrap, queryName="named")
    other = Query(broker.bootstrap, queryName="other")
    for each in (query, other):
        write_rows(
            each.options, Attempt(each.sink, "run", 0, TopicStreamWriter(each.options).name), rows(), Producers()
        )
    TopicStreamWriter(query.options).abort([], 0)
    assert (query.open(), len(other.open())) == ([], 1)


def rows() -> Iterator[Any]:
    yield arrow.record_batch({"value": [b"good"]})


class Callback:
    """The `foreachBatch` of a query that writes a job."""

    def __init__(self, topic: Query, in_query: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": topic.bootstrap, "topic": topic.topic, "jobId": "each", **options}
        self.writer = TopicWriter(read_sink_options(given, streaming=False))
        self.sink = job_sink(Job(topic.topic, in_query, "each"))
        self.run = f"run-of-{in_query}"

    def task(self) -> Written:
        return write_rows(self.writer.options, Attempt(self.sink, self.run, 0, self.writer.name), rows(), Producers())

    def commit(self, *written: Written) -> None:
        settle(self.writer.options, 0, list(written), commit=True)


def test_a_callback_that_fails_leaves_alone_what_another_querys_has_open(broker: Broker) -> None:
    topic = Query(broker.bootstrap)
    first, second = Callback(topic, "one"), Callback(topic, "two")
    written = first.task()
    second.writer.abort([second.task()])  # one of its tasks was done, by which it is known whose it is
    first.commit(written)
    assert topic.seen() == [b"good"]


def test_callbacks_of_one_job_id_are_told_apart_by_the_option_for_it(broker: Broker) -> None:
    topic = Query(broker.bootstrap)
    first, second = Callback(topic, "one", jobQuery="one"), Callback(topic, "two", jobQuery="two")
    written = first.task()
    second.writer.abort([])
    first.commit(written)
    assert topic.seen() == [b"good"]


def test_a_callback_whose_rows_another_of_its_job_id_has_ended_says_so(broker: Broker) -> None:
    topic = Query(broker.bootstrap)
    first, second = Callback(topic, "one"), Callback(topic, "two")
    written = first.task()
    second.writer.abort([])  # of which nobody can tell whose it is
    with pytest.raises(Replaced, match=r"another query of this driver that writes under jobId each .* failed"):
        first.commit(written)
