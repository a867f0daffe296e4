"""What one replica of the metadata log asks another, as Kafka's messages; and what the answers say. Pure.

All of them name one partition, `__cluster_metadata-0`, and carry the cluster's id, so that a node of another cluster
at a voter's address is noticed. Fields that an older version lacks are left out by the codec.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tidelog.raft.events import NO_LEADER, AskVotes, LogEnd
from tidelog.raft.folder import METADATA_TOPIC_ID
from tidelog.raft.quorum import Quorum
from tidelog.raft.snapshot import SnapshotId
from tidelog.raft.voters import Endpoint, ReplicaKey
from tidelog.wire.messages import begin_quorum_epoch as begin
from tidelog.wire.messages import end_quorum_epoch as end
from tidelog.wire.messages import fetch, fetch_snapshot, vote

METADATA_TOPIC = "__cluster_metadata"
FETCH_BYTES_MAX = 8 * 1024 * 1024
"""What one fetch, or one piece of a checkpoint, may bring: Kafka's own bound."""
FETCH_WAIT_MS = 500
"""How long a leader may keep a fetch that finds nothing: Kafka's own."""


class Said(NamedTuple):
    """What an answer says of the quorum, whatever it is the answer to."""

    error: int
    leader_id: int
    epoch: int
    endpoint: Endpoint | None = None


def believable(quorum: Quorum, leader_id: int, epoch: int) -> bool:
    """Whether somebody may lead that epoch, as far as is known here. An epoch has one leader. It may have been this
    node, with a disk that it lost."""
    if leader_id in (NO_LEADER, quorum.local.id) or epoch < quorum.epoch:
        return True
    return epoch > quorum.epoch or quorum.election.leader_id in (NO_LEADER, leader_id)


def vote_request(cluster_id: str, local: ReplicaKey, voter: ReplicaKey, asked: AskVotes) -> vote.VoteRequest:
    partition = vote.RequestPartitionData(
        replica_epoch=asked.epoch,
        replica_id=local.id,
        replica_directory_id=local.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=asked.log_end.epoch,
        last_offset=asked.log_end.offset,
        pre_vote=asked.pre_vote,
    )
    topic = vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic])


def begin_request(
    cluster_id: str, leader_id: int, epoch: int, endpoints: Sequence[Endpoint], voter: ReplicaKey
) -> begin.BeginQuorumEpochRequest:
    partition = begin.RequestPartitionData(
        voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[begin.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[begin.LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in endpoints],
    )


def end_request(
    cluster_id: str, leader_id: int, epoch: int, endpoints: Sequence[Endpoint], successors: Sequence[ReplicaKey]
) -> end.EndQuorumEpochRequest:
    candidates = [end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in successors]
    partition = end.RequestPartitionData(
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[key.id for key in successors],
        preferred_candidates=candidates,
    )
    return end.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[end.LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in endpoints],
    )


def fetch_request(
    cluster_id: str, local: ReplicaKey, epoch: int, log_end: LogEnd, high_watermark: int
) -> fetch.FetchRequest:
    """For what is behind `log_end`, all below which is durable here: the leader counts on it. It answers as soon as it
    has more, or knows of a higher watermark than this."""
    partition = fetch.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=log_end.offset,
        last_fetched_epoch=log_end.epoch,
        partition_max_bytes=FETCH_BYTES_MAX,
        replica_directory_id=local.directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=local.id),
        max_wait_ms=FETCH_WAIT_MS,
        max_bytes=FETCH_BYTES_MAX,
        topics=[fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def snapshot_request(
    cluster_id: str, local: ReplicaKey, epoch: int, snapshot: SnapshotId, position: int
) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.RequestPartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=local.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=local.id,
        max_bytes=FETCH_BYTES_MAX,
        topics=[fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def only_partition(topics: Sequence[Any], index: Callable[[Any], int]) -> Any | None:
    """The one partition of a message, where it is `__cluster_metadata-0` and nothing else."""
    if len(topics) != 1 or len(topics[0].partitions) != 1 or index(topics[0].partitions[0]) != 0:
        return None
    return topics[0].partitions[0]


def endpoint_of(leader_id: int, nodes: Sequence[Any]) -> Endpoint | None:
    """Where an answer says that the leader listens."""
    return next((Endpoint("", node.host, node.port) for node in nodes if node.node_id == leader_id), None)
