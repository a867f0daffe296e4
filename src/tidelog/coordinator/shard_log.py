"""The log under a shard's machine: a decision's entries as one record batch, a marker as a control batch.

To encode thousands of entries takes longer than all else about them, and needs no state: it may be done ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tidelog.coordinator.entry import Entry, LogEntry, Marker
from tidelog.wire.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL_FLAG, BatchHeader, assemble, build
from tidelog.wire.compression import compress
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import marker_record
from tidelog.wire.record import Record, encode_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.replica.partition import Partition
    from tidelog.wire.records.coordinator import RecordTypes

_COORDINATOR_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,  # it leads in another epoch already
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client of the coordinator is told where the append of its change failed, as in Kafka."""
TOO_LARGE = _COORDINATOR_CODES[ErrorCode.MESSAGE_TOO_LARGE]
"""So it is told of a change that doesn't fit a batch of the topic, and of nothing else."""


def for_client(error: KafkaError) -> KafkaError:
    """A failed append in the terms of whoever asked the coordinator."""
    return KafkaError(_COORDINATOR_CODES.get(error.code, error.code), error.message)


class EncodedEntries(list[Entry]):
    """Entries of one producer, or of none, and the records that they are in a batch; `ShardLog.encode` adds them."""

    __slots__ = ("section", "timestamp_ms")

    def __init__(self, timestamp_ms: int) -> None:
        super().__init__()
        self.section = bytearray()
        self.timestamp_ms = timestamp_ms

    def cut(self, count: int, section_bytes: int) -> None:
        """Back to what it was when it had so many."""
        del self[count:]
        del self.section[section_bytes:]


class ShardLog:
    """Appends to the partition that this broker leads."""

    __slots__ = ("_codec", "_partition", "_types")

    def __init__(self, partition: Partition, types: RecordTypes, codec: Callable[[], int]) -> None:
        self._partition = partition
        self._types = types
        self._codec = codec

    @property
    def next_offset(self) -> int:
        return self._partition.log.log_end

    def append(self, records: Sequence[LogEntry], epoch: int, now_ms: int) -> int:
        """All in one batch, so that all or none of them count. Raises what the coordinator's client is to hear."""
        first = records[0]
        try:
            if type(first) is Marker:
                data = self._marker(first, epoch, now_ms)
            else:
                data = self._batch(cast("Sequence[Entry]", records), epoch, now_ms)
            return self._partition.append_own(memoryview(data), epoch, now_ms) - 1
        except KafkaError as error:
            raise for_client(error) from error

    def encode(self, entry: Entry, to: EncodedEntries, room: int) -> bool:
        """Add the entry; False, and nothing is added, where its batch would have more than `room` bytes by that."""
        record = encode_record(self._record(entry, to.timestamp_ms), len(to), 0)
        if to and HEADER_BYTES + len(to.section) + len(record) > room:
            return False
        to.section += record
        to.append(entry)
        return True

    def _record(self, entry: Entry, now_ms: int) -> Record:
        types = self._types
        value = None if entry.value is None else types.encode_value(entry.value, entry.version)
        return Record(-1, now_ms, types.encode_key(entry.key), value)

    def _batch(self, entries: Sequence[Entry], epoch: int, now_ms: int) -> bytearray:
        first = entries[0]
        transactional = first.producer_id >= 0
        if isinstance(entries, EncodedEntries):
            return self._encoded_batch(entries, epoch)
        return build(
            [self._record(entry, now_ms) for entry in entries],
            base_offset=self._partition.log.log_end,
            leader_epoch=epoch,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            base_sequence=0 if transactional else -1,
            compression=self._codec(),
            transactional=transactional,
        )

    def _encoded_batch(self, entries: EncodedEntries, epoch: int) -> bytearray:
        first, codec, count = entries[0], self._codec(), len(entries)
        transactional = first.producer_id >= 0
        header = BatchHeader(
            base_offset=self._partition.log.log_end,
            length=0,
            leader_epoch=epoch,
            magic=MAGIC,
            crc=0,
            attributes=codec | (TRANSACTIONAL_FLAG if transactional else 0),
            last_offset_delta=count - 1,
            base_timestamp=entries.timestamp_ms,
            max_timestamp=entries.timestamp_ms,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            base_sequence=0 if transactional else -1,
            record_count=count,
            pos=0,
        )
        return assemble(compress(codec, entries.section) if codec else entries.section, header)

    def _marker(self, marker: Marker, epoch: int, now_ms: int) -> bytearray:
        return build(
            [marker_record(marker.coordinator_epoch, now_ms, commit=marker.committed)],
            base_offset=self._partition.log.log_end,
            leader_epoch=epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transactional=True,
            control=True,
        )
