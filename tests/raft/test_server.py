"""What a replica answers to others: each check, and fetches that wait until there is something to say."""

from typing import Any

import pytest

from tests.raft.cluster import CLUSTER_ID, Cluster, SimReplica
from tidelog.raft.events import AskVotes, LogEnd, Resigned
from tidelog.raft.progress import OBSERVER_SESSION_MS, Progress, ReplicaProgress
from tidelog.raft.quorum import Role
from tidelog.raft.requests import begin_request, end_request, fetch_request, snapshot_request, vote_request
from tidelog.raft.settings import RaftSettings
from tidelog.raft.snapshot import SnapshotId
from tidelog.raft.voters import ReplicaKey
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.fetch import FetchRequest

NEVER = RaftSettings(snapshot_bytes=1 << 30)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3, 3, settings=NEVER)


def others(cluster: Cluster, leader: SimReplica) -> list[SimReplica]:
    return [replica for replica in cluster.replicas.values() if replica is not leader]


def raw(records: Any) -> bytes:
    return bytes(records or b"")


def wrong_disk(key: ReplicaKey) -> ReplicaKey:
    return ReplicaKey(key.id, b"?" * 16)


# ---- votes, and who leads ----


def test_vote_is_refused_for_another_cluster_topic_disk_or_epoch(cluster: Cluster) -> None:
    leader = cluster.leader()
    asked, candidate = others(cluster, leader)
    epoch, server = leader.node.driver.epoch, asked.node.server
    ask = AskVotes(epoch + 1, LogEnd(epoch, 10**9), pre_vote=False, voter_ids=())
    assert server.vote(vote_request("elsewhere", candidate.key, asked.key, ask)).error_code == (
        ErrorCode.INCONSISTENT_CLUSTER_ID
    )
    request = vote_request(CLUSTER_ID, candidate.key, asked.key, ask)
    request.topics[0].topic_name = "tide"
    assert server.vote(request).error_code == ErrorCode.INVALID_REQUEST

    def partition_error(to: ReplicaKey, ask: AskVotes) -> int:
        (topic,) = server.vote(vote_request(CLUSTER_ID, candidate.key, to, ask)).topics
        assert not topic.partitions[0].vote_granted
        return topic.partitions[0].error_code

    assert partition_error(asked.key, ask._replace(epoch=epoch - 1)) in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
    )
    assert partition_error(asked.key, ask._replace(log_end=LogEnd(epoch + 1, 1))) == ErrorCode.INVALID_REQUEST
    assert asked.node.driver.epoch == epoch
    assert partition_error(wrong_disk(asked.key), ask) == ErrorCode.INVALID_VOTER_KEY
    assert asked.node.driver.epoch == epoch + 1  # which is news, whoever was meant


def test_vote_is_granted_once_and_remembered_over_a_loss_of_power(cluster: Cluster) -> None:
    leader = cluster.leader()
    asked, candidate = others(cluster, leader)
    cluster.blocked = {(a, b) for a in (1, 2, 3) for b in (1, 2, 3)}
    epoch = leader.node.driver.epoch + 1
    ask = AskVotes(epoch, LogEnd(epoch - 1, 10**9), pre_vote=False, voter_ids=())

    def granted(to: SimReplica, by: SimReplica) -> bool:
        return to.node.server.vote(vote_request(CLUSTER_ID, by.key, to.key, ask)).topics[0].partitions[0].vote_granted

    assert granted(asked, candidate)
    asked.crash()
    asked.start()
    assert not granted(asked, leader)
    assert granted(asked, candidate)


def test_two_leaders_of_one_epoch_are_not_believed(cluster: Cluster) -> None:
    leader = cluster.leader()
    told, other = others(cluster, leader)
    cluster.run(lambda: told.node.driver.leader_id == leader.id)
    request = begin_request(CLUSTER_ID, other.id, leader.node.driver.epoch, (), told.key)
    (topic,) = told.node.server.begin_epoch(request).topics
    assert topic.partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert told.node.driver.leader_id == leader.id


