"""Records of the metadata log (KRaft): the framing, and all record types under one roof.

On the log, a record's value is a frame version (1), the record's type and version as varints, and its body.
"""

from typing import Any, TypeAlias

from tidelog.wire.codec import decoder, encoder
from tidelog.wire.decode import Decode, read_varint
from tidelog.wire.encode import Encode
from tidelog.wire.errors import MalformedError
from tidelog.wire.records.cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
    ZkMigrationStateRecord,
)
from tidelog.wire.records.nodes import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog.wire.records.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tidelog.wire.records.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidelog.wire.schema import schema

__all__ = [
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "Record",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UserScramCredentialRecord",
    "ZkMigrationStateRecord",
    "decode_record",
    "encode_record",
]

Record: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RemoveDelegationTokenRecord
    | RegisterControllerRecord
    | ClearElrRecord
)

_CLASSES: dict[int, type[Record]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
}

_FRAME_VERSION = 1
_PREFIX_BYTES = 3  # frame version, type and version are single bytes as long as they are below 128, and all are

_encoders: dict[tuple[type[Record], int | None], tuple[bytes, Encode[Any]]] = {}
_decoders: dict[bytes, Decode[Record]] = {}


def encode_record(record: Record, version: int | None = None) -> bytes:
    """A record's value on the log; in the newest version where none is given."""
    cls = type(record)
    cached = _encoders.get((cls, version))
    if cached is None:
        declared = schema(cls)
        assert declared.key is not None
        chosen = declared.versions.last if version is None else version
        cached = _encoders[cls, version] = bytes((_FRAME_VERSION, declared.key, chosen)), encoder(cls, chosen)
    prefix, encode = cached
    return prefix + encode(record)


def decode_record(value: bytes | memoryview) -> Record:
    """The record that a value on the log holds, in whichever version it was written."""
    prefix = bytes(value[:_PREFIX_BYTES])
    decode = _decoders.get(prefix)
    if decode is None:
        decode = _decoders[prefix] = _find_decoder(value)
    record, end = decode(value, _PREFIX_BYTES)
    if end != len(value):
        raise MalformedError(f"{type(record).__name__} is followed by {len(value) - end} bytes that belong to nothing")
    return record


def _find_decoder(value: bytes | memoryview) -> Decode[Record]:
    try:
        frame, pos = read_varint(value, 0)
        key, pos = read_varint(value, pos)
        version, pos = read_varint(value, pos)
    except IndexError:
        raise MalformedError(f"a metadata record is cut off after {len(value)} bytes") from None
    if frame != _FRAME_VERSION:
        raise MalformedError(f"a metadata record has frame version {frame}; {_FRAME_VERSION} is the one there is")
    cls = _CLASSES.get(key)
    if cls is None:
        raise MalformedError(f"a metadata record has type {key}, which this version of Tidelog doesn't know")
    if version not in schema(cls).versions or pos != _PREFIX_BYTES:
        raise MalformedError(f"{cls.__name__} has version {version}, which this version of Tidelog doesn't know")
    return decoder(cls, version)
