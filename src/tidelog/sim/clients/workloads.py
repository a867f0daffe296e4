"""What producers do in the simulated world: idempotent ones that resend until all is acknowledged, and plain ones.

Each tells the history what it was told. Record values are `<producer>:<number>:<filling>`, so each is known by sight.
"""

from collections import deque
from dataclasses import dataclass

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import SEQUENCE_MAX, build
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.record import Record

IN_FLIGHT_MAX = 5
LARGE_BYTES = 15_000


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
    if count == 1 and random.chance(0.1):
        filling = LARGE_BYTES  # so that a fetch has enough for sendfile
    return [b"%s:%d:%s" % (producer.encode(), number, b"x" * filling) for number in range(first, first + count)]


def identity(record: Record) -> bytes:
    """What a record is known by: a header, if it has one, since a tombstone has no value."""
    return (record.headers[0][1] if record.headers else record.value) or b""


def produce_request(topic: str, partition: int, encoded: bytes, acks: int) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(encoded))
    return ProduceRequest(acks=acks, timeout_ms=3000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def only_answer(response: ProduceResponse) -> PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


class IdempotentProducer(Client):
    """acks=all, five batches in flight, resends in order whatever was not acknowledged. Never gives up, never skips.

    Now and then, when all is acknowledged, it is another producer, which the log has never seen. `pause_s` is how long
    it may rest between a few batches and the next.
    """

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        random: SimRandom,
        topic: str,
        partition: int,
        total: int,
        pause_s: float = 0.1,
    ) -> None:
        self._pause_s = pause_s
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
        super().__init__(world, name, random)

    @property
    def done(self) -> bool:
        return self._made >= self._total and not self._unacknowledged

    def enough(self) -> None:
        """No more records are made than were so far."""
        self._total = self._made

    @property
    def made(self) -> int:
        """How many records it has sent, numbered from 0."""
        return self._made

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
        self.world.note(f"{self.name} is producer {self._producer_id}")
        self._next_sequence = SEQUENCE_MAX - self.random.random_int(0, 20) if self.random.chance(0.3) else 0
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
        if not self._unacknowledged and self._made and self.random.chance(0.3):
            self._producer_id = -1
            self.later(self.connected, 0.0)
            return
        if not self._recovering:
            for _ in range(self.random.random_int(1, IN_FLIGHT_MAX)):
                if self._made < self._total and len(self._unacknowledged) < IN_FLIGHT_MAX:
                    self._send(self._make())
        if self._made < self._total:
            self.later(lambda _: self._go_on(), self.random.between(0.0, self._pause_s))

    def make_records(self, first: int) -> list[Record]:
        """The next ones, numbered from `first` on."""
        values = make_values(self.random, self.name, first)
        return [Record(timestamp=self.world.timeline.now_ms(), value=value) for value in values]

    def acknowledged(self, batch: Batch) -> None:
        """A batch is in the log for good."""

    def _make(self) -> Batch:
        made = self.make_records(self._made)
        values = [identity(record) for record in made]
        encoded = build(
            made,
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
        self.world.note(f"{self.name} {batch.sequence}+{len(batch.values)} {code.name} {answer.base_offset}")
        if code == ErrorCode.NONE:
            self.world.history.saw_acknowledged(self.topic, self.partition, answer.base_offset, batch.values)
            self._unacknowledged.remove(batch)
            self.acknowledged(batch)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._unacknowledged.remove(batch)
            self.acknowledged(batch)
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
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""What no broker may answer to a batch that is next in order, to a topic that was made."""


class PlainProducer(Client):
    """acks=0 or 1, no idempotence, nothing is ever sent again: a lost record is a number that is missing."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int, acks: int) -> None:
        self.topic = topic
        self.partition = partition
        self._acks = acks
        self._made = 0
        self._unanswered: deque[list[bytes]] = deque()
        self._version = random.random_int(9, 12)
        self.connections: list[int] = []
        """The first number that was sent on each connection but the first."""
        self.stopped = False
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        if self.stopped:
            return
        values = make_values(self.random, self.name, self._made)
        self._made += len(values)
        now_ms = self.world.timeline.now_ms()
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
        self.connections.append(self._made)

    def _answered(self, response: ProduceResponse) -> None:
        values = self._unanswered.popleft()
        answer = only_answer(response)
        self.world.note(f"{self.name} {len(values)} {answer.error_code} {answer.base_offset}")
        if not answer.error_code and not self.outdated:
            self.world.history.saw_written(self.topic, self.partition, answer.base_offset, values)
