"""What can happen to a quorum, and what it wants done about it: values. `quorum.py` turns the one into the other."""

from dataclasses import dataclass
from enum import Enum

from tidelog.raft.voters import ReplicaKey

NO_LEADER = -1


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """How far a log goes. The epoch of its last batch counts first: that is "up to date" in an election."""

    epoch: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What a replica must never forget: its epoch, and whom it followed or voted for in it."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None


class TimerKind(Enum):
    """The one timer that a role keeps; setting it replaces the one before."""

    ELECTION = "election"  # no leader is known: stand for election when it fires
    FETCH = "fetch"  # the leader is silent for too long when it fires
    CHECK_QUORUM = "check quorum"  # the leader asks itself whether a majority still fetches
    NONE = "none"


# ---- events ----


@dataclass(frozen=True, slots=True)
class Started:
    """The replica is up, with what it remembered."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The role's timer fired."""


@dataclass(frozen=True, slots=True)
class VoteRequested:
    candidate: ReplicaKey
    epoch: int
    log_end: LogEnd
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class VoteAnswered:
    """`voter` answered a request for its vote; `epoch` and `leader_id` are what it knows."""

    voter_id: int
    epoch: int
    granted: bool
    pre_vote: bool = False
    leader_id: int = NO_LEADER


@dataclass(frozen=True, slots=True)
class LeaderHeard:
    """Somebody leads `epoch`: a BeginQuorumEpoch request, or any answer that says so."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderEnded:
    """The leader of `epoch` steps down of its own will (EndQuorumEpoch)."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The own log was written to (or cut) and now ends here; not yet durable."""

    log_end: LogEnd


@dataclass(frozen=True, slots=True)
class MadeDurable:
    """The own log is durable below `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class ReplicaFetched:
    """A replica asked for what starts at `offset`, so all below is durable there."""

    replica: ReplicaKey
    offset: int


@dataclass(frozen=True, slots=True)
class CommitHeard:
    """The leader of `epoch` says how far the log is committed."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """This replica is to lead no longer: it stops, or its log failed."""


Event = (
    Started
    | TimedOut
    | VoteRequested
    | VoteAnswered
    | LeaderHeard
    | LeaderEnded
    | Appended
    | MadeDurable
    | ReplicaFetched
    | CommitHeard
    | Resigned
)


# ---- effects, to be carried out in order ----


@dataclass(frozen=True, slots=True)
class Remember:
    """Make this durable before any later effect."""

    election: ElectionState


@dataclass(frozen=True, slots=True)
class AskVotes:
    epoch: int
    log_end: LogEnd
    pre_vote: bool
    voter_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AnswerVote:
    candidate: ReplicaKey
    epoch: int
    granted: bool
    pre_vote: bool
    leader_id: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Lead this epoch: append the LeaderChange that opens it, naming who granted."""

    epoch: int
    granting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AnnounceLeader:
    """Tell the other voters (BeginQuorumEpoch)."""

    epoch: int
    voter_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Follow:
    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StopLeading:
    """Whatever waits for a commit in this epoch will not hear of it from here."""

    epoch: int


@dataclass(frozen=True, slots=True)
class AnnounceEnd:
    """Tell the other voters that the epoch is over (EndQuorumEpoch)."""

    epoch: int
    voter_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything below `offset` is committed."""

    offset: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    kind: TimerKind


Effect = (
    Remember | AskVotes | AnswerVote | Lead | AnnounceLeader | Follow | StopLeading | AnnounceEnd | Commit | SetTimer
)
