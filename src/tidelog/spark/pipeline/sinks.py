"""Tables to sinks: topics, Parquet folders, databases, the console, or another of Spark's formats."""

import hashlib
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from tidelog.spark.pipeline import lake, left_out
from tidelog.spark.pipeline.callback import each_batch
from tidelog.spark.pipeline.decode import BAD, RAW, REASON
from tidelog.spark.pipeline.lake_files import Writer
from tidelog.spark.pipeline.model import Pipeline

CONSOLE_ROWS = 50


def records(rows: Any, key: str | None) -> Any:
    """Rows as records: all columns but those that begin with _ as JSON, one of them as the key."""
    columns = [name for name in rows.columns if not name.startswith("_")]
    chosen = [F.col(key).cast("string").alias("key")] if key else []
    if not key and "_key" in rows.columns:
        chosen = [F.col("_key").alias("key")]
    made = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    if "_tombstone" in rows.columns:
        made = F.when(~F.coalesce("_tombstone", F.lit(False)), made)
    return rows.select(*chosen, made.alias("value"))


def dead_letters(rows: Any, pipeline: str) -> Any:
    """Bad rows as records: what was read, with headers that say why and where it stood."""

    def header(name: str, column: Any) -> Any:
        return F.struct(F.lit(f"tidelog.{name}").alias("key"), column.cast("string").cast("binary").alias("value"))

    headers = F.array(
        header("reason", F.col(REASON)),
        header("topic", F.col("_topic")),
        header("partition", F.col("_partition")),
        header("offset", F.col("_offset")),
        header("pipeline", F.lit(pipeline)),
    )
    bad = rows.where(BAD)
    return bad.select(F.col("_key").alias("key"), F.col(RAW).alias("value"), headers.alias("headers"))


def start_stream(pipeline: Pipeline, name: str, sink: dict[str, Any], rows: Any, *, once: bool) -> Any:
    """A running query that writes to the sink."""
    return _started(pipeline, name, _stream_writer(pipeline, name, sink, rows), once)


def start_bad_rows(pipeline: Pipeline, name: str, rows: Any, *, once: bool) -> Any:
    """A running query that sees to a source's bad rows."""

    def each(batch: Any, number: int) -> None:
        write_bad_rows(pipeline, name, batch, number)

    return _started(pipeline, name, bad_rows(rows).writeStream.foreachBatch(each_batch(each)), once)


def bad_rows(rows: Any) -> Any:
    """The rows of a decoded source that are bad, and no more of them than letters need."""
    return rows.where(BAD).select("_key", RAW, BAD, REASON, "_topic", "_partition", "_offset")


def write_bad_rows(pipeline: Pipeline, name: str, rows: Any, batch: int) -> None:
    """Count a batch's bad rows and, unless they are to be dropped, send them to their topic, once."""
    rows = rows.persist()
    try:
        place = F.struct("_topic", "_partition", "_offset", REASON)
        [found] = rows.agg(F.count(F.lit(1)).alias("rows"), F.min(place).alias("first")).collect()
        if found["rows"] and pipeline.bad_topic is not None:
            letters = dead_letters(rows, pipeline.name)
            _write_topic(pipeline, name, {"topic": pipeline.bad_topic}, letters, batch)
    finally:
        rows.unpersist()
    where = "dropped" if pipeline.bad_topic is None else f"sent to {pipeline.bad_topic}"
    first = found["first"]
    example = "" if first is None else f"{first[0]}-{first[1]} offset {first[2]}: {first[3]}"
    left_out.add(pipeline.state, name, batch, found["rows"], f"could not be decoded, {where}", example)


def _started(pipeline: Pipeline, name: str, writing: Any, once: bool) -> Any:
    writing = writing.queryName(f"{pipeline.name}:{name}")
    writing = writing.option("checkpointLocation", str(pipeline.state.resolve() / "checkpoints" / name))
    if once:
        writing = writing.trigger(availableNow=True)
    elif "trigger" in pipeline.told:
        writing = writing.trigger(processingTime=pipeline.told["trigger"])
    return writing.start()


def _stream_writer(pipeline: Pipeline, name: str, sink: dict[str, Any], rows: Any) -> Any:
    mode = sink.get("mode", "append")
    options = sink.get("options", {})
    if "topic" in sink and mode == "append":
        made = records(rows, sink.get("key"))
        writing = made.writeStream.format("tidelog").options(**pipeline.kafka)
        return writing.option("topic", sink["topic"]).options(**options)
    if sink.get("console"):
        return shown(rows).writeStream.format("console").option("truncate", "false").outputMode(mode)
    if "format" in sink:
        return shown(rows).writeStream.format(sink["format"]).options(**options).outputMode(mode)
    if "path" in sink and "://" in sink["path"]:
        if "upsert_by" in sink or "compact_files" in sink:
            raise ValueError(f"sink {name}: upsert_by and compact_files need a folder of the local file system")
        writing = shown(rows).writeStream.format("parquet").option("path", sink["path"])
        return writing.partitionBy(*sink.get("partition_by", ())).outputMode(mode)

    def each(batch: Any, number: int) -> None:
        write_batch(pipeline, name, sink, batch, number)

    return rows.writeStream.outputMode(mode).foreachBatch(each_batch(each))


def write_batch(pipeline: Pipeline, name: str, sink: dict[str, Any], rows: Any, batch: int) -> None:
    """One batch, still rows, to a sink: of a stream, or all of a pipeline without streams."""
    options = sink.get("options", {})
    if "path" in sink:
        _write_folder(pipeline, name, sink, rows, batch)
    elif "jdbc" in sink:
        shown(rows).write.mode("append").jdbc(sink["jdbc"], sink["table"], properties=options)
    elif "topic" in sink:
        _write_topic(pipeline, name, sink, records(rows, sink.get("key")), batch)
    elif sink.get("console"):
        shown(rows).show(CONSOLE_ROWS, truncate=False)
    else:
        shown(rows).write.format(sink["format"]).options(**options).mode("append").save()


def _write_topic(pipeline: Pipeline, name: str, sink: dict[str, Any], made: Any, batch: int) -> None:
    writing = made.write.format("tidelog").options(**pipeline.kafka)
    writing = writing.option("topic", sink["topic"]).option("jobId", f"{pipeline.state_id}-{name}")
    writing.option("jobBatch", str(batch)).options(**sink.get("options", {})).mode("append").save()


def _write_folder(pipeline: Pipeline, name: str, sink: dict[str, Any], rows: Any, batch: int) -> None:
    path = Path(sink["path"])
    path = path if path.is_absolute() else (pipeline.file.parent / path).resolve()
    writer = Writer(path, hashlib.sha256(f"{pipeline.state_id}-{name}".encode()).hexdigest()[:10])
    if "upsert_by" not in sink:
        lake.append(shown(rows), batch, writer, sink.get("partition_by", []), sink.get("compact_files"))
        return
    by, order = sink["upsert_by"], sink.get("order_by", "_offset")
    keep = [each for each in rows.columns if not each.startswith("_") or each in ("_tombstone", order)]
    keyless = lake.upsert(rows.select(*keep), writer, by, order, sink.get("buckets", lake.BUCKETS))
    why = f"without {' and '.join(by)}, left out of the table"
    left_out.add(pipeline.state, name, batch, keyless, why, f"batch {batch}")


def shown(rows: Any) -> Any:
    """The columns that go to sinks."""
    return rows.select(*[name for name in rows.columns if not name.startswith("_")])
