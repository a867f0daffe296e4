"""Who changes the cluster's metadata through whichever broker answers, and remembers what was acknowledged."""

from typing import TYPE_CHECKING

from tidelog.sim.clients.actor import RETRY_S, Client
from tidelog.sim.clients.connection import HERE, ClientConnection
from tidelog.sim.cluster.ledger import KnownTopic
from tidelog.sim.cluster.shape import BROKER_PORT
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.sim.cluster.world import ClusterWorld

CLIENTS_ADDRESS = "10.0.1.1"
TOPIC_RESOURCE = 2
SETTING = "retention.ms"
FIRST_VALUE = 1_000_000
TIMEOUT_MS = 1500
ANSWER_S = 2.5
"""Longer than a broker waits for the controller: it answers, or its connection is given up."""
AT_ONCE_S = 0.25
"""What was answered later may have been sent on twice by the broker, and come to the controller again at any time."""
PAUSE_S = (0.0, 0.25)
KEPT_MAX = 8

UNSURE = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,  # a broker that got no answer of a controller
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.TOPIC_ALREADY_EXISTS,  # a broker asked twice, and the first time it was done
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICATION_FACTOR,  # no broker is let in
        ErrorCode.BROKER_NOT_AVAILABLE,
    )
)
"""Answers that say that it isn't done, or that it isn't known whether it is."""


class ClusterClient(Client):
    """A client that connects to one broker after another."""

    ADDRESS = CLIENTS_ADDRESS

    def __init__(self, world: "ClusterWorld", name: str, random: SimRandom) -> None:
        self.cluster = world
        super().__init__(world, name, random)

    def where(self) -> tuple[str, int]:
        brokers = [machine for machine in self.cluster.brokers if machine.ready] or self.cluster.brokers
        return (self.random.choose(brokers).address, BROKER_PORT) if brokers else HERE


class Admin(ClusterClient):
    """Makes topics, deletes some of them, changes a setting of others; one thing at a time."""

    def __init__(self, world: "ClusterWorld", name: str, random: SimRandom, *, replicas: int = 1) -> None:
        self.stopped = False
        self._replicas = replicas
        self.changes = 0
        """How many were acknowledged."""
        self._made = 0
        self._next_value = FIRST_VALUE
        self._own: list[KnownTopic] = []
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        self.later(self._change, self.random.between(*PAUSE_S))

    def _go_on(self) -> None:
        if self.random.chance(0.15):  # the next one through another broker
            assert self.connection is not None
            self.connection.close()
        else:
            self.later(self._change, self.random.between(*PAUSE_S))

    def _change(self, connection: ClientConnection) -> None:
        if self.stopped:
            self.later(self._change, RETRY_S)
            return
        kept = [topic for topic in self._own if topic.stays]
        draw = self.random.random_int(0, 99)
        if kept and (draw < 20 or len(kept) > KEPT_MAX):
            self._delete(connection, self.random.choose(kept))
        elif kept and draw < 50:
            self._alter(connection, self.random.choose(kept))
        else:
            self._create(connection)

    def _create(self, connection: ClientConnection) -> None:
        name, partitions = f"{self.name}-{self._made}", self.random.random_int(1, 2)
        self._made += 1
        topic = self.cluster.ledger.asked(name, partitions)

        def answered(response: CreateTopicsResponse) -> None:
            result = response.topics[0]
            if self._is_done(f"{name} is made", result.error_code, result.error_message):
                self.cluster.ledger.created(topic, result.topic_id)
                self._own.append(topic)
            self._go_on()

        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=self._replicas)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
        connection.ask(request, CreateTopicsResponse, 19, 7, answered, ANSWER_S)

    def _delete(self, connection: ClientConnection, topic: KnownTopic) -> None:
        topic.leaving = True

        def answered(response: DeleteTopicsResponse) -> None:
            result = response.responses[0]
            if self._is_done(f"{topic.name} is deleted", result.error_code, result.error_message):
                self.cluster.ledger.deleted(topic)
            self._go_on()

        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=TIMEOUT_MS)
        connection.ask(request, DeleteTopicsResponse, 20, 6, answered, ANSWER_S)

    def _alter(self, connection: ClientConnection, topic: KnownTopic) -> None:
        self._next_value += 1
        value = self._next_value
        topic.doubtful_values.add(value)
        asked = self.world.timeline.now

        def answered(response: IncrementalAlterConfigsResponse) -> None:
            result = response.responses[0]
            if self._is_done(f"{topic.name} has {value}", result.error_code, result.error_message):
                self.cluster.ledger.altered(topic, value)
                if self.world.timeline.now - asked < AT_ONCE_S:
                    topic.doubtful_values.discard(value)
            self._go_on()

        config = AlterableConfig(name=SETTING, config_operation=0, value=str(value))
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        connection.ask(request, IncrementalAlterConfigsResponse, 44, 1, answered, ANSWER_S)

    def _is_done(self, what: str, code: int, message: str | None) -> bool:
        self.world.note(f"{self.name}: {what}: {ErrorCode(code).name}")
        if code == ErrorCode.NONE:
            self.changes += 1
            return True
        if code not in UNSURE:
            raise Violation(f"{what}: the answer was {ErrorCode(code).name}: {message}")
        return False
