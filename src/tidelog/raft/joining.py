"""A replica tells the leader what the log should say of it: where it listens, or that it wants to vote.

Looked at once in each fetch timeout, while somebody is followed. A voter whose entry is out of date asks for
UpdateRaftVoter. A controller that is no voter, and is to join by itself (`controller.quorum.auto.join.enable`), asks to
be added; where the log names its id with another directory, a disk that it lost, it asks for that one to be removed
first.
"""

import logging
from functools import partial
from typing import Any

from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.raft.control import KRAFT_VERSION_MAX
from tidelog.raft.driver import RaftDriver
from tidelog.raft.quorum import Role
from tidelog.raft.transport import QuorumTransport
from tidelog.wire.errors import ErrorCode, error_name
from tidelog.wire.messages import add_raft_voter, remove_raft_voter, update_raft_voter

_logger = logging.getLogger(__name__)


class Joining:
    """One replica's requests to be a voter, and to be one that is reached."""

    def __init__(
        self, env: Environment, driver: RaftDriver, transport: QuorumTransport, period_ms: int, *, auto_join: bool
    ) -> None:
        self._env = env
        self._driver = driver
        self._transport = transport
        self._period_ms = period_ms
        self._auto_join = auto_join
        self._asking = False

    def start(self) -> None:
        delay_ms = self._period_ms + self._env.random.random_int(0, self._period_ms // 4)
        self._env.loop.call_later(delay_ms / 1000, self._look)

    def _look(self) -> None:
        if self._driver.stopped:
            return
        self.start()
        peer = self._transport.leader()
        request = self.request()
        if request is None or peer is None or self._asking:
            return
        self._asking = True
        peer.ask(request, self._transport.request_timeout_ms).on_done(partial(self._answered, _told_as(request)))

    def _answered(self, what: str, promise: Promise[Any]) -> None:
        self._asking = False
        if promise.error is not None:
            return
        response = promise.result()
        if response.error_code == ErrorCode.NONE:
            _logger.info("the quorum's leader agrees: node %d %s", self._driver.local.key.id, what)
        else:
            reason = getattr(response, "error_message", None) or ""
            _logger.info("the quorum's leader refuses for now: %s %s", error_name(response.error_code), reason)

    def request(self) -> Any | None:
        """What is to be asked of the leader now, if anything."""
        driver, local = self._driver, self._driver.local
        if driver.quorum.role is not Role.FOLLOWER or driver.kraft_version < 1:
            return None
        known = driver.voters.get(local.key.id)
        if known is not None and known.key == local.key:
            return None if known == local else self._update()
        if not self._auto_join:
            return None
        if known is not None:
            return remove_raft_voter.RemoveRaftVoterRequest(
                cluster_id=self._transport.cluster_id,
                voter_id=known.key.id,
                voter_directory_id=known.key.directory_id,
            )
        return add_raft_voter.AddRaftVoterRequest(
            cluster_id=self._transport.cluster_id,
            timeout_ms=self._transport.request_timeout_ms,
            voter_id=local.key.id,
            voter_directory_id=local.key.directory_id,
            listeners=[add_raft_voter.Listener(name=e.name, host=e.host, port=e.port) for e in local.endpoints],
            ack_when_committed=False,
        )

    def _update(self) -> update_raft_voter.UpdateRaftVoterRequest:
        local = self._driver.local
        return update_raft_voter.UpdateRaftVoterRequest(
            cluster_id=self._transport.cluster_id,
            current_leader_epoch=self._driver.epoch,
            voter_id=local.key.id,
            voter_directory_id=local.key.directory_id,
            listeners=[update_raft_voter.Listener(name=e.name, host=e.host, port=e.port) for e in local.endpoints],
            kraft_version_feature=update_raft_voter.KRaftVersionFeature(
                min_supported_version=0, max_supported_version=KRAFT_VERSION_MAX
            ),
        )


def _told_as(request: object) -> str:
    match request:
        case add_raft_voter.AddRaftVoterRequest():
            return "is a voter"
        case remove_raft_voter.RemoveRaftVoterRequest():
            return "votes no more from the disk that it lost"
        case _:
            return "is reached where it listens now"
