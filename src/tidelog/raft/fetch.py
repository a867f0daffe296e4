"""What a leader of the metadata log answers to who fetches from it, and where a follower cuts its log. Pure.

A follower says which epoch it believes in, where its log ends, and the epoch of its last record. Two logs that hold a
record of one epoch at one offset are the same up to it, since an epoch has one leader and a leader never rewrites. So
the leader looks where, in its own log, that epoch ends: at or behind the follower's end, and the follower has nothing
that the leader lacks; before it, or where the leader knows no such epoch, the logs part ways at or before what it
answers (KIP-101, KIP-595), and the follower cuts there and asks again. Each cut takes away at least one record, and
never one that is committed: those are in the leader's log.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tidelog.raft.events import LogEnd
from tidelog.raft.quorum import Quorum, Role
from tidelog.raft.snapshot import SnapshotId
from tidelog.raft.voters import ReplicaKey
from tidelog.wire.errors import ErrorCode


class EpochLog(Protocol):
    """A log that knows its epochs."""

    @property
    def log_start(self) -> int: ...

    @property
    def end(self) -> LogEnd: ...

    def end_of_epoch(self, epoch: int) -> LogEnd:
        """The last epoch up to this one that wrote to the log, and where what it wrote ends. What a checkpoint took
        away ends where that does, in its epoch."""
        ...


class Fetch(NamedTuple):
    """`epoch` is what the replica believes in; its log ends at `end`."""

    replica: ReplicaKey
    epoch: int
    end: LogEnd


class Refused(NamedTuple):
    """Not from here. The error goes with the epoch and the leader that are known here: the asker learns of them."""

    error: ErrorCode


class Served(NamedTuple):
    """The logs agree: what is behind the replica's end, and all below it is durable there (`ReplicaFetched`)."""


class Diverging(NamedTuple):
    """The logs part ways at `end` or before."""

    end: LogEnd


class SnapshotNeeded(NamedTuple):
    """What the replica lacks, or where the logs part ways, isn't in the log any more: it is to load this one."""

    snapshot: SnapshotId


FetchAnswer = Refused | Served | Diverging | SnapshotNeeded


def answer_fetch(quorum: Quorum, log: EpochLog, snapshots: Sequence[SnapshotId], fetch: Fetch) -> FetchAnswer:
    """What a fetch is answered with; `snapshots` are the checkpoints that there are, oldest first."""
    if fetch.epoch < quorum.epoch:
        return Refused(ErrorCode.FENCED_LEADER_EPOCH)
    if fetch.epoch > quorum.epoch:
        return Refused(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if quorum.role is not Role.LEADER:
        return Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    epoch, offset = fetch.end
    if offset == log.log_start == 0:
        return Served()
    if snapshots:
        # The log begins behind one of them. Older ones may be left of a crash, or of a disk that was full.
        behind = next((one for one in reversed(snapshots) if one.offset <= log.log_start), snapshots[0])
        at_start = offset == log.log_start and epoch != behind.epoch
        if offset < log.log_start or at_start or epoch < behind.epoch:
            return SnapshotNeeded(snapshots[-1])
    known = log.end_of_epoch(epoch)
    return Served() if known.epoch == epoch and known.offset >= offset else Diverging(known)


def cut_at(log: EpochLog, diverging: LogEnd) -> int:
    """Where a follower cuts its log, whose leader's log parts ways with it at `diverging` or before."""
    return min(log.end_of_epoch(diverging.epoch).offset, diverging.offset)
