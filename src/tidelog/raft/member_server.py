"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, from the messages to `membership.py` and back."""

from typing import Any

from tidelog.env.promise import Promise
from tidelog.raft.membership import Membership
from tidelog.raft.server import QuorumServer
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages import add_raft_voter, remove_raft_voter, update_raft_voter

WAIT_MAX_MS = 60_000


class MemberServer:
    """The changes of the voters, as they are asked for."""

    def __init__(self, server: QuorumServer, membership: Membership, request_timeout_ms: int) -> None:
        self._server = server
        self._membership = membership
        self._timeout_ms = request_timeout_ms

    def add(self, request: add_raft_voter.AddRaftVoterRequest) -> Promise[add_raft_voter.AddRaftVoterResponse]:
        changed = self._checked(request.cluster_id) or self._membership.add(
            _voter(request),
            min(request.timeout_ms, WAIT_MAX_MS),
            ack_when_committed=request.ack_when_committed,
        )
        return changed.then(lambda done: _told(add_raft_voter.AddRaftVoterResponse, done))

    def remove(
        self, request: remove_raft_voter.RemoveRaftVoterRequest
    ) -> Promise[remove_raft_voter.RemoveRaftVoterResponse]:
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        changed = self._checked(request.cluster_id) or self._membership.remove(key, self._timeout_ms)
        return changed.then(lambda done: _told(remove_raft_voter.RemoveRaftVoterResponse, done))

    def update(self, request: update_raft_voter.UpdateRaftVoterRequest) -> update_raft_voter.UpdateRaftVoterResponse:
        server = self._server
        error = ErrorCode.INCONSISTENT_CLUSTER_ID if server.is_other_cluster(request.cluster_id) else ErrorCode.NONE
        error = error or server.leader_refusal(request.current_leader_epoch)
        if error == ErrorCode.NONE:
            versions = request.kraft_version_feature
            try:
                self._membership.update(
                    _voter(request), (versions.min_supported_version, versions.max_supported_version)
                )
            except KafkaError as refusal:
                error = refusal.code
        endpoint = server.transport.leader_endpoint
        return update_raft_voter.UpdateRaftVoterResponse(
            error_code=error,
            current_leader=update_raft_voter.CurrentLeader(
                leader_id=server.driver.leader_id,
                leader_epoch=server.driver.epoch,
                host="" if endpoint is None else endpoint.host,
                port=0 if endpoint is None else endpoint.port,
            ),
        )

    def _checked(self, cluster_id: str | None) -> Promise[None] | None:
        if not self._server.is_other_cluster(cluster_id):
            return None
        own = self._server.cluster_id
        return Promise[None].failed(
            KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"the cluster's id is {own}, not {cluster_id}")
        )


def _voter(request: Any) -> Voter:
    endpoints = tuple(Endpoint(one.name, one.host, one.port) for one in request.listeners)
    return Voter(ReplicaKey(request.voter_id, request.voter_directory_id), endpoints)


def _told(make: Any, done: Promise[None]) -> Any:
    error = done.error
    if error is None:
        return make(error_message=None)
    if not isinstance(error, KafkaError):
        raise error
    return make(error_code=error.code, error_message=error.message or error.code.name)
