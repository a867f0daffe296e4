"""Tables to sinks: topics, Parquet folders, databases, the console, or another of Spark's formats."""

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F

from tidelog.spark.checkpoint import query_id
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import ConsoleSink, FolderSink, FormatSink, JdbcSink, Sink, TopicSink, UpsertSink
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


def start_stream(pipeline: Pipeline, sink: Sink, rows: Any, *, once: bool) -> Any:
    """A running query that writes to the sink; PipelineError where Spark can't begin it."""
    with pointing(pipeline, sink.key_path, unless=LATE):
        return _started(pipeline, sink.name, _stream_writer(pipeline, sink, rows), once)


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
        [totals] = rows.agg(F.count(F.lit(1)).alias("rows"), F.min(place).alias("first")).collect()
        if totals["rows"]:
            send_letters(pipeline, name, rows, batch, known_by)
    finally:
        rows.unpersist()
    first = totals["first"]
    example = "" if first is None else f"{first[0]}-{first[1]} offset {first[2]}: {first[3]}"
    why = f"could not be decoded, {where_bad_rows_go(pipeline)}"
    left_out.add(pipeline.state, name, batch, totals["rows"], why, example)


def send_letters(pipeline: Pipeline, name: str, rows: Any, batch: int, known_by: Mapping[str, str]) -> None:
    """Bad rows to their topic, once under this name and batch; not where they are to be dropped."""
    if pipeline.bad_topic is not None:
        letters = dead_letters(rows, pipeline.name)
        _write_topic(pipeline, name, pipeline.bad_topic, letters, batch, known_by)


def where_bad_rows_go(pipeline: Pipeline) -> str:
    return "dropped" if pipeline.bad_topic is None else f"sent to {pipeline.bad_topic}"


def _started(pipeline: Pipeline, name: str, writing: Any, once: bool) -> Any:
    writing = writing.queryName(f"{pipeline.name}:{name}")
    writing = writing.option("checkpointLocation", str(checkpoint_of(pipeline, name).resolve()))
    if once:
        writing = writing.trigger(availableNow=True)
    elif pipeline.spec.trigger is not None:
        writing = writing.trigger(processingTime=pipeline.spec.trigger)
    return writing.start()


def taken(sink: Sink, rows: Any) -> Any:
    """What a stream computes of a table for its sink: all of it, where `write_batch` takes what it needs."""
    match sink:
        case TopicSink(mode="append"):
            return records(rows, sink.key)
        case ConsoleSink() | FormatSink() | FolderSink(is_address=True):
            return shown(rows)
        case _:
            return rows


def _stream_writer(pipeline: Pipeline, sink: Sink, rows: Any) -> Any:
    options = _options(pipeline, sink)
    writing = taken(sink, rows).writeStream.outputMode(sink.mode)

    def each(batch: Any, number: int) -> None:
        write_batch(pipeline, sink, batch, number, of_query(pipeline, sink.name))

    match sink:
        case TopicSink(mode="append"):
            return writing.format("tidelog").options(**pipeline.kafka).option("topic", sink.topic).options(**options)
        case ConsoleSink():
            return writing.format("console").options(**(CONSOLE | options))
        case FormatSink():
            return writing.format(sink.format).options(**options)
        case FolderSink(is_address=True):
            writing = writing.format("parquet").options(**options).option("path", sink.path)
            return writing.partitionBy(*sink.partition_by)
        case _:
            return writing.foreachBatch(each_batch(each))


def of_query(pipeline: Pipeline, name: str) -> dict[str, str]:
    """What a batch is known by that a query writes by a callback: the query's id and offsets, in its checkpoint.

    Through Spark Connect nothing else tells that it is a query's.
    """
    checkpoint = checkpoint_of(pipeline, name).resolve()
    return {"jobQuery": query_id(checkpoint), "checkpointLocation": str(checkpoint)}


def write_batch(pipeline: Pipeline, sink: Sink, rows: Any, batch: int, known_by: Mapping[str, str]) -> None:
    """One batch, still rows, to a sink: of a stream, or all of a pipeline without streams.

    `known_by` are the options by which the sink tells a repetition from another batch.
    """
    options = _options(pipeline, sink)
    match sink:
        case FolderSink(is_address=True):
            writing = shown(rows).write.mode("append").options(**options)
            writing.partitionBy(*sink.partition_by).parquet(sink.path)
        case FolderSink():
            lake.append(shown(rows), batch, _lake_writer(pipeline, sink), sink.partition_by, sink.compact_files)
        case UpsertSink():
            _upsert(pipeline, sink, rows, batch)
        case JdbcSink():
            shown(rows).write.mode("append").jdbc(sink.url, sink.table, properties=options)
        case TopicSink():
            made = records(rows, sink.key)
            _write_topic(pipeline, sink.name, sink.topic, made, batch, {**known_by, **options})
        case ConsoleSink():
            shown(rows).show(int(CONSOLE["numRows"]), truncate=False)
        case FormatSink():
            shown(rows).write.format(sink.format).options(**options).mode("append").save()


def _write_topic(pipeline: Pipeline, name: str, topic: str, made: Any, batch: int, options: Mapping[str, str]) -> None:
    own = {"topic": topic, "jobId": writes_as(pipeline, name), "jobBatch": str(batch)}
    made.write.format("tidelog").options(**{**pipeline.kafka, **own, **options}).mode("append").save()


def end_streams(pipeline: Pipeline, queries: Mapping[str, Any]) -> None:
    """Queries were stopped, perhaps in the middle of a batch: readers of their topics don't wait for what they left."""
    for name, query in queries.items():
        options = pipeline.topic_options(name)
        if options is None:
            continue
        try:
            end_run(read_sink_options({**pipeline.kafka, **options}, streaming=True), str(query.runId))
        except Exception as error:  # brokers that are away, say: the next start does it
            logger.warning("%s: what it has open stays so until its next start: %s", name, error)
            return


def _lake_writer(pipeline: Pipeline, sink: FolderSink | UpsertSink) -> Writer:
    own = hashlib.sha256(writes_as(pipeline, sink.name).encode()).hexdigest()[:10]
    return Writer(pipeline.beside(sink.path), own, sink.options)


def _upsert(pipeline: Pipeline, sink: UpsertSink, rows: Any, batch: int) -> None:
    by, order = sink.upsert_by, sink.order_by
    keep = [each for each in rows.columns if not each.startswith("_") or each in ("_tombstone", order, *by)]
    keyless, first = lake.upsert(rows.select(*keep), _lake_writer(pipeline, sink), by, order, sink.buckets)
    why = f"without {' and '.join(by)}, left out of the table"
    left_out.add(pipeline.state, sink.name, batch, keyless, why, first[:EXAMPLE_CHARS])


def _options(pipeline: Pipeline, sink: Sink) -> dict[str, str]:
    """A sink's options; a format's path is meant as all paths of the file are."""
    options = dict(sink.options)
    if isinstance(sink, FormatSink) and sink.format in FOLDERS and "://" not in options.get("path", "://"):
        options["path"] = str(pipeline.beside(options["path"]))
    return options


def shown(rows: Any) -> Any:
    """The columns that go to sinks."""
    return rows.select(*[name for name in rows.columns if not name.startswith("_")])
