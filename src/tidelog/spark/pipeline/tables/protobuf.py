"""Protobuf values to columns, by Python's library for it: no jar, and what can't be read says why.

A message is a struct, an enum its name, a well-known wrapper the value in it, a timestamp and a duration Spark's own. A
field that may be absent, and is, is null; one that can't, such as a plain number in proto3, has its default.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

READ, WHY = "read", "why"
"""What a value became, or why it did not."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRAPPERS = tuple(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
"""These hold anything at all, themselves too: JSON, as text."""


class NoMessage(ValueError):
    """The descriptor file has no such message, or one that can't be columns."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How one kind of value becomes a column's: its type, and what makes it of Python's value."""

    type: DataType
    of: Callable[[Any], Any]


def descriptors(path: Path) -> bytes:
    """The file that protoc wrote."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NoMessage(
            f"there is no descriptor file {path}: `protoc --include_imports --descriptor_set_out={path.name} "
            "YOUR.proto` makes one"
        ) from None


def columns(file: bytes, message: str) -> StructType:
    """The columns of a message. Raises NoMessage."""
    kind = _opened(file, message)[1].type
    assert isinstance(kind, StructType)
    return kind


def reader(file: bytes, message: str) -> Callable[[Any], Any]:
    """A function over Spark's columns: of bytes it makes a struct of READ and WHY."""
    import pyarrow
    from pyspark.sql import functions
    from pyspark.sql.pandas import types

    udfs: Any = functions
    arrow_types: Any = types
    arrow: Any = pyarrow
    shape = StructType([StructField(READ, columns(file, message)), StructField(WHY, StringType())])

    def read(values: Any) -> Any:
        made = [read_message(file, message, value) for value in values.to_pylist()]
        return arrow.array(made, type=arrow_types.to_arrow_type(shape, timezone="UTC"))

    read.__annotations__ = {"values": arrow.Array, "return": arrow.Array}  # what Spark goes by
    return udfs.arrow_udf(read, returnType=shape)


def read_message(file: bytes, message: str, value: bytes | None) -> dict[str, Any] | None:
    """The row of one value, or why it is none."""
    if value is None:
        return None
    parse, reading = _opened(file, message)
    try:
        made = parse(value)
        if made.IsInitialized():
            return {READ: reading.of(made), WHY: None}
        why = f"missing: {', '.join(made.FindInitializationErrors())}"
    except Exception as error:  # the library's own errors, and dates that Python doesn't have
        why = str(error).rpartition(": ")[2]
    return {READ: None, WHY: f"not a {message}: {why}"}


@cache
def _opened(file: bytes, message: str) -> tuple[Callable[[bytes], Any], Reading]:
    """What parses a message, and how it becomes a row."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise NoMessage("decode = 'protobuf' needs Python's library for it: pip install tidelog[protobuf]") from error
    try:
        described = descriptor_pb2.FileDescriptorSet.FromString(file)
    except DecodeError:
        raise NoMessage("the descriptor file is not one that protoc --descriptor_set_out wrote") from None
    pool = descriptor_pool.DescriptorPool()
    for each in described.file:
        try:
            pool.Add(each)
            pool.FindFileByName(each.name)
        except (TypeError, KeyError) as error:
            why = f"{each.name} can't be read from the descriptor file; was it made with --include_imports? {error}"
            raise NoMessage(why) from None
    try:
        kind = pool.FindMessageTypeByName(message)
    except KeyError:
        there = sorted(
            f"{each.package}.{made.name}".strip(".") for each in described.file for made in each.message_type
        )
        raise NoMessage(f"the descriptor file has no message {message}; it has {', '.join(there) or 'none'}") from None
    if kind.full_name in (*_WRAPPERS, *_JSON, "google.protobuf.Timestamp", "google.protobuf.Duration"):
        raise NoMessage(f"{message} is a single value: name the message that holds it")
    return message_factory.GetMessageClass(kind).FromString, _message(kind, ())


def _message(kind: Any, above: tuple[str, ...]) -> Reading:
    if kind.full_name in above:
        raise NoMessage(f"{kind.full_name} holds itself ({' > '.join((*above, kind.full_name))}): it can't be columns")
    if kind.full_name == "google.protobuf.Timestamp":
        return Reading(TimestampType(), lambda made: _EPOCH + timedelta(0, made.seconds, made.nanos // 1000))
    if kind.full_name == "google.protobuf.Duration":
        return Reading(DayTimeIntervalType(), lambda made: timedelta(0, made.seconds, made.nanos // 1000))
    if kind.full_name in _WRAPPERS:
        inside = _single(kind.fields_by_name["value"], above)
        return Reading(inside.type, lambda made: inside.of(made.value))
    if kind.full_name in _JSON:
        return Reading(StringType(), _as_json)
    if not kind.fields:
        return Reading(BooleanType(), lambda made: True)  # it says only that it is there, and structs have fields
    fields = list(_fields(kind, (*above, kind.full_name)))
    shape = StructType([StructField(name, type) for name, type, _ in fields])
    return Reading(shape, lambda made: {name: take(made) for name, _, take in fields})


def _fields(kind: Any, above: tuple[str, ...]) -> Iterator[tuple[str, DataType, Callable[[Any], Any]]]:
    """The columns of a message: name, type, and what takes its value from a message."""
    for field in kind.fields:
        reading = _field(field, above)
        yield field.name, reading.type, _taking(field, reading.of)


def _taking(field: Any, of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    name = field.name
    if field.has_presence:
        return lambda made: of(getattr(made, name)) if made.HasField(name) else None
    return lambda made: of(getattr(made, name))


def _field(field: Any, above: tuple[str, ...]) -> Reading:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key = _single(kind.fields_by_name["key"], above)
        value = _single(kind.fields_by_name["value"], above)
        made = MapType(key.type, value.type)
        return Reading(made, lambda held: [(key.of(each), value.of(held[each])) for each in held])
    one = _single(field, above)
    if field.is_repeated:
        return Reading(ArrayType(one.type), lambda held: [one.of(each) for each in held])
    return one


def _single(field: Any, above: tuple[str, ...]) -> Reading:
    """A value as it is, or inside a list or a map."""
    if field.message_type is not None:
        return _message(field.message_type, above)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return Reading(StringType(), lambda number: names.get(number, str(number)))
    if field.type == field.TYPE_BYTES:
        return Reading(BinaryType(), bytes)
    return _plain()[field.cpp_type]


@cache
def _plain() -> dict[int, Reading]:
    from google.protobuf.descriptor import FieldDescriptor as Field

    def same(value: Any) -> Any:
        return value

    return {
        Field.CPPTYPE_INT32: Reading(IntegerType(), same),
        Field.CPPTYPE_INT64: Reading(LongType(), same),
        Field.CPPTYPE_UINT32: Reading(LongType(), same),
        Field.CPPTYPE_UINT64: Reading(DecimalType(20, 0), Decimal),
        Field.CPPTYPE_DOUBLE: Reading(DoubleType(), same),
        Field.CPPTYPE_FLOAT: Reading(FloatType(), same),
        Field.CPPTYPE_BOOL: Reading(BooleanType(), same),
        Field.CPPTYPE_STRING: Reading(StringType(), same),
    }


def _as_json(made: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(made, indent=None)
