"""The record in a control batch that ends a transaction: commit or abort, and the coordinator's epoch."""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple, cast

from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.record import Record

ABORT = 0
COMMIT = 1

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch


class EndTxnMarker(NamedTuple):
    """A transaction of the batch's producer ended here."""

    committed: bool
    coordinator_epoch: int


def encode_marker(marker: EndTxnMarker) -> tuple[bytes, bytes]:
    """Its key and value."""
    return _KEY.pack(0, COMMIT if marker.committed else ABORT), _VALUE.pack(0, marker.coordinator_epoch)


def decode_marker(kind: int, value: bytes | memoryview) -> EndTxnMarker:
    """The marker whose key says `kind`, which is ABORT or COMMIT."""
    try:
        version, coordinator_epoch = _VALUE.unpack_from(value)
    except StructError:
        raise MalformedError(f"a control record of type {kind} is cut off after {len(value)} bytes") from None
    if version < 0:
        raise MalformedError(f"a control record of type {kind} has version {version}")
    return EndTxnMarker(kind == COMMIT, cast(int, coordinator_epoch))


def marker_record(coordinator_epoch: int, timestamp: int, *, commit: bool) -> Record:
    key, value = encode_marker(EndTxnMarker(commit, coordinator_epoch))
    return Record(timestamp=timestamp, key=key, value=value)


def read_marker(record: Record) -> EndTxnMarker:
    """INVALID_RECORD where the record is no marker."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the control record at offset {record.offset} is too short")
    kind = _KEY.unpack_from(key)[1]
    if kind not in (ABORT, COMMIT):
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the control record at offset {record.offset} of type {kind} ends no transaction"
        )
    try:
        return decode_marker(kind, value)
    except MalformedError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"at offset {record.offset}: {error}") from None
