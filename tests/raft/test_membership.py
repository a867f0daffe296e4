"""Voters that come, go and move, one at a time; observers; a checkpoint instead of a log that is gone."""

from collections.abc import Callable

import pytest

from tests.raft.cluster import LISTENER, Cluster, SimReplica, endpoint
from tidelog.env.promise import Promise
from tidelog.raft.membership import CAUGHT_UP_MS, Membership
from tidelog.raft.quorum import Role
from tidelog.raft.snapshot import SnapshotId
from tidelog.raft.voters import ReplicaKey, Voter
from tidelog.wire.errors import ErrorCode, KafkaError


def voter(replica: SimReplica) -> Voter:
    return Voter(replica.key, (replica.endpoint,))


def caught_up(cluster: Cluster, replica: SimReplica) -> SimReplica:
    """The leader, once this one has what it wrote."""
    leader = cluster.leader()
    progress = leader.node.server.progress
    cluster.run(lambda: progress.of(leader.node.driver.epoch, replica.key).caught_up_ms > 0)
    return leader


def code(error: BaseException | None) -> ErrorCode:
    assert isinstance(error, KafkaError)
    return error.code


def test_observer_finds_the_leader_by_its_bootstrap_servers_and_follows() -> None:
    cluster = Cluster(1, 1, observers=1)
    leader = caught_up(cluster, cluster.replicas[2])
    observer = cluster.replicas[2].node.driver
    assert (observer.quorum.role, observer.leader_id) == (Role.FOLLOWER, leader.id)
    assert observer.voters.ids == {1}


def test_cluster_of_one_grows_to_three_and_loses_its_first_node() -> None:
    cluster = Cluster(2, 1, observers=2)
    for id in (2, 3):
        leader = caught_up(cluster, cluster.replicas[id])
        added = leader.node.membership.add(voter(cluster.replicas[id]), 5000)
        cluster.run(lambda added=added: added.done)
        assert added.error is None
    cluster.replicas[1].crash()
    before = max(cluster.committed)
    cluster.run(lambda: max(cluster.committed) > before + 5)
    assert cluster.leader().id in (2, 3)
    assert cluster.leader().node.driver.voters.ids == {1, 2, 3}


def test_who_has_not_caught_up_or_does_not_answer_is_not_added() -> None:
    cluster = Cluster(3, 1, observers=1)
    leader = caught_up(cluster, cluster.replicas[2])
    cluster.replicas[2].crash()
    refused = leader.node.membership.add(voter(cluster.replicas[2]), 5000)
    cluster.run(lambda: refused.done)
    assert code(refused.error) == ErrorCode.REQUEST_TIMED_OUT
    cluster.settle(CAUGHT_UP_MS / 1000)
    driver, progress = leader.node.driver, leader.node.server.progress

    def refusal(versions: tuple[int, int]) -> KafkaError:
        answers = Membership(
            leader.env, driver, progress, LISTENER, lambda _: Promise[tuple[int, int]].resolved(versions)
        )
        error = answers.add(voter(cluster.replicas[2]), 5000).error
        assert isinstance(error, KafkaError)
        return error

    assert refusal((0, 1)).code == ErrorCode.REQUEST_TIMED_OUT
    assert "has not caught up" in str(refusal((0, 1)))
    assert refusal((2, 3)).code == ErrorCode.INVALID_REQUEST
    assert driver.voters.ids == {1}


def test_one_change_at_a_time() -> None:
    cluster = Cluster(4, 3, observers=2)
    leader = caught_up(cluster, cluster.replicas[4])
    caught_up(cluster, cluster.replicas[5])
    first = leader.node.membership.add(voter(cluster.replicas[4]), 5000)
    second = leader.node.membership.add(voter(cluster.replicas[5]), 5000)
    assert code(second.error) == ErrorCode.REQUEST_TIMED_OUT
    cluster.run(lambda: first.done)
    assert first.error is None
    assert leader.node.driver.voters.ids == {1, 2, 3, 4}


def test_change_that_is_written_and_not_committed_holds_up_the_next() -> None:
    cluster = Cluster(5, 3)
    leader = cluster.leader()
    gone = next(replica for replica in cluster.replicas.values() if replica is not leader)
    cluster.blocked = {(id, leader.id) for id in cluster.replicas}
    lost = leader.node.membership.remove(gone.key, 100)
    cluster.run(lambda: lost.done)
    assert code(lost.error) == ErrorCode.REQUEST_TIMED_OUT
    again = leader.node.membership.remove(leader.key, 100)
    assert code(again.error) in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_voters_that_were_never_committed_are_taken_back_with_the_log() -> None:
    cluster = Cluster(5, 3)
    leader = cluster.leader()
    gone = next(replica for replica in cluster.replicas.values() if replica is not leader)
    cluster.blocked = {(leader.id, id) for id in cluster.replicas}
    leader.node.membership.remove(gone.key, 100)
    assert len(leader.node.driver.voters.ids) == 2
    cluster.run(lambda: any(replica is not leader for replica in cluster.leading()))
    cluster.heal()
    assert all(replica.node.driver.voters.ids == {1, 2, 3} for replica in cluster.replicas.values())


