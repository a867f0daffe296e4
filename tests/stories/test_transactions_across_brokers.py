"""Consume-transform-produce over three brokers of which one is killed -9 or frozen: each input once, in order.

Coordinators, partitions and groups are on different brokers, with one replica each: what a broker has is away while it
is, and comes back with it.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.jars import JarsMissingError, find_jars
from tests.nodes import BOTH, Node, Nodes, metadata_of, wait_for
from tests.raw import Connection
from tests.reading import committed
from tests.stories.exactly_once.chaos import Command, check_output, copy_through_chaos, java_worker, python_worker
from tests.stories.groups.band import QUICK_GROUPS
from tidelog.client import Admin
from tidelog.wire.keys import ApiKey

SETTINGS = {
    **QUICK_GROUPS,
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "1",
    "tidelog.durability": "os",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "1",
}
FROZEN_S = 3.0


class Three:
    """What the copy needs of a broker: one of three is killed or frozen, and comes back."""

    def __init__(self, nodes: Nodes, folder: Path, seed: int) -> None:
        self.folder = folder / "data"
        self.bootstrap = ",".join(node.bootstrap for node in nodes)
        self.killed = self.frozen = 0
        self._nodes = nodes
        self._dice = random.Random(seed)
        self._away: Node | None = None

    def kill(self) -> None:
        self._away = self._nodes[self._dice.randint(1, 3)]
        if (self.killed + self.frozen) % 2:
            self.frozen += 1
            self._away.freeze()
            time.sleep(FROZEN_S)
        else:
            self.killed += 1
            self._away.kill()

    def start(self) -> None:
        assert self._away is not None
        if self._away.runs:
            self._away.thaw()
        else:
            self._away.start()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path, dict.fromkeys((1, 2, 3), BOTH), SETTINGS) as started:
        wait_for(lambda: len(metadata_of(started[1].bootstrap).brokers) == 3, "three brokers")
        yield started


def command_of(library: str) -> Command:
    if library != "java":
        return python_worker(library)
    try:
        return java_worker(find_jars())
    except JarsMissingError as missing:
        pytest.skip(str(missing))


def test_transactions_of_several_producers_over_all_brokers(nodes: Nodes) -> None:
    """Each has another coordinator; every other transaction is aborted."""
    bootstrap = nodes.bootstrap
    Admin(bootstrap).create_topic("tide", 6)

    def leaders() -> set[int]:
        return {one.leader_id for one in metadata_of(bootstrap.split(",")[0], ["tide"]).topics[0].partitions}

    wait_for(lambda: leaders() == {1, 2, 3}, "each broker to lead some of it")
    producers = {
        name: Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
        for name in (f"bank-{number}" for number in range(4))
    }
    for producer in producers.values():
        producer.init_transactions(30.0)
    wanted: list[list[bytes]] = [[] for _ in range(6)]
    for number in range(10):
        for name, producer in producers.items():
            producer.begin_transaction()
            for index in range(6):
                value = f"{name}:{number}".encode()
                producer.produce("tide", value, partition=index)
                if number % 2:
                    wanted[index].append(value)
        for producer in producers.values():
            if number % 2:
                producer.commit_transaction(30.0)
            else:
                producer.abort_transaction(30.0)
    found = committed(bootstrap, "tide", 6)
    for index in range(6):
        for name in producers:  # each producer's in its order; of several, any
            own = name.encode() + b":"
            assert [one for one in found[index] if one.startswith(own)] == [
                one for one in wanted[index] if one.startswith(own)
            ]
        assert sorted(found[index]) == sorted(wanted[index])
    with Connection(nodes[1].bootstrap) as connection:
        fields = {"key_type": 1, "coordinator_keys": list(producers)}
        told = connection.ask(ApiKey.FIND_COORDINATOR, 4, fields).coordinators
    assert len({one.node_id for one in told}) > 1


@pytest.mark.parametrize(
    "library",
    [
        "confluent",
        pytest.param("aiokafka", marks=pytest.mark.long),
        pytest.param("java", marks=pytest.mark.long),
    ],
)
def test_a_copy_over_three_brokers_holds_each_record_once_and_in_order(
    nodes: Nodes, tmp_path: Path, library: str
) -> None:
    three, count = Three(nodes, tmp_path, seed=1), 4000
    copy_through_chaos(three, command_of(library), count, seed=4, workers=2, kills=4, batch=50)
    check_output(three.bootstrap, count)
    assert three.killed + three.frozen > 0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("library", ["confluent", "aiokafka", "java"])
def test_a_long_copy_over_three_brokers(nodes: Nodes, tmp_path: Path, library: str) -> None:
    three, count = Three(nodes, tmp_path, seed=2), 40_000
    copy_through_chaos(three, command_of(library), count, seed=6, workers=3, kills=16, batch=100)
    check_output(three.bootstrap, count)
    assert three.killed > 0
    assert three.frozen > 0
