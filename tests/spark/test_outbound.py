"""Rows of a task as records in topics, without Spark: what fits is written, what doesn't is named."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("librt", reason="needs pip install tidelog[spark]")

import pyarrow

from tests.spark.flaky import Flaky
from tests.spark.writing import TWO_PHASE
from tidelog.client import Admin, read
from tidelog.rpc import Cluster
from tidelog.rpc.transactions import end_transaction, init_producer
from tidelog.spark.sink import outbound
from tidelog.spark.sink.outbound import Outbound, RowError
from tidelog.spark.sink.sink_options import read_sink_options
from tidelog.spark.source.columns import HEADER_TYPE
from tidelog.spark.source.options import OptionError
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
    messages = list(read(broker.bootstrap, topic, stop_at_end=True))
    assert [len(message.value or b"") for message in messages] == list(sizes)


@pytest.mark.parametrize("headers", [False, True])
def test_a_row_that_no_batch_can_hold_is_named_with_its_topic(broker: Broker, headers: bool) -> None:
    topic = f"too-large-{headers}"
    Admin(broker.bootstrap).create_topic(topic, 1, configs=ONE_MB)
    columns = {"key": binary(b"a", b"b", b"c"), "value": binary(b"small", bytes(2_000_000), b"small")}
    if headers:
        columns["headers"] = arrow.array([[{"key": "a", "value": b"b"}]] * 3, type=HEADER_TYPE)
    with pytest.raises(
        RowError, match=rf"row 1 of this task has a key and value of 2000001 bytes, more than {topic} takes"
    ):
        write(broker, columns, topic=topic)


def test_rows_that_are_too_large_together_are_told_by_their_batch(broker: Broker) -> None:
    Admin(broker.bootstrap).create_topic("together", 1, configs={"max.message.bytes": "1000"})
    said = r"20 of the rows of this task up to row 20 make a batch of .* bytes, more than together takes: .*batch.size"
    with pytest.raises(RowError, match=said):
        write(broker, {"value": binary(*[bytes(100)] * 20)}, topic="together")


def test_a_row_that_no_request_can_hold_is_named(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "REQUEST_BYTES_MAX", 900_000)  # brokers hang up above 100 MB
    Admin(broker.bootstrap).create_topic("no-request", 1)
    with pytest.raises(RowError, match=r"row 1 of this task .* more than brokers take in a request"):
        write(broker, {"value": binary(b"small", bytes(1_000_000))}, topic="no-request")


def test_what_many_partitions_gather_is_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "HELD_BYTES_MAX", 100_000)
    Admin(broker.bootstrap).create_topic("many-partitions", 40)
    rows = {"key": binary(*(b"%d" % key for key in range(400))), "value": binary(*[bytes(200)] * 400)}
    batch = arrow.RecordBatch.from_arrays(list(rows.values()), names=list(rows))
    given = read_sink_options(
        {"kafka.bootstrap.servers": broker.bootstrap, "topic": "many-partitions"}, streaming=False
    )
    with Cluster(broker.bootstrap) as cluster:
        writing = Outbound(cluster, given, init_producer(cluster, None))
        for _ in range(5):
            writing.add(batch)
            assert writing.held_bytes() <= 100_000
        writing.flush()
    assert len(list(read(broker.bootstrap, "many-partitions", stop_at_end=True))) == 2000


def test_rows_go_where_their_columns_say(broker: Broker) -> None:
    for topic in ("here", "beyond"):
        Admin(broker.bootstrap).create_topic(topic, 3)
    topics, places = ["here", "beyond", "here"], [2, 0, 1]
    columns = {"key": binary(None, b"k", b"k"), "value": binary(b"a", b"b", None)}
    write(broker, {**columns, "topic": arrow.array(topics), "partition": arrow.array(places, type=arrow.int32())})
    messages = [
        (topic, message.partition, message.key, message.value)
        for topic in ("here", "beyond")
        for message in read(broker.bootstrap, topic, stop_at_end=True)
    ]
    assert sorted(messages, key=repr) == [
        ("beyond", 0, b"k", b"b"),
        ("here", 1, b"k", None),
        ("here", 2, None, b"a"),
    ]


NAMES_PARTITION = "of this task names partition"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"partition": arrow.array([0, 3], type=arrow.int32())}, f"row 1 {NAMES_PARTITION} 3 of .*which has 3"),
        ({"partition": arrow.array([None, -1], type=arrow.int32())}, f"row 1 {NAMES_PARTITION} -1 of .*which has 3"),
        ({"partition": arrow.array([2**40, 0], type=arrow.int64())}, f"row 0 {NAMES_PARTITION} {2**40} of"),
        ({"topic": arrow.array(["there", None])}, "row 1 of this task has no topic"),
        ({"topic": arrow.array(["there", "nowhere"])}, "row 1 of this task goes to 'nowhere', which is no topic"),
        ({"topic": arrow.array(["there", "a/b"])}, "row 1 of this task goes to 'a/b', which is no topic"),
        ({"topic": arrow.array(["elsewhere", "there"]), "partition": arrow.array([0, 3])}, f"row 1 {NAMES_PARTITION}"),
        (
            {"headers": arrow.array([[], [{"key": None, "value": b"a"}]], type=HEADER_TYPE)},
            "row 1 of this task has a header without a key",
        ),
    ],
)
def test_a_row_that_has_no_place_is_named(broker: Broker, columns: dict[str, Any], said: str) -> None:
    for topic in {"there", "elsewhere", "placed"} - {each.name for each in Admin(broker.bootstrap).topics()}:
        Admin(broker.bootstrap).create_topic(topic, 3)
    options = {} if "topic" in columns else {"topic": "placed"}
    with pytest.raises(RowError, match=said):
        write(broker, {"value": binary(b"a", b"b"), **columns}, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"jobId": ""}, "option jobId is empty"),
        ({"jobBatch": "1"}, "option jobBatch: a batch has a number under a jobId"),
        ({"jobId": "a", "jobBatch": str(2**63)}, "is no number from 0 to"),
        ({"kafka.batch.size": "0"}, "option kafka.batch.size: '0' is no number of bytes"),
        ({"kafka.batch.size": "many"}, "option kafka.batch.size: 'many' is no number of bytes"),
    ],
)
def test_options_that_can_not_be_are_told(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read_sink_options({"kafka.bootstrap.servers": "localhost:1", **options}, streaming=False)


@pytest.fixture(scope="module")
def flaky() -> Iterator[Flaky]:
    with Flaky() as flaky:
        yield flaky


@pytest.fixture(scope="module")
def far(flaky: Flaky) -> Iterator[Broker]:
    with Broker({**TWO_PHASE, "advertised.listeners": f"PLAINTEXT://{flaky.address}"}) as broker:
        yield broker


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 60))])
def test_rows_come_once_and_in_order_though_connections_break_anywhere(far: Broker, flaky: Flaky, seed: int) -> None:
    flaky.lead_to(far.bootstrap, seed, there_max=10**9, back_max=10**9)
    topic, before = f"flaky-{seed}", flaky.broken
    Admin(far.bootstrap).create_topic(topic, 2)
    options = {"topic": topic, "kafka.batch.size": "1500", "kafka.retry.backoff.ms": "1"}
    given = read_sink_options({"kafka.bootstrap.servers": flaky.address, **options}, streaming=False)
    values = [b"%06d" % row + bytes(seed % 7 * 20) for row in range(3000)]
    with Cluster(flaky.address, given.rpc) as cluster:
        producer = init_producer(cluster, f"writer-{seed}", two_phase=True)
        cluster.close()
        flaky.lead_to(far.bootstrap, seed, there_max=60_000, back_max=4_000)
        writing = Outbound(cluster, given, producer)
        for begin in range(0, len(values), 500):
            part = binary(*values[begin : begin + 500])
            writing.add(arrow.record_batch({"key": part, "value": part}))
        writing.flush()
        flaky.lead_to(far.bootstrap, seed, there_max=10**9, back_max=10**9)
        cluster.close()
        end_transaction(cluster, producer, commit=True)
    messages = list(read(far.bootstrap, topic, stop_at_end=True, isolation_level="read_committed"))
    for partition in range(2):
        placed = [message.value for message in messages if message.partition == partition]
        assert placed == sorted(placed, key=repr)
    assert sorted(message.value or b"" for message in messages) == values
    assert flaky.broken > before, "nothing broke"
