"""Who looks at what the nodes of a cluster show: their metadata, who leads the quorum, and the records of topics."""

from typing import TYPE_CHECKING

from tidelog.sim.clients.actor import RETRY_S
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.reader import WholeReader
from tidelog.sim.clients.workloads import only_answer, produce_request
from tidelog.sim.cluster.admins import ANSWER_S, CLIENTS_ADDRESS, SETTING, TOPIC_RESOURCE, ClusterClient
from tidelog.sim.cluster.ledger import KnownTopic
from tidelog.sim.cluster.shape import BROKER_PORT, CONTROLLER_PORT
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.produce import ProduceResponse
from tidelog.wire.record import Record

if TYPE_CHECKING:
    from tidelog.sim.cluster.node import Machine, NodeProcess
    from tidelog.sim.cluster.world import ClusterWorld

LOOK_S = (0.2, 0.9)
RECORDS_A_VISIT = 6
NEWEST = 0.4
"""How often a record goes to the newest topic."""
QUORUM = [RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])]


class Watcher(ClusterClient):
    """Looks at the metadata of one broker, again and again. In one life of it nothing that it showed goes, unless
    somebody asked for that, and nothing that went comes back."""

    def __init__(self, world: "ClusterWorld", broker_id: int, random: SimRandom) -> None:
        self.broker_id = broker_id
        self.newest: MetadataResponse | None = None
        """What it showed last, in its present life."""
        self.settings: dict[str, int | None] = {}
        """Of the topics, as it showed them last."""
        self.shown: dict[str, bytes] = {}
        """The ids of the topics that it showed last, in its present life."""
        self.asked_at = -1.0
        """When that was asked for."""
        self._life: NodeProcess | None = None
        self._gone: set[bytes] = set()
        super().__init__(world, f"watches {broker_id}", random)

    @property
    def machine(self) -> "Machine":
        return self.cluster.machines[self.broker_id]

    @property
    def shown_brokers(self) -> set[int]:
        return set() if self.newest is None else {one.node_id for one in self.newest.brokers}

    def where(self) -> tuple[str, int]:
        return self.machine.address, BROKER_PORT

    def connected(self, connection: ClientConnection) -> None:
        self._ask(connection)

    def _ask(self, connection: ClientConnection) -> None:
        process = self.machine.process
        if process is not self._life:
            self._life = process
            self.shown, self._gone, self.newest = {}, set(), None
        asked_at = self.world.timeline.now

        def answered(response: MetadataResponse) -> None:
            if process is self.machine.process:
                self._saw(response)
                self.asked_at = asked_at
            self.later(self._ask, self.random.between(*LOOK_S))

        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        connection.ask(request, MetadataResponse, 3, 12, answered, ANSWER_S)

    def _saw(self, response: MetadataResponse) -> None:
        ledger, who = self.cluster.ledger, f"node {self.broker_id}"
        shown = {one.name: one.topic_id for one in response.topics if one.name is not None and not one.is_internal}
        ledger.check_names(who, shown)
        for name, topic_id in self.shown.items():
            if shown.get(name) != topic_id:
                self._gone.add(topic_id)
                if not ledger.topics[name].leaving:
                    raise Violation(f"{who} showed topic {name}, {topic_id.hex()}, and shows it no longer")
        back = self._gone.intersection(shown.values())
        if back:
            raise Violation(f"{who} shows topics again that were gone: {sorted(one.hex() for one in back)}")
        self.shown, self.newest = shown, response
        for topic in response.topics:
            known = ledger.topics.get(topic.name or "")
            if known is not None:
                for partition in topic.partitions:
                    known.brokers[partition.partition_index] = partition.replica_nodes[0]
                    if partition.leader_id >= 0:
                        self.cluster.leading[topic.topic_id, partition.partition_index] = partition.leader_id

    def ask_settings(self, topics: list[KnownTopic]) -> bool:
        """Ask for the settings of these; whether it could."""
        if self.connection is None:
            return False

        def answered(response: DescribeConfigsResponse) -> None:
            for result in response.results:
                values = [one.value for one in result.configs if one.name == SETTING and one.config_source == 1]
                self.settings[result.resource_name] = int(values[0]) if values and values[0] else None

        wanted = [
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic.name, configuration_keys=[SETTING]
            )
            for topic in topics
        ]
        self.settings.clear()
        self.connection.ask(
            DescribeConfigsRequest(resources=wanted), DescribeConfigsResponse, 32, 4, answered, ANSWER_S
        )
        return True


