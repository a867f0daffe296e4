"""Does a table fit its sink: columns that are named are there, none is there twice, and it can be run as a stream."""

from collections import Counter
from typing import Any

from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.tables.error_location import pointing

NO_FILES = ("void", "interval")
"""Types that Parquet has nothing for."""
NO_DATABASE = ("void", "struct", "map", "variant")
"""How the names of types begin that databases have nothing for."""


def check_sinks(pipeline: Pipeline, tables: dict[str, Any]) -> None:
    """PipelineError at the first sink that its table doesn't fit."""
    for index, (_, sink) in enumerate(pipeline.sinks):
        rows = tables[sink["from"]]
        _named(pipeline, index, sink, rows.columns)
        _written(pipeline, index, sink, rows)
        if rows.isStreaming:
            _streamed(pipeline, index, sink, rows)


def _named(pipeline: Pipeline, index: int, sink: dict[str, Any], columns: list[str]) -> None:
    named = [("key", sink["key"])] if "key" in sink else []
    named += [("upsert_by", name) for name in sink.get("upsert_by", ())]
    named += [("order_by", sink.get("order_by", "_offset"))] if "upsert_by" in sink else []
    for key, column in named:
        if column not in columns:
            hint = "; select it, or name another that says which row is the newest" if key == "order_by" else ""
            raise pipeline.problem(
                ("sink", index, key), f"{key}: there is no column {column} among {', '.join(columns)}{hint}"
            )
    shown = [name for name in columns if not name.startswith("_")]
    for column in sink.get("partition_by", ()):
        if column not in shown:
            raise pipeline.problem(
                ("sink", index, "partition_by"), f"partition_by: there is no column {column} among {', '.join(shown)}"
            )


def _written(pipeline: Pipeline, index: int, sink: dict[str, Any], rows: Any) -> None:
    """Whether the columns that go to the sink can be written there."""
    path = ("sink", index, "from")
    shown = [(name, kind) for name, kind in rows.dtypes if not name.startswith("_")]
    twice = [name for name, count in Counter(name.lower() for name, _ in shown).items() if count > 1]
    if twice:
        raise pipeline.problem(path, f"{sink['from']} has two columns {twice[0]}: name one otherwise, with `as`")
    if len(shown) <= len(sink.get("partition_by", ())):
        raise pipeline.problem(
            path,
            f"{sink['from']} has no columns to write: neither those that begin with _ nor those of partition_by are",
        )
    for name, kind in shown:
        if "path" in sink and kind in NO_FILES:
            raise pipeline.problem(path, f"Parquet has no type for {name}, which is {kind}: cast it in a step")
        if "jdbc" in sink and kind.startswith(NO_DATABASE):
            raise pipeline.problem(
                path, f"a database has no type for {name}, which is {kind}: take its parts, or to_json of it, in a step"
            )


def _streamed(pipeline: Pipeline, index: int, sink: dict[str, Any], rows: Any) -> None:
    """What Spark says when a query starts, said before. Through Spark Connect it can't be asked, and is said then."""
    frame: Any = getattr(rows, "_jdf", None)
    if frame is None:
        return
    java: Any = rows.sparkSession._jvm.org.apache.spark.sql
    if "format" in sink:
        with pointing(pipeline, ("sink", index, "format")):
            settings = rows.sparkSession._jsparkSession.sessionState().conf()
            java.execution.datasources.DataSource.lookupDataSource(sink["format"], settings)
    mode = sink.get("mode", "append")
    modes = java.streaming.OutputMode
    chosen = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    with pointing(pipeline, ("sink", index, "mode")):
        java.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(frame.queryExecution().analyzed(), chosen)
