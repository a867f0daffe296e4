"""Who leads a partition, and who may come to lead it: the ISR, and the eligible leader replicas of KIP-966.

Why it is safe. A leader is taken from the ISR, whose members hold all that is committed. When the ISR falls below
min.insync.replicas, the high watermark stands still, so those that left it since still hold all that is committed:
they stay eligible (ELR) unless they went down without being able to keep what they had (an unclean shutdown). Only an
unclean election, which the topic must allow, or which falls back on the last leader known when nobody eligible is left,
takes another; then the leader's recovery state says so.

A partition with a single replica has nobody to hand over to: it keeps its leader while that one is away, where Kafka
would write that it has none. So a restart of the broker costs no record a partition; after an unclean one there is one,
which opens a new leader epoch, since the end of the log may not be what it was.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidelog.metadata.image import BROKER_RESOURCE, NO_LEADER, ClusterImage, PartitionImage, TopicImage
from tidelog.metadata.versions import ELR_VERSION
from tidelog.wire.records.metadata import PartitionChangeRecord

RECOVERING = 1


class Election(Enum):
    PREFERRED = "preferred"  # the first replica if it may lead
    ONLINE = "online"  # whoever may lead; the present leader if it may
    UNCLEAN = "unclean"  # and any live replica where nobody may


@dataclass(frozen=True, slots=True)
class Defaults:
    """The broker's settings that decisions fall back on."""

    num_partitions: int = 1
    replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for the partitions of one topic in one change."""

    min_isr: int
    elr_enabled: bool
    election: Election
    acceptable: Callable[[int], bool]
    """Whether a broker may lead, apart from what the partition says."""
    leaving: int = NO_LEADER
    """A broker that leaves the ISR."""
    unclean: int = NO_LEADER
    """A broker that went down uncleanly: it leaves the ISR and the ELR."""
    reopening: int = NO_LEADER
    """A broker whose logs may not end where they did: what it alone has goes on in a new leader epoch."""


def effective_config(image: ClusterImage, topic: str, name: str, default: str) -> str:
    """A topic's setting: its own, else the cluster's default for brokers, else this broker's."""
    own = image.topic_config(topic).get(name)
    return own if own is not None else image.configs.get((BROKER_RESOURCE, ""), {}).get(name, default)


def elr_enabled(image: ClusterImage) -> bool:
    return image.features.get(ELR_VERSION, 0) >= 1


def effective_min_isr(image: ClusterImage, topic: TopicImage, defaults: Defaults) -> int:
    configured = int(effective_config(image, topic.name, "min.insync.replicas", str(defaults.min_insync_replicas)))
    return min(configured, len(topic.partitions[0].replicas)) if topic.partitions else configured


def unclean_allowed(image: ClusterImage, topic: str, defaults: Defaults) -> bool:
    default = str(defaults.unclean_leader_election).lower()
    return effective_config(image, topic, "unclean.leader.election.enable", default) == "true"


def change_leaders(
    image: ClusterImage,
    defaults: Defaults,
    concerned: Callable[[PartitionImage], bool],
    *,
    acceptable: Callable[[int], bool],
    leaving: int = NO_LEADER,
    unclean: int = NO_LEADER,
    reopening: int = NO_LEADER,
) -> Iterator[PartitionChangeRecord]:
    """Changes of leader and ISR for every partition that is concerned; those that stay as they are give no record."""
    for topic in image.topics.values():
        rules: Rules | None = None
        known: dict[PartitionImage, Mapping[str, Any] | None] = {}  # equal partitions change alike
        for index, partition in enumerate(topic.partitions):
            if partition not in known:
                if not concerned(partition):
                    known[partition] = None
                    continue
                if rules is None:
                    election = Election.UNCLEAN if unclean_allowed(image, topic.name, defaults) else Election.ONLINE
                    min_isr = effective_min_isr(image, topic, defaults)
                    rules = Rules(min_isr, elr_enabled(image), election, acceptable, leaving, unclean, reopening)
                known[partition] = changed_fields(partition, rules)
            fields = known[partition]
            if fields is not None:
                yield PartitionChangeRecord(partition_id=index, topic_id=topic.id, **fields)


def changed_fields(partition: PartitionImage, rules: Rules) -> Mapping[str, Any] | None:
    """What a PartitionChangeRecord has to say under these rules; None where nothing changes."""
    gone = (rules.leaving, rules.unclean)
    if partition.replicas == (partition.leader,) and partition.leader in gone:
        return {"leader": partition.leader} if partition.leader == rules.reopening else None
    isr = [replica for replica in partition.isr if replica not in gone]
    elr = _eligible(partition, isr, rules)
    leader, unclean = _elect(partition, isr, elr, rules)
    fields: dict[str, Any] = {}
    if leader != partition.leader:
        fields["leader"] = leader
        if leader in elr and not unclean:
            isr = [leader]
            elr = [replica for replica in elr if replica != leader]
        if unclean:
            isr, elr = [leader], []
            if partition.leader_recovery_state != RECOVERING:
                fields["leader_recovery_state"] = RECOVERING
    if elr != list(partition.elr):
        fields["eligible_leader_replicas"] = elr
    # Without ELR the last member stays in the ISR when it goes, so that it is known who may lead again.
    if isr != list(partition.isr) and (isr or rules.elr_enabled):
        fields["isr"] = isr
    if rules.elr_enabled and "leader" in fields:
        if leader == NO_LEADER and not partition.last_known_elr:
            fields["last_known_elr"] = [partition.leader]
        elif leader != NO_LEADER and partition.last_known_elr:
            fields["last_known_elr"] = []
    return fields or None


def _eligible(partition: PartitionImage, isr: list[int], rules: Rules) -> list[int]:
    if not rules.elr_enabled or len(isr) >= rules.min_isr:
        return []
    return [r for r in sorted({*partition.elr, *partition.isr}) if r not in isr and r != rules.unclean]


def _elect(partition: PartitionImage, isr: list[int], elr: list[int], rules: Rules) -> tuple[int, bool]:
    """The leader, and whether it was taken uncleanly."""

    def may_lead(replica: int) -> bool:
        return (replica in isr or (not isr and replica in elr)) and _acceptable(replica, rules)

    preferred = partition.replicas[0]
    if rules.election is Election.PREFERRED and may_lead(preferred):
        return preferred, False
    if may_lead(partition.leader):
        return partition.leader, False
    for replica in partition.replicas:
        if may_lead(replica):
            return replica, False
    last_known = partition.last_known_elr
    if rules.elr_enabled and not isr and not elr and len(last_known) == 1 and _acceptable(last_known[0], rules):
        return last_known[0], True
    if rules.election is Election.UNCLEAN:
        for replica in partition.replicas:
            if _acceptable(replica, rules):
                return replica, True
    return NO_LEADER, False


def _acceptable(replica: int, rules: Rules) -> bool:
    return replica not in (rules.leaving, rules.unclean) and rules.acceptable(replica)
