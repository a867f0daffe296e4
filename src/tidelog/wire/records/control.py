"""Control records: what a log tells about itself, beside the data. Their batches carry the control flag.

A control record's key holds its type, its value one of the messages here. Elections and snapshots of the metadata log
use them, and the markers that end a transaction.
"""

from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import TypeAlias, cast

from tidelog.wire.codec import decoder, encoder, i16, i32, i64, message, struct, u16, uuid, wire
from tidelog.wire.errors import MalformedError
from tidelog.wire.markers import EndTxnMarker, decode_marker, encode_marker
from tidelog.wire.schema import schema
from tidelog.wire.uuids import ZERO_UUID


class ControlType(IntEnum):
    """What a control record is, by the number in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@struct
class LeaderChangeVoter:
    voter_id: i32 = 0
    voter_directory_id: uuid = wire("1+", default=ZERO_UUID)


@message(key=ControlType.LEADER_CHANGE, versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """The first record of an epoch: who leads, and who elected them. Kafka 4.3 writes version 0."""

    version: i16 = 0
    leader_id: i32 = 0
    voters: list[LeaderChangeVoter] = wire(factory=list)
    granting_voters: list[LeaderChangeVoter] = wire(factory=list)


@message(key=ControlType.SNAPSHOT_HEADER, versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """The first record of a snapshot."""

    version: i16 = 0
    last_contained_log_timestamp: i64 = 0


@message(key=ControlType.SNAPSHOT_FOOTER, versions="0", flexible="0+")
class SnapshotFooterRecord:
    """The last record of a snapshot: without it the snapshot is not whole."""

    version: i16 = 0


@message(key=ControlType.KRAFT_VERSION, versions="0", flexible="0+")
class KRaftVersionRecord:
    """The finalised `kraft.version`."""

    version: i16 = 0
    kraft_version: i16 = 0


@struct
class Endpoint:
    name: str = ""
    host: str = ""
    port: u16 = 0


@struct
class KRaftVersionFeature:
    min_supported_version: i16 = 0
    max_supported_version: i16 = 0


@struct
class Voter:
    voter_id: i32 = 0
    voter_directory_id: uuid = ZERO_UUID
    endpoints: list[Endpoint] = wire(factory=list)
    kraft_version_feature: KRaftVersionFeature = wire(factory=KRaftVersionFeature)


@message(key=ControlType.KRAFT_VOTERS, versions="0", flexible="0+")
class VotersRecord:
    """The set of voters from here on."""

    version: i16 = 0
    voters: list[Voter] = wire(factory=list)


ControlRecord: TypeAlias = (
    LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord | EndTxnMarker
)

_CLASSES: dict[int, type[ControlRecord]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}

_KEY = Struct(">hh")
_VERSION = Struct(">h")


def encode_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """The key and value of a control record."""
    if isinstance(record, EndTxnMarker):
        return encode_marker(record)
    cls = type(record)
    return _KEY.pack(0, schema(cls).key), encoder(cls, record.version)(record)


def control_type(key: bytes | memoryview) -> int:
    """The number in a control record's key, known (a `ControlType`) or not."""
    try:
        version, number = _KEY.unpack_from(key)
    except StructError:
        raise MalformedError(f"the key of a control record has 4 bytes, this one {len(key)}") from None
    if version < 0:
        raise MalformedError(f"the key of a control record has version {version}")
    return cast(int, number)


def decode_control(key: bytes | memoryview, value: bytes | memoryview) -> ControlRecord | None:
    """The control record; None for a type not known here, which is to be passed over."""
    number = control_type(key)
    if number in (ControlType.ABORT, ControlType.COMMIT):
        return decode_marker(number, value)
    cls = _CLASSES.get(number)
    if cls is None:
        return None
    try:
        version = cast(int, _VERSION.unpack_from(value)[0])
    except StructError:
        raise MalformedError(f"a control record of type {number} is cut off after {len(value)} bytes") from None
    return decoder(cls, max(0, min(version, schema(cls).versions.last)))(value, 0)[0]
