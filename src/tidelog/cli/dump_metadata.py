"""Records of the metadata log and its snapshots as plain entries: their type, and the fields that say something."""

import dataclasses
from typing import Any, cast

from tidelog.wire.errors import MalformedError
from tidelog.wire.record import Record
from tidelog.wire.records.control import EndTxnMarker, decode_control
from tidelog.wire.records.metadata import decode_record
from tidelog.wire.uuids import ZERO_UUID, uuid_text

UUID_BYTES = 16


def metadata_record(record: Record, *, control: bool) -> dict[str, Any]:
    """What a metadata or control record says; a record of a later version than ours is named as unknown."""
    try:
        decoded = (
            decode_control(record.key or b"", record.value or b"") if control else decode_record(record.value or b"")
        )
    except MalformedError as error:
        return {"problem": str(error)}
    return {"type": type(decoded).__name__, **_fields(decoded)}


def _fields(value: object) -> dict[str, Any]:
    if isinstance(value, EndTxnMarker):
        return value._asdict()
    assert dataclasses.is_dataclass(value), f"a record is a dataclass, not {type(value)}"
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        if value == ZERO_UUID:
            return None
        return uuid_text(value) if len(value) == UUID_BYTES else value.hex()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(list[Any], value)]
    return _fields(value) if dataclasses.is_dataclass(value) else value
