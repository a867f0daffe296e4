"""Reads a partition whole, at the end of a run: from its first offset to the end that ListOffsets tells."""

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.watchers import fetched_bytes, offsets_request
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import BatchHeader, check, iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.list_offsets import ListOffsetsResponse

REFUSALS_MAX = 20


class WholeReader(Client):
    """`values` are those of all records. The batch `damaged` must have a wrong checksum and is passed over.

    The history knows the topic as `known_as`. `refused` is set where the broker won't serve a damaged partition at all.
    """

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        random: SimRandom,
        topic: str,
        partition: int,
        damaged: BatchHeader | None = None,
        *,
        known_as: str | None = None,
    ) -> None:
        self.topic = topic
        self._known_as = known_as or topic
        self.partition = partition
        self.values: list[bytes] = []
        self.bytes = 0
        self.found_damage = False
        self.done = False
        self.refusals = 0
        self._damaged = damaged
        self.start = -1
        self._position = 0
        self._end = -1
        super().__init__(world, name, random)

    @property
    def refused(self) -> bool:
        return self._damaged is not None and self.refusals > REFUSALS_MAX

    def connected(self, connection: ClientConnection) -> None:
        if self._end < 0:
            request = offsets_request(self.topic, self.partition, -1 if self.start >= 0 else -2)
            connection.ask(request, ListOffsetsResponse, 2, 7, self._got_offset)
        elif self._position >= self._end:
            self.done = True
        else:
            partition_wanted = FetchPartition(
                partition=self.partition, fetch_offset=self._position, partition_max_bytes=1 << 20
            )
            topics = [FetchTopic(topic=self.topic, partitions=[partition_wanted])]
            request = FetchRequest(max_wait_ms=50, min_bytes=1, max_bytes=1 << 20, topics=topics)
            connection.ask(request, FetchResponse, 1, 12, self._got_batches)

    def _got_offset(self, response: ListOffsetsResponse) -> None:
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            self.refusals += 1
            self.later(self.connected, RETRY_S)
            return
        if self.start < 0:
            self.start = self._position = answer.offset
            floor = self.world.history.of(self._known_as, self.partition).start
            self.world.history.saw_start(self._known_as, self.partition, answer.offset, floor)
        else:
            self._end = answer.offset
        self.later(self.connected, 0.0)

    def _got_batches(self, response: FetchResponse) -> None:
        data = response.responses[0].partitions[0] if response.responses else None
        where = f"{self.topic}-{self.partition}"
        if data is None or data.error_code:
            if data is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                if self.topic in self.world.history.retained_ms:
                    self._begin_anew()
                    return
                raise Violation(f"{where} ends at {self._end}, but {self._position} is out of range")
            self.refusals += 1
            self.later(self.connected, RETRY_S)
            return
        buffer = fetched_bytes(data)
        for header in iterate(buffer):
            self._take(where, buffer, header)
        self.later(self.connected, 0.0 if buffer else RETRY_S)

    def _begin_anew(self) -> None:
        """Retention was faster."""
        self.start = self._end = -1
        self.values, self.bytes = [], 0
        self.later(self.connected, 0.0)

    def _take(self, where: str, buffer: bytes, header: BatchHeader) -> None:
        if self._damaged is not None and header.base_offset == self._damaged.base_offset:
            self._pass_over(where, buffer, header, self._damaged)
            return
        if header.next_offset <= self._position:
            return
        if header.base_offset > self._position:
            raise Violation(f"{where} skips from {self._position} to {header.base_offset}")
        try:
            check(buffer, header, len(buffer))
            values = [(record.offset, record.value or b"") for record in records(buffer, header)]
        except KafkaError as error:
            raise Violation(f"{where} gave a batch that can't be read: {error.message}") from None
        self.bytes += header.size
        self.values += [value for offset, value in values if offset >= self._position]
        self._position = header.next_offset

    def _pass_over(self, where: str, buffer: bytes, header: BatchHeader, intact: BatchHeader) -> None:
        """The damaged batch: no client can take it for a good one."""
        try:
            check(buffer, header, len(buffer))
        except KafkaError:
            self.found_damage = True
            self._position = max(self._position, intact.next_offset)
        else:
            raise Violation(f"{where} gave the damaged batch at offset {header.base_offset} as if it were sound")
