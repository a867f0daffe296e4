"""The fast path of Fetch: by topic id, without a session, as librdkafka asks again and again.

The request for one partition has one size and one layout, so a single unpack reads it. Whatever differs in any way, and
whatever fails, goes the general way, which comes to the same answer: the compiled codec is the oracle in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from tidelog.apis.fetch import MAX_WAIT_MS
from tidelog.apis.fetch.light import Asked, LightFetch, Way, uvarint
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.apis.context import Services
    from tidelog.replica.partition import Partition

FIRST_VERSION, LAST_VERSION = 15, 18
READ_COMMITTED = 1
NO_SESSION = -1
NO_EPOCH = -1
PARTITIONS_MAX = 20_000

# Header tags, max wait, min bytes, max bytes, isolation, session id, session epoch, number of topics + 1.
_HEAD = Struct(">BiiibiiB")
_read_head = _HEAD.unpack_from
_HEAD_BYTES = _HEAD.size
_WAIT_AT = 1
# Topic id, number of partitions + 1.
_TOPIC_BYTES = 17
# Index, current leader epoch, offset, last fetched epoch, log start, max bytes, tags.
_PARTITION = Struct(">iiqiqiB")
_PARTITION_BYTES = _PARTITION.size
# Tags of the last topic, no forgotten topics, no rack, tags.
_TAIL = b"\0\1\1\0"
# All of it, of a request for one partition: its tags and those of the topic stand together.
_REQUEST = Struct(">BiiibiiB16sBiiqiqi5s")
_read_request = _REQUEST.unpack_from
_REQUEST_BYTES = _REQUEST.size
_REQUEST_TAIL = b"\0" + _TAIL
# Header tags, throttle time, error, session id, one topic.
_RESPONSE_START = bytes(11) + b"\x02"
# Length, correlation id, the start, the topic's id, one partition, index, error, high watermark, last stable offset,
# log start, aborted transactions, preferred replica; then the records' length.
_RESPONSE = Struct(f">ii{len(_RESPONSE_START)}s16sBihqqqBi")
_write_response = _RESPONSE.pack
_RESPONSE_BYTES = _RESPONSE.size - 4
_RESPONSE_TAIL = b"\0\0\0"


class FetchPath:
    def __init__(self, services: Services, general: Callable[[Any, memoryview, int, int, int, int, int], Any]) -> None:
        self._node_id = services.node_id
        self._replicas = services.replicas
        self._max_bytes = services.config.fetch_max_bytes
        self._way = Way(services.node_id, services.env.loop, general)
        self._partitions: dict[tuple[bytes, int], Partition] = {}
        services.replicas.forget.append(self._partitions.clear)

    def handle_frame(
        self, connection: Any, buffer: memoryview, start: int, pos: int, end: int, version: int, correlation_id: int
    ) -> Any:
        """The answer to a frame whose header ends at `pos` but for its tags; NotImplemented: take the general way."""
        if not FIRST_VERSION <= version <= LAST_VERSION:
            return NotImplemented
        if end - pos != _REQUEST_BYTES:
            return self._handle_many(connection, buffer, start, pos, end, version, correlation_id)
        (
            tags,
            wait_ms,
            min_bytes,
            max_bytes,
            isolation,
            session_id,
            session_epoch,
            topics,
            topic_id,
            partitions,
            index,
            leader_epoch,
            offset,
            fetched_epoch,
            _,
            partition_max_bytes,
            tail,
        ) = _read_request(buffer, pos)
        if (
            tail != _REQUEST_TAIL
            or topics != 2
            or partitions != 2
            or session_id
            or session_epoch != NO_SESSION
            or tags
            or fetched_epoch != NO_EPOCH
        ):
            return NotImplemented
        committed = isolation == READ_COMMITTED
        limit = min(max_bytes, self._max_bytes)
        try:
            partition = self._partitions.get((topic_id, index)) or self._find(topic_id, index)
            if partition.leader != self._node_id or NO_EPOCH != leader_epoch != partition.leader_epoch:
                return NotImplemented
            log = partition.log
            stable = partition.last_stable_offset
            end_offset = stable if committed else partition.high_watermark
            log_slice = log.read(offset, min(partition_max_bytes, limit), end_offset)
        except KafkaError:
            return NotImplemented
        if log_slice is None or ((size := len(log_slice)) < min_bytes and size < limit):
            asked: list[Asked] = [(partition, index, leader_epoch, offset, partition_max_bytes)]
            bounds = min(min_bytes, limit), limit
            fetch = LightFetch(
                self._way,
                [(topic_id, asked)],
                bounds,
                committed=committed,
                version=version,
                correlation_id=correlation_id,
            )
            if wait_ms > 0 and bounds[0] > 0:  # what was found is too little
                return _patient(fetch, connection, buffer, start, pos, end, wait_ms)
            return fetch.look(at_once=True)
        if committed and log.has_aborted and log.aborted(offset, log_slice):
            return NotImplemented
        length = uvarint(size + 1)
        head = _write_response(
            _RESPONSE_BYTES + len(length) + size + 3,
            correlation_id,
            _RESPONSE_START,
            topic_id,
            2,
            index,
            0,
            partition.high_watermark,
            stable,
            log.log_start,
            1 if committed else 0,
            -1,
        )
        return [head + length, log_slice, _RESPONSE_TAIL]

    def _handle_many(
        self, connection: Any, buffer: memoryview, start: int, pos: int, end: int, version: int, correlation_id: int
    ) -> Any:
        """Up to 126 topics with up to 16,382 partitions each, none of them with tags."""
        try:
            tags, wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, count = _read_head(buffer, pos)
            if tags or session_id or session_epoch != NO_SESSION or not 1 < count < 0x80:
                return NotImplemented
            topics = self._read_topics(buffer, pos + _HEAD_BYTES, end, count - 1)
        except (StructError, IndexError, KafkaError):
            return NotImplemented
        if topics is None:
            return NotImplemented
        limit = min(max_bytes, self._max_bytes)
        fetch = LightFetch(
            self._way,
            topics,
            (min(min_bytes, limit), limit),
            committed=isolation == READ_COMMITTED,
            version=version,
            correlation_id=correlation_id,
        )
        answer = fetch.look(at_once=wait_ms <= 0)
        return _patient(fetch, connection, buffer, start, pos, end, wait_ms) if answer is None else answer

    def _read_topics(
        self, buffer: memoryview, pos: int, end: int, count: int
    ) -> list[tuple[bytes, list[Asked]]] | None:
        known = self._partitions
        topics: list[tuple[bytes, list[Asked]]] = []
        last = b""
        for left in range(count, 0, -1):
            topic_id = buffer[pos : pos + 16].tobytes()
            number: int = buffer[pos + 16]
            pos += _TOPIC_BYTES
            if number > 0x7F:
                number += (buffer[pos] - 1) << 7
                pos += 1
            behind = pos + (number - 1) * _PARTITION_BYTES
            # Neighbours of one id would be told as one topic, one without partitions not at all.
            if not 1 < number < 0x4000 or behind > end or topic_id == last:
                return None
            asked: list[Asked] = []
            for index, epoch, offset, fetched_epoch, _, bytes_max, tags in _PARTITION.iter_unpack(buffer[pos:behind]):
                if fetched_epoch != NO_EPOCH or tags:
                    return None
                partition = known.get((topic_id, index)) or self._find(topic_id, index)
                asked.append((partition, index, epoch, offset, bytes_max))
            topics.append((topic_id, asked))
            pos, last = behind, topic_id
            if left > 1:
                if buffer[pos]:
                    return None
                pos += 1
        return topics if buffer[pos:end].tobytes() == _TAIL else None

    def _find(self, topic_id: bytes, index: int) -> Partition:
        partition = self._replicas.by_id(topic_id, index)
        if len(self._partitions) >= PARTITIONS_MAX:
            self._partitions.clear()
        self._partitions[topic_id, index] = partition
        return partition


def _patient(
    fetch: LightFetch, connection: Any, buffer: memoryview, start: int, pos: int, end: int, wait_ms: int
) -> LightFetch:
    return fetch.patient(connection, bytearray(buffer[start:end]), pos + _WAIT_AT - start, min(wait_ms, MAX_WAIT_MS))
