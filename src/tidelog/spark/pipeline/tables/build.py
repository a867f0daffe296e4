"""Sources and steps as tables of a Spark session; errors of SQL point at their line in the file."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from difflib import get_close_matches
from typing import Any, NamedTuple

from pyspark.sql import functions as F

from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import Avro, FormatSource, Json, Source, Step, TopicSink, TopicSource
from tidelog.spark.pipeline.file.toml_lines import KeyPath
from tidelog.spark.pipeline.quarantine.notes import Row
from tidelog.spark.pipeline.tables.decode import BAD, RAW, REASON
from tidelog.spark.pipeline.tables.error_location import pointing, pointing_at_sql
from tidelog.spark.pipeline.tables.fit_check import check_sinks
from tidelog.spark.pipeline.tables.sources import read
from tidelog.spark.pipeline.tables.views import Views
from tidelog.wire.errors import ErrorCode, KafkaError

__all__ = ["Views", "build", "check_topics", "make_topics"]

CHECK_PATIENCE_S = 10.0
MAKE_PATIENCE_S = 60.0
LETTER_BYTES_MAX = 16 * 1024 * 1024


def check_topics(pipeline: Pipeline) -> None:
    """Every topic that is named must be there; sinks may make theirs (`partitions`)."""
    with pipeline.reach(CHECK_PATIENCE_S) as cluster:
        there = cluster.topics()
    for source in pipeline.sources.values():
        for topic in source.topics if isinstance(source, TopicSource) else ():
            if topic not in there:
                close = get_close_matches(topic, list(there), 1)
                hint = f"did you mean {close[0]}? Or " if close else ""
                raise pipeline.problem(
                    (*source.key_path, "topics"),
                    f"there is no topic {topic}; {hint}`tidelog topic create {topic}` makes it",
                )
    for target in _targets(pipeline):
        if target.topic not in there and target.partitions is None:
            raise pipeline.problem(
                (*target.key_path, "topic"),
                f"there is no topic {target.topic}; add partitions = N to have it made, or `tidelog topic create` it",
            )


def make_topics(pipeline: Pipeline) -> None:
    """The topics that sinks may make, and that of bad rows."""
    from tidelog.rpc.topics import create_topic

    with pipeline.reach(MAKE_PATIENCE_S) as cluster:
        there = cluster.topics()
        for target in _targets(pipeline):
            if target.topic not in there and target.partitions is not None:
                try:
                    create_topic(cluster, target.topic, target.partitions, target.configs)
                except KafkaError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # made by another meanwhile, or by another sink
                        raise


class _Target(NamedTuple):
    """A topic that is written to, and what it is made with where it isn't there."""

    key_path: KeyPath
    topic: str
    partitions: int | None
    configs: Mapping[str, str]


def _targets(pipeline: Pipeline) -> list[_Target]:
    sinks = [sink for sink in pipeline.sinks if isinstance(sink, TopicSink)]
    targets = [_Target(sink.key_path, sink.topic, sink.partitions, {}) for sink in sinks]
    bad_rows = pipeline.spec.bad_rows
    if bad_rows is not None and bad_rows.topic is not None:
        larger = {"max.message.bytes": str(LETTER_BYTES_MAX)}  # a dead letter is larger than the record in it
        targets.append(_Target(("bad_rows",), bad_rows.topic, bad_rows.partitions, larger))
    return targets


def build(
    spark: Any,
    pipeline: Pipeline,
    start: str | None = None,
    views: Views | None = None,
    aside: Iterable[Row] = (),
    begins: str = "",
) -> dict[str, Any]:
    """All tables by name, those of streams without the rows that are left `aside`.

    Those that were decoded also stand under `name!` with their bad rows. `begins`: whose beginning it is, where one of
    the pipeline's queries begins by itself.
    """
    pipeline.check_state()
    views = views or Views(spark)
    given: dict[str, Any] = {}
    for name, source in pipeline.sources.items():
        with reading(pipeline, source):
            given[name] = good(read(spark, pipeline, name, views, start, begins=begins))
            if source.is_stream and isinstance(source, TopicSource):
                given[name] = _without(aside, given[name])
            if source.is_decoded:
                given[f"{name}!"] = read(spark, pipeline, name, views, start, bad=True, begins=begins)
    tables = stepped(pipeline, given, views)
    check_sinks(pipeline, tables)
    return tables


def reading(pipeline: Pipeline, source: Source) -> AbstractContextManager[None]:
    """What goes wrong inside is told at the line of the source."""
    has_schema = isinstance(source, FormatSource) or isinstance(source.decoding, Json | Avro)
    return pointing(pipeline, source.key_path, (*source.key_path, "schema" if has_schema else "decode"))


def good(rows: Any) -> Any:
    """The rows of a source that are not bad."""
    return rows.where(f"not {BAD}").drop(BAD, REASON, RAW) if BAD in rows.columns else rows


def _without(aside: Iterable[Row], rows: Any) -> Any:
    by_place: dict[tuple[str, int], list[int]] = {}
    for row in aside:
        by_place.setdefault((row.topic, row.partition), []).append(row.offset)
    for (topic, partition), offsets in by_place.items():
        there = (F.col("_topic") == topic) & (F.col("_partition") == partition)
        rows = rows.where(~(there & F.col("_offset").isin(offsets)))
    return rows


def stepped(pipeline: Pipeline, given: Mapping[str, Any], views: Views) -> dict[str, Any]:
    """The tables that are given, those of sources with their watermarks, and those that the steps make of them."""
    tables = dict(given)
    try:
        for name, source in pipeline.sources.items():
            tables[name] = _watermarked(pipeline, tables[name], source)
            views.add(name, tables[name])
        for step in pipeline.steps:
            with pointing_at_sql(pipeline, step.index):
                rows = views.sql(step.sql)
            rows = _deduplicated(pipeline, _watermarked(pipeline, rows, step), step)
            tables[step.name] = rows
            views.add(step.name, rows)
    finally:
        views.end()
    return tables


def _deduplicated(pipeline: Pipeline, rows: Any, step: Step) -> Any:
    if not step.dedup:
        return rows
    for column in step.dedup:
        if column not in rows.columns:
            raise pipeline.problem(
                (*step.key_path, "dedup"), f"there is no column {column} among {', '.join(rows.columns)}"
            )
    columns = list(step.dedup)
    return rows.dropDuplicatesWithinWatermark(columns) if rows.isStreaming else rows.dropDuplicates(columns)


def _watermarked(pipeline: Pipeline, rows: Any, table: Source | Step) -> Any:
    if table.watermark is None:
        return rows
    column, path = table.watermark.column, (*table.key_path, "watermark")
    if column not in rows.columns:
        raise pipeline.problem(path, f"watermark: there is no column {column} among {', '.join(rows.columns)}")
    kind = dict(rows.dtypes)[column]
    if not kind.startswith("timestamp"):
        raise pipeline.problem(
            path, f"watermark: {column} is a {kind}, a timestamp is needed: make one of it in a step"
        )
    return rows.withWatermark(column, table.watermark.delay) if rows.isStreaming else rows
