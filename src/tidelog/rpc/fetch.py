"""Reading one partition in order: record batches as they are stored, the next fetch under way while one is used."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from tidelog.rpc.bounds import FETCH_BYTES, FETCH_BYTES_MAX, WAIT_MS
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.rpc.errors import Lost
from tidelog.rpc.offsets import READ_UNCOMMITTED
from tidelog.wire.batch import HEADER_BYTES, iterate
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

_VERSION_MAX = 17  # beyond it a fetch has only more for followers


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one fetch brought. `records` is a view that is good until the fetch after the next."""

    records: memoryview
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]]  # producer id and the first offset of its aborted transaction


class OffsetOutOfRange(KafkaError):
    """The offset isn't there (any more): retention or DeleteRecords took it, or the topic is another one."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{partition} does not hold offset {offset}")


class PartitionReader:
    """Fetches from `start` until `end` (not included) or, where that is None, for ever.

    Memory is two answers of about `fetch_bytes`; a batch that is larger comes all the same, alone.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        *,
        isolation: int = READ_UNCOMMITTED,
        fetch_bytes: int = FETCH_BYTES,
        wait_ms: int = WAIT_MS,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._offset = start
        self._end = end
        self._isolation = isolation
        self._fetch_bytes = min(fetch_bytes, FETCH_BYTES_MAX)
        self._wait_ms = wait_ms
        self._buffers = [bytearray(), bytearray()]
        self._turn = 0
        self._under_way: Connection | None = None

    def __iter__(self) -> Iterator[Fetched]:
        """Fetched parts, also empty ones (nothing came within `wait_ms`): the caller decides how long that may last."""
        doing = f"read {self._topic}-{self._partition} from offset {self._offset}"
        try:
            while self._end is None or self._offset < self._end:
                yield self._cluster.patiently(doing, self._next)
        finally:
            if self._under_way is not None:  # its answer would be taken for another's
                self._cluster.drop(self._under_way.address)

    def _next(self) -> Fetched:
        connection = self._under_way
        if connection is None:
            connection = self._send()
        self._under_way = None
        fetched = self._read(connection.receive(FetchResponse, self._room))
        self._turn ^= 1
        self._offset = fetched.next_offset
        if len(fetched.records) and (self._end is None or self._offset < self._end):
            try:
                self._send()
            except Lost as error:  # the next call opens it again
                self._cluster.drop(error.address)
            except KafkaError:
                self._cluster.forget()
        return fetched

    def _room(self, size: int) -> bytearray:
        if len(self._buffers[self._turn]) < size:
            self._buffers[self._turn] = bytearray(size + size // 8)
        return self._buffers[self._turn]

    def _send(self) -> Connection:
        connection, partition = self._cluster.leader(self._topic, self._partition)
        asked = FetchPartition(
            partition=self._partition,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=self._offset,
            partition_max_bytes=self._fetch_bytes,
        )
        topic = FetchTopic(topic=self._topic, topic_id=self._cluster.topic(self._topic).id, partitions=[asked])
        request = FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=self._isolation,
            topics=[topic],
        )
        connection.send(request, _VERSION_MAX, self._wait_ms / 1000)
        self._under_way = connection
        return connection

    def _read(self, response: FetchResponse) -> Fetched:
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"a fetch from {self._topic}-{self._partition}")
        part = response.responses[0].partitions[0]
        if part.error_code:
            code = ErrorCode(part.error_code)
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise OffsetOutOfRange(self._topic, self._partition, self._offset)
            raise KafkaError(code, f"a fetch from {self._topic}-{self._partition} at offset {self._offset}")
        view = memoryview(b"") if part.records is None else cast("memoryview[int]", part.records)
        next_offset, size = self._offset, 0
        for header in iterate(view):
            next_offset, size = header.next_offset, header.end
        if not size and len(view) >= HEADER_BYTES:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{self._topic}-{self._partition} at offset {self._offset}: a record batch that is larger than the "
                f"{len(view)} bytes that the broker sent of it",
            )
        aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
        return Fetched(
            view[:size],
            max(next_offset, self._offset),
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            aborted,
        )
