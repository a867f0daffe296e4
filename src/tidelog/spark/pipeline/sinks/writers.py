"""Tables to sinks: topics, Parquet folders, databases, the console, or another of Spark's formats."""

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F

from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.run.callback import each_batch
from tidelog.spark.pipeline.run.queries import LATE
from tidelog.spark.pipeline.run.resets import checkpoint_of, writes_as
from tidelog.spark.pipeline.sinks import lake, left_out
from tidelog.spark.pipeline.sinks.lake_files import Writer
from tidelog.spark.pipeline.tables.decode import BAD, HEADERS, RAW, REASON
from tidelog.spark.pipeline.tables.error_location import pointing
from tidelog.spark.sink.abort_run import end_run
from tidelog.spark.sink.sink_options import read_sink_options

logger = logging.getLogger("tidelog.spark")

CONSOLE = {"truncate": "false", "numRows": "50"}
FOLDERS = ("delta", "parquet", "csv", "json", "orc", "avro", "text")
"""Formats whose path is one of a file system: Iceberg's may be a table's name."""
EXAMPLE_CHARS = 200


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
    """Bad rows as records: what was read, headers too, with some more that say why and where it stood."""

    def header(name: str, column: Any) -> Any:
        return F.struct(F.lit(f"tidelog.{name}").alias("key"), column.cast("string").cast("binary").alias("value"))

    added = F.array(
        header("reason", F.col(REASON)),
        header("topic", F.col("_topic")),
        header("partition", F.col("_partition")),
        header("offset", F.col("_offset")),
        header("pipeline", F.lit(pipeline)),
    )
    headers = F.concat(F.coalesce(F.col(HEADERS), F.array()), added) if HEADERS in rows.columns else added
    bad = rows.where(BAD)
    return bad.select(F.col("_key").alias("key"), F.col(RAW).alias("value"), headers.alias("headers"))


def start_stream(pipeline: Pipeline, name: str, sink: dict[str, Any], rows: Any, *, once: bool) -> Any:
    """A running query that writes to the sink; PipelineError where Spark can't begin it."""
    index = [each for each, _ in pipeline.sinks].index(name)
    with pointing(pipeline, ("sink", index), unless=LATE):
        return _started(pipeline, name, _stream_writer(pipeline, name, sink, rows), once)


def start_bad_rows(pipeline: Pipeline, name: str, rows: Any, *, once: bool) -> Any:
    """A running query that sees to a source's bad rows."""

    def each(batch: Any, number: int) -> None:
        write_bad_rows(pipeline, name, batch, number, of_query(pipeline, name))

    return _started(pipeline, name, bad_rows(rows).writeStream.foreachBatch(each_batch(each)), once)


def bad_rows(rows: Any) -> Any:
    """The rows of a decoded source that are bad, and no more of them than letters need."""
    wanted = ("_key", RAW, HEADERS, BAD, REASON, "_topic", "_partition", "_offset")
    return rows.where(BAD).select(*(name for name in wanted if name in rows.columns))


def write_bad_rows(pipeline: Pipeline, name: str, rows: Any, batch: int, known_by: Mapping[str, str]) -> None:
    """Count a batch's bad rows and, unless they are to be dropped, send them to their topic, once."""
    rows = rows.persist()
    try:
        place = F.struct("_topic", "_partition", "_offset", REASON)
        [found] = rows.agg(F.count(F.lit(1)).alias("rows"), F.min(place).alias("first")).collect()
        if found["rows"]:
            send_letters(pipeline, name, rows, batch, known_by)
    finally:
        rows.unpersist()
    first = found["first"]
    example = "" if first is None else f"{first[0]}-{first[1]} offset {first[2]}: {first[3]}"
    why = f"could not be decoded, {where_bad_rows_go(pipeline)}"
    left_out.add(pipeline.state, name, batch, found["rows"], why, example)


def send_letters(pipeline: Pipeline, name: str, rows: Any, batch: int, known_by: Mapping[str, str]) -> None:
    """Bad rows to their topic, once under this name and batch; not where they are to be dropped."""
    if pipeline.bad_topic is not None:
        letters = dead_letters(rows, pipeline.name)
        _write_topic(pipeline, name, {"topic": pipeline.bad_topic}, letters, batch, known_by)


def where_bad_rows_go(pipeline: Pipeline) -> str:
    return "dropped" if pipeline.bad_topic is None else f"sent to {pipeline.bad_topic}"


def _started(pipeline: Pipeline, name: str, writing: Any, once: bool) -> Any:
    writing = writing.queryName(f"{pipeline.name}:{name}")
    writing = writing.option("checkpointLocation", str(checkpoint_of(pipeline, name).resolve()))
    if once:
        writing = writing.trigger(availableNow=True)
    elif pipeline.trigger is not None:
        writing = writing.trigger(processingTime=pipeline.trigger)
    return writing.start()


def taken(sink: dict[str, Any], rows: Any) -> Any:
    """What a stream computes of a table for its sink: all of it, where `write_batch` takes what it needs."""
    if "topic" in sink and sink.get("mode", "append") == "append":
        return records(rows, sink.get("key"))
    return shown(rows) if sink.get("console") or "format" in sink or _is_address(sink) else rows


