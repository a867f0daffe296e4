"""What can happen to a quorum, and what it wants done about it: values. `quorum.py` turns the one into the other.

Named tuples, since twenty dataclasses would cost the start of a broker ten milliseconds.
"""

from enum import Enum
from typing import NamedTuple

from tidelog.raft.voters import ReplicaKey, VoterSet

NO_LEADER = -1


class LogEnd(NamedTuple):
    """How far a log goes. The epoch of its last batch counts first: that is "up to date" in an election."""

    epoch: int = 0
    offset: int = 0


class ElectionState(NamedTuple):
    """What a replica must never forget: its epoch, and whom it followed or voted for in it."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None


class TimerKind(Enum):
    """The one timer that a role keeps; setting it replaces the one before."""

    ELECTION = "election"  # no leader is known: stand for election when it fires
    FETCH = "fetch"  # the leader is silent for too long when it fires
    CHECK_QUORUM = "check quorum"  # the leader asks itself whether a majority still fetches
    BROKEN = "broken"  # the connection to the leader broke: it has a moment to be heard again
    BACKOFF = "backoff"  # a voter refused this candidate, perhaps for another: stand again soon
    SUCCESSION = "succession"  # the leader stepped down: stand when those that it prefers had their turn


# ---- events ----


class Started(NamedTuple):
    """The replica is up, with what it remembered."""


class TimedOut(NamedTuple):
    """The role's timer fired."""


class VoteRequested(NamedTuple):
    """`voter` is who was asked, where that is told: a replica with another disk is another voter, and doesn't grant."""

    candidate: ReplicaKey
    epoch: int
    log_end: LogEnd
    pre_vote: bool = False
    voter: ReplicaKey | None = None


class VoteAnswered(NamedTuple):
    """`voter` answered a request for its vote; `epoch` and `leader_id` are what it knows."""

    voter_id: int
    epoch: int
    granted: bool
    pre_vote: bool = False
    leader_id: int = NO_LEADER


class LeaderHeard(NamedTuple):
    """Somebody leads `epoch`: a BeginQuorumEpoch request, or any answer that says so. NO_LEADER where an answer knows
    the epoch only."""

    leader_id: int
    epoch: int


class LeaderEnded(NamedTuple):
    """The leader of `epoch` steps down of its own will (EndQuorumEpoch). `successors`, the most up to date first."""

    leader_id: int
    epoch: int
    successors: tuple[ReplicaKey, ...] = ()


class LeaderBroke(NamedTuple):
    """The connection to this node ended from its side, as it does when its process dies."""

    node_id: int


class Appended(NamedTuple):
    """The own log was written to (or cut) and now ends here; not yet durable."""

    log_end: LogEnd


class MadeDurable(NamedTuple):
    """The own log is durable below `offset`."""

    offset: int


class ReplicaFetched(NamedTuple):
    """A replica asked for what starts at `offset`, so all below is durable there."""

    replica: ReplicaKey
    offset: int


class ReplicaHeard(NamedTuple):
    """A replica asked for something else than the log, a piece of a checkpoint: it lives, and follows."""

    replica: ReplicaKey


class CommitHeard(NamedTuple):
    """The leader of `epoch` answered a fetch, and says how far the log is committed."""

    epoch: int
    offset: int


class VotersChanged(NamedTuple):
    """The last VotersRecord in the own log is another one: it was appended, committed or not, or what came behind this
    one was cut. It stands at `offset`; `before` it, these voted."""

    voters: VoterSet
    before: VoterSet | None = None
    offset: int = -1


class Resigned(NamedTuple):
    """This replica is to lead no longer: it stops, or what is on top of it can't lead. It may stand again."""


class LogFailed(NamedTuple):
    """The own log can't be written any more: this replica leads no longer, and never again."""


Event = (
    Started
    | TimedOut
    | VoteRequested
    | VoteAnswered
    | LeaderHeard
    | LeaderEnded
    | LeaderBroke
    | Appended
    | MadeDurable
    | ReplicaFetched
    | ReplicaHeard
    | CommitHeard
    | VotersChanged
    | Resigned
    | LogFailed
)


# ---- effects, to be carried out in order ----


class Remember(NamedTuple):
    """Make this durable before any later effect."""

    election: ElectionState


class AskVotes(NamedTuple):
    epoch: int
    log_end: LogEnd
    pre_vote: bool
    voter_ids: tuple[int, ...]


class AnswerVote(NamedTuple):
    candidate: ReplicaKey
    epoch: int
    granted: bool
    pre_vote: bool
    leader_id: int


class Lead(NamedTuple):
    """Lead this epoch: append the LeaderChange that opens it, naming who granted."""

    epoch: int
    granting: tuple[int, ...]


class AnnounceLeader(NamedTuple):
    """Tell the other voters (BeginQuorumEpoch)."""

    epoch: int
    voter_ids: tuple[int, ...]


class Follow(NamedTuple):
    leader_id: int
    epoch: int


class FindLeader(NamedTuple):
    """Nobody is known to lead, or who did is silent, and this replica may not stand: ask whoever may know."""

    epoch: int


class StopLeading(NamedTuple):
    """Whatever waits for a commit in this epoch will not hear of it from here."""

    epoch: int


class AnnounceEnd(NamedTuple):
    """Tell the other voters that the epoch is over (EndQuorumEpoch), and who is to be the next: the first can be."""

    epoch: int
    voter_ids: tuple[int, ...]
    successors: tuple[ReplicaKey, ...] = ()


class Commit(NamedTuple):
    """Everything below `offset` is committed."""

    offset: int


class SetTimer(NamedTuple):
    """`halvings`: how often the longest wait is halved for this successor."""

    kind: TimerKind
    halvings: int = 0


Effect = (
    Remember
    | AskVotes
    | AnswerVote
    | Lead
    | AnnounceLeader
    | Follow
    | FindLeader
    | StopLeading
    | AnnounceEnd
    | Commit
    | SetTimer
)
