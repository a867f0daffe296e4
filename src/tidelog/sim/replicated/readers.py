"""Who reads replicated partitions: from their leaders, with the leader epoch that they were told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.sim.clients.watchers import fetched_bytes
from tidelog.sim.replicated.roaming import Led, RoamingClient
from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.batch import iterate, records
from tidelog.wire.errors import ErrorCode
from tidelog.wire.markers import read_marker
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from tidelog.sim.cluster.world import ClusterWorld
    from tidelog.sim.replicated.promises import Promises
    from tidelog.sim.world.random import SimRandom
    from tidelog.wire.topic_partition import TopicPartition

LATEST, EARLIEST = -1, -2
UNCOMMITTED, COMMITTED = 0, 1


class ReplicaClient(RoamingClient):
    """What those who ask the leader of one partition have in common: they look who leads after each error."""

    def __init__(
        self, world: ClusterWorld, name: str, random: SimRandom, promises: Promises, place: TopicPartition
    ) -> None:
        self.place = place
        self.promises = promises
        super().__init__(world, name, random)

    @property
    def where(self) -> str:
        return f"{self.place[0]}-{self.place[1]}"

    def begin(self) -> None:
        if not self.stopped:
            self.look(self.place, self._looked)

    def _looked(self) -> None:
        led = self.led(self.place)
        if led is None:
            self.later(self.begin)
        else:
            self.go_on(led)

    def go_on(self, led: Led) -> None:
        """Ask the leader."""
        raise NotImplementedError

    def failed(self, code: int | None) -> bool:
        """Whether the leader refused, or didn't answer: then it looks who leads."""
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            raise Violation(f"{self.name} got UNKNOWN_SERVER_ERROR")
        if code == ErrorCode.NONE:
            return False
        self.later(self.begin)
        return True

    def ask_offset(
        self,
        led: Led,
        timestamp: int,
        answered: Callable[[ListOffsetsPartitionResponse | None], None],
        isolation: int = UNCOMMITTED,
    ) -> None:
        asked = ListOffsetsPartition(partition_index=self.place[1], current_leader_epoch=led.epoch, timestamp=timestamp)
        topics = [ListOffsetsTopic(name=self.place[0], partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)

        def came(response: ListOffsetsResponse | None) -> None:
            answered(None if response is None else response.topics[0].partitions[0])

        self.ask(led.at, request, ListOffsetsResponse, 2, 7, came)

    def fetch(
        self,
        led: Led,
        offset: int,
        answered: Callable[[PartitionData | None], None],
        *,
        isolation: int = UNCOMMITTED,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 100,
    ) -> None:
        asked = FetchPartition(
            partition=self.place[1],
            current_leader_epoch=led.epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[FetchTopic(topic=self.place[0], partitions=[asked])],
        )

        def came(response: FetchResponse | None) -> None:
            data = None if response is None or not response.responses else response.responses[0].partitions[0]
            answered(data)

        self.ask(led.at, request, FetchResponse, 1, 12, came)


class Consumer(ReplicaClient):
    """Reads without a gap, and now and then goes back to look again. `may_show`: what those who read committed records
    may be given; None: it reads whatever is below the high watermark."""

    def __init__(
        self,
        world: ClusterWorld,
        name: str,
        random: SimRandom,
        promises: Promises,
        place: TopicPartition,
        may_show: Set[bytes] | None = None,
        *,
        records_go: bool = False,
    ) -> None:
        self._may_show = may_show
        self._records_go = records_go
        self._position = 0
        self._end = 0
        """What it was shown goes so far."""
        super().__init__(world, name, random, promises, place)

    def go_on(self, led: Led) -> None:
        if self.stopped:
            return
        if self.random.chance(0.1):
            self._position = self.random.random_int(0, self._end)
        position, floor = self._position, self.promises.of(self.place).ends.get(led.epoch, 0)

        def answered(data: PartitionData | None) -> None:
            if data is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._is_out_of_range(led, position)
            elif not self.failed(None if data is None else data.error_code):
                assert data is not None
                self._take(led, data, position, floor)
                self.later(lambda: self.go_on(led), (0.0, 0.15))

        self.fetch(
            led,
            position,
            answered,
            isolation=UNCOMMITTED if self._may_show is None else COMMITTED,
            max_bytes=self.random.choose((1, 2000, 1 << 20)),
            max_wait_ms=self.random.choose((0, 50, 300)),
        )

    def _take(self, led: Led, data: PartitionData, position: int, floor: int) -> None:
        self.world.note(f"{self.name} at {position} of {led.broker_id}, epoch {led.epoch}: {data.high_watermark}")
        self.promises.saw_high_watermark(self.place, led.epoch, data.high_watermark, floor)
        buffer = fetched_bytes(data)
        whole = self.promises.saw_batches(self.place, f"node {led.broker_id}", buffer, 1 << 62)
        for header in whole:
            if header.next_offset <= position:
                continue
            if header.base_offset > position:
                raise Violation(f"{self.where} skipped from {position} to {header.base_offset}")
            if header.next_offset > data.high_watermark:
                raise Violation(
                    f"{self.where} showed offset {header.last_offset}, not below its high watermark "
                    f"{data.high_watermark}"
                )
            position = header.next_offset
        self.promises.fetched += len(whole)
        if self._may_show is not None:
            for offset, value in committed_values(data, self._position):
                if value not in self._may_show and self.place not in self.promises.excused:
                    raise Violation(f"{self.where} shows {value!r} at offset {offset}, which isn't committed")
        self._position = position
        self._end = max(self._end, position)

    def _is_out_of_range(self, led: Led, position: int) -> None:
        excused = self.place in self.promises.excused
        if not self._records_go and not excused:
            raise Violation(
                f"{self.where} answers OFFSET_OUT_OF_RANGE to a fetch at {position} from node {led.broker_id} in "
                f"leader epoch {led.epoch}: it showed all up to {self._end}"
            )

        def got_start(answer: ListOffsetsPartitionResponse | None) -> None:
            if not self.failed(None if answer is None else answer.error_code):
                assert answer is not None
                self._position = answer.offset
                self._end = answer.offset if excused else max(self._end, answer.offset)
                self.go_on(led)

        self.ask_offset(led, EARLIEST, got_start)


def committed_values(data: PartitionData, position: int) -> list[tuple[int, bytes]]:
    """Offset and value of each committed record from `position` on: what was aborted is left out, as clients do."""
    buffer = fetched_bytes(data)
    aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
    skipping: set[int] = set()
    values: list[tuple[int, bytes]] = []
    for header in iterate(buffer):
        while aborted and aborted[0][0] <= header.last_offset:
            skipping.add(aborted.pop(0)[1])
        if header.control:
            if not read_marker(next(records(buffer, header))).committed:
                skipping.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in skipping) and header.next_offset > position:
            read = [(record.offset, record.value or b"") for record in records(buffer, header)]
            values += [(offset, value) for offset, value in read if offset >= position]
    return values