def _stream_writer(pipeline: Pipeline, name: str, sink: dict[str, Any], rows: Any) -> Any:
    mode = sink.get("mode", "append")
    options = _options(pipeline, sink)
    writing = taken(sink, rows).writeStream.outputMode(mode)
    if "topic" in sink and mode == "append":
        return writing.format("tidelog").options(**pipeline.kafka).option("topic", sink["topic"]).options(**options)
    if sink.get("console"):
        return writing.format("console").options(**(CONSOLE | options))
    if "format" in sink:
        return writing.format(sink["format"]).options(**options)
    if _is_address(sink):
        writing = writing.format("parquet").options(**options).option("path", sink["path"])
        return writing.partitionBy(*sink.get("partition_by", ()))

    def each(batch: Any, number: int) -> None:
        write_batch(pipeline, name, sink, batch, number, of_query(pipeline, name))

    return writing.foreachBatch(each_batch(each))


def of_query(pipeline: Pipeline, name: str) -> dict[str, str]:
    """What a batch is known by that a query writes by a callback: the query's id and offsets, in its checkpoint.

    Through Spark Connect nothing else tells that it is a query's.
    """
    checkpoint = checkpoint_of(pipeline, name).resolve()
    query: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return {"jobQuery": query, "checkpointLocation": str(checkpoint)}


def write_batch(
    pipeline: Pipeline, name: str, sink: dict[str, Any], rows: Any, batch: int, known_by: Mapping[str, str]
) -> None:
    """One batch, still rows, to a sink: of a stream, or all of a pipeline without streams.

    `known_by` are the options by which the sink tells a repetition from another batch.
    """
    options = _options(pipeline, sink)
    if _is_address(sink):
        writing = shown(rows).write.mode("append").options(**options)
        writing.partitionBy(*sink.get("partition_by", ())).parquet(sink["path"])
    elif "path" in sink:
        _write_folder(pipeline, name, sink, rows, batch)
    elif "jdbc" in sink:
        shown(rows).write.mode("append").jdbc(sink["jdbc"], sink["table"], properties=options)
    elif "topic" in sink:
        _write_topic(pipeline, name, sink, records(rows, sink.get("key")), batch, known_by)
    elif sink.get("console"):
        shown(rows).show(int(CONSOLE["numRows"]), truncate=False)
    else:
        shown(rows).write.format(sink["format"]).options(**options).mode("append").save()


def _write_topic(
    pipeline: Pipeline, name: str, sink: dict[str, Any], made: Any, batch: int, known_by: Mapping[str, str]
) -> None:
    writing = made.write.format("tidelog").options(**pipeline.kafka, **known_by)
    writing = writing.option("topic", sink["topic"]).option("jobId", writes_as(pipeline, name))
    writing.option("jobBatch", str(batch)).options(**sink.get("options", {})).mode("append").save()


def end_streams(pipeline: Pipeline, queries: Mapping[str, Any]) -> None:
    """Queries were stopped, perhaps in the middle of a batch: readers of their topics don't wait for what they left."""
    sinks = dict(pipeline.sinks)
    for name, query in queries.items():
        sink = sinks.get(name, {"topic": pipeline.bad_topic})
        if sink.get("topic") is None:
            continue
        try:
            end_run(read_sink_options({**pipeline.kafka, **_options(pipeline, sink)}, streaming=True), str(query.runId))
        except Exception as error:  # brokers that are away, say: the next start does it
            logger.warning("%s: what it has open stays so until its next start: %s", name, error)
            return


def _write_folder(pipeline: Pipeline, name: str, sink: dict[str, Any], rows: Any, batch: int) -> None:
    path = (pipeline.file.parent / sink["path"]).resolve()
    own = hashlib.sha256(writes_as(pipeline, name).encode()).hexdigest()[:10]
    writer = Writer(path, own, sink.get("options", {}))
    if "upsert_by" not in sink:
        lake.append(shown(rows), batch, writer, sink.get("partition_by", []), sink.get("compact_files"))
        return
    by, order = sink["upsert_by"], sink.get("order_by", "_offset")
    keep = [each for each in rows.columns if not each.startswith("_") or each in ("_tombstone", order, *by)]
    keyless, first = lake.upsert(rows.select(*keep), writer, by, order, sink.get("buckets", lake.BUCKETS))
    why = f"without {' and '.join(by)}, left out of the table"
    left_out.add(pipeline.state, name, batch, keyless, why, first[:EXAMPLE_CHARS])


def _is_address(sink: dict[str, Any]) -> bool:
    """Whether a folder lies where only Spark can write, as in s3a://."""
    return "://" in sink.get("path", "")


def _options(pipeline: Pipeline, sink: dict[str, Any]) -> dict[str, str]:
    """A sink's options; a format's path is meant as all paths of the file are."""
    options: dict[str, str] = dict(sink.get("options", {}))
    if sink.get("format") in FOLDERS and "://" not in options.get("path", "://"):
        options["path"] = str((pipeline.file.parent / options["path"]).resolve())
    return options


def shown(rows: Any) -> Any:
    """The columns that go to sinks."""
    return rows.select(*[name for name in rows.columns if not name.startswith("_")])
