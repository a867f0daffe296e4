"""Brokers that say which machine they run on: real processes, two for each machine."""

from pathlib import Path
from typing import Any

import pytest

from tests.nodes import BOTH, BROKER, Nodes
from tests.raw import Connection
from tidelog.wire.keys import ApiKey

pytestmark = pytest.mark.long

HOSTS = {1: "left", 2: "left", 3: "right", 4: "right"}


def test_no_partition_has_both_replicas_on_one_machine(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, {1: BOTH, 2: BROKER, 3: BROKER, 4: BROKER})
    for id, host in HOSTS.items():
        nodes[id].settings["tidelog.host"] = host
    topic = {"name": "spread", "num_partitions": 40, "replication_factor": 2}
    with nodes, Connection(nodes[1].bootstrap) as connection:
        made = connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 15_000})
        assert made.topics[0].error_code == 0
        answer: Any = connection.ask(ApiKey.METADATA, 12, {"topics": [{"name": "spread"}]})
        replicas = [partition.replica_nodes for partition in answer.topics[0].partitions]
        assert {frozenset(HOSTS[id] for id in some) for some in replicas} == {frozenset({"left", "right"})}
        assert {id for some in replicas for id in some} == set(HOSTS)
