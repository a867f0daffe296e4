"""Sources and steps as tables of a Spark session; errors of SQL point at their line in the file."""

import re
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F

from tidelog.client.start import Start
from tidelog.spark.pipeline.decode import BAD, RAW, REASON, DecodeError, decoded, inferred
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.progress import write_file

CHECK_PATIENCE_S = 10.0
MAKE_PATIENCE_S = 60.0
FILE_OPTIONS = {"csv": {"mode": "FAILFAST"}, "json": {"mode": "FAILFAST"}}
"""Spark's own default makes nulls of what it can't read, and says nothing."""
_PLACE = re.compile(r"line (\d+)")


def check_topics(pipeline: Pipeline) -> None:
    """Every topic that is named must be there; sinks may make theirs (`partitions`)."""
    with pipeline.reach(CHECK_PATIENCE_S) as cluster:
        there = cluster.topics()
    for name, source in pipeline.sources.items():
        for topic in source.get("topics", ()):
            if topic not in there:
                raise pipeline.problem(
                    ("source", name, "topics"), f"there is no topic {topic}; `tidelog topic create {topic}` makes it"
                )
    wanted = [(("sink", index), sink) for index, sink in enumerate(pipeline.told["sink"]) if "topic" in sink]
    wanted += [(("bad_rows",), pipeline.told["bad_rows"])] if pipeline.bad_topic else []
    for path, sink in wanted:
        if sink["topic"] not in there and "partitions" not in sink:
            raise pipeline.problem(
                (*path, "topic"),
                f"there is no topic {sink['topic']}; add partitions = N to have it made, or `tidelog topic create` it",
            )


def make_topics(pipeline: Pipeline) -> None:
    """The topics that sinks may make."""
    from tidelog.rpc.topics import create_topic

    sinks = [sink for _, sink in pipeline.sinks] + [pipeline.told.get("bad_rows", {})]
    with pipeline.reach(MAKE_PATIENCE_S) as cluster:
        there = cluster.topics()
        for sink in sinks:
            if "topic" in sink and sink["topic"] not in there:
                create_topic(cluster, sink["topic"], sink["partitions"])


class Views:
    """How SQL finds the tables before it: as temporary views of the session."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def add(self, name: str, rows: Any) -> None:
        rows.createOrReplaceTempView(name)

    def counted(self, name: str, rows: Any) -> Any:
        """Records of a stream, with the bytes of their keys and values summed up by micro-batch, for `status`."""
        sizes = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
        return rows.observe(f"read-{name}", F.sum(sizes).alias("bytes"))

    def sql(self, text: str) -> Any:
        rows = self._spark.sql(text)
        rows.columns  # noqa: B018  Spark Connect looks at a query only when it is asked something
        return rows


def build(spark: Any, pipeline: Pipeline, start: str | None = None, views: Views | None = None) -> dict[str, Any]:
    """All tables by name. Those that were decoded also stand under `name!` with their bad rows."""
    tables: dict[str, Any] = {}
    views = views or Views(spark)
    for name, source in pipeline.sources.items():
        try:
            rows = _read(spark, pipeline, name, source, start, views)
        except DecodeError as error:
            raise pipeline.problem(("source", name, "decode"), str(error)) from None
        except (AnalysisException, ParseException) as error:
            raise pipeline.problem(("source", name), _short(error)) from None
        if BAD in rows.columns:
            tables[f"{name}!"] = rows
            rows = rows.where(f"not {BAD}").drop(BAD, REASON, RAW)
        tables[name] = _watermarked(pipeline, rows, ("source", name), source)
        views.add(name, tables[name])
    for index, step in enumerate(pipeline.steps):
        path = ("step", index)
        try:
            rows = views.sql(step["sql"])
        except (AnalysisException, ParseException) as error:
            raise pipeline.problem((*path, "sql"), _short(error), _below(pipeline, index, error)) from None
        rows = _watermarked(pipeline, rows, path, step)
        if "dedup" in step:
            for column in step["dedup"]:
                if column not in rows.columns:
                    raise pipeline.problem(
                        (*path, "dedup"), f"there is no column {column} among {', '.join(rows.columns)}"
                    )
            rows = (
                rows.dropDuplicatesWithinWatermark(step["dedup"])
                if rows.isStreaming
                else rows.dropDuplicates(step["dedup"])
            )
        tables[step["name"]] = rows
        views.add(step["name"], rows)
    _check_sinks(pipeline, tables)
    return tables


def _below(pipeline: Pipeline, index: int, error: AnalysisException | ParseException) -> int:
    """How many lines below its key the part of a step's SQL stands that an error is about."""
    sql: str = pipeline.steps[index]["sql"]
    opening = pipeline.file.read_text().splitlines()[pipeline.lines["step", index, "sql"] - 1]
    first = 1 if opening.rstrip().endswith(('"""', "'''")) and "\n" in sql else 0
    contexts: Any = error.getQueryContext()
    if contexts:
        return first + sql[: contexts[0].startIndex()].count("\n")
    found = _PLACE.search(str(error))
    return first + (int(found[1]) - 1 if found else 0)


