"""Rows of a task as records in topics, without Spark: what fits is written, what doesn't is named."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("librt", reason="needs pip install tidelog[spark]")

import pyarrow

from tidelog.client import Admin, read
from tidelog.rpc import Cluster
from tidelog.rpc.transactions import init_producer
from tidelog.spark.columns import HEADER_TYPE
from tidelog.spark.outbound import Outbound, RowError
from tidelog.spark.sink_options import read_sink_options
from tidelog.testing import Broker

arrow: Any = pyarrow
ONE_MB = {"max.message.bytes": "1048588"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def write(broker: Broker, columns: dict[str, Any], **options: str) -> None:
    batch = arrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    given = read_sink_options({"kafka.bootstrap.servers": broker.bootstrap, **options}, streaming=False)
    with Cluster(broker.bootstrap) as cluster:
        outbound = Outbound(cluster, given, init_producer(cluster, None))
        outbound.add(batch)
        outbound.flush()
        assert outbound.rows == batch.num_rows


def binary(*values: bytes | None) -> Any:
    return arrow.array(values, type=arrow.binary())


@pytest.mark.parametrize("headers", [False, True])
def test_large_rows_share_no_batch_that_would_be_too_large(broker: Broker, headers: bool) -> None:
    topic = f"large-rows-{headers}"
    Admin(broker.bootstrap).create_topic(topic, 1, configs=ONE_MB)
    sizes = (10, 500_000, 700_000, 400_000, 1_000_000, 20)
    columns = {"value": binary(*(bytes(size) for size in sizes))}
    if headers:
        columns["headers"] = arrow.array([[{"key": "a", "value": b"b"}]] * len(sizes), type=HEADER_TYPE)
    write(broker, columns, topic=topic)
    found = list(read(broker.bootstrap, topic, stop_at_end=True))
    assert [len(message.value or b"") for message in found] == list(sizes)


def test_a_row_that_no_batch_can_hold_is_named_with_its_topic(broker: Broker) -> None:
    Admin(broker.bootstrap).create_topic("too-large", 1, configs=ONE_MB)
    with pytest.raises(
        RowError, match=r"1 of the rows of this task up to row 2 make a batch of .* more than too-large"
    ):
        write(broker, {"value": binary(b"small", bytes(2_000_000))}, topic="too-large")


def test_rows_go_where_their_columns_say(broker: Broker) -> None:
    for topic in ("there", "elsewhere"):
        Admin(broker.bootstrap).create_topic(topic, 3)
    topics, places = ["there", "elsewhere", "there"], [2, 0, 1]
    columns = {"key": binary(None, b"k", b"k"), "value": binary(b"a", b"b", None)}
    write(broker, {**columns, "topic": arrow.array(topics), "partition": arrow.array(places, type=arrow.int32())})
    found = [
        (topic, message.partition, message.key, message.value)
        for topic in ("there", "elsewhere")
        for message in read(broker.bootstrap, topic, stop_at_end=True)
    ]
    assert sorted(found, key=repr) == [
        ("elsewhere", 0, b"k", b"b"),
        ("there", 1, b"k", None),
        ("there", 2, None, b"a"),
    ]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"partition": arrow.array([0, 3], type=arrow.int32())},
            "row 1 of this task names partition 3 of .*which has 3",
        ),
        ({"topic": arrow.array(["there", None])}, "row 1 of this task has no topic"),
    ],
)
def test_a_row_that_has_no_place_is_named(broker: Broker, columns: dict[str, Any], said: str) -> None:
    topic = f"placed-{len(columns)}-{next(iter(columns))}"
    Admin(broker.bootstrap).create_topic(topic, 3)
    options = {} if "topic" in columns else {"topic": topic}
    with pytest.raises(RowError, match=said):
        write(broker, {"value": binary(b"a", b"b"), **columns}, **options)
