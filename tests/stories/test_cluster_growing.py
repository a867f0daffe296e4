"""A cluster of one, started on defaults, becomes three controllers and three brokers, and loses its first node then.

Each step is one of docs/operating/cluster.md. Partitions aren't copied between brokers yet: what was written to the
first node is readable as long as that lives, and what it alone had waits for it afterwards.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.launched import free_ports
from tests.nodes import BOTH, CONTROLLER, Node, Nodes, metadata_of, quorum_of, wait_for
from tests.raw import Connection
from tests.reading import create_topic
from tests.served import Tidelog
from tests.stories.cluster_load import until_decided
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

RECORDS = [f"record {number}".encode() for number in range(100)]
TOPIC_RESOURCE = 2


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 20_000})
    for value in RECORDS:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30.0) == 0


def consume(bootstrap: str, topic: str, group: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []

    def all_read() -> bool:
        values.extend(message.value() or b"" for message in consumer.consume(100, 0.2) if message.error() is None)
        return len(values) >= len(RECORDS)

    try:
        wait_for(all_read, f"the records of {topic}")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def retention_of(bootstrap: str, topic: str) -> str | None:
    asked = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    with Connection(bootstrap) as connection:
        answer = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [asked]})
    return answer.results[0].configs[0].value


def leaders(bootstrap: str) -> dict[str, list[int]]:
    """Of each topic that isn't internal, by partition."""
    return {
        topic.name: [partition.leader_id for partition in topic.partitions]
        for topic in metadata_of(bootstrap).topics
        if not topic.is_internal
    }


def ask(node: Node, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    with Connection(node.bootstrap, timeout_s=30.0) as connection:
        return connection.ask(key, version, fields)


@pytest.mark.long
def test_a_cluster_of_one_grows_to_three_and_loses_its_first_node(tmp_path: Path) -> None:
    # A broker on its defaults, as anybody starts with one: no other node can come to it.
    with Tidelog(tmp_path / "node-1") as alone:
        create_topic(alone.bootstrap, "tide", 2, {"retention.ms": "123456789"})
        produce(alone.bootstrap, "tide")
        assert consume(alone.bootstrap, "tide", "before") == RECORDS
        alone.stop()

    # Step 1: it is started again with a listener for controllers. Its voters' entry follows.
    first = Node(1, BOTH, tmp_path / "node-1", {})
    first.port = alone.port
    servers = {"controller.quorum.bootstrap.servers": first.controller_address}
    joins = {**servers, "controller.quorum.auto.join.enable": "true"}
    *others, fourth = (Node(id, BOTH, tmp_path / f"node-{id}", joins) for id in (2, 3, 4))
    nodes = [first, *others]
    try:
        first.start()

        # Step 2: the others are started on empty folders. They learn the cluster's id, and come to vote by themselves.
        for node in others:
            node.start()
        wait_for(lambda: quorum_of(nodes).voters == {1, 2, 3}, "all three to vote")
        assert {broker.node_id for broker in metadata_of(others[1].bootstrap).brokers} == {1, 2, 3}

        # Topics, settings, offsets and records are there, by any of them.
        for node in nodes:
            assert leaders(node.bootstrap) == {"tide": [1, 1]}
            assert retention_of(node.bootstrap, "tide") == "123456789"
        assert consume(others[0].bootstrap, "tide", "after") == RECORDS
        until_decided([others[0].bootstrap], "by-the-second")

        # Step 3: the first one is lost. The others go on, take it out of the voters and off the list of brokers.
        directory = quorum_of(nodes).directories[1]
        first.kill()
        until_decided([node.bootstrap for node in others], "without-the-first")
        voter = {"cluster_id": None, "voter_id": 1, "voter_directory_id": directory}
        removed = ask(others[0], ApiKey.REMOVE_RAFT_VOTER, 0, voter)
        assert removed.error_code == ErrorCode.NONE, removed.error_message
        wait_for(lambda: quorum_of(others).voters == {2, 3}, "the first one to vote no more")
        assert ask(others[0], ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 1}).error_code == ErrorCode.NONE

        # Step 4: another one takes its place. From now on these three are those that nodes are told of.
        settled = ",".join(node.controller_address for node in (*others, fourth))
        for node in (*others, fourth):
            node.settings["controller.quorum.bootstrap.servers"] = settled
        fourth.start()
        nodes[:] = [*others, fourth]
        wait_for(lambda: quorum_of(nodes).voters == {2, 3, 4}, "the fourth one to vote")
        for node in nodes:  # one after the other: they are told of the new list, and two of three are always there
            if node is not fourth:
                node.stop()
                node.start()
            until_decided([node.bootstrap], f"again-{node.id}")
            assert {broker.node_id for broker in metadata_of(node.bootstrap).brokers} == {2, 3, 4}
            assert retention_of(node.bootstrap, "tide") == "123456789"

        # What only the first one had has no leader: it isn't lost, and nobody makes it anew.
        assert leaders(others[0].bootstrap)["tide"] == [-1, -1]
    finally:
        for node in (first, *others, fourth):
            if node.process is not None:
                node.kill()


