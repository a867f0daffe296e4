"""A group of the consumer protocol as its records tell it: epochs, members, the target, and who has what.

Three epochs lead one another. The *group epoch* grows when a member or the topics change; the *target epoch* is the
group epoch for which an assignment was computed; a *member's epoch* is the target epoch that it has reached. A member
reaches the target in steps that its heartbeats confirm:

    STABLE              has what the target gives it, in the target's epoch or an older one
    UNREVOKED           was told to give partitions up and hasn't confirmed it; it keeps its epoch
    UNRELEASED          is in the target's epoch and waits for partitions that others still have

What holds (`check_invariants`): a partition has at most one owner, where a member owns what is assigned to it and what
it was told to give up but hasn't. `owners` is that relation the other way round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from tidelog.wire.topic_partition import TopicIdPartition

PROTOCOL_TYPE = "consumer"
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
JOIN_EPOCH = 0
FIRST_EPOCH = 1
"""Of a group that has decided nothing; a member that joins it is answered with a greater one, or this one."""

Partitions: TypeAlias = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, in order; a topic without any isn't there."""
Epochs: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which it was assigned."""

NOTHING: Mapping[bytes, Any] = {}
_EMPTY: Map[Any, Any] = Map()


class MemberState(IntEnum):
    """Kafka's numbers; UNKNOWN is whatever else a record holds."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


class GroupState:
    """The names that ListGroups and the describing APIs tell."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Subscription(NamedTuple):
    """Names in order, and a regular expression; "" is none."""

    names: tuple[str, ...] = ()
    regex: str = ""


class ClassicFacts(NamedTuple):
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Its assignors' names with the subscription as each encodes it, in its order of preference."""


class Resolved(NamedTuple):
    """The topics that a regular expression matched, in which image, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


NO_SUBSCRIPTION = Subscription()


@dataclass(frozen=True, slots=True)
class Member:
    """`assigned` is what it may use; `revoking` is what it must give up and hasn't confirmed."""

    id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: int = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscription: Subscription = NO_SUBSCRIPTION
    assignor: str | None = None
    assigned: Epochs = field(default_factory=lambda: NOTHING)
    revoking: Epochs = field(default_factory=lambda: NOTHING)
    classic: ClassicFacts | None = None

    def reconciled_to(self, target_epoch: int) -> bool:
        return self.state == MemberState.STABLE and self.epoch == target_epoch


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """`static` is the member id of each instance id; `subscriptions` counts the members of each subscription."""

    id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    members: Map[str, Member] = _EMPTY
    static: Map[str, str] = _EMPTY
    subscriptions: Map[Subscription, int] = _EMPTY
    owners: Map[TopicIdPartition, str] = _EMPTY
    target: Map[str, Partitions] = _EMPTY
    target_epoch: int = FIRST_EPOCH
    target_timestamp_ms: int = 0
    """When the target was computed; 0: never, or not known."""
    resolved: Map[str, Resolved] = _EMPTY
    classic_members: int = 0
    has_partition_metadata: bool = False
    """Whether the log holds a record of a kind that is no longer written, to be taken away."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if any(not member.reconciled_to(self.target_epoch) for member in self.members.values()):
            return GroupState.RECONCILING
        return GroupState.STABLE

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = self.static.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def regexes(self) -> dict[str, int]:
        """The regular expressions that members subscribe to, and how many do."""
        counts: dict[str, int] = {}
        for (_, regex), count in self.subscriptions.items():
            if regex:
                counts[regex] = counts.get(regex, 0) + count
        return counts

    def check_invariants(self) -> None:
        """What holds after each decision; for tests and simulation."""
        owners: dict[TopicIdPartition, str] = {}
        for member_id, member in self.members.items():
            assert member.id == member_id
            for held in (member.assigned, member.revoking):
                for topic_id, epochs in held.items():
                    assert epochs, "a topic without partitions is left out"
                    for partition in epochs:
                        other = owners.setdefault((topic_id, partition), member_id)
                        assert other == member_id, f"{topic_id.hex()}-{partition} is of {other} and of {member_id}"
            assert member.epoch <= self.target_epoch, "nobody is ahead of the target"
            if member.instance_id is not None:
                assert self.static[member.instance_id] == member_id
        assert dict(self.owners) == owners
        assert len(self.static) == sum(member.instance_id is not None for member in self.members.values())
        assert self.target_epoch <= self.epoch
        assert self.classic_members == sum(member.classic is not None for member in self.members.values())
        counts: dict[Subscription, int] = {}
        for member in self.members.values():
            counts[member.subscription] = counts.get(member.subscription, 0) + 1
        assert dict(self.subscriptions) == counts
        targeted: dict[TopicIdPartition, str] = {}
        for member_id, partitions in self.target.items():
            for topic_id, indexes in partitions.items():
                for partition in indexes:
                    assert targeted.setdefault((topic_id, partition), member_id) == member_id
