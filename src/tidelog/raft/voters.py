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


@dataclass(frozen=True, slots=True)
class VoterSet:
    """All voters, by id. Two majorities of one set always share a voter: all of raft stands on that."""

    voters: tuple[Voter, ...]

    def __post_init__(self) -> None:
        assert self.voters, "a quorum has at least one voter"
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

    def with_voter(self, voter: Voter) -> "VoterSet":
        """The same set with this voter's entry replaced."""
        assert voter.key.id in self.ids
        return VoterSet(tuple(voter if old.key.id == voter.key.id else old for old in self.voters))