class EndAsker(ReplicaClient):
    """Asks the leader where the log ends, which is never before an end that it or an earlier leader has shown."""

    def go_on(self, led: Led) -> None:
        if self.stopped:
            return
        floor = self.promises.floor(self.place, led.epoch)

        def answered(answer: ListOffsetsPartitionResponse | None) -> None:
            if not self.failed(None if answer is None else answer.error_code):
                assert answer is not None
                self.world.note(f"{self.name}: {led.broker_id}, epoch {led.epoch}: {answer.offset}")
                self.promises.saw_end(self.place, led.epoch, answer.offset, floor)
                self.later(lambda: self.go_on(led), (0.02, 0.4))

        self.ask_offset(led, LATEST, answered)


class RecordsDeleter(ReplicaClient):
    """Deletes records from the beginning."""

    def go_on(self, led: Led) -> None:
        if self.stopped:
            return
        known = self.promises.of(self.place)
        offset = self.random.random_int(0, known.end)
        known.start_max = max(known.start_max, offset)
        asked = DeleteRecordsPartition(partition_index=self.place[1], offset=offset)
        topics = [DeleteRecordsTopic(name=self.place[0], partitions=[asked])]

        def answered(response: DeleteRecordsResponse | None) -> None:
            answer = None if response is None else response.topics[0].partitions[0]
            if answer is not None:
                self.world.note(f"{self.name} below {offset}: {answer.error_code} {answer.low_watermark}")
            if not self.failed(None if answer is None else answer.error_code):
                self.world.struck("deleted records")
                self.later(lambda: self.go_on(led), (0.1, 0.8))

        self.ask(led.at, DeleteRecordsRequest(topics=topics, timeout_ms=2000), DeleteRecordsResponse, 21, 2, answered)


class WholeReader(ReplicaClient):
    """Reads a partition from its start to its end, and is `done`. `values` has offset and value of each record, of
    committed ones only where that is the isolation; `start` and `end` are those that the leader told."""

    def __init__(
        self,
        world: ClusterWorld,
        name: str,
        random: SimRandom,
        promises: Promises,
        place: TopicPartition,
        isolation: int = UNCOMMITTED,
    ) -> None:
        self._isolation = isolation
        self.values: list[tuple[int, bytes]] = []
        self.start = self.end = -1
        self.done = False
        self._position = 0
        super().__init__(world, name, random, promises, place)

    def go_on(self, led: Led) -> None:
        if self.end < 0:
            self._ask_start(led)
        elif self._position < self.end:
            self.fetch(led, self._position, lambda data: self._answered(led, data), isolation=self._isolation)
        else:
            self.done = True

    def _ask_start(self, led: Led) -> None:
        def got_start(answer: ListOffsetsPartitionResponse | None) -> None:
            if not self.failed(None if answer is None else answer.error_code):
                assert answer is not None
                self.start = self._position = answer.offset
                self.values = []
                self.ask_offset(led, LATEST, got_end)

        def got_end(answer: ListOffsetsPartitionResponse | None) -> None:
            if not self.failed(None if answer is None else answer.error_code):
                assert answer is not None
                self.promises.saw_end(self.place, led.epoch, answer.offset, self.promises.floor(self.place, led.epoch))
                self.end = answer.offset
                self.go_on(led)

        self.ask_offset(led, EARLIEST, got_start)

    def _answered(self, led: Led, data: PartitionData | None) -> None:
        if data is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.end = -1  # its beginning went meanwhile
            self.later(self.begin)
            return
        if self.failed(None if data is None else data.error_code):
            return
        assert data is not None
        buffer = fetched_bytes(data)
        if self._isolation == COMMITTED:
            self.values += committed_values(data, self._position)
        for header in self.promises.saw_batches(self.place, f"node {led.broker_id}", buffer, 1 << 62):
            if header.next_offset <= self._position:
                continue
            if header.base_offset > self._position:
                raise Violation(f"{self.where} skips from {self._position} to {header.base_offset}")
            if self._isolation == UNCOMMITTED and not header.control:
                read = [(record.offset, record.value or b"") for record in records(buffer, header)]
                self.values += [(offset, value) for offset, value in read if offset >= self._position]
            self._position = header.next_offset
        self.later(lambda: self.go_on(led), (0.0, 0.0) if buffer else (0.02, 0.1))
