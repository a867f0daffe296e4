"""Clients that look: at records, at the ends of a log; and one that deletes its beginning."""

from typing import cast

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import check, iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FATAL = (
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""What no broker may answer to a fetch of what it showed before."""


def offsets_request(topic: str, partition: int, timestamp: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


class Consumer(Client):
    """Fetches one partition from somewhere, without a gap, and now and then goes back to look again.

    Where records were deleted, or were in memory and went with the process, it goes on at the log's start.
    """

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self._position = 0
        self._floor = 0
        self._astray = False
        self._start_floor = 0
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        if self._astray:
            request = offsets_request(self.topic, self.partition, -2)
            self._start_floor = self.world.history.of(self.topic, self.partition).start
            connection.ask(request, ListOffsetsResponse, 2, 7, self._got_start)
            return
        known = self.world.history.of(self.topic, self.partition)
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
        answer = response.topics[0].partitions[0]
        if not answer.error_code and not (self.outdated and self.topic in self.world.history.powerless):
            self._astray = False
            self._position = answer.offset
            self.world.history.saw_start(self.topic, self.partition, answer.offset, self._start_floor)
        self.later(self.connected, RETRY_S)

    def _answered(self, response: FetchResponse) -> None:
        if response.responses:
            data = response.responses[0].partitions[0]
            self.world.note(f"{self.name} at {self._position}: {data.error_code} {data.high_watermark}")
            self._look_at(data)
        self.later(self.connected, self.random.between(0.0, 0.05))

    def _look_at(self, data: PartitionData) -> None:
        history = self.world.history
        if self.outdated and self.topic in history.powerless:
            return
        where = f"{self.topic}-{self.partition}"
        if data.error_code:
            code = ErrorCode(data.error_code)
            if code == ErrorCode.OFFSET_OUT_OF_RANGE and history.may_be_gone(
                self.topic, self.partition, self._position
            ):
                self._astray = True
            elif code in FATAL:
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
    values: list[tuple[int, bytes]] = []
    buffer = fetched_bytes(data)
    try:
        for header in iterate(buffer):
            check(buffer, header, len(buffer))
            values += [(record.offset, record.value or b"") for record in records(buffer, header)]
    except KafkaError as error:
        raise Violation(f"{where} gave a batch that can't be read: {error.message}") from None
    return values


class OffsetAsker(Client):
    """Asks for the ends of a partition: what it is told counts as shown."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self._floor = 0
        self._start_floor = 0
        self._timestamp = -1
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        known = self.world.history.of(self.topic, self.partition)
        self._floor, self._start_floor = max(known.end, known.written_end), known.start
        self._timestamp = self.random.choose((-1, -1, -2, -3))
        request = offsets_request(self.topic, self.partition, self._timestamp)
        connection.ask(request, ListOffsetsResponse, 2, 7, self._answered)

    def _answered(self, response: ListOffsetsResponse) -> None:
        answer = response.topics[0].partitions[0]
        self.world.note(f"{self.name} {self._timestamp}: {answer.error_code} {answer.offset}")
        history = self.world.history
        if not answer.error_code and not (self.outdated and self.topic in history.powerless):
            if self._timestamp == -1:
                history.saw_end(self.topic, self.partition, answer.offset, self._floor, "ListOffsets")
            elif self._timestamp == -2:
                history.saw_start(self.topic, self.partition, answer.offset, self._start_floor)
            elif self._timestamp == -3 and answer.offset >= 0:
                history.saw_end(self.topic, self.partition, answer.offset + 1, 0, "ListOffsets -3")
        self.later(self.connected, self.random.between(0.02, 0.3))


class StartAsker(Client):
    """Asks where a partition with retention begins: that never falls, and nothing went that was to stay."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        floor = self.world.history.of(self.topic, self.partition).start
        request = offsets_request(self.topic, self.partition, -2)
        connection.ask(request, ListOffsetsResponse, 2, 7, lambda response: self._answered(response, floor))

    def _answered(self, response: ListOffsetsResponse, floor: int) -> None:
        answer = response.topics[0].partitions[0]
        if not answer.error_code:
            self.world.note(f"{self.topic}-{self.partition} starts at {answer.offset}")
            now_ms = self.world.timeline.now_ms()
            self.world.history.saw_retained(self.topic, self.partition, answer.offset, floor, now_ms)
        self.later(self.connected, self.random.between(0.01, 0.2))


class Deleter(Client):
    """Deletes records from the beginning (DeleteRecords). What it was told is gone stays gone."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        known = self.world.history.of(self.topic, self.partition)
        offset = self.random.random_int(known.start, min(known.end, known.start + 60))
        known.start_max = max(known.start_max, offset)
        asked = DeleteRecordsPartition(partition_index=self.partition, offset=offset)
        topics = [DeleteRecordsTopic(name=self.topic, partitions=[asked])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=3000)
        connection.ask(request, DeleteRecordsResponse, 21, 2, lambda response: self._answered(response, offset))

    def _answered(self, response: DeleteRecordsResponse, offset: int) -> None:
        answer = response.topics[0].partitions[0]
        self.world.note(f"{self.name} below {offset}: {answer.error_code} {answer.low_watermark}")
        if not answer.error_code and not (self.outdated and self.topic in self.world.history.powerless):
            self.world.history.saw_deleted(self.topic, self.partition, answer.low_watermark, offset)
        self.later(self.connected, self.random.between(0.05, 0.6))
