"""What becomes of one partition: the fields of its PartitionChangeRecord, for every decision that changes partitions.

A decision says what it wants of the replicas and of the ISR (`Target`); what follows from that is decided here, in this
order, which is Kafka's: a reassignment that is complete ends; whoever leaves an ISR below min.insync.replicas stays
eligible; a leader is elected. Why that is safe stands in `leaders.py`.

    reassignment:  replicas = target + removing,  until the new ones are in the ISR,  then  replicas = target

A partition with a single replica keeps its leader while that one is away: nobody else could take over.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from tidelog.metadata.directories import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog.metadata.image import NO_LEADER, PartitionImage

RECOVERED, RECOVERING = 0, 1


class Election(Enum):
    PREFERRED = "preferred"  # the first replica if it may lead
    ONLINE = "online"  # whoever may lead; the present leader if it may
    UNCLEAN = "unclean"  # and any live replica where nobody may


@dataclass(frozen=True, slots=True)
class Electors:
    """What holds for the partitions of one topic when a leader is looked for."""

    min_isr: int
    elr_enabled: bool
    election: Election
    acceptable: Callable[[int, PartitionImage], bool]
    """Whether a replica's broker may lead, and has the directory that the partition says: all but ISR and ELR."""
    gone: frozenset[int] = frozenset()
    """Brokers that may not lead, whatever `acceptable` says."""
    unclean: int = NO_LEADER
    """A broker that went down uncleanly: it isn't eligible."""
    epoch_on_shrink: bool = False
    """Before metadata.version 3.6 brokers count on a new leader epoch whenever the ISR shrinks."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a partition is to come to."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovery_state: int = RECOVERED
    directories: tuple[tuple[int, bytes], ...] = ()
    """Of replicas whose directory is another one than the partition says."""


class Elected(NamedTuple):
    leader: int
    unclean: bool


def as_it_is(partition: PartitionImage) -> Target:
    return Target(
        partition.isr, partition.replicas, partition.adding, partition.removing, partition.leader_recovery_state
    )


def change(partition: PartitionImage, electors: Electors, target: Target) -> dict[str, Any]:
    """What a PartitionChangeRecord has to say; empty where nothing changes."""
    target = _completed(target)
    isr = list(target.isr)
    elr = _eligible(partition, target, electors)
    elected = elect(partition, isr, elr, target.replicas, electors)
    leader = elected.leader
    fields: dict[str, Any] = {}
    if leader != partition.leader:
        fields["leader"] = leader
        if elected.unclean:
            isr, elr = [leader], []
            fields["isr"] = isr
            if partition.leader_recovery_state != RECOVERING:
                fields["leader_recovery_state"] = RECOVERING
        elif leader in elr:
            isr = [leader]
            # One that suffices for min.insync.replicas, which may have been more before, commits what others miss.
            elr = [replica for replica in elr if replica != leader] if electors.min_isr > 1 else []
    elif not set(partition.replicas) <= set(target.replicas):
        fields["leader"] = leader  # who is no replica any more has to learn it: a new leader epoch
    if elr != list(partition.elr):
        fields["eligible_leader_replicas"] = elr
    # Without ELR the last member stays in the ISR when it goes, so that it is known who may lead again.
    if isr != list(partition.isr) and (isr or electors.elr_enabled):
        fields["isr"] = isr
        if electors.epoch_on_shrink and not set(partition.isr) <= set(isr):
            fields.setdefault("leader", leader)
    if electors.elr_enabled and "leader" in fields:
        if leader == NO_LEADER and partition.leader != NO_LEADER and not partition.last_known_elr:
            fields["last_known_elr"] = [partition.leader]
        elif leader != NO_LEADER and partition.last_known_elr:
            fields["last_known_elr"] = []
    _add_assignment(fields, partition, target)
    if target.recovery_state != partition.leader_recovery_state:
        fields["leader_recovery_state"] = target.recovery_state
    return fields


def _completed(target: Target) -> Target:
    """The end of a reassignment, where the new replicas are in the ISR; and where there will be fewer than before, all
    that stay."""
    if not target.adding and not target.removing:
        return target
    isr = tuple(replica for replica in target.isr if replica not in target.removing)
    replicas = tuple(replica for replica in target.replicas if replica not in target.removing)
    waits_for = replicas if len(target.adding) < len(target.removing) else target.adding
    if not isr or not replicas or not set(waits_for) - set(target.removing) <= set(isr):
        return target
    return replace(target, isr=isr, replicas=replicas, adding=(), removing=())


def _eligible(partition: PartitionImage, target: Target, electors: Electors) -> list[int]:
    """Those that hold all that is committed without being in the ISR. Who is no replica any more isn't among them."""
    if not electors.elr_enabled or len(target.isr) >= electors.min_isr:
        return []
    return [
        replica
        for replica in sorted({*partition.elr, *partition.isr})
        if replica not in target.isr and replica != electors.unclean and replica in target.replicas
    ]


def elect(
    partition: PartitionImage, isr: list[int], elr: list[int], replicas: tuple[int, ...], electors: Electors
) -> Elected:
    """The leader; NO_LEADER where nobody may be."""

    def may_lead(replica: int) -> bool:
        return (replica in isr or (not isr and replica in elr)) and is_acceptable(replica, partition, electors)

    if replicas == partition.replicas == (partition.leader,) and partition.leader in isr:
        return Elected(partition.leader, unclean=False)
    if electors.election is Election.PREFERRED and may_lead(replicas[0]):
        return Elected(replicas[0], unclean=False)
    for replica in (partition.leader, *replicas):
        if may_lead(replica):
            return Elected(replica, unclean=False)
    last_known = partition.last_known_elr
    if (
        electors.elr_enabled
        and not isr
        and not elr
        and len(last_known) == 1
        and last_known[0] in replicas
        and is_acceptable(last_known[0], partition, electors)
    ):
        return Elected(last_known[0], unclean=True)
    if electors.election is Election.UNCLEAN:
        for replica in replicas:
            if is_acceptable(replica, partition, electors):
                return Elected(replica, unclean=True)
    return Elected(NO_LEADER, unclean=False)


def is_acceptable(replica: int, partition: PartitionImage, electors: Electors) -> bool:
    """Not so a replica that is only just being added: it has nothing yet."""
    return replica not in electors.gone and replica in partition.replicas and electors.acceptable(replica, partition)


def _add_assignment(fields: dict[str, Any], partition: PartitionImage, target: Target) -> None:
    if partition.directories or target.directories:
        known = dict.fromkeys(partition.replicas, MIGRATING_DIRECTORY)
        known.update(zip(partition.replicas, partition.directories, strict=False))
        known.update(target.directories)
        directories = [known.get(replica, UNASSIGNED_DIRECTORY) for replica in target.replicas]
        if directories != list(partition.directories):
            fields["directories"] = directories
    if target.replicas != partition.replicas:
        fields["replicas"] = list(target.replicas)
    if target.removing != partition.removing:
        fields["removing_replicas"] = list(target.removing)
    if target.adding != partition.adding:
        fields["adding_replicas"] = list(target.adding)
