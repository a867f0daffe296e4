"""What a cluster looks like, as its seed has it: which nodes with which roles, on which disks, with which settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.sim.world.random import SimRandom

DATA = "/data"
METADATA = "/metadata"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
BOTH, CONTROLLER, BROKER = "broker,controller", "controller", "broker"
FIVE_CONTROLLERS = 0.15
OFFSET_S_MAX = 30.0
DRIFT_MAX = 0.02

Roles = Sequence[tuple[tuple[str, ...], float]]
"""The roles of the nodes of a cluster, and how likely it is."""
ROLES_OF_THREE: Roles = (
    ((BOTH, BOTH, BOTH), 4.0),
    ((BOTH, BOTH, BOTH, BROKER), 3.0),
    ((CONTROLLER, CONTROLLER, CONTROLLER, BROKER, BROKER), 3.0),
    ((BOTH, BOTH, CONTROLLER, BROKER), 2.0),
)
ROLES_OF_FIVE: Roles = (
    ((BOTH, BOTH, BOTH, BOTH, BOTH), 2.0),
    ((BOTH, BOTH, CONTROLLER, CONTROLLER, CONTROLLER), 3.0),
)


class NodeShape(NamedTuple):
    """`offset_s` and `rate` are those of its clock."""

    id: int
    roles: str
    own_metadata_disk: bool
    offset_s: float
    rate: float

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles.split(",")

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles.split(",")

    @property
    def address(self) -> str:
        return f"10.0.0.{self.id}"

    @property
    def directory_id(self) -> bytes:
        """Of its metadata log's folder as it is first formatted: all voters are named before any is formatted."""
        return bytes([7] * 15 + [self.id])

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("CONTROLLER", self.address, CONTROLLER_PORT)


@dataclass(frozen=True, slots=True)
class Shape:
    """`static`: the voters are settings of every node (kraft.version 0)."""

    nodes: tuple[NodeShape, ...]
    static: bool
    settings: dict[str, str]

    @property
    def initial(self) -> VoterSet:
        """The controllers, which vote from the beginning."""
        return VoterSet(
            tuple(
                Voter(ReplicaKey(node.id, node.directory_id), (node.endpoint,))
                for node in self.nodes
                if node.is_controller
            )
        )

    def settings_of(self, node: NodeShape) -> dict[str, str]:
        listeners = [f"PLAINTEXT://{node.address}:{BROKER_PORT}"] if node.is_broker else []
        listeners += [f"CONTROLLER://{node.address}:{CONTROLLER_PORT}"] if node.is_controller else []
        voters = [one for one in self.nodes if one.is_controller]
        settings = {
            **self.settings,
            "node.id": str(node.id),
            "cluster.id": CLUSTER_ID,
            "process.roles": node.roles,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": DATA,
        }
        if node.own_metadata_disk:
            settings["metadata.log.dir"] = METADATA
        if self.static:
            settings["controller.quorum.voters"] = ",".join(
                f"{one.id}@{one.address}:{CONTROLLER_PORT}" for one in voters
            )
            settings.pop("controller.quorum.auto.join.enable", None)
        else:
            servers = ",".join(f"{one.address}:{CONTROLLER_PORT}" for one in voters)
            settings["controller.quorum.bootstrap.servers"] = servers
        if not node.is_controller:
            settings.pop("controller.quorum.auto.join.enable", None)
        return settings


def draw(
    random: SimRandom,
    shapes: tuple[Roles, Roles] = (ROLES_OF_THREE, ROLES_OF_FIVE),
    *,
    static: float = 0.1,
    observers: bool = False,
) -> Shape:
    """The shape of one seed: one of `shapes` with three controllers, or with five. `static`: how likely it is that
    voters are settings; `observers`: a node that is only a broker is wanted."""
    five = not observers and random.chance(FIVE_CONTROLLERS)
    roles = random.weighted(shapes[five])
    if observers and BROKER not in roles:
        roles = (BOTH, BOTH, BOTH, BROKER)
    nodes = tuple(
        NodeShape(
            number,
            role,
            random.chance(0.5) or (observers and role == BROKER),
            random.between(-OFFSET_S_MAX, OFFSET_S_MAX),
            1.0 + random.between(-DRIFT_MAX, DRIFT_MAX),
        )
        for number, role in enumerate(roles, 1)
    )
    return Shape(nodes, random.chance(static), _settings(random))


def _settings(random: SimRandom) -> dict[str, str]:
    """Short times, since a life is short; checkpoints of the metadata as often as the seed wants them."""
    fetch_ms = random.choose((800, 1200, 2000))  # a fetch waits for half a second
    session_ms = random.choose((1500, 2500, 4000))
    few = random.chance(0.6)
    return {
        "broker.heartbeat.interval.ms": str(session_ms // 4),
        "broker.session.timeout.ms": str(session_ms),
        "controller.quorum.election.backoff.max.ms": str(random.choose((200, 500))),
        "controller.quorum.election.timeout.ms": str(random.choose((200, 400, 800))),
        "controller.quorum.fetch.timeout.ms": str(fetch_ms),
        "controller.quorum.request.timeout.ms": str(min(1000, fetch_ms)),
        "controller.quorum.auto.join.enable": "true" if random.chance(0.7) else "false",
        "log.initial.task.delay.ms": "1000",
        "metadata.log.max.record.bytes.between.snapshots": str(random.choose((600, 1500, 4000)) if few else 1 << 20),
        "metadata.max.retention.bytes": "0" if few else "104857600",
        "request.timeout.ms": "2000",
        "tidelog.journal.bytes": random.choose(("0", "16384")),
    }
