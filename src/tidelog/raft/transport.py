"""The quorum's effects as requests to other nodes, and their answers as events. Nothing here waits.

Votes are asked for once an election: the timer of the role asks again. A new leader tells each voter until that one
has answered, or until it leads no longer. Whoever answers with a newer epoch, or names a leader, is believed in that,
whatever it was asked for. An observer that knows of no leader asks the voters and the bootstrap servers in turn, with a
fetch, as Kafka's does: whoever doesn't lead says who does.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.raft.driver import RaftDriver
from tidelog.raft.events import (
    NO_LEADER,
    AnnounceEnd,
    AnnounceLeader,
    AskVotes,
    Effect,
    FindLeader,
    Follow,
    LeaderHeard,
    VoteAnswered,
)
from tidelog.raft.peers import Peer, Peers
from tidelog.raft.quorum import Role
from tidelog.raft.requests import (
    Said,
    begin_request,
    believable,
    end_request,
    endpoint_of,
    fetch_request,
    only_partition,
    vote_request,
)
from tidelog.raft.voters import Endpoint, ReplicaKey
from tidelog.wire.errors import ErrorCode, error_name

_logger = logging.getLogger(__name__)

RETRY_BACKOFF_MAX_MS = 1000
FIND_SLOWER_MS = 10
"""Who looks for a leader asks so much later each time."""

_LOOKING = frozenset({Role.UNATTACHED, Role.VOTED, Role.FOLLOWER})


class QuorumTransport:
    """The way from one replica to the others. `driver` is set once both are made, before the driver starts."""

    driver: RaftDriver

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        cluster_id: str,
        listener: str,
        *,
        bootstrap: Sequence[Endpoint] = (),
        request_timeout_ms: int = 2000,
        retry_backoff_ms: int = 20,
    ) -> None:
        self.cluster_id = cluster_id
        self.listener = listener
        self.request_timeout_ms = request_timeout_ms
        self.retry_backoff_ms = max(1, retry_backoff_ms)
        """Until the second try; the next ones come later and later."""
        self.on_follow: Callable[[], None] = lambda: None
        """Called when there is another leader to follow, or it listens elsewhere."""
        self._env = env
        self._peers = peers
        self._bootstrap = bootstrap
        self._turn = 0
        self._finding = False
        self._tries = 0
        self._asked: set[int] = set()
        self._leader: tuple[int, Endpoint] | None = None
        self._told_of_other = False

    # ---- where the others are ----

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens, so far as is known."""
        leader_id = self.driver.leader_id
        if leader_id == self.driver.local.key.id:
            return self.driver.local.endpoint(self.listener)
        if self._leader is not None and self._leader[0] == leader_id:
            return self._leader[1]
        voter = self.driver.voters.get(leader_id)
        return None if voter is None else voter.endpoint(self.listener)

    def leader(self) -> Peer | None:
        """The leader, to be asked; None where nobody else leads, or nobody knows where."""
        leader_id, endpoint = self.driver.leader_id, self.leader_endpoint
        if endpoint is None or leader_id in (NO_LEADER, self.driver.local.key.id):
            return None
        return self._peers.at(leader_id, endpoint.host, endpoint.port)

    def learn(self, leader_id: int, endpoint: Endpoint | None) -> None:
        """The leader listens there: who leads now, or will be heard of right after this."""
        if endpoint is not None and endpoint.host and leader_id not in (NO_LEADER, self.driver.local.key.id):
            self._leader = leader_id, endpoint

    def peer_at(self, voter_id: int, endpoint: Endpoint) -> Peer:
        return self._peers.at(voter_id, endpoint.host, endpoint.port)

    # ---- effects ----

    def send(self, effect: Effect) -> None:
        """What the driver hands on."""
        match effect:
            case AskVotes():
                for id in effect.voter_ids:
                    self._ask_vote(id, effect)
            case AnnounceLeader(epoch, voter_ids):
                for id in voter_ids:
                    self._announce(id, epoch, self.retry_backoff_ms)
            case AnnounceEnd(epoch, voter_ids, successors):
                endpoints = self.driver.local.endpoints
                request = end_request(self.cluster_id, self.driver.local.key.id, epoch, endpoints, successors)
                for id in voter_ids:
                    self._ask(id, lambda _: request, lambda _, response: self._heard(self._said(response)))
            case Follow():
                self._env.loop.call_soon(self.on_follow)  # when the effects behind this one are done too
            case FindLeader():
                self._env.loop.call_soon(self.find_leader)
            case _:
                raise AssertionError(f"{effect} is for nobody else")

    def _ask(
        self,
        voter_id: int,
        make: Callable[[ReplicaKey], Any],
        answered: Callable[[int, Any], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        voter = self.driver.voters.get(voter_id)
        endpoint = None if voter is None else voter.endpoint(self.listener)
        if voter is None or endpoint is None:
            _logger.warning("voter %d is not known to listen anywhere", voter_id)
            return

        def done(promise: Promise[Any]) -> None:
            if self.driver.stopped:
                return
            if promise.error is None:
                answered(voter_id, promise.result())
            else:
                failed()

        asked = self._peers.at(voter_id, endpoint.host, endpoint.port).ask(make(voter.key), self.request_timeout_ms)
        asked.on_done(done)

    def _ask_vote(self, voter_id: int, asked: AskVotes) -> None:
        local = self.driver.quorum.local

        def answered(id: int, response: Any) -> None:
            partition = only_partition(response.topics, lambda one: one.partition_index)
            said = self._said(response)
            if said is None or partition is None or not self._is_sound(said):
                return
            self.learn(said.leader_id, said.endpoint)
            if said.error == ErrorCode.NONE:
                answer = VoteAnswered(id, said.epoch, partition.vote_granted, asked.pre_vote, said.leader_id)
                self.driver.handle(answer)
            elif said.epoch > self.driver.epoch:
                self.driver.handle(LeaderHeard(said.leader_id, said.epoch))

        self._ask(voter_id, lambda voter: vote_request(self.cluster_id, local, voter, asked), answered)

    def _announce(self, voter_id: int, epoch: int, backoff_ms: int) -> None:
        driver = self.driver
        if driver.stopped or driver.epoch != epoch or driver.quorum.role is not Role.LEADER:
            return
        local = driver.local

        def failed() -> None:
            longer_ms = min(2 * backoff_ms, RETRY_BACKOFF_MAX_MS)
            self._later(backoff_ms, lambda: self._announce(voter_id, epoch, longer_ms))

        self._ask(
            voter_id,
            lambda voter: begin_request(self.cluster_id, local.key.id, epoch, local.endpoints, voter),
            lambda _, response: self._heard(self._said(response)),
            failed,
        )

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        spread_ms = delay_ms + self._env.random.random_int(0, delay_ms)
        self._env.loop.call_later(spread_ms / 1000, action)

    # ---- what is heard ----

    def _said(self, response: Any) -> Said | None:
        """What a Vote, BeginQuorumEpoch or EndQuorumEpoch response says of the quorum; None where it says nothing."""
        if response.error_code != ErrorCode.NONE:
            _logger.warning("another voter refuses: %s", error_name(response.error_code))
            return None
        partition = only_partition(response.topics, lambda one: one.partition_index)
        if partition is None:
            return None
        endpoint = endpoint_of(partition.leader_id, response.node_endpoints)
        return Said(partition.error_code, partition.leader_id, partition.leader_epoch, endpoint)

    def _is_sound(self, said: Said) -> bool:
        sound = believable(self.driver.quorum, said.leader_id, said.epoch)
        if not sound:
            _logger.error("an answer names %d as the leader of epoch %d, which can't be", said.leader_id, said.epoch)
        return sound

    def _heard(self, said: Said | None) -> None:
        if said is not None:
            self.hear(said)

    def hear(self, said: Said) -> bool:
        """Take over what an answer says of epoch and leader; whether that was news."""
        driver = self.driver
        if driver.stopped or said.epoch < driver.epoch or not self._is_sound(said):
            return False
        before = driver.epoch, driver.leader_id, self.leader_endpoint
        self.learn(said.leader_id, said.endpoint)
        if (said.leader_id, said.epoch) != (driver.leader_id, driver.epoch):
            driver.handle(LeaderHeard(said.leader_id, said.epoch))
        return (driver.epoch, driver.leader_id, self.leader_endpoint) != before

    # ---- looking for a leader ----

    def find_leader(self) -> None:
        """Ask those who may know, one after the other, until one names a leader or the one that is followed answers.

        Quickly at first: a new leader takes brokers that it doesn't hear of soon for dead. Nobody waits for the answer
        of one who may be dead, and nobody is asked again before.
        """
        if not self._finding:
            self._finding = True
            self._tries = 0
            self._ask_next()

    def found(self) -> None:
        """The leader answered: nobody needs to be looked for."""
        self._finding = False

    def _ask_next(self) -> None:
        driver = self.driver
        places = self._places()
        if not self._finding or driver.stopped or not places or driver.quorum.role not in _LOOKING:
            self._finding = False
            return
        self._tries += 1
        self._later(min(self.retry_backoff_ms + FIND_SLOWER_MS * self._tries, RETRY_BACKOFF_MAX_MS), self._ask_next)
        if driver.durable_end < driver.log_end:  # whoever leads takes what is fetched behind for durable
            return
        self._turn += 1
        node_id, endpoint = places[self._turn % len(places)]
        if node_id in self._asked:
            return
        self._asked.add(node_id)
        request = fetch_request(self.cluster_id, driver.quorum.local, driver.epoch, driver.end, driver.high_watermark)
        request.max_wait_ms = 0

        def done(promise: Promise[Any]) -> None:
            self._asked.discard(node_id)
            if promise.error is not None or driver.stopped:
                return
            said = said_in_fetch(promise.result())
            if said is not None and said.leader_id == driver.local.key.id:
                self._tell_of_other()
            if said is not None and self.hear(said):
                if driver.leader_id != NO_LEADER:
                    self._finding = False
                self.on_follow()

        self._peers.at(node_id, endpoint.host, endpoint.port).ask(request, self.request_timeout_ms).on_done(done)

    def _tell_of_other(self) -> None:
        """Once: the others follow a leader of this node's id, and it isn't this one, which would ask nobody."""
        local = self.driver.local.key
        known = self.driver.voters.get(local.id)
        if self._told_of_other or (known is not None and known.key == local):
            return
        self._told_of_other = True
        _logger.warning(
            "node %d leads the metadata log, the other controllers say, and it is not this process, which has that "
            "node.id, too, on another disk: where both are meant to run, each needs a node.id of its own; where the "
            "other one was killed, another leader is elected within seconds",
            local.id,
        )

    def _places(self) -> list[tuple[int, Endpoint]]:
        """Whom to ask. The bootstrap servers have no ids: they get negative ones, as Kafka gives them."""
        known = [(voter.key.id, voter.endpoint(self.listener)) for voter in self.driver.voters.voters]
        voters = [(id, at) for id, at in known if at is not None and id != self.driver.local.key.id]
        return voters + [(-2 - number, at) for number, at in enumerate(self._bootstrap)]


def said_in_fetch(response: Any) -> Said | None:
    """What a Fetch response says of the quorum; None where it says nothing."""
    if response.error_code != ErrorCode.NONE:
        _logger.warning("the metadata log can't be fetched: %s", error_name(response.error_code))
        return None
    partition = only_partition(response.responses, lambda one: one.partition_index)
    if partition is None:
        return None
    leader = partition.current_leader
    endpoint = endpoint_of(leader.leader_id, response.node_endpoints)
    return Said(partition.error_code, leader.leader_id, leader.leader_epoch, endpoint)
