"""The record in a control batch that ends a transaction: commit or abort, and the coordinator's epoch."""

from struct import Struct

from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.record import Record

ABORT = 0
COMMIT = 1

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch


def marker_record(coordinator_epoch: int, timestamp: int, *, commit: bool) -> Record:
    key = _KEY.pack(0, COMMIT if commit else ABORT)
    return Record(timestamp=timestamp, key=key, value=_VALUE.pack(0, coordinator_epoch))


def read_marker(record: Record) -> tuple[bool, int]:
    """(commit?, coordinator epoch); INVALID_RECORD where the record is no marker."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the control record at offset {record.offset} is too short")
    kind = _KEY.unpack_from(key)[1]
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if kind not in (ABORT, COMMIT) or version < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the control record at offset {record.offset} of type {kind} ends no transaction"
        )
    return kind == COMMIT, coordinator_epoch
