"""Sources and steps as tables of a Spark session; errors of SQL point at their line in the file."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from difflib import get_close_matches
from typing import Any

from pyspark.sql import functions as F

from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.toml_lines import Path
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
    for name, source in pipeline.sources.items():
        for topic in source.get("topics", ()):
            if topic not in there:
                close = get_close_matches(topic, list(there), 1)
                hint = f"did you mean {close[0]}? Or " if close else ""
                raise pipeline.problem(
                    ("source", name, "topics"),
                    f"there is no topic {topic}; {hint}`tidelog topic create {topic}` makes it",
                )
    wanted: list[tuple[Path, Any]] = [
        (("sink", index), sink) for index, sink in enumerate(pipeline.told["sink"]) if "topic" in sink
    ]
    wanted += [(("bad_rows",), pipeline.told["bad_rows"])] if pipeline.bad_topic else []
    for path, sink in wanted:
        if sink["topic"] not in there and "partitions" not in sink:
            raise pipeline.problem(
                (*path, "topic"),
                f"there is no topic {sink['topic']}; add partitions = N to have it made, or `tidelog topic create` it",
            )


def make_topics(pipeline: Pipeline) -> None:
    """The topics that sinks may make, and that of bad rows: a letter is larger than the record in it."""
    from tidelog.rpc.topics import create_topic

    made: list[tuple[dict[str, Any], dict[str, str]]] = [(sink, {}) for _, sink in pipeline.sinks]
    made.append((pipeline.told.get("bad_rows", {}), {"max.message.bytes": str(LETTER_BYTES_MAX)}))
    with pipeline.reach(MAKE_PATIENCE_S) as cluster:
        there = cluster.topics()
        for sink, configs in made:
            if "topic" in sink and sink["topic"] not in there:
                try:
                    create_topic(cluster, sink["topic"], sink["partitions"], configs)
                except KafkaError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # made by another meanwhile, or by another sink
                        raise


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
    for name in pipeline.sources:
        with reading(pipeline, name):
            given[name] = good(read(spark, pipeline, name, views, start, begins=begins))
            if pipeline.is_stream(name) and "format" not in pipeline.sources[name]:
                given[name] = _without(aside, given[name])
            if pipeline.is_decoded(name):
                given[f"{name}!"] = read(spark, pipeline, name, views, start, bad=True, begins=begins)
    tables = stepped(pipeline, given, views)
    check_sinks(pipeline, tables)
    return tables


def reading(pipeline: Pipeline, name: str) -> AbstractContextManager[None]:
    """What goes wrong inside is told at the line of the source."""
    path: Path = ("source", name)
    return pointing(pipeline, path, (*path, "schema" if "schema" in pipeline.sources[name] else "decode"))


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
            tables[name] = _watermarked(pipeline, tables[name], ("source", name), source)
            views.add(name, tables[name])
        for index, step in enumerate(pipeline.steps):
            path: Path = ("step", index)
            with pointing_at_sql(pipeline, index):
                rows = views.sql(step["sql"])
            rows = _deduplicated(pipeline, _watermarked(pipeline, rows, path, step), path, step)
            tables[step["name"]] = rows
            views.add(step["name"], rows)
    finally:
        views.end()
    return tables


def _deduplicated(pipeline: Pipeline, rows: Any, path: Path, step: dict[str, Any]) -> Any:
    if "dedup" not in step:
        return rows
    for column in step["dedup"]:
        if column not in rows.columns:
            raise pipeline.problem((*path, "dedup"), f"there is no column {column} among {', '.join(rows.columns)}")
    return rows.dropDuplicatesWithinWatermark(step["dedup"]) if rows.isStreaming else rows.dropDuplicates(step["dedup"])


def _watermarked(pipeline: Pipeline, rows: Any, path: Path, told: dict[str, Any]) -> Any:
    if "watermark" not in told:
        return rows
    column, _, delay = told["watermark"].partition(" ")
    if column not in rows.columns:
        raise pipeline.problem(
            (*path, "watermark"), f"watermark: there is no column {column} among {', '.join(rows.columns)}"
        )
    kind = dict(rows.dtypes)[column]
    if not kind.startswith("timestamp"):
        raise pipeline.problem(
            (*path, "watermark"), f"watermark: {column} is a {kind}, a timestamp is needed: make one of it in a step"
        )
    return rows.withWatermark(column, delay.strip()) if rows.isStreaming else rows
