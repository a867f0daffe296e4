"""Controllers that are settings (`controller.quorum.voters`, kraft.version 0), of Tidelog, Apache Kafka and both."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kafka.apache import tool
from tests.kafka.clients import make_topic, read, write
from tests.kafka.mixed import Kind, MixedCluster
from tests.kafka.test_cluster_tools import BROKERS, CLUSTER, CONTROLLERS, FEATURES, QUORUM, Command, Said, Shapes
from tests.nodes import BOTH

TIDELOG, APACHE = Kind.TIDELOG, Kind.APACHE
LINES = [f"line {number}" for number in range(20)]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def cluster_of(folder: Path, kinds: Mapping[int, Kind]) -> MixedCluster:
    return MixedCluster(folder, {id: (kind, BOTH) for id, kind in kinds.items()}, named_voters=True)


def commands(at: Command) -> list[Command]:
    """What they say of such a quorum, and changes of its voters, which can't be."""
    remove = ("--controller-id", "3", "--controller-directory-id", "JEXY6aqzQY-32P5TStzaFg")
    return [
        (QUORUM, *at, "describe", "--status"),
        (CLUSTER, "list-endpoints", *at),
        (FEATURES, *at, "describe"),
        (QUORUM, *at, "remove-controller", *remove),
    ]


def test_tools_say_of_named_voters_what_they_say_of_kafkas(jars: Path, tmp_path: Path) -> None:
    told: list[list[tuple[Command, Said]]] = []
    for kind in (TIDELOG, APACHE):
        with cluster_of(tmp_path / kind.name, dict.fromkeys((1, 2, 3), kind)) as cluster:
            cluster.start()
            cluster.wait_until_let_in()
            for node in cluster:
                cluster.wait_until_caught_up(node.id)
            shapes = Shapes(cluster)
            told.append([(command, shapes.run(command)) for at in (BROKERS, CONTROLLERS) for command in commands(at)])
    apart = [f"{ours}\n{theirs}" for ours, theirs in zip(*told, strict=True) if ours != theirs]
    assert not apart, "\n\n".join(apart)


@pytest.mark.parametrize("kinds", [{1: TIDELOG, 2: TIDELOG, 3: APACHE}, {1: APACHE, 2: APACHE, 3: TIDELOG}])
def test_named_voters_of_both_kinds_are_one_quorum(jars: Path, tmp_path: Path, kinds: Mapping[int, Kind]) -> None:
    with cluster_of(tmp_path, kinds) as cluster:
        cluster.start()
        cluster.wait_until_let_in()
        for id in (1, 2, 3):
            make_topic(cluster.bootstrap, f"on-{id}", str(id))
            write(cluster.bootstrap, f"on-{id}", LINES)
        cluster.active_controller().kill()
        cluster.active_controller()
        for node in cluster:
            if node.runs:
                cluster.wait_until_let_in(node.id)
                assert read(node.bootstrap, f"on-{node.id}", len(LINES)) == LINES
        done = tool(FEATURES, "--bootstrap-server", cluster.bootstrap, "describe")
        assert "kraft.version" in done.stdout
