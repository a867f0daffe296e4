"""A disk that is full for a moment, in the midst of what two writes do together."""

import errno

import pytest

from tests.log.harness import LogHarness
from tests.raft.cluster import Cluster, SimReplica
from tests.raft.drivers import VOTERS, DrivenReplica, format_with_voters
from tidelog.log.segment import Segment
from tidelog.log.segments import Segments
from tidelog.raft.control import control_batch, data_batch, leader_change, voters_record
from tidelog.raft.events import CommitHeard, LeaderHeard, LogEnd, VoteRequested
from tidelog.raft.settings import RaftSettings
from tidelog.raft.snapshot import SnapshotId
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError

FOUR = VoterSet((*VOTERS.voters, Voter(ReplicaKey(4, bytes([4]) * 16))))


def fill_logs(replica: SimReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for a vote, and none for a record: what is between takes the last block."""

    def append(batch: bytearray) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(OSError(errno.ENOSPC, "No space left on device")))

    monkeypatch.setattr(replica.node.driver.log, "append", append)


def test_who_is_elected_and_cannot_open_its_epoch_lets_another_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(3, 3, settings=RaftSettings(snapshot_bytes=1 << 30))
    cluster.writing = False
    leader = cluster.leader()
    cluster.settle(2.0)
    others = [replica for replica in cluster.replicas.values() if replica is not leader]
    for replica in others:
        fill_logs(replica, monkeypatch)
    leader.crash()
    cluster.settle(10.0)
    assert cluster.leading() == []
    monkeypatch.undo()
    cluster.run(lambda: len(cluster.leading()) == 1)


def test_last_voter_that_could_not_open_its_epoch_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(3, 2, settings=RaftSettings(snapshot_bytes=1 << 30))
    cluster.writing = False
    leader = cluster.leader()
    (other,) = (replica for replica in cluster.replicas.values() if replica is not leader)
    fill_logs(other, monkeypatch)
    removed = leader.node.membership.remove(leader.key, 2000)
    monkeypatch.undo()
    cluster.run(lambda: removed.done and other.node.driver.voters.is_only(other.id))
    fill_logs(other, monkeypatch)
    cluster.settle(10.0)
    assert cluster.leading() == []
    monkeypatch.undo()
    cluster.run(lambda: cluster.leading() == [other])


def test_log_of_which_a_part_was_written_is_as_long_as_it_is() -> None:
    """Batches of two epochs are two writes: where the second fails, the first counts, and so do voters named in it."""
    harness = LogHarness(SimDisk(SimRandom(4)))
    assert isinstance(harness.disk, SimDisk)
    format_with_voters(harness, SnapshotId(0, 0))
    replica = DrivenReplica(harness)
    driver = replica.driver
    driver.handle(LeaderHeard(2, 3))
    driver.take(control_batch([leader_change(2, VOTERS, [2, 3])], 0, 2, 5))
    harness.run(lambda: replica.log.durable_end == 1)
    older = control_batch([voters_record(FOUR)], 1, 2, 5)
    newer = data_batch([b"x" * 500], 2, 3, 5)
    harness.disk.capacity = harness.disk.used_bytes() + len(older) + 300
    with pytest.raises(KafkaError):
        driver.take(older + newer)
    harness.run(lambda: replica.log.durable_end == 2)
    assert driver.log_end == 2  # which is what it fetches behind: its leader commits with that
    assert driver.quorum.log_end == replica.log.end
    assert driver.voters == FOUR
    harness.disk.capacity = None
    asked = VoteRequested(VOTERS.voters[2].key, 4, LogEnd(2, 1), pre_vote=False, voter=None)
    assert not driver.answer_vote(asked).granted  # to a log that lacks what may be committed
    driver.handle(LeaderHeard(2, 5))
    driver.take(newer)
    driver.handle(CommitHeard(5, 3))
    assert [value for batch in replica.listener.replayed for value in batch.values] == [b"x" * 500]


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EMFILE])
def test_checkpoint_that_can_be_installed_in_part_only_leaves_a_replica_that_takes_no_further_part(
    reason: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is gone, and what the checkpoint says isn't in force. The next start begins behind the checkpoint."""
    cluster = Cluster(5, 3, observers=1)
    observer = cluster.replicas[4]
    cluster.run(lambda: observer.node.driver.high_watermark > 10)
    end = observer.node.driver.log_end
    observer.crash(power_loss=False)
    cluster.run(lambda: cluster.leader().node.driver.log_start > end)
    begin, failed = Segments.begin, list[int]()

    def refused(segments: Segments, base: int, now_ms: int) -> Segment:
        if base == observer.node.driver.log_start > end and not failed:
            failed.append(base)
            raise OSError(reason, "it can't be made")
        return begin(segments, base, now_ms)

    observer.start()
    monkeypatch.setattr(Segments, "begin", refused)
    cluster.run(lambda: bool(failed))
    cluster.settle(1.0)
    assert observer.node.driver.offline is not None
    observer.crash(power_loss=False)
    observer.start()
    cluster.heal()
