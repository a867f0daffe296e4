"""What other replicas ask of this one: votes, that an epoch begins or ends, pieces of a checkpoint.

Each request is checked as Kafka's `KafkaRaftClient` has it: the cluster's id, that it is about the metadata log, that
its epoch is not an older one, and that it means this very disk. What is heard is believed before the last check fails:
an epoch is news whoever was meant. Each answer names the epoch and the leader that are known here.
"""

from typing import Any

from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.raft.driver import RaftDriver
from tidelog.raft.events import LeaderEnded, LeaderHeard, LogEnd, ReplicaHeard, VoteRequested
from tidelog.raft.fetch_server import FetchServer
from tidelog.raft.progress import ReplicaProgress
from tidelog.raft.quorum import Role
from tidelog.raft.requests import METADATA_TOPIC, believable, only_partition
from tidelog.raft.snapshot import SnapshotId
from tidelog.raft.transport import QuorumTransport
from tidelog.raft.voters import Endpoint, ReplicaKey
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import begin_quorum_epoch as begin
from tidelog.wire.messages import end_quorum_epoch as end
from tidelog.wire.messages import fetch_snapshot as pieces
from tidelog.wire.messages import vote

PIECE_BYTES_MAX = 1024 * 1024
"""The most that one answer has of a checkpoint."""
BOOTSTRAP = SnapshotId(0, 0)


