"""The cluster as the committed metadata records say it is: immutable, so that a reader's view never moves under it.

A change makes a new image that shares with the old one all it can: one partition of 10,000 costs what it costs itself
(`chunks.py`). Partitions that agree in everything, as most do, are one object (`apply.py` interns them), so 100,000
partitions cost little more than a pointer each. Which ones a broker has is known without a look at all
(`broker_replicas.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from immutables import Map

from tidelog.metadata.chunks import Chunked

NO_LEADER = -1
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

_EMPTY: Mapping[Any, Any] = MappingProxyType({})


def _empty() -> Mapping[Any, Any]:
    return _EMPTY


class PartitionImage(NamedTuple):
    """One partition. `directories` name the disk of each of `replicas`, in their order."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader_recovery_state: int = 0


class TopicImage(NamedTuple):
    name: str
    id: bytes
    partitions: Chunked[PartitionImage]


class EndpointImage(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A broker's registration; `epoch` is the offset at which it was decided."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[EndpointImage, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def active(self) -> bool:
        """May lead, and join an ISR."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class ControllerImage:
    id: int
    incarnation_id: bytes
    endpoints: tuple[EndpointImage, ...]
    features: Mapping[str, tuple[int, int]]
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything up to and including `offset`. `configs` is by (resource type, resource name)."""

    offset: int = -1
    epoch: int = 0
    timestamp_ms: int = 0
    features: Mapping[str, int] = field(default_factory=_empty)
    brokers: Mapping[int, BrokerImage] = field(default_factory=_empty)
    controllers: Mapping[int, ControllerImage] = field(default_factory=_empty)
    topics: Mapping[str, TopicImage] = field(default_factory=_empty)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=_empty)
    broker_replicas: Mapping[int, Map[bytes, int]] = field(default_factory=_empty, repr=False)
    """The partitions that each broker has a replica of, by topic, as bits; under NO_LEADER those without a leader."""
    unified_names: Mapping[str, tuple[str, ...]] = field(default_factory=_empty)
    """Topics with a '.' or '_' in their names, by the name with '_' for both: metrics can't tell them apart."""
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=_empty)
    next_producer_id: int = -1
    quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]] = field(default_factory=_empty)
    acls: Mapping[bytes, Any] = field(default_factory=_empty)
    scram: Mapping[tuple[str, int], Any] = field(default_factory=_empty)
    tokens: Mapping[str, Any] = field(default_factory=_empty)
    shape: object = field(default=None, compare=False, repr=False)
    """Set by the builder, for `topics_shape`."""
    before_transaction: "ClusterImage | None" = field(default=None, repr=False)

    @property
    def visible(self) -> "ClusterImage":
        """What readers may see: the image before the metadata transaction that is still open, if one is."""
        return self if self.before_transaction is None else self.before_transaction

    @property
    def topics_shape(self) -> object:
        """Another object where topics came or went, or the number or the replicas of their partitions changed; the same
        one while only leaders, ISR and the like did, as they do all the time."""
        return self.topics if self.shape is None else self.shape

    @property
    def metadata_version(self) -> int:
        """The level of `metadata.version`; 0 where none was ever written."""
        return self.features.get("metadata.version", 0)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The topic's own overrides."""
        return self.configs.get((TOPIC_RESOURCE, name), _EMPTY)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        topic_image = self.topics.get(topic)
        return (
            topic_image.partitions[index]
            if topic_image is not None and 0 <= index < len(topic_image.partitions)
            else None
        )

    def check_invariants(self) -> None:
        """What holds in every image; for tests and simulation."""
        from tidelog.metadata.broker_replicas import recomputed

        assert len(self.topics) == len(self.topics_by_id)
        for name, topic in self.topics.items():
            assert topic.name == name
            assert self.topics_by_id[topic.id] is topic
            for partition in topic.partitions:
                assert partition.leader == NO_LEADER or partition.leader in partition.isr, (name, partition)
                assert set(partition.isr) <= set(partition.replicas), (name, partition)
                assert not partition.directories or len(partition.directories) == len(partition.replicas)
        assert self.broker_replicas == recomputed(self), "the index of brokers' partitions says what the topics say"
        assert all(values for values in self.configs.values()), "an empty set of overrides is left out"
        unified = [name for names in self.unified_names.values() for name in names]
        assert sorted(unified) == sorted(name for name in self.topics if unified_name(name) is not None)


EMPTY_IMAGE = ClusterImage()


def unified_name(topic: str) -> str | None:
    """The topic's key in `unified_names`; None where its name has neither character."""
    return topic.replace(".", "_") if "." in topic or "_" in topic else None