def test_leader_that_is_removed_leads_until_that_is_committed_and_another_one_then() -> None:
    cluster = Cluster(6, 3)
    leader = cluster.leader()
    removed = leader.node.membership.remove(leader.key, 5000)
    cluster.run(lambda: removed.done)
    assert removed.error is None
    cluster.run(lambda: any(replica is not leader for replica in cluster.leading()))
    cluster.heal()
    assert leader.node.driver.quorum.role is Role.FOLLOWER
    assert leader.id not in leader.node.driver.voters.ids


Change = Callable[[Membership, ReplicaKey], Promise[None]]
REFUSED: list[tuple[Change, ErrorCode]] = [
    (lambda changes, key: changes.add(Voter(key, (endpoint(1),)), 100), ErrorCode.DUPLICATE_VOTER),
    (lambda changes, key: changes.add(Voter(ReplicaKey(9), (endpoint(9),)), 100), ErrorCode.INVALID_REQUEST),
    (lambda changes, key: changes.add(Voter(ReplicaKey(9, b"x" * 16)), 100), ErrorCode.INVALID_REQUEST),
    (lambda changes, key: changes.remove(ReplicaKey(1, b"x" * 16), 100), ErrorCode.VOTER_NOT_FOUND),
    (lambda changes, key: changes.remove(ReplicaKey(1), 100), ErrorCode.INVALID_REQUEST),
    (lambda changes, key: changes.remove(key, 100), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("change", "error"), REFUSED)
def test_change_that_makes_no_sense_is_refused(change: Change, error: ErrorCode) -> None:
    cluster = Cluster(7, 1)
    leader = cluster.leader()
    assert code(change(leader.node.membership, leader.key).error) == error


def test_voter_that_listens_elsewhere_tells_the_leader_and_is_found_there() -> None:
    cluster = Cluster(8, 3)
    leader = cluster.leader()
    moved = next(replica for replica in cluster.replicas.values() if replica is not leader)
    moved.crash()
    moved.endpoint = moved.endpoint._replace(port=7)
    moved.start()
    cluster.run(
        lambda: all(replica.node.driver.voters.get(moved.id) == voter(moved) for replica in cluster.replicas.values())
    )


def test_controller_that_lost_its_disk_joins_again_by_itself() -> None:
    cluster = Cluster(9, 3)
    leader = cluster.leader()
    wiped = next(replica for replica in cluster.replicas.values() if replica is not leader)
    wiped.wipe()
    wiped.auto_join = True
    wiped.start()
    cluster.run(lambda: leader.node.driver.voters.get(wiped.id) == voter(wiped))
    cluster.heal()


def test_controller_that_joins_by_itself_is_not_taken_for_its_lost_disk() -> None:
    cluster = Cluster(10, 3)
    leader = cluster.leader()
    wiped = next(replica for replica in cluster.replicas.values() if replica is not leader)
    wiped.wipe()
    wiped.start()
    cluster.heal()
    assert not leader.node.driver.voters.is_voter(wiped.key)
    assert wiped.node.driver.quorum.role is Role.FOLLOWER


# ---- checkpoints ----


def behind(cluster: Cluster) -> tuple[SimReplica, SimReplica]:
    """The leader, and a voter that was down while all that it lacks went into a checkpoint."""
    leader = cluster.leader()
    late = next(replica for replica in cluster.replicas.values() if replica is not leader)
    cluster.settle(1)
    late.crash()
    end = late.node.driver.log_end
    cluster.run(lambda: leader.node.driver.log_start > end)
    return leader, late


def test_voter_that_is_too_far_behind_loads_the_leaders_checkpoint_and_goes_on() -> None:
    cluster = Cluster(11, 3)
    _, late = behind(cluster)
    late.start()
    before = len(late.machine.loaded)
    cluster.run(lambda: len(late.machine.loaded) > before)
    snapshot = late.machine.loaded[-1]
    driver = late.node.driver
    assert driver.log_start == snapshot.offset == driver.high_watermark == driver.durable_end
    assert snapshot in driver.snapshots
    cluster.heal()
    late.crash()
    cluster.heal()


@pytest.mark.parametrize("at_s", [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1])
def test_loss_of_power_while_a_checkpoint_comes_leaves_the_log_or_the_checkpoint(at_s: float) -> None:
    cluster = Cluster(12, 3)
    leader, late = behind(cluster)
    late.start()
    asked = cluster.sent.get("FetchSnapshotRequest", 0)
    cluster.run(lambda: cluster.sent.get("FetchSnapshotRequest", 0) > asked)
    cluster.settle(at_s)
    late.crash()
    late.start()
    driver = late.node.driver
    assert driver.end.offset >= driver.high_watermark
    cluster.heal()
    assert leader.up


def test_log_that_never_committed_goes_for_a_checkpoint_of_an_older_epoch() -> None:
    """Its last epoch is newer than the checkpoint's: by that alone it would stay, with a hole behind it."""
    cluster = Cluster(13, 3)
    late = cluster.replicas[1]
    log = late.node.driver.log
    cluster.leader()
    late.crash()
    late.start()
    log = late.node.driver.log
    end = log.end
    log.begin_behind(SnapshotId(end.offset + 50, max(0, end.epoch - 1)))
    assert log.end.offset == end.offset + 50
