"""One of three voters on its disk: timers that really run, and a log that is taken from a leader and cut again."""

import pytest

from tests.log.harness import LogHarness
from tests.raft.drivers import FOLDER, THREE, TWO, VOTERS, DrivenReplica, format_with_voters
from tidelog.raft.checkpointer import SnapshotSource
from tidelog.raft.control import control_batch, data_batch, leader_change, voters_record
from tidelog.raft.election_file import read_election
from tidelog.raft.events import (
    AnnounceEnd,
    AskVotes,
    CommitHeard,
    LeaderHeard,
    LogEnd,
    ReplicaFetched,
    Resigned,
    VoteAnswered,
    VoteRequested,
)
from tidelog.raft.quorum import Role
from tidelog.raft.snapshot import SnapshotId, read_snapshot
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import KafkaError
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


def fill_up(replica: DrivenReplica) -> SimDisk:
    disk = replica.harness.disk
    assert isinstance(disk, SimDisk)
    disk.capacity = disk.used_bytes()
    return disk


def test_leader_whose_disk_is_full_lets_another_one_lead(replica: DrivenReplica) -> None:
    """Else nothing could be changed in the cluster, though the others have room."""
    elect(replica)
    fill_up(replica)
    with pytest.raises(KafkaError, match="No space left"):
        replica.driver.append([b"x"], 1, 0)
    assert replica.driver.leads, "whoever decides is in the midst of it"
    replica.harness.run(lambda: replica.listener.ended == [1], seconds=0.1)
    assert replica.driver.offline is None
    assert AnnounceEnd(1, (2, 3), (TWO, THREE)) in replica.sent


def test_whoever_is_elected_on_a_full_disk_does_not_stay_a_leader_that_opens_no_epoch(replica: DrivenReplica) -> None:
    asked = replica.run_until_sent()
    assert isinstance(asked, AskVotes)
    replica.driver.handle(VoteAnswered(2, 0, granted=True, pre_vote=True))
    disk = fill_up(replica)
    disk.capacity = disk.used_bytes() + 200  # for `quorum-state`, and not for what opens an epoch
    replica.driver.handle(VoteAnswered(2, 1, granted=True))
    assert replica.driver.log_end == 0
    replica.harness.run(lambda: replica.driver.quorum.role is not Role.LEADER, seconds=1.0)
    assert AnnounceEnd(1, (2, 3), (TWO, THREE)) in replica.sent
    disk.capacity = None
    replica.driver.handle(LeaderHeard(2, 2))
    assert replica.driver.follows


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


@pytest.mark.parametrize("seed", range(8))
def test_what_was_remembered_outlives_the_power_in_a_folder_that_the_start_made(seed: int) -> None:
    """A node that joins has no folder of the metadata log yet, and nothing else makes its name durable."""
    disk = SimDisk(SimRandom(seed))
    DrivenReplica(LogHarness(disk)).driver.handle(LeaderHeard(2, 5))
    disk.crash()
    remembered = read_election(disk, FOLDER)
    assert remembered is not None
    assert remembered.epoch == 5


def test_vote_that_cannot_be_remembered_is_not_given(harness: LogHarness, replica: DrivenReplica) -> None:
    """Nor is it given afterwards, when there is room again: what is remembered is what was before."""
    moved: list[str | None] = []
    replica.driver.watch(lambda: moved.append(replica.driver.offline))
    disk = replica.harness.disk
    assert isinstance(disk, SimDisk)
    disk.capacity = disk.used_bytes()
    asked = VoteRequested(TWO, 1, LogEnd(), pre_vote=False)
    with pytest.raises(KafkaError):
        replica.driver.answer_vote(asked)
    assert moved == [replica.driver.offline], "whoever runs it is told"
    disk.capacity = None
    with pytest.raises(KafkaError):
        replica.driver.answer_vote(asked)
    assert replica.driver.stopped
    assert read_election(disk, FOLDER) is None
