"""Transactions that come in bursts, with pauses in which everything written is let go of: what was ended stays ended.

The producers of a partition whose records all went are known by what the broker saved of them alone. `Burst` writes and
ends transactions; `StableEnd` asks whether readers of committed records may read to the end; `CommittedWatcher` reads
them, and must never be given a record of a transaction that was aborted.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.committed import READ_COMMITTED, committed_fetch, committed_values
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.in_flight import NEVER
from tidelog.sim.clients.watchers import offsets_request
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.fetch import FetchResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_offsets import ListOffsetsResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.record import Record
from tidelog.wire.topic_partition import TopicPartition

T = TypeVar("T")

TIMEOUT_MS = 1500
LATEST, EARLIEST = -1, -2


class Burst(Client):
    """Writes transactions to some partitions, joining them by writing, and ends each, until it is `stopped`.

    After anything that it doesn't understand it begins anew, which aborts what it had open. Now and then it takes
    another transactional id: nobody comes again then to end what the broker would take for open. `aborted` gets the
    values of records that nobody may be shown; `pause_s` is how long it may rest, in the middle of a transaction too.
    """

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        random: SimRandom,
        partitions: Sequence[TopicPartition],
        pause_s: float,
        aborted: set[bytes],
    ) -> None:
        self._partitions = partitions
        self._id = name
        self._pause_s = pause_s
        self._aborted = aborted
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._sent: list[bytes] = []
        self._number = 0
        self.stopped = False
        self.done = False
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self._id])
        connection.ask(request, FindCoordinatorResponse, 10, 4, self._coordinator_known)

    def _coordinator_known(self, response: FindCoordinatorResponse) -> None:
        if not self._failed(response.coordinators[0].error_code):
            request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS)
            self._ask(request, InitProducerIdResponse, 22, 4, self._initialised)

    def _initialised(self, response: InitProducerIdResponse) -> None:
        if not self._failed(response.error_code):
            self._begin(response.producer_id, response.producer_epoch)

    def _begin(self, producer_id: int, epoch: int) -> None:
        self._producer = (producer_id, epoch)
        self._sequences.clear()
        self._sent = []
        self.done = self.stopped
        if not self.done:
            self.later(lambda _: self._write(self.random.random_int(1, 4)), self.random.between(0.0, self._pause_s))

    def _write(self, batches: int) -> None:
        """So many batches, then the end."""
        if not batches:
            self._end(commit=not self.random.chance(0.3))
            return
        topic, index = self.random.choose(self._partitions)
        values = [b"%s:%d:%s" % (self.name.encode(), self._number + n, b"x" * 200) for n in range(3)]
        self._number += len(values)
        self._sent += values
        self._aborted.update(values)  # until they are committed
        sequence = self._sequences.get((topic, index), 0)
        self._sequences[topic, index] = sequence + len(values)
        encoded = build(
            [Record(timestamp=self.world.timeline.now_ms(), value=value) for value in values],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=index, records=memoryview(encoded))
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=3000, topic_data=topics)

        def produced(response: ProduceResponse) -> None:
            answer = response.responses[0].partition_responses[0]
            if answer.error_code in NEVER:
                raise Violation(f"{self.name} sent sequence {sequence} in order and got {answer}")
            if not self._failed(answer.error_code):
                rest = self.random.between(0.0, self._pause_s) if self.random.chance(0.3) else 0.0
                self.later(lambda _: self._write(batches - 1), rest)

        self._ask(request, ProduceResponse, 0, 12, produced)

    def _end(self, *, commit: bool) -> None:
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        if commit:  # from now on they may be shown, whatever the answer is
            self._aborted.difference_update(self._sent)

        def ended(response: EndTxnResponse) -> None:
            code = ErrorCode(response.error_code)
            self.world.note(f"{self.name} {'commits' if commit else 'aborts'}: {code.name}")
            if self._failed(code):
                return
            if self.random.chance(0.5):
                self._id = f"{self.name}.{self._number}"
                self.later(self.connected, self.random.between(0.0, self._pause_s))
            else:
                self._begin(response.producer_id, response.producer_epoch)

        self._ask(request, EndTxnResponse, 26, 5, ended)

    def _ask(self, request: Any, response: type[T], key: int, version: int, answered: Callable[[T], None]) -> None:
        if self.connection is not None:
            self.connection.ask(request, response, key, version, answered)

    def _failed(self, code: int) -> bool:
        if not code:
            return False
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            raise Violation(f"{self.name} got UNKNOWN_SERVER_ERROR")
        self.world.note(f"{self.name}: {ErrorCode(code).name}")
        self.later(self.connected, self.random.between(0.5, 3.0) * RETRY_S)
        return True


class StableEnd(Client):
    """`reached` when the last stable offset of a partition is its end: no transaction is open there."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.reached = False
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        connection.ask(offsets_request(self.topic, self.partition, LATEST), ListOffsetsResponse, 2, 7, self._got_end)

    def _got_end(self, response: ListOffsetsResponse) -> None:
        end = response.topics[0].partitions[0]
        request = offsets_request(self.topic, self.partition, LATEST)
        request.isolation_level = READ_COMMITTED

        def got_stable(response: ListOffsetsResponse) -> None:
            stable = response.topics[0].partitions[0]
            self.world.note(f"{self.topic}-{self.partition} is stable up to {stable.offset} of {end.offset}")
            self.reached = not end.error_code and not stable.error_code and stable.offset == end.offset
            self.later(self.connected, 2 * RETRY_S)

        if self.connection is not None:
            self.connection.ask(request, ListOffsetsResponse, 2, 7, got_stable)


class CommittedWatcher(Client):
    """Reads the committed records of a partition whose first ones go; none of them may be in `aborted`."""

    def __init__(
        self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int, aborted: set[bytes]
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._aborted = aborted
        self._position = -1
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        if self._position < 0:
            request = offsets_request(self.topic, self.partition, EARLIEST)
            connection.ask(request, ListOffsetsResponse, 2, 7, self._got_start)
        else:
            request = committed_fetch(self.topic, self.partition, self._position, self.random.choose((0, 50, 200)))
            connection.ask(request, FetchResponse, 1, 12, self._got_records)

    def _got_start(self, response: ListOffsetsResponse) -> None:
        answer = response.topics[0].partitions[0]
        if not answer.error_code:
            self._position = answer.offset
        self.later(self.connected, RETRY_S)

    def _got_records(self, response: FetchResponse) -> None:
        data = response.responses[0].partitions[0]
        if data.error_code:
            if data.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                raise Violation(f"{self.topic}-{self.partition} answers UNKNOWN_SERVER_ERROR at {self._position}")
            self._position = -1
        else:
            values, self._position = committed_values(data, self._position)
            for offset, value in values:
                if value in self._aborted:
                    raise Violation(f"{self.topic}-{self.partition} shows {value!r} at {offset}, which was aborted")
        self.later(self.connected, self.random.between(0.0, 0.1))
