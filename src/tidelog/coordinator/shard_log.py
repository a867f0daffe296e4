"""The log under a shard's machine: a decision's entries as one record batch, a marker as a control batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tidelog.coordinator.entry import Entry, LogEntry, Marker
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import marker_record
from tidelog.wire.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.replica.partition import Partition
    from tidelog.wire.records.coordinator import RecordTypes

_COORDINATOR_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client of the coordinator is told where the append of its change failed, as in Kafka."""


def for_client(error: KafkaError) -> KafkaError:
    """A failed append in the terms of whoever asked the coordinator."""
    return KafkaError(_COORDINATOR_CODES.get(error.code, error.code), error.message)


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

    def _batch(self, entries: Sequence[Entry], epoch: int, now_ms: int) -> bytearray:
        types = self._types
        first = entries[0]
        transactional = first.producer_id >= 0
        return build(
            [
                Record(
                    -1,
                    now_ms,
                    types.encode_key(entry.key),
                    None if entry.value is None else types.encode_value(entry.value, entry.version),
                )
                for entry in entries
            ],
            base_offset=self._partition.log.log_end,
            leader_epoch=epoch,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            base_sequence=0 if transactional else -1,
            compression=self._codec(),
            transactional=transactional,
        )

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
