"""Values to columns: JSON, Avro, Protobuf or text. What can't be decoded is told apart, with the reason."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StringType, StructField, StructType, TimestampType

from tidelog.spark.pipeline.file.spec import Avro, Decoding, Json, Protobuf, Text, Undecoded
from tidelog.spark.pipeline.run.reason import words_of

META = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_tombstone")
BAD = "_bad"
REASON = "_reason"
RAW = "_raw"
HEADERS = "_headers"
OWN = (*META, HEADERS, BAD, REASON, RAW)
"""Columns that a decoded source has beside those of its schema."""
SAMPLE_ROWS = 1000
REGISTRY_BYTES = 5
STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
"""What JSON is, and no more: NaN would make a NaN of every sum."""
TIMES = (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))
FIELDS_NAMED_MAX = 100
"""So many fields are tried one by one to say which of them makes a row bad."""


class DecodeError(ValueError):
    """Decoding that can't be set up, and what it takes."""


def decoded(rows: Any, decoding: Decoding) -> Any:
    """Columns of the values, those of META, and BAD, REASON and RAW for rows that can't be decoded.

    A row without a value is a tombstone: its columns are null, and it is not bad. Headers stay where they were read.
    """
    value, framed = _value(decoding)
    meta = rows.select(
        F.col("key").alias("_key"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.col("value").isNull().alias("_tombstone"),
        F.col("value").alias(RAW),
        value.alias("_value"),
        framed.alias("_framed"),
        *([F.col("headers").alias(HEADERS)] if "headers" in rows.columns else []),
    )
    match decoding:
        case Json():
            return _json(meta, decoding.schema)
        case Avro():
            return _avro(meta, decoding.schema)
        case Protobuf():
            return _protobuf(meta, decoding)
        case Text():
            return _text(meta)
        case Undecoded():
            return _nothing(meta)


def columns_of(schema: str) -> StructType:
    """Columns as SQL writes them."""
    from pyspark.errors import ParseException

    try:
        return cast("StructType", StructType.fromDDL(schema))
    except ParseException as error:
        why = str(error).strip().splitlines()[0].split(" SQLSTATE")[0]
        raise DecodeError(
            f"schema = {schema.strip()!r}: {why}; write name and type, as in id long, at timestamp"
        ) from None


def inferred(sample: Any, decoding: Decoding) -> str:
    """The schema of JSON values, from some of them."""
    value, _ = _value(decoding)
    texts = [row[0] for row in sample.select(value.cast("string")).limit(SAMPLE_ROWS).collect() if row[0]]
    if not texts:
        raise DecodeError("schema = 'infer': the topics hold no values to infer it from; write the schema down")
    spark = sample.sparkSession
    values = spark.read.json(spark.createDataFrame([(text,) for text in texts], "value string"))
    names = [name for name in values.columns if name != "_corrupt_record"]
    if not names:
        raise DecodeError("schema = 'infer': the values are not JSON objects")
    return values.select(*(f"`{name}`" for name in names)).schema.toDDL()


def _value(decoding: Decoding) -> tuple[Any, Any]:
    """What is to be decoded, and whether it begins as it should.

    A schema registry's values begin with 0, four bytes of the schema's id, and for Protobuf one for the message.
    """
    if isinstance(decoding, Undecoded) or not decoding.registry:
        return F.col("value"), F.lit(True)
    is_protobuf = isinstance(decoding, Protobuf)
    skipped = REGISTRY_BYTES + is_protobuf
    framed = F.expr(f"length(value) >= {skipped} and substring(value, 1, 1) = X'00'")
    if is_protobuf:
        framed = framed & F.expr(f"substring(value, {skipped}, 1) = X'00'")
    return F.expr(f"substring(value, {skipped + 1})"), framed


def _json(meta: Any, schema: str) -> Any:
    """One object of the schema and nothing else: the text is read inside a list, where a second one would show.

    A field of another type makes the row bad, and so does one that is missing where the schema says NOT NULL, and one
    that is beyond all bounds: milliseconds where seconds are expected make a time that would end every watermark.
    """
    columns = columns_of(schema)
    text = F.col("_value").cast("string")
    inside = F.concat(F.lit('{"read":['), text, F.lit("]}"))
    rows = meta.withColumn("_json", _parsed(inside, StructField("read", ArrayType(columns))))
    rows = rows.withColumn("_read", F.get("_json.read", F.lit(0)))
    wrong = F.col("_read").isNull() | (F.size("_json.read") != 1) | F.col("_json._corrupt").isNotNull()
    wrong = wrong | ~F.is_valid_utf8(text)
    ill = list(_ill(columns))
    for _, when in ill:
        wrong = wrong | F.coalesce(when, F.lit(False))
    reason = (
        F.when(~F.is_valid_utf8(text), F.lit("not UTF-8"))
        .when(F.try_parse_json(text).isNull(), F.lit("not JSON"))
        .when(~text.rlike(r"^\s*\{"), F.lit("not of the schema: not one object"))
        .when(F.col("_json._corrupt").isNull() & (F.size("_json.read") == 1), _reasons(ill))
        .otherwise(_misfits(text, columns))
    )
    return _split(rows, wrong, reason)


def _parsed(text: Any, *fields: StructField) -> Any:
    shape = StructType([*fields, StructField("_corrupt", StringType())])
    return F.from_json(text, shape, {"columnNameOfCorruptRecord": "_corrupt", **STRICT})


def _misfits(text: Any, columns: StructType) -> Any:
    """Which fields of a JSON text are not of the schema."""
    names = [
        F.when(
            _parsed(text, field)["_corrupt"].isNotNull(), F.lit(f"{field.name} is no {field.dataType.simpleString()}")
        )
        for field in columns.fields[:FIELDS_NAMED_MAX]
    ]
    misfits = F.concat_ws(", ", *names)
    return F.concat(F.lit("not of the schema: "), F.when(misfits != "", misfits).otherwise(F.lit("not one object")))


def _ill(columns: StructType) -> Iterator[tuple[str, Any]]:
    """What is to be said of fields that are of their type and still can't be, and when."""
    for name, inside, field in _fields(columns, "_read"):
        place = F.col(f"{inside}.`{field.name}`")
        if not field.nullable:  # in a struct that isn't there, no field is missing
            yield f"{name} is missing or null", F.col(inside).isNotNull() & place.isNull()
        if isinstance(field.dataType, TimestampType):
            yield f"{name} is no time before the year 10000: a number is seconds since 1970", ~place.between(*TIMES)
        if isinstance(field.dataType, DoubleType | FloatType):
            yield f"{name} is too large", F.abs(place) == float("inf")


def _fields(columns: StructType, inside: str, above: str = "") -> Iterator[tuple[str, str, StructField]]:
    """All fields, those of structs too: name, the struct that it is in, and the field."""
    for field in columns.fields:
        yield above + field.name, inside, field
        if isinstance(field.dataType, StructType):
            yield from _fields(field.dataType, f"{inside}.`{field.name}`", f"{above}{field.name}.")


def _reasons(ill: list[tuple[str, Any]]) -> Any:
    return F.concat_ws(", ", *(F.when(when, F.lit(what)) for what, when in ill))


def _avro(meta: Any, schema: str) -> Any:
    from pyspark.sql.avro.functions import from_avro

    empty_value = _all_null(schema)
    try:
        rows = meta.withColumn("_read", from_avro(F.col("_value"), schema, {"mode": "PERMISSIVE"}))
    except TypeError as error:
        raise DecodeError(_module("avro")) from error
    except (PySparkException, Py4JError) as error:
        raise DecodeError(f"decode = 'avro' can't read its schema: {words_of(error)}") from None
    empty = F.col("_read").isNull() | F.to_json(F.col("_read")).isin("{}", "null")
    if empty_value is not None:
        empty = empty & (F.col("_value") != F.lit(empty_value))
    return _split(rows, empty, F.lit("not Avro of the schema"))


def _all_null(schema: str) -> bytes | None:
    """The bytes of a record whose fields are all null, where the schema allows it.

    Spark gives a row of nulls for what it can't read, so that only the bytes tell the two apart.
    """
    try:
        record: Any = json.loads(schema)
    except ValueError as error:
        raise DecodeError(f"decode = 'avro' needs a schema in JSON: {error}") from None
    if not isinstance(record, dict) or record.get("type") != "record" or not isinstance(record.get("fields"), list):  # pyright: ignore[reportUnknownMemberType]
        raise DecodeError("decode = 'avro' needs the schema of a record: its fields become columns")
    made = b""
    for field in cast("list[Any]", record["fields"]):
        kind = cast("dict[str, Any]", field).get("type") if isinstance(field, dict) else None
        if kind is None:
            raise DecodeError(f"decode = 'avro': {field!r} is no field: it needs a name and a type")
        if kind == "null":
            continue
        if not isinstance(kind, list) or "null" not in kind:
            return None
        made += bytes([2 * cast("list[Any]", kind).index("null")])
    return made


def _protobuf(meta: Any, decoding: Protobuf) -> Any:
    from tidelog.spark.pipeline.tables.protobuf import READ, WHY, NoMessage, descriptors, reader

    try:
        read = reader(descriptors(Path(decoding.descriptor)), decoding.message)
    except NoMessage as error:
        raise DecodeError(str(error)) from error
    rows = meta.withColumn("_message", read(F.col("_value")))
    rows = rows.withColumn("_read", F.col(f"_message.{READ}"))
    return _split(rows, F.col("_read").isNull(), F.col(f"_message.{WHY}"))


def _module(name: str) -> str:
    return (
        f"decode = '{name}' needs Spark's module for it: add [spark] \"spark.jars.packages\" = "
        f'"org.apache.spark:spark-{name}_2.13:<version of Spark>"'
    )


def _text(meta: Any) -> Any:
    text = F.try_validate_utf8(F.col("_value").cast("string"))
    rows = meta.withColumn("_read", F.struct(text.alias("text")))
    return _split(rows, F.col("_read.text").isNull(), F.lit("not UTF-8"))


def _nothing(meta: Any) -> Any:
    rows = meta.withColumn("_read", F.struct(F.col("_value").alias("value")))
    return _split(rows, F.lit(False), F.lit(""))


def _split(rows: Any, wrong: Any, reason: Any) -> Any:
    framed = F.col("_framed")
    rows = rows.withColumn(BAD, ~F.col("_tombstone") & (~framed | F.coalesce(wrong, F.lit(False))))
    reason = F.when(framed, reason).otherwise(F.lit("it does not begin with the bytes of a schema registry"))
    rows = rows.withColumn(REASON, F.when(F.col(BAD), reason))
    own = [name for name in OWN if name in rows.columns]
    made = rows.select("_read.*", *own)
    columns = [name.lower() for name in made.columns]
    for name in [name for name in own if columns.count(name) > 1]:
        raise DecodeError(f"{name} is a column of every decoded source: leave it out of the schema")
    return made
