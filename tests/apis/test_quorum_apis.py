"""The quorum's requests, from the API's file to a replica that leads three, and back."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.raft.cluster import CLUSTER_ID, Cluster, SimReplica
from tidelog.apis import (
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from tidelog.env.promise import Promise
from tidelog.raft.events import AskVotes
from tidelog.raft.requests import begin_request, end_request, fetch_request, snapshot_request, vote_request
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.add_raft_voter import AddRaftVoterRequest
from tidelog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from tidelog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tidelog.wire.messages.update_raft_voter import UpdateRaftVoterRequest


def context_of(replica: SimReplica, version: int = 2) -> Any:
    """What a handler of this node is given, so far as it concerns the quorum."""
    env = SimpleNamespace(clock=replica.cluster.timeline, loop=replica.loop)
    config = SimpleNamespace(controller_listener_names=("CONTROLLER",))
    services = SimpleNamespace(raft=replica.node, quorum=replica.node.driver, env=env, config=config)
    return cast(Any, SimpleNamespace(services=services, version=version, listener="CONTROLLER"))


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(1, 3, observers=1)
    cluster.leader()
    cluster.settle(3)
    return cluster


def follower(cluster: Cluster) -> SimReplica:
    return next(replica for replica in cluster.replicas.values() if replica is not cluster.leader())


def test_described_quorum_has_all_voters_and_observers_and_when_they_fetched(cluster: Cluster) -> None:
    leader = cluster.leader()
    topic = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData()])
    response = describe_quorum.handle(context_of(leader), DescribeQuorumRequest(topics=[topic]))
    assert isinstance(response, DescribeQuorumResponse)
    (described,) = response.topics[0].partitions
    assert (described.leader_id, described.leader_epoch) == (leader.id, leader.node.driver.epoch)
    assert [state.replica_id for state in described.current_voters] == [1, 2, 3]
    assert [state.replica_id for state in described.observers] == [4]
    now_ms = cluster.timeline.now_ms()
    for state in described.current_voters + described.observers:
        assert state.replica_directory_id == cluster.replicas[state.replica_id].key.directory_id
        assert now_ms - 1000 < state.last_caught_up_timestamp <= state.last_fetch_timestamp <= now_ms
        assert state.log_end_offset > 0
    assert [node.node_id for node in response.nodes] == [1, 2, 3]


def test_requests_between_voters_are_answered(cluster: Cluster) -> None:
    leader, asked = cluster.leader(), follower(cluster)
    driver = leader.node.driver
    context = context_of(asked)
    ask = AskVotes(driver.epoch, driver.end, pre_vote=True, voter_ids=())
    (voted,) = vote.handle(context, vote_request(CLUSTER_ID, leader.key, asked.key, ask)).topics
    assert (voted.partitions[0].leader_id, voted.partitions[0].vote_granted) == (leader.id, False)
    begun = begin_quorum_epoch.handle(context, begin_request(CLUSTER_ID, leader.id, driver.epoch, (), asked.key))
    assert begun.topics[0].partitions[0].error_code == ErrorCode.NONE
    ended = end_quorum_epoch.handle(context, end_request(CLUSTER_ID, leader.id, driver.epoch, (), []))
    assert ended.topics[0].partitions[0].leader_epoch == driver.epoch


def test_fetches_of_the_metadata_log_and_its_checkpoints_come_from_raft(cluster: Cluster) -> None:
    leader = cluster.leader()
    driver = leader.node.driver
    request = fetch_request(CLUSTER_ID, follower(cluster).key, driver.epoch - 1, driver.end._replace(epoch=0), 0)
    fenced = fetch.handle(context_of(leader, 18), request)
    assert isinstance(fenced, Promise)
    assert cast(Any, fenced).result().responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    snapshot = driver.snapshots[-1]
    piece = fetch_snapshot.handle(
        context_of(leader), snapshot_request(CLUSTER_ID, leader.key, driver.epoch, snapshot, 0)
    )
    cluster.run(lambda: piece.done)
    assert piece.result().topics[0].partitions[0].size > 0


def test_changes_of_the_voters_are_refused_with_words_by_who_does_not_lead(cluster: Cluster) -> None:
    context = context_of(follower(cluster))
    removed = remove_raft_voter.handle(
        context, RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=b"x" * 16)
    )
    added = add_raft_voter.handle(context, AddRaftVoterRequest(cluster_id="elsewhere", voter_id=1))
    assert removed.result().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert removed.result().error_message
    assert added.result().error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    updated = update_raft_voter.handle(context, UpdateRaftVoterRequest(cluster_id=None, current_leader_epoch=0))
    assert updated.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert updated.current_leader.leader_id == cluster.leader().id
