"""Who votes in the quorum. A voter is an id and the id of its disk: a node with a wiped disk is another voter."""

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.wire.uuids import ZERO_UUID


class ReplicaKey(NamedTuple):
    """One replica of the metadata log. `directory_id` is zero where it isn't known (kraft.version 0)."""

    id: int
    directory_id: bytes = ZERO_UUID

    def is_same(self, other: "ReplicaKey") -> bool:
        """Whether both may be one replica: an unknown directory id on either side matches any."""
        return self.id == other.id and (
            ZERO_UUID in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id
        )


class Endpoint(NamedTuple):
    """Where a voter listens, under the name of its listener."""

    name: str
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where it listens under this name; the first of its endpoints where it has none of that name."""
        named = (endpoint for endpoint in self.endpoints if endpoint.name == listener)
        return next(named, self.endpoints[0] if self.endpoints else None)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """All voters, by id. Two majorities of one set always share a voter: all of raft stands on that.

    None stand in it only where a node joins that was told of nobody yet: nobody is elected by such a set.
    """

    voters: tuple[Voter, ...]

    def __post_init__(self) -> None:
        assert len(self.ids) == len(self.voters), f"a voter stands twice among {self.voters}"

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(voter.key.id for voter in self.voters)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica may vote and lead."""
        return any(voter.key.is_same(key) for voter in self.voters)

    def is_only(self, id: int) -> bool:
        """Whether nobody else votes, whatever its disk."""
        return [voter.key.id for voter in self.voters] == [id]

    def get(self, id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.key.id == id), None)

    def added(self, voter: Voter) -> "VoterSet":
        """The set with one voter more."""
        return VoterSet(tuple(sorted((*self.voters, voter), key=lambda each: each.key.id)))

    def removed(self, key: ReplicaKey) -> "VoterSet":
        """The set without this one."""
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))

    def with_voter(self, voter: Voter) -> "VoterSet":
        """The same set with this voter's entry replaced."""
        assert voter.key.id in self.ids
        return VoterSet(tuple(voter if old.key.id == voter.key.id else old for old in self.voters))
