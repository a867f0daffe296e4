"""One replica of the metadata log with all that connects it to the others: put together here, and nowhere else."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.raft.driver import RaftDriver
from tidelog.raft.events import LeaderBroke
from tidelog.raft.follower import LogFollower
from tidelog.raft.joining import Joining
from tidelog.raft.leader_lines import LeaderLines
from tidelog.raft.member_server import MemberServer
from tidelog.raft.membership import Membership
from tidelog.raft.metadata_log import MetadataLog
from tidelog.raft.peers import Peers
from tidelog.raft.replay import RaftListener
from tidelog.raft.server import QuorumServer
from tidelog.raft.settings import RaftSettings
from tidelog.raft.transport import QuorumTransport
from tidelog.raft.voters import Endpoint, Voter, VoterSet
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.api_versions import ApiVersionsRequest

KRAFT_VERSION = "kraft.version"


class RaftPlace(NamedTuple):
    """Where a replica is, and whom it may ask. `voters` are those of `controller.quorum.voters` (kraft.version 0),
    `bootstrap` those of `controller.quorum.bootstrap.servers`."""

    cluster_id: str
    folder: str
    local: Voter
    listener: str
    voters: VoterSet | None = None
    bootstrap: Sequence[Endpoint] = ()
    auto_join: bool = False
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20


class RaftNode:
    """The driver decides and writes; the others ask, answer, follow and change who votes."""

    def __init__(
        self, env: Environment, place: RaftPlace, log: MetadataLog, settings: RaftSettings, peers: Peers
    ) -> None:
        self.transport = QuorumTransport(
            env,
            peers,
            place.cluster_id,
            place.listener,
            bootstrap=place.bootstrap,
            request_timeout_ms=place.request_timeout_ms,
            retry_backoff_ms=place.retry_backoff_ms,
        )
        self.driver = RaftDriver(env, place.folder, place.local, log, settings, self.transport.send, place.voters)
        self.transport.driver = self.driver
        self.follower = LogFollower(env, self.driver, self.transport)
        self.server = QuorumServer(env, self.driver, self.transport)
        self.membership = Membership(env, self.driver, self.server.progress, place.listener, self._kraft_versions_of)
        self.members = MemberServer(self.server, self.membership, place.request_timeout_ms)
        self._peers = peers
        self.driver.watch(LeaderLines(self.driver).look)
        self.joining = Joining(env, self.driver, self.transport, settings.fetch_timeout_ms, auto_join=place.auto_join)

    def start(self, listener: RaftListener) -> None:
        self.driver.start(listener)
        self.join()

    def join(self) -> None:
        """From now on see that the voters' entry of this node is right. The driver was started."""
        self.joining.start()

    def connection_broke(self, node_id: int) -> None:
        """The other side ended a connection: where that is the leader, it may be dead."""
        if not self.driver.stopped:
            self.driver.handle(LeaderBroke(node_id))

    def stop(self) -> None:
        """Take no further part; a leader says so to the others."""
        self.driver.stop()

    def close(self) -> None:
        """End the connections, when what was said last has left."""
        self._peers.close()

    def _kraft_versions_of(self, voter: Voter) -> Promise[tuple[int, int]]:
        endpoint = voter.endpoint(self.transport.listener)
        assert endpoint is not None
        request = ApiVersionsRequest(client_software_name="tidelog", client_software_version="raft")
        asked = self.transport.peer_at(voter.key.id, endpoint).ask(request, self.transport.request_timeout_ms)
        return asked.map(_kraft_versions)


def _kraft_versions(response: Any) -> tuple[int, int]:
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            return feature.min_version, feature.max_version
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"it names no {KRAFT_VERSION}")
