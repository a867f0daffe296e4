"""Values to columns: JSON, Avro, Protobuf or text. What can't be decoded is told apart, with the reason."""

import json
from pathlib import Path
from typing import Any, cast

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

META = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_tombstone")
BAD = "_bad"
REASON = "_reason"
RAW = "_raw"
SAMPLE_ROWS = 1000
REGISTRY_BYTES = 5
FIELDS_NAMED_MAX = 100
"""So many fields are tried one by one to say which of them makes a row bad."""


class DecodeError(ValueError):
    """Decoding that can't be set up, and what it takes."""


def decoded(rows: Any, source: dict[str, Any], schema: str) -> Any:
    """Columns of the values, those of META, and BAD, REASON and RAW for rows that can't be decoded.

    A row without a value is a tombstone: its columns are null, and it is not bad.
    """
    decode = source.get("decode", "none")
    value, framed = F.col("value"), F.lit(True)
    if source.get("registry"):
        value, framed = _unframed(decode)
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
    )
    made = {"json": _json, "avro": _avro, "protobuf": _protobuf, "text": _text, "none": _nothing}
    return made[decode](meta, source, schema)


def inferred(sample: Any) -> str:
    """The schema of JSON values, from some of them."""
    texts = [row[0] for row in sample.selectExpr("cast(value as string)").limit(SAMPLE_ROWS).collect() if row[0]]
    if not texts:
        raise DecodeError("schema = 'infer': the topics hold no values to infer it from; write the schema down")
    spark = sample.sparkSession
    found = spark.read.json(spark.createDataFrame([(text,) for text in texts], "value string"))
    names = [name for name in found.columns if name != "_corrupt_record"]
    if not names:
        raise DecodeError("schema = 'infer': the values are not JSON objects")
    return found.select(*(f"`{name}`" for name in names)).schema.toDDL()


def _unframed(decode: str) -> tuple[Any, Any]:
    """The value behind a schema registry's bytes (0, four of the schema's id, and Protobuf's message), and if so."""
    skipped = REGISTRY_BYTES + (decode == "protobuf")
    framed = F.expr(f"length(value) >= {skipped} and substring(value, 1, 1) = X'00'")
    if decode == "protobuf":
        framed = framed & F.expr(f"substring(value, {skipped}, 1) = X'00'")
    return F.expr(f"substring(value, {skipped + 1})"), framed


def _json(meta: Any, source: dict[str, Any], schema: str) -> Any:
    """One object of the schema and nothing else: the text is read inside another object, where no more has a place.

    A field of another type makes the row bad, and so does one that is missing where the schema says NOT NULL.
    """
    columns = cast("StructType", StructType.fromDDL(schema))
    text = F.col("_value").cast("string")
    inside = F.concat(F.lit('{"read":'), text, F.lit("}"))
    rows = meta.withColumn("_json", _parsed(inside, StructField("read", columns)))
    rows = rows.withColumn("_read", F.col("_json.read"))
    missing = [field.name for field in columns.fields if not field.nullable]
    wrong = F.col("_read").isNull() | F.col("_json._corrupt").isNotNull() | ~F.is_valid_utf8(text)
    for name in missing:
        wrong = wrong | F.col(f"_read.`{name}`").isNull()
    reason = (
        F.when(~F.is_valid_utf8(text), F.lit("not UTF-8"))
        .when(F.try_parse_json(text).isNull(), F.lit("not JSON"))
        .when(~text.rlike(r"^\s*\{"), F.lit("not of the schema: not one object"))
        .when(F.col("_json._corrupt").isNull() & F.col("_read").isNotNull(), _listed("missing or null", missing))
        .otherwise(_misfits(text, columns))
    )
    return _split(rows, wrong, reason)


def _parsed(text: Any, *fields: StructField) -> Any:
    shape = StructType([*fields, StructField("_corrupt", StringType())])
    return F.from_json(text, shape, {"columnNameOfCorruptRecord": "_corrupt"})


def _misfits(text: Any, columns: StructType) -> Any:
    """Which fields of a JSON text are not of the schema."""
    names = [
        F.when(
            _parsed(text, field)["_corrupt"].isNotNull(), F.lit(f"{field.name} is no {field.dataType.simpleString()}")
        )
        for field in columns.fields[:FIELDS_NAMED_MAX]
    ]
    told = F.concat_ws(", ", *names)
    return F.concat(F.lit("not of the schema: "), F.when(told != "", told).otherwise(F.lit("not one object")))


def _listed(what: str, names: list[str]) -> Any:
    return F.concat(
        F.lit(f"{what}: "),
        F.concat_ws(", ", *(F.when(F.col(f"_read.`{name}`").isNull(), F.lit(name)) for name in names)),
    )


def _avro(meta: Any, source: dict[str, Any], schema: str) -> Any:
    from pyspark.sql.avro.functions import from_avro

    empty_value = _all_null(schema)
    try:
        rows = meta.withColumn("_read", from_avro(F.col("_value"), schema, {"mode": "PERMISSIVE"}))
    except TypeError as error:
        raise DecodeError(_module("avro")) from error
    empty = F.col("_read").isNull() | F.to_json(F.col("_read")).isin("{}", "null")
    if empty_value is not None:
        empty = empty & (F.col("_value") != F.lit(empty_value))
    return _split(rows, empty, F.lit("not Avro of the schema"))


def _all_null(schema: str) -> bytes | None:
    """The bytes of a record whose fields are all null, where the schema allows it.

    Spark gives a row of nulls for what it can't read, so that only the bytes tell the two apart.
    """
    try:
        told: Any = json.loads(schema)
    except ValueError as error:
        raise DecodeError(f"decode = 'avro' needs a schema in JSON: {error}") from None
    if not isinstance(told, dict) or cast("dict[str, Any]", told).get("type") != "record":
        raise DecodeError("decode = 'avro' needs the schema of a record: its fields become columns")
    made = b""
    for field in cast("list[dict[str, Any]]", told["fields"]):
        kind = field["type"]
        if kind == "null":
            continue
        if not isinstance(kind, list) or "null" not in kind:
            return None
        made += bytes([2 * cast("list[Any]", kind).index("null")])
    return made


def _protobuf(meta: Any, source: dict[str, Any], schema: str) -> Any:
    from tidelog.spark.pipeline.protobuf import READ, WHY, NoMessage, descriptors, reader

    try:
        read = reader(descriptors(Path(source["descriptor"])), source["message"])
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


def _text(meta: Any, source: dict[str, Any], schema: str) -> Any:
    text = F.try_validate_utf8(F.col("_value").cast("string"))
    rows = meta.withColumn("_read", F.struct(text.alias("text")))
    return _split(rows, F.col("_read.text").isNull(), F.lit("not UTF-8"))


def _nothing(meta: Any, source: dict[str, Any], schema: str) -> Any:
    rows = meta.withColumn("_read", F.struct(F.col("_value").alias("value")))
    return _split(rows, F.lit(False), F.lit(""))


def _split(rows: Any, wrong: Any, reason: Any) -> Any:
    framed = F.col("_framed")
    told = rows.withColumn(BAD, ~F.col("_tombstone") & (~framed | F.coalesce(wrong, F.lit(False))))
    reason = F.when(framed, reason).otherwise(F.lit("it does not begin with the bytes of a schema registry"))
    told = told.withColumn(REASON, F.when(F.col(BAD), reason))
    return told.select("_read.*", *META, RAW, BAD, REASON)
