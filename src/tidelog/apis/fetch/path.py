"""The fast path of Fetch: one partition, by topic id, without a session, as librdkafka asks again and again.

Such a request has one size and one layout, so a single unpack reads it. Whatever differs in any way, and whatever would
have to wait or fail, goes the general way, which comes to the same answer: the compiled codec is the oracle in tests.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.apis.context import Services
    from tidelog.replica.partition import Partition

FIRST_VERSION, LAST_VERSION = 15, 18
READ_COMMITTED = 1
PARTITIONS_MAX = 20_000

# Header tags, max wait, min bytes, max bytes, isolation, session id, session epoch, number of topics + 1, topic id,
# number of partitions + 1, index, current leader epoch, offset, last fetched epoch, log start, max bytes, then tags of
# the partition and the topic, no forgotten topics, no rack, tags.
_REQUEST = Struct(">BiiibiiB16sBiiqiqi5s")
_read_request = _REQUEST.unpack_from
_REQUEST_BYTES = _REQUEST.size
_REQUEST_TAIL = b"\0\0\1\1\0"
# Header tags, throttle time, error, session id, one topic.
_RESPONSE_START = bytes(11) + b"\x02"
# Length, correlation id, the start, the topic's id, one partition, index, error, high watermark, last stable offset,
# log start, aborted transactions, preferred replica; then the records' length.
_RESPONSE = Struct(f">ii{len(_RESPONSE_START)}s16sBihqqqBi")
_write_response = _RESPONSE.pack
_RESPONSE_BYTES = _RESPONSE.size - 4
_RESPONSE_TAIL = b"\0\0\0"


class FetchPath:
    def __init__(self, services: Services) -> None:
        self._node_id = services.node_id
        self._replicas = services.replicas
        self._max_bytes = services.config.fetch_max_bytes
        self._partitions: dict[tuple[bytes, int], Partition] = {}
        services.replicas.forget.append(self._partitions.clear)

    def handle_frame(self, buffer: memoryview, pos: int, end: int, version: int, correlation_id: int) -> Any:
        """The answer to a frame whose header ends at `pos` but for its tags; NotImplemented: take the general way."""
        if not FIRST_VERSION <= version <= LAST_VERSION or end - pos != _REQUEST_BYTES:
            return NotImplemented
        try:
            (
                tags,
                _,
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
        except StructError:
            return NotImplemented
        if (
            tail != _REQUEST_TAIL
            or topics != 2
            or partitions != 2
            or session_id
            or session_epoch != -1
            or tags
            or fetched_epoch != -1
        ):
            return NotImplemented
        committed = isolation == READ_COMMITTED
        limit = min(max_bytes, self._max_bytes)
        try:
            partition = self._partitions.get((topic_id, index)) or self._find(topic_id, index)
            if partition.leader != self._node_id or -1 != leader_epoch != partition.leader_epoch:
                return NotImplemented
            log = partition.log
            stable = partition.last_stable_offset
            end_offset = stable if committed else partition.high_watermark
            log_slice = log.read(offset, min(partition_max_bytes, limit), end_offset)
        except KafkaError:
            return NotImplemented
        if log_slice is None or (committed and log.has_aborted and log.aborted(offset, log_slice)):
            return NotImplemented
        size = len(log_slice)
        if size < min_bytes and size < limit:
            return NotImplemented
        length = _uvarint(size + 1)
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

    def _find(self, topic_id: bytes, index: int) -> Partition:
        partition = self._replicas.by_id(topic_id, index)
        if len(self._partitions) >= PARTITIONS_MAX:
            self._partitions.clear()
        self._partitions[topic_id, index] = partition
        return partition


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80)) + _uvarint(value >> 21)
