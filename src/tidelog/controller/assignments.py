"""The replicas, ISR and directories that new partitions get: placed by us, or as the client says."""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.controller.placement import Placement, hosts_of
from tidelog.env.slices import Steps
from tidelog.metadata.directories import UNASSIGNED_DIRECTORY
from tidelog.metadata.image import BrokerImage, ClusterImage
from tidelog.metadata.versions import MV_3_7_IV2
from tidelog.wire.errors import ErrorCode, KafkaError

PARTITIONS_A_STEP = 64

RESERVED_DIRECTORIES_BELOW = 100
"""Directory ids that Kafka keeps for itself: unassigned, lost, migrating, and room for more."""


class NewPartition(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    directories: tuple[bytes, ...]


class Assigner:
    """Gives new partitions their replicas, on the image that a change is decided on."""

    __slots__ = ("_image", "_made", "_placement")

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._placement = Placement(image.brokers, hosts_of(image))
        self._made: dict[tuple[int, ...], NewPartition] = {}

    def place(self, topic_id: bytes, first: int, count: int, replication_factor: int) -> list[NewPartition]:
        """Round the brokers, beginning where the topic's id says: topics spread without randomness here."""
        placed = self._placement.place(first, count, replication_factor, int.from_bytes(topic_id[:4]))
        return [self._new(replicas) for replicas in placed]

    def _new(self, replicas: tuple[int, ...]) -> NewPartition:
        made = self._made.get(replicas)
        if made is None:
            made = self._made[replicas] = _new(self._image, replicas)
        return made


def _new(image: ClusterImage, replicas: tuple[int, ...]) -> NewPartition:
    brokers = image.brokers
    isr = tuple(replica for replica in replicas if brokers[replica].active)
    if image.metadata_version < MV_3_7_IV2:
        return NewPartition(replicas, isr, ())
    return NewPartition(replicas, isr, tuple(default_directory(brokers[replica]) for replica in replicas))


def default_directory(broker: BrokerImage) -> bytes:
    """The only directory there is, where a broker has but one that takes new partitions."""
    open_dirs = [d for d in broker.log_dirs if d not in (broker.cordoned_log_dirs or ())]
    return open_dirs[0] if len(broker.log_dirs) == 1 and open_dirs else UNASSIGNED_DIRECTORY


def manual(
    image: ClusterImage, assignments: Sequence[Sequence[int]], first: int, replication_factor: int | None
) -> Steps[list[NewPartition]]:
    """As the client says, checked. All partitions of a topic have the same replication factor."""
    made: list[NewPartition] = []
    for index, brokers in enumerate(assignments, first):
        check_replicas(image, brokers, replication_factor)
        replication_factor = len(brokers)
        new = _new(image, tuple(brokers))
        if not new.isr:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers assigned to partition {index} are fenced or in controlled shutdown.",
            )
        made.append(new)
        if not len(made) % PARTITIONS_A_STEP:
            yield
    return made


def check_replicas(image: ClusterImage, brokers: Sequence[int], replication_factor: int | None) -> None:
    """KafkaError where these can't be the replicas of a partition."""
    if not brokers:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The assignment has a partition without replicas.")
    for broker in brokers:
        if broker not in image.brokers:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment names broker {broker}, which is not registered."
            )
    if len(set(brokers)) != len(brokers):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment names a broker twice: {list(brokers)}.")
    if replication_factor is not None and len(brokers) != replication_factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"A partition is assigned {len(brokers)} replica(s), others of the topic have {replication_factor}.",
        )
