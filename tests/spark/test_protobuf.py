"""Protobuf values as columns: each kind of field, what is absent, and what is no such message."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")
pytest.importorskip("google.protobuf", reason="needs pip install tidelog[protobuf]")

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from tidelog.spark.pipeline.tables.protobuf import NoMessage, columns, descriptors, read_message

Field = descriptor_pb2.FieldDescriptorProto
WELL_KNOWN = (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
PLAIN = {
    "a_double": Field.TYPE_DOUBLE,
    "a_float": Field.TYPE_FLOAT,
    "an_int32": Field.TYPE_INT32,
    "an_int64": Field.TYPE_INT64,
    "a_uint32": Field.TYPE_UINT32,
    "a_uint64": Field.TYPE_UINT64,
    "a_sint32": Field.TYPE_SINT32,
    "a_fixed64": Field.TYPE_FIXED64,
    "a_bool": Field.TYPE_BOOL,
    "a_text": Field.TYPE_STRING,
    "some_bytes": Field.TYPE_BYTES,
}


def described(messages: list[Any], *, imports: bool = True, syntax: str = "proto3") -> bytes:
    """A file of `shop` as protoc writes it, with what it imports."""
    made = descriptor_pb2.FileDescriptorSet()
    for module in WELL_KNOWN if imports else ():
        module.DESCRIPTOR.CopyToProto(made.file.add())
    file = made.file.add(name="order.proto", package="shop", syntax=syntax)
    file.dependency.extend(module.DESCRIPTOR.name for module in WELL_KNOWN)
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    file.message_type.extend(messages)
    return made.SerializeToString()


def message(name: str, *fields: tuple[str, Any] | tuple[str, Any, str]) -> Any:
    """A message; a kind that is a name of a type is a message's, or with `Colour` the enum's. `many`: repeated."""
    made = descriptor_pb2.DescriptorProto(name=name)
    for number, (field_name, kind, *how) in enumerate(fields, 1):
        field = made.field.add(name=field_name, number=number, label=Field.LABEL_OPTIONAL)
        if isinstance(kind, str):
            field.type = Field.TYPE_ENUM if kind == ".shop.Colour" else Field.TYPE_MESSAGE
            field.type_name = kind
        else:
            field.type = kind
        if "many" in how:
            field.label = Field.LABEL_REPEATED
        if "required" in how:
            field.label = Field.LABEL_REQUIRED
        if "optional" in how:
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field_name}")
    return made


def build(file: bytes, name: str = "shop.Order") -> Any:
    """The message's class, as a producer has it."""
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(file).file:
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def read(file: bytes, value: bytes) -> tuple[Any, str | None]:
    made = read_message(file, "shop.Order", value)
    assert made is not None
    return made["read"], made["why"]


def test_every_plain_kind_has_its_column() -> None:
    file = described([message("Order", *PLAIN.items())])
    assert columns(file, "shop.Order").simpleString() == (
        "struct<a_double:double,a_float:float,an_int32:int,an_int64:bigint,a_uint32:bigint,a_uint64:decimal(20,0),"
        "a_sint32:int,a_fixed64:decimal(20,0),a_bool:boolean,a_text:string,some_bytes:binary>"
    )
    values = {
        "a_double": 0.5,
        "a_float": 0.25,
        "an_int32": -(2**31),
        "an_int64": -(2**63),
        "a_uint32": 2**32 - 1,
        "a_uint64": 2**64 - 1,
        "a_sint32": -1,
        "a_fixed64": 2**63,
        "a_bool": True,
        "a_text": "é",
        "some_bytes": b"\0\xff",
    }
    row, why = read(file, build(file)(**values).SerializeToString())
    assert why is None
    assert row == {**values, "a_uint64": Decimal(2**64 - 1), "a_fixed64": Decimal(2**63)}


