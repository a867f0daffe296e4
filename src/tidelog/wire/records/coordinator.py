"""Keys and values of the coordinators' topics: a version of two bytes, then the body.

A key's version is the record's type, so that one topic holds many types; a value's version is its own. A tombstone has
no value.
"""

import struct
from collections.abc import Callable
from typing import Any

from tidelog.wire.codec import decoder, encoder
from tidelog.wire.decode import Decode
from tidelog.wire.encode import Encode
from tidelog.wire.errors import MalformedError
from tidelog.wire.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.wire.records.groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.wire.records.transactions import TransactionLogKey, TransactionLogValue
from tidelog.wire.schema import schema

_VERSION = struct.Struct(">h")

_Pair = tuple[type[Any], type[Any]]

OFFSETS_TOPIC: dict[int, _Pair] = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
TRANSACTIONS_TOPIC: dict[int, _Pair] = {0: (TransactionLogKey, TransactionLogValue)}


class RecordTypes:
    """The record types of one topic.

    >>> types = RecordTypes(TRANSACTIONS_TOPIC)
    >>> types.decode(types.encode_key(TransactionLogKey(transactional_id="a")), None)
    (TransactionLogKey(transactional_id='a'), None)
    """

    __slots__ = ("_encoders", "_key_decoders", "_pairs", "_value_decoders")

    def __init__(self, pairs: dict[int, _Pair]) -> None:
        self._pairs = pairs
        self._encoders: dict[tuple[type[Any], int | None], tuple[bytes, Encode[Any]]] = {}
        self._key_decoders: dict[bytes, Decode[Any]] = {}
        self._value_decoders: dict[tuple[bytes, bytes], Decode[Any]] = {}

    def encode_key(self, key: object) -> bytes:
        cached = self._encoders.get((type(key), None))
        if cached is None:
            cls = type(key)
            kind = schema(cls).key
            assert kind is not None
            assert self._pairs[kind][0] is cls
            cached = self._encoders[cls, None] = _VERSION.pack(kind), encoder(cls, 0)
        return cached[0] + cached[1](key)

    def encode_value(self, value: object, version: int | None = None) -> bytes:
        """In the newest version where none is given."""
        cls = type(value)
        cached = self._encoders.get((cls, version))
        if cached is None:
            chosen = schema(cls).versions.last if version is None else version
            cached = self._encoders[cls, version] = _VERSION.pack(chosen), encoder(cls, chosen)
        return cached[0] + cached[1](value)

    def decode(self, key: bytes | memoryview, value: bytes | memoryview | None) -> tuple[Any, Any] | None:
        """The key and the value (None: a tombstone); None for a type that this version of Tidelog doesn't know.

        Other types stay in the topic as they are: a newer version, or Apache Kafka, may have written them.
        """
        kind = bytes(key[:2])
        if len(kind) < 2:
            raise MalformedError(f"a coordinator's record has a key of {len(kind)} bytes")
        pair = self._pairs.get(_VERSION.unpack(kind)[0])
        if pair is None:
            return None
        decode_key = self._key_decoders.get(kind)
        if decode_key is None:
            decode_key = self._key_decoders[kind] = decoder(pair[0], 0)
        whole_key = _whole(decode_key, key)
        if value is None:
            return whole_key, None
        version = bytes(value[:2])
        decode_value = self._value_decoders.get((kind, version))
        if decode_value is None:
            decode_value = self._value_decoders[kind, version] = _value_decoder(pair[1], version)
        return whole_key, _whole(decode_value, value)


def _value_decoder(cls: type[Any], version: bytes) -> Decode[Any]:
    if len(version) < 2:
        raise MalformedError(f"{cls.__name__} is cut off after {len(version)} bytes")
    number = _VERSION.unpack(version)[0]
    if number not in schema(cls).versions:
        raise MalformedError(f"{cls.__name__} has version {number}, which this version of Tidelog doesn't know")
    return decoder(cls, number)


def _whole(decode: Callable[[Any, int], tuple[Any, int]], data: bytes | memoryview) -> Any:
    decoded, end = decode(data, 2)
    if end != len(data):
        raise MalformedError(f"{type(decoded).__name__} is followed by {len(data) - end} bytes that belong to nothing")
    return decoded
