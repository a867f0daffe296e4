"""The exactly-once sink without Spark: tasks and drivers as functions, stopped between any two steps."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

import pyarrow

from tidelog.client import Admin, read
from tidelog.rpc import Cluster
from tidelog.rpc.transactions import end_transaction, open_transactions
from tidelog.spark import decisions as module
from tidelog.spark.decisions import Decisions, RolledBack, task_prefix
from tidelog.spark.sink import Written, settle, write_rows
from tidelog.spark.sink_options import SinkOptions, read_sink_options
from tidelog.testing import Broker
from tidelog.wire.errors import KafkaError

arrow: Any = pyarrow
counter = iter(range(1000))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.two.phase.commit.enable": True, "transaction.state.log.num.partitions": 2}
    with Broker(settings, offsets_topic_num_partitions=2) as broker:
        yield broker


class Query:
    """A query of its own: its tasks, its driver, and what readers see of it."""

    def __init__(self, broker: Broker) -> None:
        self.sink = f"query-{next(counter)}"
        self.topic = f"out-{self.sink}"
        self.bootstrap = broker.bootstrap
        Admin(broker.bootstrap).create_topic(self.topic, 2)
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": self.topic}
        self.options: SinkOptions = read_sink_options(given, streaming=True)

    def task(self, batch: int, *values: bytes) -> Written:
        table = arrow.record_batch({"key": list(values), "value": list(values)})
        return write_rows(self.options, self.sink, batch, iter([table]))

    def commit(self, batch: int, *written: Written) -> None:
        settle(self.options, batch, list(written), commit=True)

    def seen(self) -> list[bytes]:
        """What a reader of committed records gets, up to the last stable offset."""
        found = read(self.bootstrap, self.topic, stop_at_end=True, isolation_level="read_committed")
        return sorted(message.value or b"" for message in found)

    def open(self) -> list[str]:
        with Cluster(self.bootstrap) as cluster:
            return open_transactions(cluster, task_prefix(self.sink))


@pytest.fixture
def query(broker: Broker) -> Query:
    return Query(broker)


def test_nothing_is_seen_before_the_commit_and_everything_after(query: Query) -> None:
    first, second = query.task(0, b"a", b"b"), query.task(0, b"c")
    assert len(query.open()) == 2
    query.commit(0, first, second)
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


def test_a_repeated_batch_is_the_recorded_one(query: Query) -> None:
    query.commit(0, query.task(0, b"a"), query.task(0, b"b"))
    query.commit(0, query.task(0, b"a", b"b"))  # other partitions, the same rows
    query.commit(1, query.task(1, b"c"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c"], [])


def test_attempts_that_lost_are_swept(query: Query) -> None:
    query.task(0, b"a")  # an attempt whose end never reached the driver
    query.commit(0, query.task(0, b"a"))
    assert (query.seen(), query.open()) == ([b"a"], [])


def test_an_old_driver_leaves_later_batches_alone(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    later = query.task(1, b"b")
    query.commit(0, query.task(0, b"a"))  # a driver that slept, and sweeps
    query.commit(1, later)
    assert (query.seen(), query.open()) == ([b"a", b"b"], [])


def test_a_checkpoint_that_went_back_is_an_error(query: Query) -> None:
    query.commit(5, query.task(5, b"a"))
    with pytest.raises(RolledBack, match="batch 3 was to be written, but batch 5 of this query is committed already"):
        query.commit(3, query.task(3, b"b"))


def test_a_failed_batch_is_aborted(query: Query) -> None:
    settle(query.options, 0, [query.task(0, b"a")], commit=False)
    query.commit(0, query.task(0, b"b"))
    assert (query.seen(), query.open()) == ([b"b"], [])


def test_a_driver_that_was_replaced_can_decide_nothing(query: Query) -> None:
    mine = query.task(0, b"a")
    query.commit(0, query.task(0, b"a"))
    with Cluster(query.bootstrap) as cluster:
        old = Decisions(cluster, query.sink, query.options.decisions)
        Decisions(cluster, query.sink, query.options.decisions)
        with pytest.raises(KafkaError):
            old.commit(1, [mine.producer] if mine.producer else [])
    assert query.seen() == [b"a"]


class Killed(BaseException):
    """kill -9, as far as a function can tell."""


STEPS = ["init_producer", "committed_offset", "produce", "commit_offsets_in", "end_transaction"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", [0, 1, 2])
def test_a_driver_killed_at_any_step_repeats_the_batch(
    query: Query, monkeypatch: pytest.MonkeyPatch, step: str, when: str, call: int
) -> None:
    real: Any = getattr(module, step)
    calls = iter(range(100))

    def dying(*args: Any, **named: Any) -> Any:
        mine = next(calls) == call
        if mine and when == "before":
            raise Killed
        result = real(*args, **named)
        if mine:
            raise Killed
        return result

    query.commit(0, query.task(0, b"zero"))
    with monkeypatch.context() as patch:
        patch.setattr(module, step, dying)
        with contextlib.suppress(Killed):
            query.commit(1, query.task(1, b"a"), query.task(1, b"b"))
    query.commit(1, query.task(1, b"a", b"b"))  # Spark repeats what it doesn't know to be done
    query.commit(2, query.task(2, b"c"))
    assert (query.seen(), query.open()) == ([b"a", b"b", b"c", b"zero"], [])


def test_ending_again_what_was_committed_is_harmless(query: Query) -> None:
    written = query.task(0, b"a")
    query.commit(0, written)
    assert written.producer is not None
    with Cluster(query.bootstrap) as cluster:
        end_transaction(cluster, written.producer, commit=True)
    assert query.seen() == [b"a"]


def test_a_job_writes_once_under_its_id(query: Query) -> None:
    given = {"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic, "jobId": query.sink}
    options = read_sink_options(given, streaming=False)
    for _ in range(2):
        table = arrow.record_batch({"value": [b"a", b"b"]})
        written = write_rows(options, f"job-{query.sink}", 0, iter([table]))
        settle(options, 0, [written], commit=True)
    assert query.seen() == [b"a", b"b"]


def test_at_least_once_needs_no_decision(query: Query) -> None:
    given = {"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic, "kafka.compression.type": "zstd"}
    options = read_sink_options(given, streaming=False)
    headers = [[{"key": "h", "value": b"1"}], None, []]
    table = arrow.record_batch({"value": ["a", None, "c"], "headers": headers, "partition": [1, 0, None]})
    assert write_rows(options, "", 0, iter([table])).producer is None
    found = sorted(read(query.bootstrap, query.topic, stop_at_end=True), key=lambda m: m.value or b"")
    assert [(m.value, m.headers) for m in found] == [(None, []), (b"a", [("h", b"1")]), (b"c", [])]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"value": [b"a"], "partition": [7]}, r"row 0 of this task names partition 7 of out-.*, which has 2"),
        ({"value": [b"x" * 11_000_000]}, r"make a batch of 110000\d\d bytes, more than out-.* takes"),
    ],
)
def test_a_row_that_cannot_be_written_is_named(query: Query, column: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        write_rows(query.options, query.sink, 0, iter([arrow.record_batch(column)]))
    assert query.open() == []