def test_new_epoch_is_followed_where_its_leader_says_that_it_listens(cluster: Cluster) -> None:
    leader = cluster.leader()
    told, other = others(cluster, leader)
    epoch = leader.node.driver.epoch + 1
    moved = other.endpoint._replace(port=7)
    response = told.node.server.begin_epoch(begin_request(CLUSTER_ID, other.id, epoch, (moved,), told.key))
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, other.id, epoch)
    assert [(node.host, node.port) for node in response.node_endpoints] == [(moved.host, 7)]
    assert told.node.transport.leader_endpoint == moved


def test_first_successor_stands_as_soon_as_the_epoch_ends(cluster: Cluster) -> None:
    leader = cluster.leader()
    told, other = others(cluster, leader)
    cluster.run(lambda: told.node.driver.leader_id == leader.id)
    request = end_request(CLUSTER_ID, leader.id, leader.node.driver.epoch, (), [told.key, other.key])
    told.node.server.end_epoch(request)
    assert told.node.driver.quorum.role is Role.PROSPECTIVE


# ---- fetches ----


def quiet(cluster: Cluster) -> SimReplica:
    """The leader of three who writes nothing any more, and whom nobody else fetches from."""
    leader = cluster.leader()
    cluster.writing = False
    cluster.settle(2)
    for replica in others(cluster, leader):
        replica.crash()
    cluster.run(lambda: not leader.node.server.fetches.parked)
    return leader


def request_at(leader: SimReplica, high_watermark: int | None = None) -> FetchRequest:
    driver = leader.node.driver
    watermark = driver.high_watermark if high_watermark is None else high_watermark
    key = min(driver.quorum.replica_ends)
    return fetch_request(CLUSTER_ID, key, driver.epoch, driver.end, watermark)


def test_fetch_waits_for_a_record_and_then_for_its_commit(cluster: Cluster) -> None:
    leader = quiet(cluster)
    fetches = leader.node.server.fetches
    answer = fetches.fetch(request_at(leader), 18)
    assert not answer.done
    assert fetches.parked == 1
    leader.write(b"news")
    assert answer.done
    (partition,) = answer.result().responses[0].partitions
    assert b"news" in raw(partition.records)
    assert partition.high_watermark < leader.node.driver.log_end
    cluster.run(lambda: leader.node.driver.durable_end == leader.node.driver.log_end)
    behind = request_at(leader)  # it has the record: that commits it, and it is told at once
    told = fetches.fetch(behind, 18)
    assert told.done
    assert told.result().responses[0].partitions[0].high_watermark == leader.node.driver.log_end
    assert not fetches.fetch(request_at(leader), 18).done


def test_leader_tells_no_high_watermark_before_it_committed_in_its_epoch(cluster: Cluster) -> None:
    """After a restart it knows of what its checkpoint holds, and its followers of more."""
    before = cluster.leader()
    cluster.settle(2)
    known = before.node.driver.high_watermark
    for replica in cluster.up():
        replica.crash(power_loss=False)
    for replica in cluster.replicas.values():
        replica.start()

    def stands() -> list[SimReplica]:
        drivers = [(one, one.node.driver) for one in cluster.up()]
        return [one for one, driver in drivers if driver.quorum.role is Role.LEADER and not driver.leads]

    cluster.run(lambda: bool(stands()))
    (leader,) = stands()
    driver = leader.node.driver
    assert 0 <= driver.high_watermark < known
    request = fetch_request(CLUSTER_ID, ReplicaKey(77), driver.epoch, LogEnd(0, 0), 0)
    (partition,) = leader.node.server.fetches.fetch(request, 17).result().responses[0].partitions
    assert partition.high_watermark == -1


def test_fetch_that_waits_is_answered_when_the_epoch_ends_or_its_time_is_over(cluster: Cluster) -> None:
    leader = quiet(cluster)
    fetches = leader.node.server.fetches
    answer = fetches.fetch(request_at(leader), 18)
    cluster.settle(0.6)
    assert answer.done
    assert answer.result().responses[0].partitions[0].error_code == ErrorCode.NONE
    parked = fetches.fetch(request_at(leader), 18)
    leader.node.driver.handle(Resigned())
    assert parked.result().responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetches.parked == 0


