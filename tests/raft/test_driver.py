"""One of three voters on its disk: timers that really run, and a log that is taken from a leader and cut again."""

import pytest

from tests.log.harness import LogHarness
from tests.raft.drivers import FOLDER, TWO, VOTERS, DrivenReplica, format_with_voters
from tidelog.raft.checkpointer import SnapshotSource
from tidelog.raft.control import control_batch, data_batch, leader_change, voters_record
from tidelog.raft.events import (
    AskVotes,
    CommitHeard,
    LeaderHeard,
    LogEnd,
    ReplicaFetched,
    Resigned,
    VoteAnswered,
)
from tidelog.raft.quorum import Role
from tidelog.raft.snapshot import SnapshotId, read_snapshot
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.records.control import KRaftVersionRecord

FOUR = VoterSet((*VOTERS.voters, Voter(ReplicaKey(4, bytes([4]) * 16))))


@pytest.fixture
def harness() -> LogHarness:
    return LogHarness(SimDisk(SimRandom(4)))


@pytest.fixture
def replica(harness: LogHarness) -> DrivenReplica:
    format_with_voters(harness, SnapshotId(0, 0))
    return DrivenReplica(harness)


def elect(replica: DrivenReplica) -> None:
    asked = replica.run_until_sent()
    assert asked == AskVotes(0, LogEnd(), pre_vote=True, voter_ids=(2, 3))
    replica.driver.handle(VoteAnswered(2, 0, granted=True, pre_vote=True))
    replica.driver.handle(VoteAnswered(2, 1, granted=True))
    replica.harness.run(lambda: replica.log.durable_end == replica.driver.log_end > 0)
    replica.driver.handle(ReplicaFetched(TWO, replica.driver.log_end))
    assert replica.listener.led == [1]


def test_leader_that_resigned_asks_for_votes_again_in_time(replica: DrivenReplica) -> None:
    elect(replica)
    replica.driver.handle(Resigned())
    before, now = len(replica.sent), replica.harness.timeline.now
    replica.harness.run(lambda: any(isinstance(effect, AskVotes) for effect in replica.sent[before:]), seconds=2.0)
    assert replica.harness.timeline.now - now >= 1.0


def test_leader_that_nobody_fetches_from_resigns_and_asks_again(replica: DrivenReplica) -> None:
    elect(replica)
    replica.harness.run(lambda: replica.listener.ended == [1], seconds=2 * 3.0)
    replica.harness.run(lambda: replica.driver.quorum.role is Role.PROSPECTIVE, seconds=2.0)


def test_who_stopped_asks_nobody(replica: DrivenReplica) -> None:
    elect(replica)
    replica.driver.stop()
    before = len(replica.sent)
    replica.harness.settle(60)
    assert replica.sent[before:] == []
    assert replica.listener.ended == [1]


def test_who_cannot_write_its_log_asks_nobody(replica: DrivenReplica) -> None:
    elect(replica)
    assert isinstance(replica.harness.disk, SimDisk)
    replica.harness.disk.failing_syncs = 1
    replica.driver.append([b"x"], 1, 0)
    replica.harness.run(lambda: replica.driver.offline is not None)
    before = len(replica.sent)
    replica.harness.settle(60)
    assert replica.sent[before:] == []


def follow(replica: DrivenReplica) -> None:
    """Replica 2 leads epoch 3, and wrote two batches."""
    replica.driver.handle(LeaderHeard(2, 3))
    replica.driver.take(control_batch([leader_change(2, VOTERS, [2, 3])], 0, 3, 5) + data_batch([b"a", b"b"], 1, 3, 5))
    replica.harness.run(lambda: replica.log.durable_end == 3)


def test_follower_takes_the_leaders_log_and_replays_what_is_committed(replica: DrivenReplica) -> None:
    follow(replica)
    assert replica.log.end == LogEnd(3, 3)
    replica.driver.handle(CommitHeard(3, 3))
    assert [batch.values for batch in replica.listener.replayed] == [[], [b"a", b"b"]]


def test_voters_count_as_soon_as_they_are_in_the_log_and_are_taken_back_with_it(
    harness: LogHarness, replica: DrivenReplica
) -> None:
    follow(replica)
    replica.driver.handle(CommitHeard(3, 3))
    replica.driver.take(control_batch([voters_record(FOUR)], 3, 3, 5) + data_batch([b"c"], 4, 3, 5))
    assert replica.driver.voters == FOUR
    replica.driver.handle(LeaderHeard(3, 4))  # who knows nothing of them
    replica.driver.cut(LogEnd(3, 3))
    assert replica.log.end == LogEnd(3, 3)
    assert replica.driver.voters == VOTERS
    replica.driver.take(control_batch([leader_change(3, VOTERS, [1, 3])], 3, 4, 5))
    assert replica.driver.voters == VOTERS
    harness.run(lambda: replica.log.durable_end == 4)
    harness.power_loss()
    again = DrivenReplica(harness)
    assert (again.log.end, again.driver.voters, again.driver.epoch) == (LogEnd(4, 4), VOTERS, 4)


def test_checkpoint_names_the_voters_of_its_end_and_not_those_that_may_be_taken_back(replica: DrivenReplica) -> None:
    follow(replica)
    replica.driver.handle(CommitHeard(3, 3))
    replica.driver.take(control_batch([voters_record(FOUR)], 3, 3, 5))
    assert replica.driver.voters == FOUR
    replica.listener.source = SnapshotSource(SnapshotId(3, 3), 5, [b"all that is known"])
    taken = replica.driver.take_snapshot()
    replica.harness.run(lambda: taken.done)
    contents = read_snapshot(replica.harness.disk, f"{FOLDER}/{SnapshotId(3, 3).file_name}")
    assert contents.control == [KRaftVersionRecord(kraft_version=1), voters_record(VOTERS)]


def test_what_is_committed_is_never_cut(replica: DrivenReplica) -> None:
    follow(replica)
    replica.driver.handle(CommitHeard(3, 2))
    with pytest.raises(AssertionError, match="what is committed would be cut at 1"):
        replica.driver.cut(LogEnd(3, 1))


def test_log_knows_where_its_epochs_end(replica: DrivenReplica) -> None:
    follow(replica)
    replica.driver.handle(LeaderHeard(3, 6))
    replica.driver.take(control_batch([leader_change(3, VOTERS, [3, 1])], 3, 6, 5))
    ends = [replica.log.end_of_epoch(epoch) for epoch in (0, 2, 3, 5, 6, 9)]
    assert ends == [LogEnd(0, 0), LogEnd(0, 0), LogEnd(3, 3), LogEnd(3, 3), LogEnd(6, 4), LogEnd(6, 4)]
