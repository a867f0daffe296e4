"""Simulated clusters of a known shape, for tests of what they go through."""

from collections.abc import Mapping, Sequence

from tidelog.sim.cluster.shape import BOTH, NodeShape, Shape
from tidelog.sim.cluster.world import ClusterWorld
from tidelog.sim.world.random import SimRandom

SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    "controller.quorum.auto.join.enable": "true",
    "log.initial.task.delay.ms": "1000",
    "request.timeout.ms": "2000",
    "tidelog.journal.bytes": "0",
}
OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "300",
    "metadata.max.retention.bytes": "0",
}
"""A checkpoint of the metadata after every few records."""


def cluster(
    roles: Sequence[str] = (BOTH, BOTH, BOTH),
    settings: Mapping[str, str] | None = None,
    *,
    seed: int = 1,
    own_metadata_disk: bool = False,
) -> ClusterWorld:
    """One whose nodes all serve."""
    nodes = tuple(NodeShape(number, role, own_metadata_disk, 0.0, 1.0) for number, role in enumerate(roles, 1))
    shape = Shape(nodes, static=False, settings={**SETTINGS, **(settings or {})})
    world = ClusterWorld(seed, SimRandom(f"cluster {seed}"), shape)
    world.network.lame = 0.0
    for machine in world.machines.values():
        machine.start()
    all_serve(world)
    return world


def all_serve(world: ClusterWorld, seconds: float = 20.0) -> None:
    world.wait(lambda: all(one.ready for one in world.machines.values()), seconds, lambda: "all nodes to serve")


def settle(world: ClusterWorld, seconds: float) -> None:
    world.run_until(lambda: False, world.timeline.now + seconds)
