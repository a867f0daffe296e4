"""A follower of ours copies from Apache Kafka's leaders, stays in their in-sync replicas, and leads on from there."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.clients import make_topic
from tests.kafka.mixed import Kind, MixedCluster, MixedNode, wait_for
from tests.nodes import BROKER, CONTROLLER, metadata_of
from tests.raw import Connection
from tests.reading import stored_batches

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

APACHE, TIDELOG = 2, 3
SETTINGS = {"replica.lag.time.max.ms": "10000"}


def bytes_of(node: MixedNode, topic: str) -> bytes:
    """What is in the files of its first partition; an Apache Kafka sets aside none of it in advance."""
    return b"".join(path.read_bytes() for path in sorted((node.folder / f"{topic}-0").glob("*.log")))


def batches(node: MixedNode) -> list[object]:
    """As the node answers a client's fetches."""
    with Connection(node.bootstrap) as connection:
        return list(stored_batches(connection, "tide"))


def are_equal(cluster: MixedCluster, topic: str) -> Callable[[], bool]:
    def look() -> bool:
        found = {bytes_of(cluster[id], topic) for id in (APACHE, TIDELOG)}
        return len(found) == 1 and bool(found.pop())

    return look


def produce(bootstrap: str, topic: str, *, compression: str = "none", records: int = 2000) -> None:
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.num.messages": 15,
            "compression.type": compression,
            "enable.idempotence": True,
            "message.timeout.ms": 30_000,
        }
    )
    for number in range(records):
        producer.produce(
            topic,
            b"value %d " % number * 20,
            partition=0,
            on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
        )
        producer.poll(0)
    assert producer.flush(60.0) == 0
    assert not failed


def isr(cluster: MixedCluster, topic: str) -> set[int]:
    node = next(node for node in cluster if node.is_broker and node.runs)
    return set(metadata_of(node.bootstrap, [topic]).topics[0].partitions[0].isr_nodes)


def test_a_follower_of_an_apache_leader_has_its_bytes_and_leads_on(jars: Path, tmp_path: Path) -> None:
    members = {1: (Kind.APACHE, CONTROLLER), APACHE: (Kind.APACHE, BROKER), TIDELOG: (Kind.TIDELOG, BROKER)}
    with MixedCluster(tmp_path, members, SETTINGS) as cluster:
        cluster.start()
        make_topic(cluster.bootstrap, "tide", f"{APACHE}:{TIDELOG}")
        # Both are in sync, so that each acknowledgement waits for what this follower says.
        produce(cluster.bootstrap, "tide")
        produce(cluster.bootstrap, "tide", compression="lz4")
        wait_for(are_equal(cluster, "tide"), "the replicas to be equal")
        assert isr(cluster, "tide") == {APACHE, TIDELOG}
        cluster[TIDELOG].kill()
        cluster[TIDELOG].start()
        wait_for(lambda: isr(cluster, "tide") == {APACHE, TIDELOG}, "the follower to be in sync again")
        produce(cluster.bootstrap, "tide", records=50)
        before = batches(cluster[APACHE])
        cluster[APACHE].stop()
        wait_for(lambda: cluster.leaders("tide") == [TIDELOG], "the follower to lead")
        assert batches(cluster[TIDELOG]) == before
