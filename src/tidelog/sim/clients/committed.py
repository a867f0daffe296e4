"""A reader of committed records in the simulated world: it leaves out what was aborted, as clients do."""

from collections.abc import Callable

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.watchers import fetched_bytes
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import iterate, records
from tidelog.wire.errors import ErrorCode
from tidelog.wire.markers import read_marker
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

READ_COMMITTED = 1


def committed_fetch(topic: str, partition: int, offset: int, max_wait_ms: int) -> FetchRequest:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )


def committed_values(data: PartitionData, position: int) -> tuple[list[tuple[int, bytes]], int]:
    """(offset and value of each committed record from `position` on, where to go on)."""
    buffer = fetched_bytes(data)
    aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
    skipping: set[int] = set()
    values: list[tuple[int, bytes]] = []
    for header in iterate(buffer):
        while aborted and aborted[0][0] <= header.last_offset:
            skipping.add(aborted.pop(0)[1])
        if header.next_offset <= position:
            continue
        if header.control:
            if not read_marker(next(records(buffer, header))).committed:
                skipping.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in skipping):
            read = [(record.offset, record.value or b"") for record in records(buffer, header)]
            values += [(offset, value) for offset, value in read if offset >= position]
        position = header.next_offset
    return values, position


class CommittedReader(Client):
    """Reads a partition from its start, for ever; `saw` is told each record once, in order.

    What it saw stays: it remembers values by offset and goes back now and then to compare.
    """

    def __init__(
        self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int, saw: Callable[[bytes], None]
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.values: dict[int, bytes] = {}
        self._saw = saw
        self._position = 0
        self._stable = 0
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        if self.random.chance(0.05):
            self._position = self.random.random_int(0, self._stable)
        wait_ms = self.random.choose((0, 50, 500))
        request = committed_fetch(self.topic, self.partition, self._position, wait_ms)
        connection.ask(request, FetchResponse, 1, 12, self._answered)

    def _answered(self, response: FetchResponse) -> None:
        data = response.responses[0].partitions[0]
        if data.error_code:
            if data.error_code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_SERVER_ERROR):
                raise Violation(f"{self.topic}-{self.partition} answers {data.error_code} at {self._position}")
            self.later(self.connected, RETRY_S)
            return
        values, position = committed_values(data, self._position)
        for offset, value in values:
            before = self.values.get(offset)
            if before is None:
                if offset < self._stable:
                    raise Violation(f"{self.topic}-{self.partition} offset {offset} appeared below what was stable")
                self.values[offset] = value
                self._saw(value)
            elif before != value:
                raise Violation(f"{self.topic}-{self.partition} offset {offset} was {before!r} and is {value!r} now")
        self._position = position
        self._stable = max(self._stable, position)
        self.later(self.connected, self.random.between(0.0, 0.1))
