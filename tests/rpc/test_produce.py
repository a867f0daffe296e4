"""Batches of one producer, several on their way at once: each once and in order, whatever breaks meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import Tidelog
from tidelog.client import Admin
from tidelog.rpc import LATEST, Cluster, list_offsets
from tidelog.rpc.errors import Lost
from tidelog.rpc.fetch import PartitionReader
from tidelog.rpc.produce import Pipeline, Refused
from tidelog.rpc.transactions import Producer, init_producer
from tidelog.testing import Broker
from tidelog.wire.batch import build, iterate, records
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.record import Record


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def batch(producer: Producer, number: int, size: int = 10) -> bytearray:
    """The number-th batch of a partition: two records."""
    made = [Record(timestamp=1, value=b"%d-%d" % (number, each) + bytes(size)) for each in range(2)]
    return build(made, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=2 * number)


def numbers(cluster: Cluster, topic: str, partition: int) -> list[int]:
    """Which batches a partition holds, in order."""
    end = list_offsets(cluster, {(topic, partition): LATEST})[(topic, partition)].offset
    found: list[int] = []
    for part in PartitionReader(cluster, topic, partition, 0, end):
        for header in iterate(part.records):
            first = next(records(part.records, header)).value
            found.append(int((first or b"").partition(b"-")[0]))
    return found


def test_batches_keep_their_order_in_each_partition(broker: Broker) -> None:
    Admin(broker.bootstrap).create_topic("pipelined", 3)
    with Cluster(broker.bootstrap) as cluster:
        producer = init_producer(cluster, None)
        pipeline = Pipeline(cluster)
        for number in range(40):
            for partition in range(3):
                pipeline.add("pipelined", partition, batch(producer, number))
        pipeline.settle()
        for partition in range(3):
            assert numbers(cluster, "pipelined", partition) == list(range(40))


def test_a_broker_that_is_killed_meanwhile_has_each_batch_once(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker:
        Admin(broker.bootstrap).create_topic("killed", 2)
        with Cluster(broker.bootstrap) as cluster:
            producer = init_producer(cluster, None)
            pipeline = Pipeline(cluster)
            for number in range(60):
                for partition in range(2):
                    pipeline.add("killed", partition, batch(producer, number, 50_000))
                if number in (7, 31):
                    broker.kill()
                    broker.start()
            pipeline.settle()
            for partition in range(2):
                assert numbers(cluster, "killed", partition) == list(range(60))


def test_a_batch_that_is_refused_is_named_and_the_cluster_can_be_used_on(broker: Broker) -> None:
    Admin(broker.bootstrap).create_topic("narrow", 1, configs={"max.message.bytes": "2000"})
    with Cluster(broker.bootstrap) as cluster:
        producer = init_producer(cluster, None)
        pipeline = Pipeline(cluster)
        pipeline.add("narrow", 0, batch(producer, 0))
        large = batch(producer, 1, 5000)
        pipeline.add("narrow", 0, large)
        pipeline.add("narrow", 0, batch(producer, 2))
        with pytest.raises(Refused) as raised:
            pipeline.settle()
        assert (raised.value.code, raised.value.batch) == (ErrorCode.MESSAGE_TOO_LARGE, large)
        assert numbers(cluster, "narrow", 0) == [0]


def test_answers_that_were_left_are_not_taken_for_others(broker: Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        connection = cluster.any()
        connection.send(MetadataRequest(topics=[]))
        with pytest.raises(Lost, match="answers to earlier requests were left here"):
            connection.ask(MetadataRequest(topics=[]), MetadataResponse)
