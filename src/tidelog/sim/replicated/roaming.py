"""A client of the whole cluster: it finds leaders and coordinators, with a connection to each broker that it needs.

It believes the newest leader epoch that it was told, as Kafka's clients do, and looks anew after every error.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.cluster.admins import CLIENTS_ADDRESS
from tidelog.sim.cluster.shape import BROKER_PORT
from tidelog.sim.world.loop import SimLoop
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.sim.cluster.world import ClusterWorld
    from tidelog.sim.world.random import SimRandom
    from tidelog.wire.topic_partition import TopicPartition

T = TypeVar("T")

ANSWER_S = 3.0
AGAIN_S = (0.02, 0.15)
"""So long it waits after an error."""

Address = tuple[str, int]


class Led(NamedTuple):
    """Who leads a partition, and since which epoch."""

    broker_id: int
    at: Address
    epoch: int


class Lane:
    """A connection to one broker. Whoever awaits an answer is told None where it is lost."""

    def __init__(self, client: RoamingClient, to: Address) -> None:
        self._awaited: deque[Callable[[Any], None]] = deque()
        self._gone: Callable[[], None] = lambda: client.forget(to)
        self.connection = ClientConnection(
            client.name, client.loop, client.world.network, self._lost, to, CLIENTS_ADDRESS
        )

    def ask(
        self, request: object, response: type[T], key: int, version: int, answered: Callable[[T | None], None]
    ) -> None:
        self._awaited.append(answered)

        def came(answer: T) -> None:
            self._awaited.popleft()
            answered(answer)

        self.connection.ask(request, response, key, version, came, ANSWER_S)

    def _lost(self) -> None:
        self._gone()
        awaited = list(self._awaited)
        self._awaited.clear()
        for answered in awaited:
            answered(None)


class RoamingClient:
    def __init__(self, world: ClusterWorld, name: str, random: SimRandom) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.loop = SimLoop(world.timeline, random)
        self.stopped = False
        self._lanes: dict[Address, Lane] = {}
        self._leaders: dict[TopicPartition, Led] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self.loop.call_later(random.between(0.0, 0.01), self.begin)

    def begin(self) -> None:
        """Begin to talk."""

    def forget(self, to: Address) -> None:
        """The connection is lost."""
        self._lanes.pop(to, None)

    def later(self, what: Callable[[], None], range_s: tuple[float, float] = AGAIN_S) -> None:
        self.loop.call_later(self.random.between(*range_s), what)

    # -- asking

    def ask(
        self,
        to: Address,
        request: object,
        response: type[T],
        key: int,
        version: int,
        answered: Callable[[T | None], None],
    ) -> None:
        lane = self._lanes.get(to)
        if lane is None:
            lane = self._lanes[to] = Lane(self, to)
        lane.ask(request, response, key, version, answered)

    def ask_any(
        self, request: object, response: type[T], key: int, version: int, answered: Callable[[T | None], None]
    ) -> None:
        """Ask a broker that is up, if one is."""
        brokers = [machine for machine in self.world.brokers if machine.ready] or self.world.brokers
        self.ask((self.random.choose(brokers).address, BROKER_PORT), request, response, key, version, answered)

    # -- who leads

    def led(self, place: TopicPartition) -> Led | None:
        """Who leads, as far as it knows."""
        return self._leaders.get(place)

    def look(self, place: TopicPartition, then: Callable[[], None]) -> None:
        """Ask a broker who leads, and go on, whatever came of that."""
        topic, _ = place

        def answered(response: MetadataResponse | None) -> None:
            if response is not None:
                self._learn(response)
            then()

        self._leaders.pop(place, None)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        self.ask_any(request, MetadataResponse, 3, 12, answered)

    def _learn(self, response: MetadataResponse) -> None:
        addresses = {one.node_id: (one.host, one.port) for one in response.brokers}
        for topic in response.topics:
            for partition in topic.partitions:
                place = (topic.name or "", partition.partition_index)
                if partition.leader_epoch < self._epochs.get(place, 0):
                    continue
                self._epochs[place] = partition.leader_epoch
                at = addresses.get(partition.leader_id)
                if at is None:
                    self._leaders.pop(place, None)
                else:
                    self._leaders[place] = Led(partition.leader_id, at, partition.leader_epoch)

    # -- who coordinates

    def find(self, key: str, kind: int, then: Callable[[Address | None], None]) -> None:
        """The coordinator of a group (0) or a transactional id (1); None: nobody knows one."""

        def answered(response: FindCoordinatorResponse | None) -> None:
            found = None if response is None else response.coordinators[0]
            then(None if found is None or found.error_code else (found.host, found.port))

        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        self.ask_any(request, FindCoordinatorResponse, 10, 4, answered)
