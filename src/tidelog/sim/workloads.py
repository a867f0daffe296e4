"""What clients do in the simulated world: produce in several ways, consume, ask for offsets.

Each tells the history what it was told. Record values are `<producer>:<number>:<filling>`, so each is known by sight.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from tidelog.sim.checkers import History, Violation
from tidelog.sim.client import ClientConnection
from tidelog.sim.loop import SimLoop, Timeline
from tidelog.sim.network import SimNetwork
from tidelog.sim.random import SimRandom
from tidelog.wire.batch import SEQUENCE_MAX, build, check, iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.record import Record

IN_FLIGHT_MAX = 5
RETRY_S = 0.05


class Place(Protocol):
    """The part of the world that a client lives in."""

    timeline: Timeline
    network: SimNetwork
    history: History

    def note(self, text: str) -> None: ...


class Client:
    """A client with one connection, which it makes anew whenever it is lost."""

    def __init__(self, place: Place, name: str, random: SimRandom) -> None:
        self.place = place
        self.name = name
        self.random = random
        self.loop = SimLoop(place.timeline, random)
        self.connection: ClientConnection | None = None
        self._losses = 0
        self.loop.call_later(random.between(0.0, 0.01), self._connect)

    @property
    def outdated(self) -> bool:
        """Whether an answer that comes now may be from before the page cache was lost."""
        return self._losses != self.place.history.losses

    def _connect(self) -> None:
        self._losses = self.place.history.losses
        self.connection = ClientConnection(self.name, self.loop, self.place.network, self._was_lost)
        self.connected(self.connection)

    def _was_lost(self) -> None:
        self.connection = None
        self.lost()
        self.loop.call_later(self.random.between(0.01, 0.1), self._connect)

    def later(self, callback: Callable[[ClientConnection], None], delay_s: float) -> None:
        """Call back with the connection, unless it is lost until then."""
        connection = self.connection

        def when_it_is_time() -> None:
            if connection is not None and connection is self.connection:
                callback(connection)

        self.loop.call_later(delay_s, when_it_is_time)

    def connected(self, connection: ClientConnection) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """What was awaited won't come."""


@dataclass(slots=True, eq=False)
class Batch:
    """A batch of an idempotent producer, kept until it is acknowledged."""

    sequence: int
    values: list[bytes]
    encoded: bytes
    sends: int = 0


def make_values(random: SimRandom, producer: str, first: int) -> list[bytes]:
    count = 1 if random.chance(0.5) else random.random_int(2, 6)
    filling = random.choose((0, 10, 100, 600)) if random.chance(0.95) else 2500
    return [b"%s:%d:%s" % (producer.encode(), number, b"x" * filling) for number in range(first, first + count)]


