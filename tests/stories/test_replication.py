"""Followers copy what their leaders have, byte for byte: what is on the disks of three real nodes is compared."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.nodes import BOTH, Node, Nodes, metadata_of, wait_for
from tests.raw import Connection
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

RECORDS = 3000
PARTITIONS = 4


def create(bootstrap: str, name: str, partitions: int = PARTITIONS, **configs: str) -> None:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 3,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    with Connection(bootstrap) as connection:
        answer = connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 10_000})
    # A broker that isn't answered asks the next controller, which may know of the topic by then.
    assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def produce(bootstrap: str, topic: str, partitions: int = PARTITIONS, *, records: int = RECORDS, **more: str) -> None:
    """With acks=all, in many batches, until all are acknowledged."""
    failed: list[str] = []
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 2, "batch.num.messages": 20, "message.timeout.ms": 30_000}
    producer = Producer({**settings, **{name.replace("_", "."): value for name, value in more.items()}})
    for number in range(records):
        producer.produce(
            topic,
            b"%d " % number * (1 + number % 40),
            key=b"%d" % (number % 100),
            partition=number % partitions,
            on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
        )
        producer.poll(0)
    assert producer.flush(60.0) == 0
    assert not failed


def copies(node: Node, topic: str, partition: int) -> bytes:
    """What the node's disk has of the partition, whatever its segments."""
    folder = node.folder / f"{topic}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def are_equal(nodes: Nodes, topic: str, partitions: int = PARTITIONS) -> Callable[[], bool]:
    def look() -> bool:
        return all(
            len({copies(node, topic, partition) for node in nodes}) == 1 and copies(nodes[1], topic, partition)
            for partition in range(partitions)
        )

    return look


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    return {one.partition_index: one.leader_id for one in metadata_of(bootstrap, [topic]).topics[0].partitions}


@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_all_replicas_have_what_was_produced(tmp_path: Path, idempotence: str) -> None:
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH)) as nodes:
        create(nodes[1].bootstrap, "tide", min_insync_replicas="1")
        wait_for(lambda: len(leaders(nodes[1].bootstrap, "tide")) == PARTITIONS, "the topic")
        assert len(set(leaders(nodes[1].bootstrap, "tide").values())) == 3
        produce(nodes.bootstrap, "tide", enable_idempotence=idempotence)
        wait_for(are_equal(nodes, "tide"), "the replicas to be equal")


def test_a_node_that_is_killed_while_records_come_has_them_all_in_the_end(tmp_path: Path) -> None:
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH)) as nodes:
        create(nodes[1].bootstrap, "tide", 1, min_insync_replicas="1", segment_bytes="1048576")
        wait_for(lambda: len(leaders(nodes[1].bootstrap, "tide")) == 1, "the topic")
        killed = nodes[leaders(nodes[1].bootstrap, "tide")[0] % 3 + 1]
        for codec in ("none", "zstd", "lz4"):
            produce(nodes.bootstrap, "tide", 1, compression_type=codec)
            if killed.process is None:
                killed.start()
            else:
                killed.kill()
        killed.start()
        wait_for(are_equal(nodes, "tide", 1), "the replicas to be equal")


def test_what_is_deleted_at_the_leader_is_deleted_everywhere(tmp_path: Path) -> None:
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH)) as nodes:
        create(nodes[1].bootstrap, "tide", 1, min_insync_replicas="1")
        wait_for(lambda: len(leaders(nodes[1].bootstrap, "tide")) == 1, "the topic")
        produce(nodes.bootstrap, "tide", 1)
        leader = nodes[leaders(nodes[1].bootstrap, "tide")[0]]
        asked = {"name": "tide", "partitions": [{"partition_index": 0, "offset": 1000}]}
        with Connection(leader.bootstrap) as connection:
            answer = connection.ask(ApiKey.DELETE_RECORDS, 2, {"topics": [asked], "timeout_ms": 10_000})
        assert answer.topics[0].partitions[0].error_code == 0
        produce(nodes.bootstrap, "tide", 1, records=20)

        def have_all() -> bool:
            files = [node.folder / "log-start-offset-checkpoint" for node in nodes]
            return all(file.exists() and "tide 0 1000" in file.read_text().splitlines() for file in files)

        wait_for(have_all, "all to start at 1000")
