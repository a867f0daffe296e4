"""Values to columns: JSON, Avro, Protobuf or text. What can't be decoded is told apart, with the reason."""

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

META = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_tombstone")
BAD = "_bad"
REASON = "_reason"
RAW = "_raw"
SAMPLE_ROWS = 1000
REGISTRY_BYTES = 5


class DecodeError(ValueError):
    """Decoding that can't be set up, and what it takes."""


def decoded(rows: Any, source: dict[str, Any], schema: str) -> Any:
    """Columns of the values, those of META, and BAD, REASON and RAW for rows that can't be decoded.

    A row without a value is a tombstone: its columns are null, and it is not bad.
    """
    value = F.expr(f"substring(value, {REGISTRY_BYTES + 1})") if source.get("registry") else F.col("value")
    meta = rows.select(
        F.col("key").alias("_key"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.col("value").isNull().alias("_tombstone"),
        F.col("value").alias(RAW),
        value.alias("_value"),
    )
    made = {"json": _json, "avro": _avro, "protobuf": _protobuf, "text": _text, "none": _nothing}
    return made[source.get("decode", "none")](meta, source, schema).drop("_value")


def inferred(sample: Any) -> str:
    """The schema of JSON values, from some of them."""
    texts = [row[0] for row in sample.selectExpr("cast(value as string)").limit(SAMPLE_ROWS).collect() if row[0]]
    if not texts:
        raise DecodeError("schema = 'infer': the topics hold no values to infer it from; write the schema down")
    spark = sample.sparkSession
    found = spark.read.json(spark.sparkContext.parallelize(texts))
    names = [name for name in found.columns if name != "_corrupt_record"]
    if not names:
        raise DecodeError("schema = 'infer': the values are not JSON objects")
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in found.select(names).schema.fields)


def _json(meta: Any, source: dict[str, Any], schema: str) -> Any:
    corrupt = "_corrupt"
    read = F.from_json(
        F.col("_value").cast("string"), f"{schema}, {corrupt} string", {"columnNameOfCorruptRecord": corrupt}
    )
    rows = meta.withColumn("_read", read)
    wrong = F.col("_value").isNotNull() & (F.col("_read").isNull() | F.col(f"_read.{corrupt}").isNotNull())
    return _split(rows, wrong, f"not JSON of the schema {schema[:200]}").drop(corrupt)


def _avro(meta: Any, source: dict[str, Any], schema: str) -> Any:
    from pyspark.sql.avro.functions import from_avro

    try:
        rows = meta.withColumn("_read", from_avro(F.col("_value"), schema, {"mode": "PERMISSIVE"}))
        empty = F.to_json(F.col("_read")).isin("{}", "null") | F.col("_read").isNull()
    except TypeError as error:
        raise DecodeError(
            "decode = 'avro' needs Spark's Avro module: add [spark] \"spark.jars.packages\" = "
            '"org.apache.spark:spark-avro_2.13:<version of Spark>"'
        ) from error
    return _split(rows, F.col("_value").isNotNull() & empty, "not Avro of the schema")


def _protobuf(meta: Any, source: dict[str, Any], schema: str) -> Any:
    from pyspark.sql.protobuf.functions import from_protobuf

    descriptor = Path(source["descriptor"])
    if not descriptor.exists():
        raise DecodeError(f"there is no descriptor file {descriptor}: protoc --descriptor_set_out makes one")
    try:
        read = from_protobuf(F.col("_value"), source["message"], str(descriptor), {"mode": "PERMISSIVE"})
    except TypeError as error:
        raise DecodeError(
            "decode = 'protobuf' needs Spark's Protobuf module: add [spark] \"spark.jars.packages\" = "
            '"org.apache.spark:spark-protobuf_2.13:<version of Spark>"'
        ) from error
    rows = meta.withColumn("_read", read)
    return _split(rows, F.col("_value").isNotNull() & F.col("_read").isNull(), f"not a {source['message']}")


def _text(meta: Any, source: dict[str, Any], schema: str) -> Any:
    text = F.expr("try_validate_utf8(cast(_value as string))")
    rows = meta.withColumn("_read", F.struct(text.alias("text")))
    return _split(rows, F.col("_value").isNotNull() & F.col("_read.text").isNull(), "not UTF-8")


def _nothing(meta: Any, source: dict[str, Any], schema: str) -> Any:
    rows = meta.withColumn("_read", F.struct(F.col("_value").alias("value")))
    return _split(rows, F.lit(False), "")


def _split(rows: Any, wrong: Any, reason: str) -> Any:
    told = rows.withColumn(BAD, F.coalesce(wrong, F.lit(False)))
    told = told.withColumn(REASON, F.when(F.col(BAD), F.lit(reason)))
    return told.select("_read.*", *META, RAW, "_value", BAD, REASON)