class QuorumWatcher(ClusterClient):
    """Asks one controller who leads and votes, again and again; only the leader knows."""

    def __init__(self, world: "ClusterWorld", controller_id: int, random: SimRandom) -> None:
        self.controller_id = controller_id
        self.newest: ResponsePartitionData | None = None
        self.asked_at = -1.0
        """When that was asked for."""
        super().__init__(world, f"asks {controller_id}", random)

    def where(self) -> tuple[str, int]:
        return self.cluster.machines[self.controller_id].address, CONTROLLER_PORT

    def connected(self, connection: ClientConnection) -> None:
        asked_at = self.world.timeline.now

        def answered(response: DescribeQuorumResponse) -> None:
            partition = response.topics[0].partitions[0]
            if partition.error_code == ErrorCode.NONE:
                self.cluster.sights.saw_leader(partition.leader_epoch, partition.leader_id)
                self.newest, self.asked_at = partition, asked_at
            self.later(self.connected, self.random.between(*LOOK_S))

        connection.ask(DescribeQuorumRequest(topics=QUORUM), DescribeQuorumResponse, 55, 2, answered, ANSWER_S)


class Writer(ClusterClient):
    """Writes records, one after the other, to partitions that a broker leads; then it visits another."""

    def __init__(self, world: "ClusterWorld", name: str, random: SimRandom) -> None:
        self.stopped = False
        self._broker = 0
        self._left = 0
        self._written = 0
        super().__init__(world, name, random)

    def where(self) -> tuple[str, int]:
        self._broker = self.random.choose([machine.id for machine in self.cluster.brokers])
        return self.cluster.machines[self._broker].address, BROKER_PORT

    def connected(self, connection: ClientConnection) -> None:
        self._left = RECORDS_A_VISIT
        self.later(self._write, self.random.between(0.0, 0.2))

    def _write(self, connection: ClientConnection) -> None:
        ledger, broker = self.cluster.ledger, self._broker
        places = [
            (topic, index)
            for topic in ledger.topics.values()
            if topic.stays and topic.id is not None
            for index in range(topic.partitions)
            if self.cluster.leading.get((topic.id, index)) == broker
            and (topic.id, index) not in ledger.lost_directories
        ]
        if self.stopped or not places or not self._left:
            self.later(lambda connection: connection.close(), RETRY_S)
            return
        self._left -= 1
        self._written += 1
        topic, index = places[-1] if self.random.chance(NEWEST) else self.random.choose(places)
        value = f"{self.name}:{self._written}".encode()
        encoded = build([Record(timestamp=self.world.timeline.now_ms(), value=value)])
        machine = self.cluster.machines[broker]

        def answered(response: ProduceResponse) -> None:
            answer = only_answer(response)
            same = self.cluster.machines[broker] is machine
            assert topic.id is not None
            if answer.error_code == ErrorCode.NONE and same and (topic.id, index) not in ledger.lost_directories:
                self.world.history.saw_acknowledged(topic.id.hex(), index, answer.base_offset, [value])
            self.later(self._write, self.random.between(0.0, 0.1))

        connection.ask(
            produce_request(topic.name, index, bytes(encoded), -1), ProduceResponse, 0, 9, answered, ANSWER_S
        )


class PartitionReader(WholeReader):
    """Reads a partition whole, from the broker that leads it."""

    ADDRESS = CLIENTS_ADDRESS

    def __init__(self, world: "ClusterWorld", name: str, random: SimRandom, topic: KnownTopic, index: int) -> None:
        assert topic.id is not None
        self._cluster = world
        self._place = topic.id, index
        super().__init__(world, name, random, topic.name, index, known_as=topic.id.hex())

    def where(self) -> tuple[str, int]:
        return self._cluster.machines[self._cluster.leading[self._place]].address, BROKER_PORT