def test_a_controller_that_joined_is_found_where_it_moved_to(tmp_path: Path) -> None:
    """It asks to be a voter by itself, and to be known at another address when it has one."""
    first = Node(1, BOTH, tmp_path / "first", {})
    settings = {
        "controller.quorum.bootstrap.servers": first.controller_address,
        "controller.quorum.auto.join.enable": "true",
    }
    joins = Node(2, CONTROLLER, tmp_path / "joins", settings)

    def endpoint_of_it() -> int:
        with Connection(first.bootstrap) as connection:
            asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
            answer = connection.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": asked})
        return next(node.listeners[0].port for node in answer.nodes if node.node_id == 2)

    try:
        first.start()
        joins.settings["controller.quorum.auto.join.enable"] = "false"
        joins.start()
        assert "controller 2 has no vote: it is none of the voters yet. It follows, and decides nothing" in joins.said()
        joins.stop()
        joins.settings["controller.quorum.auto.join.enable"] = "true"
        joins.start()
        wait_for(lambda: quorum_of([first]).voters == {1, 2}, "both to vote")
        assert "controller 2 has no vote, and asks for one" in joins.said()
        assert endpoint_of_it() == joins.controller_port
        joins.stop()
        joins.controller_port = free_ports(1)[0]
        joins.start()
        wait_for(lambda: endpoint_of_it() == joins.controller_port, "it to be known where it moved to")
    finally:
        for node in (first, joins):
            if node.process is not None:
                node.kill()


@pytest.mark.long
def test_a_controller_that_comes_back_on_an_empty_disk_takes_the_place_of_its_former_self(tmp_path: Path) -> None:
    """It doesn't begin a cluster of its own, nor vote as if it still had what it promised."""
    joins = {"controller.quorum.auto.join.enable": "true"}
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH), joins) as nodes:
        until_decided([nodes[1].bootstrap], "tide")
        before = quorum_of(nodes)
        lost = nodes[next(id for id in (1, 2, 3) if id != before.leader_id)]
        others = [node for node in nodes if node is not lost]
        lost.kill()
        shutil.rmtree(lost.folder)
        lost.start()
        assert f"node {lost.id} is a voter with the directory {lost.directory_id}, and here it is" in lost.said()

        def is_back() -> bool:
            directory = quorum_of(others).directories.get(lost.id)
            return directory not in (None, before.directories[lost.id])

        wait_for(is_back, "it to vote from its new disk")
        assert quorum_of(others).voters == {1, 2, 3}
        until_decided([lost.bootstrap], "afterwards")
        wait_for(lambda: leaders(lost.bootstrap).keys() == {"tide", "afterwards"}, "it to know both topics")