def test_one_fetch_a_replica_waits(cluster: Cluster) -> None:
    leader = quiet(cluster)
    fetches = leader.node.server.fetches
    first = fetches.fetch(request_at(leader), 18)
    second = fetches.fetch(request_at(leader), 18)
    assert first.done
    assert not second.done
    assert fetches.parked == 1


def test_fetch_is_refused_for_another_cluster_epoch_or_offset(cluster: Cluster) -> None:
    leader = quiet(cluster)
    fetches = leader.node.server.fetches
    request = request_at(leader)
    request.cluster_id = "elsewhere"
    assert fetches.fetch(request, 18).result().error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    def refused(epoch: int, offset: int = 0) -> int:
        request = request_at(leader)
        asked = request.topics[0].partitions[0]
        asked.current_leader_epoch, asked.last_fetched_epoch = epoch, 0
        asked.fetch_offset = offset
        response = fetches.fetch(request, 18).result()
        (partition,) = response.responses[0].partitions
        assert partition.current_leader.leader_id == leader.id
        assert [node.host for node in response.node_endpoints] == [leader.endpoint.host]
        return partition.error_code

    epoch = leader.node.driver.epoch
    assert refused(epoch - 1) == ErrorCode.FENCED_LEADER_EPOCH
    assert refused(epoch + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert refused(epoch, -1) == ErrorCode.INVALID_REQUEST


# ---- pieces of a checkpoint ----


def test_pieces_of_a_checkpoint_are_its_bytes_and_nothing_else_is_served(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.settle(1)
    taken = leader.node.driver.take_snapshot()
    cluster.run(lambda: taken.done)
    driver, server = leader.node.driver, leader.node.server
    snapshot = driver.snapshots[-1]
    data = leader.disk.read_whole(f"{driver.folder}/{snapshot.file_name}")

    def fetched(snapshot: SnapshotId, position: int, epoch: int | None = None) -> tuple[int, int, bytes]:
        epoch = driver.epoch if epoch is None else epoch
        request = snapshot_request(CLUSTER_ID, ReplicaKey(2), epoch, snapshot, position)
        request.max_bytes = 100
        answer = server.fetch_snapshot(request)
        cluster.run(lambda: answer.done)
        (partition,) = answer.result().topics[0].partitions
        return partition.error_code, partition.size, raw(partition.unaligned_records)

    pieces = b"".join(fetched(snapshot, at)[2] for at in range(0, len(data), 100))
    assert pieces == data
    assert fetched(snapshot, 0)[1] == len(data)
    assert fetched(snapshot, len(data))[0] == ErrorCode.POSITION_OUT_OF_RANGE
    assert fetched(snapshot, -1)[0] == ErrorCode.POSITION_OUT_OF_RANGE
    assert fetched(SnapshotId(snapshot.offset, 99), 0)[0] == ErrorCode.SNAPSHOT_NOT_FOUND
    assert fetched(SnapshotId(0, 0), 0)[0] == ErrorCode.SNAPSHOT_NOT_FOUND
    assert fetched(snapshot, 0, driver.epoch - 1)[0] == ErrorCode.FENCED_LEADER_EPOCH


# ---- how far the others have come ----


def test_replica_caught_up_when_it_has_what_was_the_end_at_its_last_fetch() -> None:
    progress, key = ReplicaProgress(), ReplicaKey(2)
    progress.fetched(1, key, 5, 10, 100)
    assert progress.of(1, key) == Progress(100, -1, 10)
    progress.fetched(1, key, 10, 20, 200)  # the end of then
    assert progress.of(1, key) == Progress(200, 100, 20)
    progress.fetched(1, key, 20, 20, 300)
    assert progress.of(1, key) == Progress(300, 300, 20)
    assert progress.of(2, key) == Progress()


def test_observer_that_is_gone_for_long_is_forgotten_and_a_voter_is_not() -> None:
    progress = ReplicaProgress()
    for id in (2, 3, 4):
        progress.fetched(1, ReplicaKey(id), 5, 10, 0 if id < 4 else OBSERVER_SESSION_MS)
    observers = progress.observers(1, OBSERVER_SESSION_MS + 1, lambda key: key.id == 2)
    assert observers == [ReplicaKey(4)]
    assert progress.of(1, ReplicaKey(2)).fetch_ms == 0