class QuorumServer:
    """The serving side of one replica."""

    def __init__(self, env: Environment, driver: RaftDriver, transport: QuorumTransport) -> None:
        self.driver = driver
        self.transport = transport
        self.cluster_id = transport.cluster_id
        self.progress = ReplicaProgress()
        self.fetches = FetchServer(env, driver, self.cluster_id, self.progress, lambda: transport.leader_endpoint)
        self._env = env

    # ---- checks ----

    def is_other_cluster(self, cluster_id: str | None) -> bool:
        """A cluster that isn't named is taken for this one."""
        return cluster_id is not None and cluster_id != self.cluster_id

    def _only(self, cluster_id: str | None, topics: Any) -> Any | ErrorCode:
        """The one partition of a request, or why not."""
        if self.is_other_cluster(cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        partition = only_partition(topics, lambda one: one.partition_index)
        if partition is None or topics[0].topic_name != METADATA_TOPIC:
            return ErrorCode.INVALID_REQUEST
        return partition

    def _refusal(self, sender_id: int, epoch: int) -> ErrorCode:
        """Of what one voter says to another."""
        if self.driver.stopped:
            return ErrorCode.BROKER_NOT_AVAILABLE
        if epoch < self.driver.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if sender_id < 0 else ErrorCode.NONE

    def leader_refusal(self, epoch: int) -> ErrorCode:
        """Of what is for the leader of `epoch` only."""
        driver = self.driver
        if epoch < driver.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > driver.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if driver.quorum.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if driver.stopped else ErrorCode.NONE

    def _is_meant(self, voter_id: int, directory_id: bytes) -> bool:
        """Whether a request is for this very disk. Who doesn't say whom it means, means whoever is here."""
        return voter_id < 0 or ReplicaKey(voter_id, directory_id).is_same(self.driver.local.key)

    # ---- votes ----

    def vote(self, request: vote.VoteRequest) -> vote.VoteResponse:
        asked = self._only(request.cluster_id, request.topics)
        if isinstance(asked, ErrorCode):
            return vote.VoteResponse(error_code=asked)
        newest = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
        error = self._refusal(asked.replica_id, asked.replica_epoch)
        if asked.last_offset < 0 or not 0 <= asked.last_offset_epoch <= newest:
            error = ErrorCode.INVALID_REQUEST
        if asked.replica_id == self.driver.local.key.id:  # somebody runs a copy of this node
            error = ErrorCode.INVALID_REQUEST
        granted = False
        if error == ErrorCode.NONE:
            voter = None if request.voter_id < 0 else ReplicaKey(request.voter_id, asked.voter_directory_id)
            candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
            log_end = LogEnd(asked.last_offset_epoch, asked.last_offset)
            event = VoteRequested(candidate, asked.replica_epoch, log_end, asked.pre_vote, voter)
            granted = self.driver.answer_vote(event).granted
            if not self._is_meant(request.voter_id, asked.voter_directory_id):
                error = ErrorCode.INVALID_VOTER_KEY
        partition = vote.ResponsePartitionData(
            error_code=error,
            leader_id=self.driver.leader_id,
            leader_epoch=self.driver.epoch,
            vote_granted=granted and error == ErrorCode.NONE,
        )
        return vote.VoteResponse(
            topics=[vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            node_endpoints=self._nodes(vote.NodeEndpoint),
        )

    # ---- the begin and the end of an epoch ----

    def begin_epoch(self, request: begin.BeginQuorumEpochRequest) -> begin.BeginQuorumEpochResponse:
        told = self._only(request.cluster_id, request.topics)
        if isinstance(told, ErrorCode):
            return begin.BeginQuorumEpochResponse(error_code=told)
        error = self._hear(told.leader_id, told.leader_epoch, request.leader_endpoints)
        if error == ErrorCode.NONE and not self._is_meant(request.voter_id, told.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        partition = begin.ResponsePartitionData(
            error_code=error, leader_id=self.driver.leader_id, leader_epoch=self.driver.epoch
        )
        return begin.BeginQuorumEpochResponse(
            topics=[begin.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            node_endpoints=self._nodes(begin.NodeEndpoint),
        )

    def end_epoch(self, request: end.EndQuorumEpochRequest) -> end.EndQuorumEpochResponse:
        told = self._only(request.cluster_id, request.topics)
        if isinstance(told, ErrorCode):
            return end.EndQuorumEpochResponse(error_code=told)
        error = self._hear(told.leader_id, told.leader_epoch, request.leader_endpoints)
        if error == ErrorCode.NONE:
            named = [ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in told.preferred_candidates]
            successors = named or [ReplicaKey(id) for id in told.preferred_successors]
            self.driver.handle(LeaderEnded(told.leader_id, told.leader_epoch, tuple(successors)))
        partition = end.ResponsePartitionData(
            error_code=error, leader_id=self.driver.leader_id, leader_epoch=self.driver.epoch
        )
        return end.EndQuorumEpochResponse(
            topics=[end.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            node_endpoints=self._nodes(end.NodeEndpoint),
        )

    def _hear(self, leader_id: int, epoch: int, endpoints: Any) -> ErrorCode:
        """Somebody says that it leads, or led, this epoch."""
        error = self._refusal(leader_id, epoch)
        if error == ErrorCode.NONE and not believable(self.driver.quorum, leader_id, epoch):
            error = ErrorCode.INVALID_REQUEST
        if error == ErrorCode.NONE and leader_id != self.driver.local.key.id:
            listener = self.transport.listener
            named = [Endpoint(one.name, one.host, one.port) for one in endpoints]
            self.transport.learn(leader_id, next((one for one in named if one.name == listener), None))
            self.driver.handle(LeaderHeard(leader_id, epoch))
        return error

    # ---- checkpoints ----

    def fetch_snapshot(self, request: pieces.FetchSnapshotRequest) -> Promise[pieces.FetchSnapshotResponse]:
        """One piece of a checkpoint, read off the loop. Whoever fetches one follows, and keeps its leader in office."""
        done = Promise[pieces.FetchSnapshotResponse].resolved
        if self.is_other_cluster(request.cluster_id):
            return done(pieces.FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        asked = only_partition(request.topics, lambda one: one.partition)
        if asked is None:
            return done(pieces.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST))
        if request.topics[0].name != METADATA_TOPIC:
            return done(self._piece(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=request.topics[0].name))
        error = self.leader_refusal(asked.current_leader_epoch)
        snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        if error == ErrorCode.NONE and (snapshot == BOOTSTRAP or snapshot not in self.driver.snapshots):
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if error == ErrorCode.NONE and asked.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if error != ErrorCode.NONE:
            return done(self._piece(error=error))
        self.driver.handle(ReplicaHeard(ReplicaKey(request.replica_id, asked.replica_directory_id)))
        path = f"{self.driver.folder}/{snapshot.file_name}"
        count = max(0, min(request.max_bytes, PIECE_BYTES_MAX))

        def read() -> tuple[int, bytes]:
            file = self._env.disk.open(path)
            return file.size(), file.read(asked.position, count)

        def answer(promise: Promise[tuple[int, bytes]]) -> pieces.FetchSnapshotResponse:
            if promise.error is not None:  # retention took it meanwhile, or it can't be read
                return self._piece(error=ErrorCode.SNAPSHOT_NOT_FOUND)
            size, data = promise.result()
            if asked.position >= size:
                return self._piece(error=ErrorCode.POSITION_OUT_OF_RANGE)
            return self._piece(snapshot, size, asked.position, data)

        return self._env.loop.run_blocking(read).then(answer)

    def _piece(
        self,
        snapshot: SnapshotId = BOOTSTRAP,
        size: int = 0,
        position: int = 0,
        data: bytes = b"",
        *,
        error: ErrorCode = ErrorCode.NONE,
        topic: str = METADATA_TOPIC,
    ) -> pieces.FetchSnapshotResponse:
        leader = pieces.LeaderIdAndEpoch(leader_id=self.driver.leader_id, leader_epoch=self.driver.epoch)
        partition = pieces.ResponsePartitionSnapshot(
            error_code=error,
            snapshot_id=pieces.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
            current_leader=leader,
            size=size,
            position=position,
            unaligned_records=data,
        )
        return pieces.FetchSnapshotResponse(
            topics=[pieces.ResponseTopicSnapshot(name=topic, partitions=[partition])],
            node_endpoints=self._nodes(pieces.NodeEndpoint),
        )

    def _nodes(self, make: Any) -> list[Any]:
        """Where the leader listens, as the message has it."""
        endpoint, leader_id = self.transport.leader_endpoint, self.driver.leader_id
        if endpoint is None or leader_id < 0:
            return []
        return [make(node_id=leader_id, host=endpoint.host, port=endpoint.port)]