def _check_sinks(pipeline: Pipeline, tables: dict[str, Any]) -> None:
    for index, (_, sink) in enumerate(pipeline.sinks):
        columns = tables[sink["from"]].columns
        named = [("key", sink["key"])] if "key" in sink else []
        named += [(key, name) for key in ("partition_by", "upsert_by") for name in sink.get(key, ())]
        named += [("order_by", sink.get("order_by", "_offset"))] if "upsert_by" in sink else []
        for key, column in named:
            if column not in columns:
                raise pipeline.problem(
                    ("sink", index, key), f"{key}: there is no column {column} among {', '.join(columns)}"
                )


def _read(spark: Any, pipeline: Pipeline, name: str, source: dict[str, Any], start: str | None, views: Views) -> Any:
    stream = pipeline.is_stream(name)
    reading = spark.readStream if stream else spark.read
    options: dict[str, str] = dict(source.get("options", {}))
    if "format" in source:
        reading = reading.format(source["format"]).options(**FILE_OPTIONS.get(source["format"], {})).options(**options)
        if source.get("schema"):
            reading = reading.schema(source["schema"])
        path = source.get("path")
        return reading.load(_beside(pipeline, path)) if path else reading.load()
    base = {**pipeline.kafka, "failOnDataLoss": str(not source.get("ignore_loss", False)).lower()}
    base |= {"subscribe": ",".join(source["topics"])} if "topics" in source else {"subscribePattern": source["pattern"]}
    if source.get("committed", True):
        base["kafka.isolation.level"] = "read_committed"
    more = _starting(pipeline, name, start or source.get("from", "earliest"))
    if stream:
        if "max_rows" in source:
            more["maxOffsetsPerTrigger"] = str(source["max_rows"])
        more["initialOffsetsPath"] = str(pipeline.state.resolve() / f"initial-{name}.json")
        more["topicIdsPath"] = str(pipeline.state.resolve() / f"topics-{name}.json")
        more["progressPath"] = str(pipeline.state.resolve() / f"progress-{name}")
        more["kafka.group.id"] = f"pipeline-{pipeline.name}"
    rows = reading.format("tidelog").options(**(base | more | options)).load()
    rows = views.counted(name, rows) if stream else rows
    if "descriptor" in source:
        source = {**source, "descriptor": _beside(pipeline, source["descriptor"])}
    return decoded(rows, source, _schema(spark, pipeline, name, source, base))


def _schema(spark: Any, pipeline: Pipeline, name: str, source: dict[str, Any], base: dict[str, str]) -> str:
    """The schema as given; inferred once where it is to be, and kept: another one would change the checkpoint."""
    schema = source.get("schema", "")
    if schema != "infer":
        return schema
    kept = pipeline.state / f"schema-{name}.txt"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_file(kept, inferred(spark.read.format("tidelog").options(**base).load()))
    return kept.read_text()


def _starting(pipeline: Pipeline, name: str, text: str) -> dict[str, str]:
    if text in ("earliest", "latest"):
        return {"startingOffsets": text}
    from datetime import datetime

    try:
        start = Start.parse(text, datetime.now().astimezone())
    except ValueError:
        start = None
    if start is None or start.kind != "time":
        raise pipeline.problem(("source", name, "from"), f"{text!r}: write earliest, latest, 2h or 2026-01-31T12:00")
    return {"startingTimestamp": str(start.value), "startingOffsetsByTimestampStrategy": "latest"}


def _watermarked(pipeline: Pipeline, rows: Any, path: tuple[str | int, ...], told: dict[str, Any]) -> Any:
    if "watermark" not in told:
        return rows
    column, _, delay = told["watermark"].partition(" ")
    if column not in rows.columns:
        raise pipeline.problem(
            (*path, "watermark"), f"watermark: there is no column {column} among {', '.join(rows.columns)}"
        )
    return rows.withWatermark(column, delay.strip()) if rows.isStreaming else rows


def _beside(pipeline: Pipeline, path: str) -> str:
    return path if "://" in path else str((pipeline.file.parent / Path(path)).resolve())


def _short(error: Exception) -> str:
    """The first sentence of an error of Spark's: it goes on with plans."""
    text = str(error).strip()
    return text.split("\n")[0].split(" SQLSTATE")[0]
