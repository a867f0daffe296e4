"""Tables to sinks: topics, Parquet folders, databases, the console, or another of Spark's formats."""

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from tidelog.spark.pipeline import lake
from tidelog.spark.pipeline.decode import BAD, RAW, REASON
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
    writing = _stream_writer(pipeline, name, sink, rows)
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
        writing = made.writeStream.format("tidelog").option("kafka.bootstrap.servers", pipeline.bootstrap)
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

    return rows.writeStream.outputMode(mode).foreachBatch(each)


def write_batch(pipeline: Pipeline, name: str, sink: dict[str, Any], rows: Any, batch: int) -> None:
    """One batch, still rows, to a sink: of a stream, or all of a pipeline without streams."""
    options = sink.get("options", {})
    if "path" in sink:
        path = Path(sink["path"])
        path = path if path.is_absolute() else (pipeline.file.parent / path).resolve()
        if "upsert_by" in sink:
            order = sink.get("order_by", "_offset")
            keep = [c for c in rows.columns if not c.startswith("_") or c in ("_tombstone", order)]
            lake.upsert(rows.select(*keep), batch, path, sink["upsert_by"], order, sink.get("buckets", lake.BUCKETS))
        else:
            lake.append(shown(rows), batch, path, sink.get("partition_by", []), sink.get("compact_files"))
    elif "jdbc" in sink:
        shown(rows).write.mode("append").jdbc(sink["jdbc"], sink["table"], properties=options)
    elif "topic" in sink:
        made = records(rows, sink.get("key"))
        writing = made.write.format("tidelog").option("kafka.bootstrap.servers", pipeline.bootstrap)
        writing = writing.option("topic", sink["topic"]).option("jobId", f"{pipeline.state_id}-{name}")
        writing.option("jobBatch", str(batch)).options(**options).mode("append").save()
    elif sink.get("console"):
        shown(rows).show(CONSOLE_ROWS, truncate=False)
    else:
        shown(rows).write.format(sink["format"]).options(**options).mode("append").save()


def shown(rows: Any) -> Any:
    """The columns that go to sinks."""
    return rows.select(*[name for name in rows.columns if not name.startswith("_")])
