"""Brokers and partitions as a client on one listener sees them; for the APIs that describe them."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidelog.metadata.directories import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog.wire.errors import ErrorCode
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Services
    from tidelog.metadata.image import BrokerImage, ClusterImage, EndpointImage, PartitionImage

NO_NODE = -1
NOT_TOLD = -(2**31)
"""What stands for "authorised operations weren't asked for"."""
TOPIC_OPERATIONS = 0b1101_1111_1000
"""Bits of the operations on a topic, all of them: without an authorizer everyone may do everything."""
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
GROUP_OPERATIONS = 0b1101_0100_1000

RESERVED_DIRECTORIES = frozenset((MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY))
"""A replica's directory when none is assigned, and when it is migrating: counted as online."""


OfflineHere: TypeAlias = "tuple[int, AbstractSet[TopicPartition]]"
"""A broker, and the partitions whose log it can't serve."""
NOTHING_OFFLINE: OfflineHere = (NO_NODE, frozenset())


def offline_here(services: Services) -> OfflineHere:
    return services.node_id, services.store.offline


class Seen(NamedTuple):
    """A partition's state, shared by all partitions of a topic that agree in it."""

    error: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


def endpoint_of(broker: BrokerImage | None, listener: str) -> EndpointImage | None:
    """Where the broker listens under this listener's name."""
    if broker is not None:
        for endpoint in broker.endpoints:
            if endpoint.name == listener:
                return endpoint
    return None


def brokers_on(
    image: ClusterImage, listener: str, *, fenced: bool = False
) -> Iterator[tuple[BrokerImage, EndpointImage]]:
    """The brokers that have this listener, in the order of their ids; fenced ones only where asked for."""
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = endpoint_of(broker, listener)
        if endpoint is not None and (fenced or not broker.fenced):
            yield broker, endpoint


def any_alive(image: ClusterImage, own_id: int) -> int:
    """A broker that requests for the controller may be sent to: each passes them on.

    This one, unless it is fenced: whoever asks reaches it. Another one may have died a moment ago, and clients wait for
    the one that they were named.
    """
    alive = [broker.id for broker in image.brokers.values() if not broker.fenced]
    return own_id if own_id in alive else min(alive, default=NO_NODE)


class PartitionView:
    """Answers what a client on `listener` is told of a partition; remembers partitions that are alike."""

    def __init__(
        self, image: ClusterImage, listener: str, version: int = 13, *, here: OfflineHere = NOTHING_OFFLINE
    ) -> None:
        """In version 0 replicas that aren't there are left out; below 6 a missing listener is no error of its own.

        `here`: the partitions whose log this broker can't serve. It still leads them: whoever asks it is told why.
        """
        self._image = image
        self._here = here
        self._listener = listener
        self._only_alive = version == 0
        self._listener_error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        self._seen: dict[PartitionImage, Seen] = {}

    def see(self, partition: PartitionImage, topic: str, index: int) -> Seen:
        seen = self._seen.get(partition)
        if seen is None:
            seen = self._seen[partition] = self._look(partition)
        node_id, offline = self._here
        if offline and (topic, index) in offline and node_id not in seen.offline:
            return seen._replace(offline=[*seen.offline, node_id])
        return seen

    def _look(self, partition: PartitionImage) -> Seen:
        replicas, isr = list(partition.replicas), list(partition.isr)
        if self._only_alive:
            replicas = [one for one in replicas if self._is_alive(one)]
            isr = [one for one in isr if self._is_alive(one)]
        leader = self._image.brokers.get(partition.leader)
        leader_id = partition.leader
        if leader is None or leader.fenced:  # a partition's only replica keeps its leadership while it is away
            error, leader_id = ErrorCode.LEADER_NOT_AVAILABLE, NO_NODE
        elif endpoint_of(leader, self._listener) is None:
            error, leader_id = self._listener_error, NO_NODE
        elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        else:
            error = ErrorCode.NONE
        offline = [one for place, one in enumerate(partition.replicas) if self._is_offline(partition, place, one)]
        return Seen(int(error), leader_id, partition.leader_epoch, replicas, isr, offline)

    def _is_alive(self, broker_id: int) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and endpoint_of(broker, self._listener) is not None

    def _is_offline(self, partition: PartitionImage, place: int, broker_id: int) -> bool:
        if not self._is_alive(broker_id):
            return True
        if not partition.directories:
            return False
        directory = partition.directories[place]
        online = self._image.brokers[broker_id].log_dirs
        return directory == LOST_DIRECTORY or (
            bool(online) and directory not in RESERVED_DIRECTORIES and directory not in online
        )
