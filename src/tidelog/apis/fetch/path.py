"""The fast path of Fetch: by topic id, without a session, as librdkafka asks again and again.

The request for one partition has one size, and but for the offset the same bytes each time, so that what it asks for is
looked up by them. Whatever differs in any way, and whatever fails, goes the general way, which comes to the same
answer: the compiled codec is the oracle in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tidelog.apis.bounds import FAST_FETCH_BYTES_MAX, FAST_FETCHES_MAX, MAX_WAIT_MS
from tidelog.apis.fetch.fast_fetch import Asked, FastFetch, FastPath, uvarint
from tidelog.apis.fetch.parked import FEW, Parked
from tidelog.env.slices import whole
from tidelog.wire.errors import KafkaError
from tidelog.wire.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Services
    from tidelog.replica.partition import Partition

FIRST_VERSION, LAST_VERSION = 15, 18
READ_COMMITTED = 1
NO_SESSION = -1
NO_EPOCH = -1

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
# A request for one partition is the same each time a consumer asks, but for the offset.
_OFFSET_AT = _HEAD_BYTES + _TOPIC_BYTES + 8
_REQUEST_BYTES = _HEAD_BYTES + _TOPIC_BYTES + _PARTITION_BYTES + len(_TAIL)
_read_request = Struct(f">{_OFFSET_AT}sq{_REQUEST_BYTES - _OFFSET_AT - 8}s").unpack_from
# Header tags, throttle time, error, session id, one topic.
_RESPONSE_START = bytes(11) + b"\x02"
# Length, correlation id, the start with the topic's id, one partition, index and no error; high watermark, last stable
# offset, log start, aborted transactions, preferred replica; then the records' length.
_RESPONSE = Struct(f">ii{len(_RESPONSE_START) + 16 + 1 + 4 + 2}sqqqBi")
_write_response = _RESPONSE.pack
_RESPONSE_BYTES = _RESPONSE.size - 4
_RESPONSE_TAIL = b"\0\0\0"


Target: TypeAlias = "tuple[Partition, int, int, int, int, bytes, Wants]"
"""A partition, the leader epoch that the client believes in, bytes at most and at least, whether it reads committed (as
the answer has it: an empty list of aborted transactions, or none), what the answer always begins with, the rest."""


class Wants(NamedTuple):
    """What else a request for one partition says."""

    topic_id: bytes
    number: int
    wait_ms: int
    limit: int
    partition_bytes_max: int


class FetchPath:
    def __init__(self, services: Services, general: Callable[[Any, memoryview, int, int, int, int, int], Any]) -> None:
        self._node_id = services.node_id
        self._replicas = services.replicas
        self._max_bytes = services.config.fetch_max_bytes
        self._fast_path = FastPath(services.node_id, services.env.loop, general)
        self._partitions: dict[TopicIdPartition, Partition] = {}
        self._targets: dict[bytes, Target] = {}
        services.replicas.forget += [self._partitions.clear, self._targets.clear]

    def handle_frame(
        self, connection: Any, buffer: memoryview, start: int, pos: int, end: int, version: int, correlation_id: int
    ) -> Any:
        """The answer to a frame whose header ends at `pos` but for its tags; NotImplemented: take the general way."""
        if not FIRST_VERSION <= version <= LAST_VERSION:
            return NotImplemented
        if end - pos != _REQUEST_BYTES:
            return self._handle_many(connection, buffer, start, pos, end, version, correlation_id)
        before, offset, behind = _read_request(buffer, pos)
        key = before + behind
        target = self._targets.get(key) or self._find_target(key)
        if target is None:
            return NotImplemented
        partition, epoch, bytes_max, min_bytes, committed, begin, wants = target
        if partition.leader != self._node_id or NO_EPOCH != epoch != partition.leader_epoch:
            return NotImplemented
        log = partition.log
        high_watermark = partition.high_watermark
        try:
            stable = partition.last_stable_offset
            limit = stable if committed else high_watermark
            aborts = committed and log.segments.has_aborted
            piece = None if aborts else log.read_mapped(offset, bytes_max, limit)
            size = bytes_max
            if piece is None or size < min_bytes:
                piece = log.read(offset, bytes_max, limit)
                size = 0 if piece is None else piece.count
                if piece is not None and aborts and log.aborted(offset, piece):
                    return NotImplemented
        except (KafkaError, OSError):  # the general way tells of them
            return NotImplemented
        if piece is None or size < min_bytes:
            asked = partition, wants.number, epoch, offset, wants.partition_bytes_max
            fetch = FastFetch(
                self._fast_path,
                [(wants.topic_id, [asked])],
                (min_bytes, wants.limit),
                committed=bool(committed),
                version=version,
                correlation_id=correlation_id,
            )
            if wants.wait_ms > 0 and min_bytes > 0:  # what was found is too little
                return _patient(fetch, connection, buffer, start, pos, end, wants.wait_ms, looked=True)
            return whole(fetch.steps(at_once=True))
        length = uvarint(size + 1)
        head = _write_response(
            _RESPONSE_BYTES + len(length) + size + 3,
            correlation_id,
            begin,
            high_watermark,
            stable,
            log.ends.log_start,
            committed,
            -1,
        )
        return [head + length, piece, _RESPONSE_TAIL]

    def _find_target(self, key: bytes) -> Target | None:
        """Resolve and remember: `key` is a request for one partition without its offset. None: not for this path."""
        whole = memoryview(key[:_OFFSET_AT] + bytes(8) + key[_OFFSET_AT:])
        tags, wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, count = _read_head(whole)
        if tags or session_id or session_epoch != NO_SESSION or count != 2:
            return None
        try:
            topics = self._read_topics(whole, _HEAD_BYTES, len(whole), 1)
        except KafkaError:
            return None
        if topics is None or len(topics[0][1]) != 1:
            return None
        topic_id, [(partition, index, epoch, _, partition_bytes_max)] = topics[0]
        limit = min(max_bytes, self._max_bytes)
        target: Target = (
            partition,
            epoch,
            min(partition_bytes_max, limit),
            min(min_bytes, limit),
            1 if isolation == READ_COMMITTED else 0,
            _RESPONSE_START + topic_id + b"\x02" + index.to_bytes(4, signed=True) + bytes(2),
            Wants(topic_id, index, wait_ms, limit, partition_bytes_max),
        )
        if len(self._targets) >= FAST_FETCHES_MAX:
            self._targets.clear()
        self._targets[key] = target
        return target

    def _handle_many(
        self, connection: Any, buffer: memoryview, start: int, pos: int, end: int, version: int, correlation_id: int
    ) -> Any:
        """Up to 126 topics with up to 16,382 partitions each, none of them with tags, none named twice."""
        if end - pos > FAST_FETCH_BYTES_MAX:
            return NotImplemented
        try:
            tags, wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, count = _read_head(buffer, pos)
            if tags or session_id or session_epoch != NO_SESSION or not 1 < count < 0x80:
                return NotImplemented
            topics = self._read_topics(buffer, pos + _HEAD_BYTES, end, count - 1)
        except (StructError, IndexError, KafkaError):
            return NotImplemented
        if topics is None or _names_one_twice(topics):
            return NotImplemented
        limit = min(max_bytes, self._max_bytes)
        fetch = FastFetch(
            self._fast_path,
            topics,
            (min(min_bytes, limit), limit),
            committed=isolation == READ_COMMITTED,
            version=version,
            correlation_id=correlation_id,
        )
        if fetch.count > FEW:
            return _patient(fetch, connection, buffer, start, pos, end, wait_ms, looked=False)
        answer = whole(fetch.steps(at_once=wait_ms <= 0))
        return _patient(fetch, connection, buffer, start, pos, end, wait_ms, looked=True) if answer is None else answer

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
        if len(self._partitions) >= FAST_FETCHES_MAX:
            self._partitions.clear()
        self._partitions[topic_id, index] = partition
        return partition


def _names_one_twice(topics: list[tuple[bytes, list[Asked]]]) -> bool:
    distinct = {each[0] for _, asked in topics for each in asked}
    return len(distinct) < sum(len(asked) for _, asked in topics)


def _patient(
    fetch: FastFetch,
    connection: Any,
    buffer: memoryview,
    start: int,
    pos: int,
    end: int,
    wait_ms: int,
    *,
    looked: bool,
) -> Parked:
    wait_at = pos + _WAIT_AT - start
    return fetch.patient(connection, bytearray(buffer[start:end]), wait_at, min(wait_ms, MAX_WAIT_MS), looked=looked)
