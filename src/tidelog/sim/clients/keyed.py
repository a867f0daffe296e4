"""Clients of a compacted topic: a producer that owns its keys, and a reader that goes through the log over and over."""

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.watchers import fetched_bytes, offsets_request
from tidelog.sim.clients.workloads import Batch, IdempotentProducer, identity
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.table import Keyed, ReadRecord, Table
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import check, iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.list_offsets import ListOffsetsResponse
from tidelog.wire.record import Record

TOMBSTONES = 0.15


class KeyedProducer(IdempotentProducer):
    """Sends values of its own few keys, and tombstones, until all is acknowledged."""

    def __init__(
        self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int, total: int, table: Table
    ) -> None:
        self._table = table
        self._keys = [f"{name}-{number}".encode() for number in range(random.random_int(2, 12))]
        super().__init__(world, name, random, topic, partition, total)

    def make_records(self, first: int) -> list[Record]:
        made: list[Record] = []
        now_ms = self.world.timeline.now_ms()
        filling = b"x" * self.random.choose((0, 20, 100, 500))
        for number in range(first, first + self.random.choose((1, 1, 2, 5))):
            name = f"{self.name}:{number}".encode()
            key, tombstone = self.random.choose(self._keys), self.random.chance(TOMBSTONES)
            made.append(
                Record(timestamp=now_ms, key=key, value=None if tombstone else name + filling, headers=(("id", name),))
            )
            self._table.send(name, Keyed(key, number, tombstone, now_ms))
        return made

    def acknowledged(self, batch: Batch) -> None:
        self._table.acknowledge(batch.values)


class TableReader(Client):
    """Reads a compacted partition from its start to its end, compares, and begins again; `once`: no more than that."""

    def __init__(
        self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int, table: Table, *, once: bool
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.done = False
        self._table = table
        self._once = once
        self._read_records: list[ReadRecord] = []
        self._as_of: dict[bytes, int] = {}
        self._start = self._position = -1
        self._floor = 0
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        """Each connection begins anew: the table is only compared with what was read in one go."""
        self._as_of = dict(self._table.acknowledged)
        self._read_records = []
        known = self.world.history.of(self.topic, self.partition)
        floor = known.start
        request = offsets_request(self.topic, self.partition, -2)
        connection.ask(request, ListOffsetsResponse, 2, 7, lambda response: self._got_start(response, floor))

    def _got_start(self, response: ListOffsetsResponse, floor: int) -> None:
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            self.later(self.connected, RETRY_S)
            return
        self.world.history.saw_start(self.topic, self.partition, answer.offset, floor)
        self._start = self._position = answer.offset
        self.later(self._fetch, 0.0)

    def _fetch(self, connection: ClientConnection) -> None:
        self._floor = self.world.history.of(self.topic, self.partition).end
        wanted = FetchPartition(
            partition=self.partition,
            fetch_offset=self._position,
            partition_max_bytes=self.random.choose((1, 1000, 10_000, 1 << 20)),
        )
        topics = [FetchTopic(topic=self.topic, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
        connection.ask(request, FetchResponse, 1, 12, self._answered)

    def _answered(self, response: FetchResponse) -> None:
        data = response.responses[0].partitions[0] if response.responses else None
        if data is None or data.error_code:
            self._refused(ErrorCode(data.error_code) if data is not None else ErrorCode.NONE)
            return
        self.world.history.saw_end(self.topic, self.partition, data.high_watermark, self._floor, "Fetch")
        self._take(data)
        if self._position < data.high_watermark:
            self.later(self._fetch, self.random.choose((0.0, 0.0, 0.01)))
            return
        where, now_ms = f"{self.topic}-{self.partition}", self.world.timeline.now_ms()
        self.world.note(f"{self.name}: {where} holds {len(self._read_records)} records from {self._start} on")
        self._table.check(self._read_records, self._as_of, now_ms, self._start)
        self.done = not self._table.superseded
        if not self._once or not self.done:
            self.later(self.connected, self.random.between(0.01, 0.3))

    def _refused(self, code: ErrorCode) -> None:
        known = self.world.history.of(self.topic, self.partition)
        if code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE) or (
            code == ErrorCode.OFFSET_OUT_OF_RANGE and self._position >= known.start_max
        ):
            raise Violation(f"{self.topic}-{self.partition} answered {code.name} to a fetch at {self._position}")
        self.later(self.connected, RETRY_S)

    def _take(self, data: PartitionData) -> None:
        buffer = fetched_bytes(data)
        where, history = f"{self.topic}-{self.partition}", self.world.history
        try:
            for header in iterate(buffer):
                check(buffer, header, len(buffer))
                for record in records(buffer, header):
                    if record.offset >= self._position:
                        self._read_records.append(ReadRecord(record.offset, identity(record), record))
                        history.saw_fetched(self.topic, self.partition, record.offset, identity(record))
                if header.next_offset <= self._position and header.base_offset >= self._position:
                    raise Violation(f"{where} gave offsets {header.base_offset} to {header.last_offset} twice")
                self._position = max(self._position, header.next_offset)
        except KafkaError as error:
            raise Violation(f"{where} gave a batch that can't be read: {error.message}") from None
