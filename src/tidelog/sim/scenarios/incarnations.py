"""A topic that is deleted and made again under its name: whose records are whose.

Each life of the topic has its id. The history knows it by that id, and each record says which one it was sent to.
"""

from dataclasses import dataclass

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.watchers import fetched_bytes
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import build, iterate, records
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.record import Record
from tidelog.wire.uuids import ZERO_UUID

NAME = "phoenix"
PARTITIONS = 2
BY_ID = 13


@dataclass(slots=True)
class Life:
    """One topic of the name. `leaving`: someone asked to delete it; `gone`: that was answered."""

    id: bytes
    leaving: bool = False
    gone: bool = False

    @property
    def name(self) -> str:
        return self.id.hex()


class Recreator(Client):
    """Makes the topic, deletes it after a while, and makes it again. `turns`: how often the name changed hands.

    `held`: requests are under way that name the topic, so that it had better stay for now.
    """

    def __init__(self, world: ClientWorld, random: SimRandom) -> None:
        self.life: Life | None = None
        self.lives: list[Life] = []
        self.turns = 0
        self.held = 0
        self.stopped = False
        self._powerless = False
        super().__init__(world, "recreates", random)

    def connected(self, connection: ClientConnection) -> None:
        """Whether the last request was carried out isn't known: look."""
        wanted = [MetadataRequestTopic(name=NAME)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        connection.ask(request, MetadataResponse, 3, 12, self._looked)

    def _looked(self, response: MetadataResponse) -> None:
        topic = response.topics[0]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._gone()
            self._create()
        elif topic.error_code:
            self.later(self.connected, RETRY_S)
        else:
            self._saw_id(topic.topic_id)

    def _saw_id(self, id: bytes) -> None:
        life = self.life
        if life is None or life.id != id:
            if life is not None and not life.leaving:
                raise Violation(f"{NAME} was {life.name} and is {id.hex()} now, though nobody deleted it")
            self._gone()
            if self._powerless:
                self.world.history.powerless |= {id.hex()}
            self._powerless = False
            self.life = Life(id)
            self.lives.append(self.life)
            self.turns += 1
            self.world.note(f"{NAME} is {id.hex()}")
        self.later(lambda _: self._delete(), self.random.between(0.05, 1.5))

    def _gone(self) -> None:
        if self.life is not None:
            if not self.life.leaving:
                raise Violation(f"{NAME}, {self.life.name}, is gone, though nobody deleted it")
            self.life.gone = True
            self.turns += 1
            self.world.note(f"{self.life.name} is gone")
        self.life = None

    def _create(self) -> None:
        assert self.connection is not None
        configs = {
            "internal.segment.bytes": str(self.random.choose((20_000, 1 << 20))),
            "file.delete.delay.ms": self.random.choose(("0", "100", "60000")),
            "tidelog.durability": self.random.choose(("fsync", "fsync", "os")),
        }
        topic = CreatableTopic(
            name=NAME,
            num_partitions=PARTITIONS,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        self._powerless = self._powerless or configs["tidelog.durability"] == "os"  # any may be carried out in the end
        self.connection.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 19, 7, self._created)

    def _created(self, response: CreateTopicsResponse) -> None:
        answer = response.topics[0]
        self.world.note(f"{NAME} is to be: {answer.error_code}")
        if answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            raise Violation(f"CreateTopics answered {answer}")
        if not answer.error_code:
            self._saw_id(answer.topic_id)
        else:
            self.later(self.connected, RETRY_S)

    def _delete(self) -> None:
        life = self.life
        if self.held or life is None or self.connection is None or (self.stopped and not life.leaving):
            self.later(lambda _: self._delete(), 0.05)
            return
        life.leaving = True
        by_id = self.random.chance(0.5)
        state = DeleteTopicState(name=None if by_id else NAME, topic_id=life.id if by_id else ZERO_UUID)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=3000)
        self.world.note(f"{life.name} is to go")
        self.connection.ask(request, DeleteTopicsResponse, 20, 6, self._deleted)

    def _deleted(self, response: DeleteTopicsResponse) -> None:
        code = ErrorCode(response.responses[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._gone()
            self.later(lambda _: self._create(), self.random.choose((0.0, 0.0, 0.02, 0.3)))
        else:
            self.later(self.connected, RETRY_S)


class IdProducer(Client):
    """Idempotent, acks=all, to the topic's present id (Produce 13); again until it is answered, or the topic is gone.

    In each life of the topic it counts its records, and its sequence, from 0: no gap, none twice.
    """

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: Recreator, partition: int) -> None:
        self.stopped = False
        self.partition = partition
        self._topic = topic
        self._life: Life | None = None
        self._producer = (-1, -1)
        self._made = self._sequence = 0
        self._values: list[bytes] = []
        super().__init__(world, name, random)

    def label(self, life: Life) -> str:
        """What its records in this life of the topic begin with."""
        return f"{self.name}-{life.name}"

    @property
    def idle(self) -> bool:
        return not self._values

    def connected(self, connection: ClientConnection) -> None:
        life = self._topic.life
        if self._producer[0] < 0:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            connection.ask(request, InitProducerIdResponse, 22, 4, self._initialised)
        elif life is None or (self.stopped and not self._values):
            self.later(self.connected, RETRY_S)
        else:
            if life is not self._life:
                self._life, self._made, self._sequence, self._values = life, 0, 0, []
            if not self._values:
                count = self.random.choose((1, 1, 3))
                self._values = [f"{self.label(life)}:{self._made + n}:".encode() for n in range(count)]
                self._made += count
            self._send(connection, life)

    def _initialised(self, response: InitProducerIdResponse) -> None:
        if not response.error_code:
            self._producer = response.producer_id, response.producer_epoch
            self._sequence = 0
        self.later(self.connected, RETRY_S)

    def _send(self, connection: ClientConnection, life: Life) -> None:
        encoded = build(
            [Record(timestamp=self.world.timeline.now_ms(), value=value) for value in self._values],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequence,
        )
        data = PartitionProduceData(index=self.partition, records=memoryview(encoded))
        topic = TopicProduceData(topic_id=life.id, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[topic])
        gone, values = life.gone, self._values

        def answered(response: ProduceResponse) -> None:
            answer = response.responses[0].partition_responses[0]
            self._answered(life, ErrorCode(answer.error_code), answer.base_offset, values, gone=gone)

        connection.ask(request, ProduceResponse, 0, BY_ID, answered)

    def _answered(self, life: Life, code: ErrorCode, base_offset: int, values: list[bytes], *, gone: bool) -> None:
        where, history = f"{life.name}-{self.partition}", self.world.history
        self.world.note(f"{self.name} {len(values)} to {where}: {code.name} {base_offset}")
        powerless = life.name in history.powerless
        if code == ErrorCode.UNKNOWN_SERVER_ERROR or (code == ErrorCode.UNKNOWN_TOPIC_ID and not life.leaving):
            raise Violation(f"{where} answered {code.name} to Produce")
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if gone:
                raise Violation(f"{where} took records after it was deleted")
            if code == ErrorCode.NONE and not (self.outdated and powerless):
                history.saw_acknowledged(life.name, self.partition, base_offset, values)
            self._values = []
            self._sequence += len(values)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if not powerless:
                raise Violation(f"{where} answered {code.name} to {self.name}'s sequence {self._sequence}")
            self._producer = -1, -1  # what came before it went with the page cache
        self.later(self.connected, self.random.between(0.0, 0.08))


class NameConsumer(Client):
    """Fetches by name (Fetch 12), from the start each time: what it gets is of the topic that has the name."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: Recreator, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        life, turns = self._topic.life, self._topic.turns
        asked = FetchPartition(partition=self._partition, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=NAME, partitions=[asked])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)

        def answered(response: FetchResponse) -> None:
            data = response.responses[0].partitions[0]
            if not data.error_code and life is not None and turns == self._topic.turns and not life.leaving:
                self._compare(life, fetched_bytes(data))
            self.later(self.connected, self.random.between(0.01, 0.2))

        connection.ask(request, FetchResponse, 1, 12, answered)

    def _compare(self, life: Life, buffer: bytes) -> None:
        for header in iterate(buffer):
            for record in records(buffer, header):
                value = record.value or b""
                if life.name.encode() not in value:
                    raise Violation(f"{NAME}-{self._partition} is {life.name}, but offset {record.offset} is {value!r}")
