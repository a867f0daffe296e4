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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidelog.controller.assignments import RESERVED_DIRECTORIES_BELOW
from tidelog.controller.partition_change import Election, Electors, as_it_is, change
from tidelog.env.slices import Steps, ordered
from tidelog.metadata.broker_replicas import replicas_of
from tidelog.metadata.directories import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog.metadata.image import BROKER_RESOURCE, NO_LEADER, ClusterImage, PartitionImage, TopicImage
from tidelog.metadata.versions import ELR_VERSION, MV_3_6_IV0
from tidelog.wire.records.metadata import PartitionChangeRecord

UNCLEAN_ELECTION = "unclean.leader.election.enable"
LOOKS_A_STEP = 64


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """How many replicas a topic of the coordinators is to have where there are brokers for them, since no setting says
    it; and how many in sync, or 0 where that is said."""

    topic: str
    replicas: int
    min_isr: int = 0


@dataclass(frozen=True, slots=True)
class Defaults:
    """The broker's settings that decisions fall back on."""

    num_partitions: int = 1
    replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    internal_topics: tuple[InternalTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for the partitions of one topic when a broker goes or comes."""

    electors: Electors
    leaving: int = NO_LEADER
    """A broker that leaves the ISR."""
    unclean: int = NO_LEADER
    """A broker that went down uncleanly: it leaves the ISR and the ELR."""
    reopening: int = NO_LEADER
    """A broker whose logs may not end where they did: what it alone has goes on in a new leader epoch."""
    lost: "LostDirectories | None" = None
    """Directories that a broker had and has no more: what it held in them is gone."""
    for_good: bool = False
    """The broker that leaves isn't waited for: what it alone has is without a leader, too."""


@dataclass(frozen=True, slots=True)
class LostDirectories:
    """Directories that came no more with a broker's registration. A replica in one of them is empty now, wherever it is
    made again: it is neither in sync nor eligible, nor is it the last leader that is known."""

    broker_id: int
    kept: frozenset[bytes]
    """Those that it has."""
    instead: bytes
    """Where its replicas are made again."""
    unassigned: bool = False
    """So is what was never assigned to a directory."""
    given_up: bool = False
    """The operator said that they are lost: what nobody else has begins anew, as in an unclean election."""

    def hold(self, partition: PartitionImage) -> bool:
        return any(
            replica == self.broker_id and self._is_lost(directory)
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
        )

    def _is_lost(self, directory: bytes) -> bool:
        if directory in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY):
            return self.unassigned
        return directory not in self.kept and int.from_bytes(directory) >= RESERVED_DIRECTORIES_BELOW


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
    return effective_config(image, topic, UNCLEAN_ELECTION, default) == "true"


def usual_election(image: ClusterImage, topic: str, defaults: Defaults) -> Election:
    """How a leader is looked for when nobody asked for one."""
    return Election.UNCLEAN if unclean_allowed(image, topic, defaults) else Election.ONLINE


def electors_of(
    image: ClusterImage,
    topic: TopicImage,
    defaults: Defaults,
    election: Election,
    acceptable: Callable[[int, PartitionImage], bool],
    *,
    leaving: int = NO_LEADER,
    unclean: int = NO_LEADER,
) -> Electors:
    return Electors(
        effective_min_isr(image, topic, defaults),
        elr_enabled(image),
        election,
        acceptable,
        gone=frozenset((leaving, unclean)),
        unclean=unclean,
        epoch_on_shrink=image.metadata_version < MV_3_6_IV0,
    )


def change_leaders(
    image: ClusterImage,
    defaults: Defaults,
    holder: int,
    concerned: Callable[[PartitionImage], bool],
    *,
    acceptable: Callable[[int, PartitionImage], bool],
    leaving: int = NO_LEADER,
    unclean: int = NO_LEADER,
    reopening: int = NO_LEADER,
    lost: LostDirectories | None = None,
    for_good: bool = False,
) -> Steps[list[Any]]:
    """Changes of leader and ISR for every partition of which the broker `holder` has a replica, or, where that is
    NO_LEADER, which nobody leads, and that is concerned; those that stay as they are give no record. No other one is
    looked at."""
    records: list[Any] = []
    looks = 0
    indexes_of = dict(replicas_of(image, holder))
    for name in (yield from ordered(list(indexes_of))):
        topic = image.topics[name]
        rules: Rules | None = None
        known: dict[PartitionImage, Mapping[str, Any] | None] = {}  # equal partitions change alike
        for index in indexes_of[name]:
            looks += 1
            if not looks % LOOKS_A_STEP:
                yield
            partition = topic.partitions[index]
            if partition not in known:
                if not concerned(partition):
                    known[partition] = None
                    continue
                if rules is None:
                    election = usual_election(image, topic.name, defaults)
                    electors = electors_of(
                        image, topic, defaults, election, acceptable, leaving=leaving, unclean=unclean
                    )
                    rules = Rules(electors, leaving, unclean, reopening, lost, for_good)
                known[partition] = changed_fields(partition, rules)
            fields = known[partition]
            if fields is not None:
                records.append(PartitionChangeRecord(partition_id=index, topic_id=topic.id, **fields))
    return records


def changed_fields(partition: PartitionImage, rules: Rules) -> Mapping[str, Any] | None:
    """What a PartitionChangeRecord has to say under these rules; None where nothing changes."""
    if rules.lost is not None and rules.lost.hold(partition):
        return _without_directory(partition, rules, rules.lost)
    gone = (rules.leaving, rules.unclean)
    if partition.replicas == (partition.leader,) and partition.leader in gone and not rules.for_good:
        return {"leader": partition.leader} if partition.leader == rules.reopening else None
    return _without(partition, rules.electors, gone) or None


def _without(
    partition: PartitionImage,
    electors: Electors,
    gone: tuple[int, ...],
    directories: tuple[tuple[int, bytes], ...] = (),
) -> dict[str, Any]:
    isr = tuple(replica for replica in partition.isr if replica not in gone)
    return change(partition, electors, replace(as_it_is(partition), isr=isr, directories=directories))


def _without_directory(partition: PartitionImage, rules: Rules, lost: LostDirectories) -> Mapping[str, Any]:
    """The broker's replica is empty: it is told where to make it again, and has no claim to what was there."""
    broker_id = lost.broker_id
    if lost.given_up and partition.replicas == (broker_id,):
        return {"leader": broker_id, "isr": [broker_id], "directories": [lost.instead]}
    gone = (broker_id, rules.leaving)
    electors = replace(rules.electors, gone=frozenset(gone), unclean=broker_id)
    fields = _without(partition, electors, gone, ((broker_id, lost.instead),))
    last_known = fields.get("last_known_elr", list(partition.last_known_elr))
    if broker_id in last_known:
        fields["last_known_elr"] = [replica for replica in last_known if replica != broker_id]
    if fields.get("last_known_elr") == list(partition.last_known_elr):
        del fields["last_known_elr"]
    if not rules.electors.elr_enabled and partition.isr == (broker_id,):
        fields.setdefault("isr", [])  # nobody is left who has it
    return fields