def produce_request(topic: str, partition: int, encoded: bytes, acks: int) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(encoded))
    return ProduceRequest(acks=acks, timeout_ms=3000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def offsets_request(topic: str, partition: int, timestamp: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


def only_answer(response: ProduceResponse) -> PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


class IdempotentProducer(Client):
    """acks=all, five batches in flight, resends in order whatever was not acknowledged. Never gives up, never skips."""

    def __init__(self, place: Place, name: str, random: SimRandom, topic: str, partition: int, total: int) -> None:
        self.topic = topic
        self.partition = partition
        self._total = total
        self._made = 0
        self._producer_id = -1
        self._producer_epoch = -1
        self._next_sequence = 0
        self._unacknowledged: deque[Batch] = deque()
        self._unanswered: deque[Batch] = deque()
        self._recovering = False
        self._version = random.random_int(9, 12)
        super().__init__(place, name, random)

    @property
    def done(self) -> bool:
        return self._made >= self._total and not self._unacknowledged

    def connected(self, connection: ClientConnection) -> None:
        if self._producer_id < 0:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            connection.ask(request, InitProducerIdResponse, 22, 4, self._got_id)
        else:
            self._resend()
            self._go_on()

    def _got_id(self, response: InitProducerIdResponse) -> None:
        if response.error_code:
            self.later(self.connected, RETRY_S)
            return
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self.place.note(f"{self.name} is producer {self._producer_id}")
        if self.random.chance(0.3):
            self._next_sequence = SEQUENCE_MAX - self.random.random_int(0, 20)
        self._go_on()

    def lost(self) -> None:
        self._unanswered.clear()

    def _resend(self) -> None:
        """Everything that isn't acknowledged, in order, before anything new."""
        self._recovering = False
        for batch in self._unacknowledged:
            self._send(batch)

    def _go_on(self) -> None:
        """A few batches at once, then a pause."""
        if not self._recovering:
            for _ in range(self.random.random_int(1, IN_FLIGHT_MAX)):
                if self._made < self._total and len(self._unacknowledged) < IN_FLIGHT_MAX:
                    self._send(self._make())
        if self._made < self._total:
            self.later(lambda _: self._go_on(), self.random.between(0.0, 0.1))

    def _make(self) -> Batch:
        values = make_values(self.random, self.name, self._made)
        encoded = build(
            [Record(timestamp=self.place.timeline.now_ms(), value=value) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._next_sequence,
            compression=self.random.choose((0, 0, 1, 2, 3, 4)),
        )
        batch = Batch(self._next_sequence, values, bytes(encoded))
        self._next_sequence = (self._next_sequence + len(values)) & SEQUENCE_MAX
        self._made += len(values)
        self._unacknowledged.append(batch)
        return batch

    def _send(self, batch: Batch) -> None:
        assert self.connection is not None
        batch.sends += 1
        self._unanswered.append(batch)
        request = produce_request(self.topic, self.partition, batch.encoded, -1)
        self.connection.ask(request, ProduceResponse, 0, self._version, self._answered)

    def _answered(self, response: ProduceResponse) -> None:
        batch = self._unanswered.popleft()
        answer = only_answer(response)
        code = ErrorCode(answer.error_code)
        self.place.note(f"{self.name} {batch.sequence}+{len(batch.values)} {code.name} {answer.base_offset}")
        if code == ErrorCode.NONE:
            self.place.history.saw_acknowledged(self.topic, self.partition, answer.base_offset, batch.values)
            self._unacknowledged.remove(batch)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._unacknowledged.remove(batch)
        else:
            if batch is self._unacknowledged[0] and code in FATAL:
                raise Violation(
                    f"{self.topic}-{self.partition}: {self.name} sent sequence {batch.sequence} ({batch.sends} times), "
                    f"all before it was acknowledged, and got {code.name}: {answer.error_message}"
                )
            self._recovering = True
        if self._recovering and not self._unanswered:
            self.later(lambda _: self._resend(), self.random.between(0.5, 2.0) * RETRY_S)


FATAL = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class PlainProducer(Client):
    """acks=0 or 1, no idempotence, nothing is ever sent again: a lost record is a number that is missing."""

    def __init__(self, place: Place, name: str, random: SimRandom, topic: str, partition: int, acks: int) -> None:
        self.topic = topic
        self.partition = partition
        self._acks = acks
        self._made = 0
        self._unanswered: deque[list[bytes]] = deque()
        self._version = random.random_int(9, 12)
        self.stopped = False
        super().__init__(place, name, random)

    def connected(self, connection: ClientConnection) -> None:
        if self.stopped:
            return
        values = make_values(self.random, self.name, self._made)
        self._made += len(values)
        now_ms = self.place.timeline.now_ms()
        encoded = build([Record(timestamp=now_ms, key=b"k", value=value) for value in values])
        request = produce_request(self.topic, self.partition, bytes(encoded), self._acks)
        if self._acks:
            self._unanswered.append(values)
            connection.ask(request, ProduceResponse, 0, self._version, self._answered)
        else:
            connection.tell(request, self._version)
        self.later(self.connected, self.random.between(0.0, 0.1))

    def lost(self) -> None:
        self._unanswered.clear()

    def _answered(self, response: ProduceResponse) -> None:
        values = self._unanswered.popleft()
        answer = only_answer(response)
        self.place.note(f"{self.name} {len(values)} {answer.error_code} {answer.base_offset}")
        if not answer.error_code and not self.outdated:
            self.place.history.saw_written(self.topic, self.partition, answer.base_offset, values)


class Consumer(Client):
    """Fetches one partition from somewhere, without a gap, and now and then goes back to look again.

    Where the partition was in memory and its records are gone, it goes on at the log's start.
    """

    def __init__(self, place: Place, name: str, random: SimRandom, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self._position = 0
        self._floor = 0
        self._astray = False
        super().__init__(place, name, random)

    def connected(self, connection: ClientConnection) -> None:
        if self._astray:
            request = offsets_request(self.topic, self.partition, -2)
            connection.ask(request, ListOffsetsResponse, 2, 7, self._got_start)
            return
        known = self.place.history.of(self.topic, self.partition)
        self._floor = known.end
        if self._position > known.end or self.random.chance(0.1):
            self._position = self.random.random_int(0, known.end)
        asked = FetchPartition(
            partition=self.partition,
            fetch_offset=self._position,
            partition_max_bytes=self.random.choose((1, 200, 5000, 1 << 20)),
        )
        request = FetchRequest(
            max_wait_ms=self.random.choose((0, 50, 200)),
            min_bytes=self.random.choose((0, 1, 500)),
            max_bytes=1 << 20,
            topics=[FetchTopic(topic=self.topic, partitions=[asked])],
        )
        connection.ask(request, FetchResponse, 1, 12, self._answered)

    def _got_start(self, response: ListOffsetsResponse) -> None:
        found = response.topics[0].partitions[0]
        if not found.error_code:
            self._astray = False
            self._position = found.offset
            self.place.history.saw_end(self.topic, self.partition, found.offset, 0, "ListOffsets -2")
        self.later(self.connected, RETRY_S)

    def _answered(self, response: FetchResponse) -> None:
        if response.responses:
            data = response.responses[0].partitions[0]
            self.place.note(f"{self.name} at {self._position}: {data.error_code} {data.high_watermark}")
            self._look_at(data)
        self.later(self.connected, self.random.between(0.0, 0.05))

    def _look_at(self, data: PartitionData) -> None:
        history = self.place.history
        if self.outdated and self.topic in history.powerless:
            return
        where = f"{self.topic}-{self.partition}"
        if data.error_code:
            code = ErrorCode(data.error_code)
            if code == ErrorCode.OFFSET_OUT_OF_RANGE and self.topic in history.forgetful:
                self._astray = True
            elif code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE):
                raise Violation(f"{where} answered {code.name} to a fetch at {self._position}; {self._floor} was shown")
            return
        history.saw_end(self.topic, self.partition, data.high_watermark, self._floor, "Fetch")
        for offset, value in read_batches(where, data):
            if offset < self._position:
                history.saw_fetched(self.topic, self.partition, offset, value)
                continue
            if offset > self._position:
                raise Violation(f"{where} skipped from {self._position} to {offset}")
            if offset >= data.high_watermark:
                raise Violation(f"{where} showed offset {offset}, not below its high watermark {data.high_watermark}")
            history.saw_fetched(self.topic, self.partition, offset, value)
            self._position = offset + 1


def fetched_bytes(data: PartitionData) -> bytes:
    """The batches of an answer that came over the network: bytes, never a slice of a log."""
    return bytes(cast(memoryview, data.records)) if data.records is not None else b""


def read_batches(where: str, data: PartitionData) -> list[tuple[int, bytes]]:
    """(offset, value) of every record in the whole batches of a fetch; what is wrong with one is a violation."""
    found: list[tuple[int, bytes]] = []
    buffer = fetched_bytes(data)
    try:
        for header in iterate(buffer):
            check(buffer, header, len(buffer))
            found += [(record.offset, record.value or b"") for record in records(buffer, header)]
    except KafkaError as error:
        raise Violation(f"{where} gave a batch that can't be read: {error.message}") from None
    return found


class OffsetAsker(Client):
    """Asks for the ends of a partition: what it is told counts as shown."""

    def __init__(self, place: Place, name: str, random: SimRandom, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self._floor = 0
        self._timestamp = -1
        super().__init__(place, name, random)

    def connected(self, connection: ClientConnection) -> None:
        self._floor = self.place.history.of(self.topic, self.partition).end
        self._timestamp = self.random.choose((-1, -1, -2, -3))
        request = offsets_request(self.topic, self.partition, self._timestamp)
        connection.ask(request, ListOffsetsResponse, 2, 7, self._answered)

    def _answered(self, response: ListOffsetsResponse) -> None:
        found = response.topics[0].partitions[0]
        self.place.note(f"{self.name} {self._timestamp}: {found.error_code} {found.offset}")
        history = self.place.history
        if not found.error_code and not (self.outdated and self.topic in history.powerless):
            where = f"{self.topic}-{self.partition}"
            if self._timestamp == -1:
                history.saw_end(self.topic, self.partition, found.offset, self._floor, "ListOffsets")
            elif self._timestamp == -2 and found.offset and self.topic not in history.forgetful:
                raise Violation(f"{where} starts at {found.offset}, though nothing was deleted")
            elif self._timestamp == -3 and found.offset >= 0:
                history.saw_end(self.topic, self.partition, found.offset + 1, 0, "ListOffsets -3")
        self.later(self.connected, self.random.between(0.02, 0.3))
