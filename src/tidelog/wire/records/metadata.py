"""Records of the metadata log (KRaft): the framing, and all record types under one roof.

On the log, a record's value is a frame version (1), the record's type and version as varints, and its body.
"""

from typing import TypeAlias

from tidelog.wire.codec import decoder, encoder
from tidelog.wire.decode import read_varint
from tidelog.wire.encode import varint
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


def encode_record(record: Record, version: int | None = None) -> bytes:
    """A record's value on the log; in the newest version where none is given."""
    cls = type(record)
    declared = schema(cls)
    assert declared.key is not None
    if version is None:
        version = declared.versions.last
    return bytes((_FRAME_VERSION,)) + varint(declared.key) + varint(version) + encoder(cls, version)(record)


def decode_record(value: bytes | memoryview) -> Record:
    """The record that a value on the log holds, in whichever version it was written."""
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
    if version not in schema(cls).versions:
        raise MalformedError(f"{cls.__name__} has version {version}, which this version of Tidelog doesn't know")
    record, end = decoder(cls, version)(value, pos)
    if end != len(value):
        raise MalformedError(
            f"{cls.__name__} v{version} is followed by {len(value) - end} bytes that belong to nothing"
        )
    return record
