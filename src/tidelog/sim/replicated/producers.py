"""Who writes to replicated partitions: idempotent producers, which send again until all is acknowledged; plain ones."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidelog.sim.clients.workloads import FATAL, IN_FLIGHT_MAX, Batch, make_values, only_answer, produce_request
from tidelog.sim.replicated.roaming import RoamingClient
from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.batch import SEQUENCE_MAX, build
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import ProduceResponse
from tidelog.wire.record import Record

if TYPE_CHECKING:
    from tidelog.sim.cluster.world import ClusterWorld
    from tidelog.sim.replicated.promises import Promises
    from tidelog.sim.world.random import SimRandom
    from tidelog.wire.topic_partition import TopicPartition

NEVER = frozenset(FATAL) - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""What no leader may answer to the batch that is next in order: what comes before it was acknowledged."""


class SureProducer(RoamingClient):
    """acks=all, idempotent, five batches in flight. After an error it waits for all answers, looks who leads, and sends
    again what isn't acknowledged, in order. It ends when `enough` was said and all is acknowledged."""

    def __init__(
        self,
        world: ClusterWorld,
        name: str,
        random: SimRandom,
        promises: Promises,
        place: TopicPartition,
        pause_s: float = 0.15,
    ) -> None:
        self.place = place
        self.made = 0
        """How many records it has sent, numbered from 0."""
        self.acknowledged = 0
        self._promises = promises
        self._pause_s = pause_s
        self._producer = (-1, -1)
        self._next_sequence = 0
        self._unacknowledged: deque[Batch] = deque()
        self._in_flight = 0
        self._recovering = False
        self._version = random.random_int(9, 12)
        super().__init__(world, name, random)

    @property
    def done(self) -> bool:
        return self.stopped and not self._unacknowledged

    def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self.ask_any(request, InitProducerIdResponse, 22, 4, self._got_id)

    def _got_id(self, response: InitProducerIdResponse | None) -> None:
        if response is None or response.error_code:
            self.later(self.begin)
            return
        self._producer = response.producer_id, response.producer_epoch
        self.world.note(f"{self.name} is producer {response.producer_id}")
        self._next_sequence = SEQUENCE_MAX - self.random.random_int(0, 20) if self.random.chance(0.3) else 0
        self._recover()

    def _go_on(self) -> None:
        """A few batches at once, then a pause."""
        if not self._recovering:
            for _ in range(self.random.random_int(1, IN_FLIGHT_MAX)):
                if not (self.stopped or self._recovering) and len(self._unacknowledged) < IN_FLIGHT_MAX:
                    self._send(self._make())
        if not self.stopped:
            self.later(self._go_on, (0.0, self._pause_s))

    def _recover(self) -> None:
        """Nothing is in flight: look who leads, and send again."""
        self._recovering = True
        self.look(self.place, self._send_again)

    def _send_again(self) -> None:
        if self.led(self.place) is None:
            self.later(self._recover)
            return
        self._recovering = False
        for batch in list(self._unacknowledged):
            self._send(batch)
        if not self.made:
            self._go_on()

    def _make(self) -> Batch:
        values = make_values(self.random, self.name, self.made)
        now_ms = self.world.timeline.now_ms()
        encoded = build(
            [Record(timestamp=now_ms, value=value) for value in values],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._next_sequence,
            compression=self.random.choose((0, 0, 1, 4)),
        )
        batch = Batch(self._next_sequence, values, bytes(encoded))
        self._next_sequence = (self._next_sequence + len(values)) & SEQUENCE_MAX
        self.made += len(values)
        self._unacknowledged.append(batch)
        return batch

    def _send(self, batch: Batch) -> None:
        led = self.led(self.place)
        assert led is not None
        batch.sends += 1
        self._in_flight += 1
        request = produce_request(*self.place, batch.encoded, -1)

        def answered(response: ProduceResponse | None) -> None:
            self._in_flight -= 1
            if response is None or not self._is_acknowledged(batch, response, led.broker_id):
                self._recovering = True
            if self._recovering and not self._in_flight:
                self.later(self._recover)

        self.ask(led.at, request, ProduceResponse, 0, self._version, answered)

    def _is_acknowledged(self, batch: Batch, response: ProduceResponse, broker_id: int) -> bool:
        answer = only_answer(response)
        code = ErrorCode(answer.error_code)
        self.world.note(
            f"{self.name} {batch.sequence}+{len(batch.values)} to {broker_id}: {code.name} {answer.base_offset}"
        )
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            offset = answer.base_offset if code is ErrorCode.NONE else -1
            self._promises.saw_acknowledged(self.place, offset, batch.values)
            self._unacknowledged.remove(batch)
            self.acknowledged += len(batch.values)
            return True
        if batch is self._unacknowledged[0] and code in NEVER:
            raise Violation(
                f"{self.place[0]}-{self.place[1]}: {self.name} sent sequence {batch.sequence} ({batch.sends} times) to "
                f"{broker_id}, all before it was acknowledged, and got {code.name}: {answer.error_message}"
            )
        return False


class PlainProducer(RoamingClient):
    """acks=all or 1, and never sends anything again: each record comes at most once, and in order on a connection."""

    def __init__(
        self,
        world: ClusterWorld,
        name: str,
        random: SimRandom,
        promises: Promises,
        place: TopicPartition,
        acks: int,
        pause_s: float = 0.15,
    ) -> None:
        self.place = place
        self.made = 0
        self.connections: list[int] = []
        """The first number that was sent after each error."""
        self._promises = promises
        self._acks = acks
        self._pause_s = pause_s
        self._looking = False
        self._version = random.random_int(9, 12)
        super().__init__(world, name, random)

    def begin(self) -> None:
        self._looking = True
        self.look(self.place, self._looked)

    def _looked(self) -> None:
        if self.led(self.place) is None:
            self.later(self.begin)
            return
        self._looking = False
        self.connections.append(self.made)
        self._go_on()

    def _go_on(self) -> None:
        led = self.led(self.place)
        if self.stopped or self._looking or led is None:
            return
        values = make_values(self.random, self.name, self.made)
        self.made += len(values)
        now_ms = self.world.timeline.now_ms()
        encoded = build([Record(timestamp=now_ms, key=b"k", value=value) for value in values])

        def answered(response: ProduceResponse | None) -> None:
            answer = None if response is None else only_answer(response)
            code = ErrorCode.NETWORK_EXCEPTION if answer is None else ErrorCode(answer.error_code)
            offset = -1 if answer is None else answer.base_offset
            self.world.note(f"{self.name} {len(values)} to {led.broker_id}: {code.name} {offset}")
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                raise Violation(f"{self.name} got UNKNOWN_SERVER_ERROR from {led.broker_id}")
            if code is not ErrorCode.NONE:
                if not self._looking:
                    self._looking = True
                    self.later(self.begin)
            elif self._acks == -1:
                self._promises.saw_acknowledged(self.place, offset, values)

        self.ask(
            led.at,
            produce_request(*self.place, bytes(encoded), self._acks),
            ProduceResponse,
            0,
            self._version,
            answered,
        )
        self.later(self._go_on, (0.0, self._pause_s))