def test_what_can_be_absent_is_null_and_the_rest_has_its_default() -> None:
    fields = [
        ("plain", Field.TYPE_INT32),
        ("maybe", Field.TYPE_INT32, "optional"),
        ("colour", ".shop.Colour"),
        ("inside", ".shop.Inside"),
        ("when", ".google.protobuf.Timestamp"),
        ("count", ".google.protobuf.Int64Value"),
        ("tags", Field.TYPE_STRING, "many"),
    ]
    file = described([message("Inside", ("n", Field.TYPE_INT64)), message("Order", *fields)])
    absent = {"plain": 0, "maybe": None, "colour": "RED", "inside": None, "when": None, "count": None, "tags": []}
    assert read(file, b"") == (absent, None)
    made = build(file)(maybe=0, colour=1, inside={"n": 7}, tags=["a", "b"])
    made.when.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))
    made.count.value = 0
    row, _ = read(file, made.SerializeToString())
    when = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    filled = {"maybe": 0, "colour": "BLUE", "inside": {"n": 7}, "when": when, "count": 0, "tags": ["a", "b"]}
    assert row == {"plain": 0, **filled}
    made.colour = 9  # of a newer version
    assert read(file, made.SerializeToString())[0]["colour"] == "9"


def test_maps_durations_json_and_empty_messages() -> None:
    order = message(
        "Order",
        ("prices", ".shop.Order.PricesEntry", "many"),
        ("took", ".google.protobuf.Duration"),
        ("more", ".google.protobuf.Struct"),
        ("paid", ".shop.Nothing"),
        ("items", ".shop.Item", "many"),
    )
    entry = order.nested_type.add()
    entry.CopyFrom(message("PricesEntry", ("key", Field.TYPE_STRING), ("value", ".shop.Item")))
    entry.options.map_entry = True
    file = described([message("Nothing"), message("Item", ("n", Field.TYPE_INT32)), order])
    assert columns(file, "shop.Order").simpleString() == (
        "struct<prices:map<string,struct<n:int>>,took:interval day to second,more:string,paid:boolean,"
        "items:array<struct<n:int>>>"
    )
    made = build(file)(items=[{"n": 1}, {"n": 2}])
    made.prices["a"].n = 3
    made.took.FromTimedelta(timedelta(hours=1, microseconds=5))
    made.more.update({"a": [1, {"b": None}]})
    made.paid.SetInParent()
    row, why = read(file, made.SerializeToString())
    assert why is None
    assert row == {
        "prices": [("a", {"n": 3})],
        "took": timedelta(hours=1, microseconds=5),
        "more": '{"a": [1.0, {"b": null}]}',
        "paid": True,
        "items": [{"n": 1}, {"n": 2}],
    }


def test_what_is_no_such_message_says_why() -> None:
    file = described([message("Order", ("id", Field.TYPE_INT64), ("name", Field.TYPE_STRING))])
    for value in (b"\x0a\xff", b"\x08", b"\x12\x01\xff"):  # cut, cut, and a text that isn't UTF-8
        row, why = read(file, value)
        assert row is None
        assert why is not None
        assert why.startswith("not a shop.Order: ")
    assert read_message(file, "shop.Order", None) is None


def test_a_date_that_python_does_not_have_is_a_bad_row() -> None:
    file = described([message("Order", ("when", ".google.protobuf.Timestamp"))])
    made = build(file)()
    made.when.seconds = 2**60
    row, why = read(file, made.SerializeToString())
    assert row is None
    assert "not a shop.Order" in str(why)


def test_a_required_field_that_is_missing_is_named() -> None:
    order = message("Order", ("id", Field.TYPE_INT64, "required"), ("name", Field.TYPE_STRING))
    file = described([order], syntax="proto2")
    assert read(file, b"\x12\x01a") == (None, "not a shop.Order: missing: id")
    assert read(file, b"\x08\x07") == ({"id": 7, "name": None}, None)


def test_what_is_wrong_with_a_descriptor_file_is_told(tmp_path: Path) -> None:
    order = message("Order", ("id", Field.TYPE_INT64), ("next", ".shop.Order"))
    file = described([order, message("Item", ("id", Field.TYPE_INT64))])
    with pytest.raises(NoMessage, match=r"has no message shop.Ordre; it has .*shop.Item, shop.Order"):
        columns(file, "shop.Ordre")
    with pytest.raises(NoMessage, match=r"shop.Order holds itself \(shop.Order > shop.Order\)"):
        columns(file, "shop.Order")
    with pytest.raises(NoMessage, match="not one that protoc"):
        columns(b"\xff\xff", "shop.Order")
    with pytest.raises(NoMessage, match="--include_imports"):
        columns(described([order], imports=False), "shop.Order")
    with pytest.raises(NoMessage, match="a single value"):
        columns(file, "google.protobuf.Timestamp")
    with pytest.raises(NoMessage, match="protoc --include_imports"):
        descriptors(tmp_path / "none.desc")
