"""Apache Kafka beside a Tidelog cluster, in the time that each change may take: its tools, and one node of either kind.

The whole stories are `test_cluster_tools.py`, `test_mixed_clusters.py` and `test_controllers_take_turns.py`.
"""

from pathlib import Path

import pytest

from tests.kafka.clients import make_topic, read, write
from tests.kafka.mixed import Kind, MixedCluster
from tests.kafka.test_cluster_tools import BROKERS, CLUSTER, CONTROLLERS, FEATURES, QUORUM, Command, Shapes
from tests.nodes import BOTH, BROKER, CONTROLLER

LINES = [f"line {number}" for number in range(10)]


def test_kafkas_tools_know_a_cluster_of_three(jars: Path, tmp_path: Path) -> None:
    with MixedCluster(tmp_path, dict.fromkeys((1, 2, 3), (Kind.TIDELOG, BOTH))) as cluster:
        cluster.start()
        cluster.wait_until_let_in()
        shapes = Shapes(cluster)

        def told(*command: str) -> str:
            said = shapes.run(command)
            assert (said.code, said.errors) == (0, []), said
            return "\n".join(said.lines)

        all_at: tuple[Command, ...] = (BROKERS, CONTROLLERS)
        for at in all_at:
            status = told(QUORUM, *at, "describe", "--status")
            assert all(f'"directoryId": "<disk-{id}>"' in status for id in (1, 2, 3))
            assert told(QUORUM, *at, "describe", "--replication").count("<disk-") == 3
            assert told(CLUSTER, "cluster-id", *at) == "Cluster ID: <cluster>"
            assert told(CLUSTER, "list-endpoints", *at).count("127.0.0.1") == 3
            assert "Feature: metadata.version" in told(FEATURES, *at, "describe")


@pytest.mark.parametrize(
    ("controller", "broker"), [(Kind.APACHE, Kind.TIDELOG), (Kind.TIDELOG, Kind.APACHE)], ids=["tidelog", "apache"]
)
def test_a_broker_lives_under_a_controller_of_the_other_kind(
    jars: Path, tmp_path: Path, controller: Kind, broker: Kind
) -> None:
    with MixedCluster(tmp_path, {1: (controller, CONTROLLER), 4: (broker, BROKER)}) as cluster:
        cluster.start()
        make_topic(cluster.bootstrap, "alone", "4")
        write(cluster.bootstrap, "alone", LINES)
        assert read(cluster.bootstrap, "alone", len(LINES)) == LINES
