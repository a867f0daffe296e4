"""Topics with several replicas of which one is left: what they acknowledge, and who leads them.

A topic that is content with one copy works, and says that it has one; a topic that wants two refuses to take what only
one would have.
"""

from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.nodes import BROKER, CONTROLLER, Nodes, metadata_of, wait_for
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
    with Nodes(tmp_path, {1: CONTROLLER, **dict.fromkeys((2, 3, 4), BROKER)}) as nodes:
        create(nodes[2].bootstrap, "one-copy", {"min.insync.replicas": "1"})
        create(nodes[2].bootstrap, "two-copies", {"min.insync.replicas": "2"})
        wait_for(lambda: bool(metadata_of(nodes[2].bootstrap, ["two-copies"]).topics[0].partitions), "both to be known")
        made = partition_of(nodes[2].bootstrap, "one-copy")
        leader = made.leader_id
        assert sorted(made.isr_nodes) == [2, 3, 4]
        for node in nodes:
            if node.id not in (1, leader):
                node.kill()

        def isr(topic: str) -> list[int]:
            return partition_of(nodes[leader].bootstrap, topic).isr_nodes

        wait_for(lambda: isr("one-copy") == isr("two-copies") == [leader], "the others to be out of the ISR")
        produce(nodes.bootstrap, "one-copy")  # acks=all
        assert consume(nodes.bootstrap, "one-copy", "readers") == RECORDS

        failed: list[str] = []
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "message.timeout.ms": 3000})
        producer.produce("two-copies", b"x", on_delivery=lambda error, _: failed.append(str(error)))
        producer.flush(30.0)
        assert failed

        # Nobody without the records is elected while their broker is away, and they are there when it is back.
        nodes[leader].kill()
        others = [node for node in nodes if node.id not in (1, leader)]
        for node in others:
            node.start()
        wait_for(lambda: len(metadata_of(others[0].bootstrap).brokers) == 2, "it to be fenced")
        assert partition_of(others[0].bootstrap, "one-copy").leader_id in (-1, leader)
        nodes[leader].start()
        wait_for(lambda: partition_of(others[0].bootstrap, "one-copy").leader_id == leader, "it to lead again")
        assert consume(nodes.bootstrap, "one-copy", "later-readers") == RECORDS
