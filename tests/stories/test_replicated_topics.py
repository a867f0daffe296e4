"""Topics with several replicas, while brokers don't copy from each other yet: nothing is acknowledged as replicated.

The leader has the in-sync replicas made what they are, itself alone, before it acknowledges anything. So a topic that
wants one copy works, and says that it has one; a topic that wants two refuses to take what only one would have.
"""

from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.nodes import BOTH, Nodes, metadata_of, wait_for
from tests.raw import Connection
from tests.stories.test_cluster_growing import RECORDS, consume, produce
from tidelog.wire.keys import ApiKey


def create(bootstrap: str, name: str, configs: dict[str, str], replicas: int = 3) -> None:
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": replicas,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    with Connection(bootstrap) as connection:
        answer = connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 10_000})
    assert answer.topics[0].error_code == 0


def partition_of(bootstrap: str, topic: str) -> Any:
    return metadata_of(bootstrap, [topic]).topics[0].partitions[0]


def test_what_is_acknowledged_is_what_the_in_sync_replicas_have(tmp_path: Path) -> None:
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH)) as nodes:
        bootstrap = nodes[1].bootstrap
        create(bootstrap, "one-copy", {"min.insync.replicas": "1"})
        create(bootstrap, "two-copies", {"min.insync.replicas": "2"})
        wait_for(lambda: bool(metadata_of(bootstrap, ["two-copies"]).topics[0].partitions), "both to be known")
        made = partition_of(bootstrap, "one-copy")
        assert sorted(made.isr_nodes) == [1, 2, 3]

        produce(nodes.bootstrap, "one-copy")  # acks=all
        leader = made.leader_id
        wait_for(lambda: partition_of(bootstrap, "one-copy").isr_nodes == [leader], "the others to be out of the ISR")
        assert consume(nodes.bootstrap, "one-copy", "readers") == RECORDS

        failed: list[str] = []
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "message.timeout.ms": 3000})
        producer.produce("two-copies", b"x", on_delivery=lambda error, _: failed.append(str(error)))
        producer.flush(30.0)
        assert failed
        refuses = partition_of(bootstrap, "two-copies")
        assert refuses.isr_nodes == [refuses.leader_id]

        # Nobody without the records is elected while their broker is away, and they are there when it is back.
        nodes[leader].kill()
        others = [node for node in nodes if node.id != leader]
        wait_for(lambda: partition_of(others[0].bootstrap, "one-copy").leader_id in (-1, leader), "nobody else to lead")
        wait_for(lambda: len(metadata_of(others[0].bootstrap).brokers) == 2, "it to be fenced")
        assert partition_of(others[0].bootstrap, "one-copy").leader_id in (-1, leader)
        nodes[leader].start()
        wait_for(lambda: partition_of(others[0].bootstrap, "one-copy").leader_id == leader, "it to lead again")
        assert consume(nodes.bootstrap, "one-copy", "later-readers") == RECORDS
