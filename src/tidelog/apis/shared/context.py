"""What a handler is given: the broker's parts, and who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.coordinator.placement import TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.apis.fetch.replica_session import ReplicaSessions
    from tidelog.apis.fetch.sessions import FetchSessions
    from tidelog.apis.shared.controller_channel import ControllerChannel
    from tidelog.apis.shared.deadlines import Deadlines
    from tidelog.apis.shared.producer_ids import ProducerIds
    from tidelog.config.broker import BrokerConfig
    from tidelog.controller.controller import Controller
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.txn.coordinator import TransactionCoordinator
    from tidelog.env import Environment
    from tidelog.log.store import Store
    from tidelog.metadata.follow import Follower
    from tidelog.raft.driver import RaftDriver
    from tidelog.raft.node import RaftNode
    from tidelog.replica.replicas import Replicas


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener as clients are told of it."""

    name: str
    host: str
    port: int
    security_protocol: int = 0  # Kafka's id: 0 is PLAINTEXT


@dataclass(slots=True)
class Services:
    """The broker's parts, wired once by `tidelog.broker`. Handlers read them; none is replaced while it runs."""

    node_id: int
    cluster_id: str
    directory_id: bytes
    config: BrokerConfig
    env: Environment
    metadata: Follower
    controller: Controller
    channel: ControllerChannel
    """To the active controller, here or elsewhere, with what clients ask for."""
    own_channel: ControllerChannel
    """The same with what this node asks for itself."""
    producer_ids: ProducerIds
    replicas: Replicas
    store: Store
    quorum: RaftDriver
    raft: RaftNode
    """What connects `quorum` to the other replicas of the metadata log."""
    fetch_sessions: FetchSessions
    replica_sessions: ReplicaSessions
    deadlines: Deadlines
    endpoints: dict[str, Endpoint]
    groups: GroupCoordinator
    make_transactions: Callable[[], TransactionCoordinator]
    facts: Callable[[], dict[str, str]] = dict
    """What it knows of itself, by name (broker_facts.py)."""
    _transactions: TransactionCoordinator | None = None

    @property
    def transactions(self) -> TransactionCoordinator:
        """Made when first asked for: a broker without transactions starts without importing them."""
        if self._transactions is None:
            self._transactions = self.make_transactions()
        return self._transactions

    def load_transactions(self) -> None:
        """Load, in the background, what there is of them."""
        if TRANSACTION_STATE in self.metadata.image.topics:
            self.transactions.shards.load_rest()

    def close_coordinators(self) -> None:
        """The broker stops: nothing is decided any more."""
        self.groups.shards.close()
        if self._transactions is not None:
            self._transactions.close()


@dataclass(slots=True)
class Context:
    """Who asks, over which listener, in which version."""

    services: Services
    version: int
    client_id: str | None
    client_host: str
    listener: str
    connection_id: int
    correlation_id: int
