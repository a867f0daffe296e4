"""Does a table fit its sink: columns that are named are there, none is there twice, and it can be run as a stream."""

from collections import Counter
from typing import Any

from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import FolderSink, FormatSink, JdbcSink, Sink, TopicSink, UpsertSink
from tidelog.spark.pipeline.tables.error_location import pointing

NO_FILES = ("void", "interval")
"""Types that Parquet has nothing for."""
NO_DATABASE = ("void", "struct", "map", "variant")
"""How the names of types begin that databases have nothing for."""


def check_sinks(pipeline: Pipeline, tables: dict[str, Any]) -> None:
    """PipelineError at the first sink that its table doesn't fit."""
    for sink in pipeline.sinks:
        rows = tables[sink.from_table]
        _named(pipeline, sink, rows.columns)
        _written(pipeline, sink, rows)
        if rows.isStreaming:
            _streamed(pipeline, sink, rows)


def _named(pipeline: Pipeline, sink: Sink, columns: list[str]) -> None:
    named: list[tuple[str, str]] = []
    if isinstance(sink, TopicSink) and sink.key is not None:
        named = [("key", sink.key)]
    if isinstance(sink, UpsertSink):
        named = [*(("upsert_by", name) for name in sink.upsert_by), ("order_by", sink.order_by)]
    for key, column in named:
        if column not in columns:
            hint = "; select it, or name another that says which row is the newest" if key == "order_by" else ""
            raise pipeline.problem(
                (*sink.key_path, key), f"{key}: there is no column {column} among {', '.join(columns)}{hint}"
            )
    shown = [name for name in columns if not name.startswith("_")]
    for column in _partitions(sink):
        if column not in shown:
            raise pipeline.problem(
                (*sink.key_path, "partition_by"), f"partition_by: there is no column {column} among {', '.join(shown)}"
            )


def _partitions(sink: Sink) -> tuple[str, ...]:
    return sink.partition_by if isinstance(sink, FolderSink) else ()


def _written(pipeline: Pipeline, sink: Sink, rows: Any) -> None:
    """Whether the columns that go to the sink can be written there."""
    path = (*sink.key_path, "from")
    shown = [(name, kind) for name, kind in rows.dtypes if not name.startswith("_")]
    twice = [name for name, count in Counter(name.lower() for name, _ in shown).items() if count > 1]
    if twice:
        raise pipeline.problem(path, f"{sink.from_table} has two columns {twice[0]}: name one otherwise, with `as`")
    if len(shown) <= len(_partitions(sink)):
        raise pipeline.problem(
            path,
            f"{sink.from_table} has no columns to write: neither those that begin with _ nor those of partition_by are",
        )
    for name, kind in shown:
        if isinstance(sink, FolderSink | UpsertSink) and kind in NO_FILES:
            raise pipeline.problem(path, f"Parquet has no type for {name}, which is {kind}: cast it in a step")
        if isinstance(sink, JdbcSink) and kind.startswith(NO_DATABASE):
            raise pipeline.problem(
                path, f"a database has no type for {name}, which is {kind}: take its parts, or to_json of it, in a step"
            )


def _streamed(pipeline: Pipeline, sink: Sink, rows: Any) -> None:
    """What Spark says when a query starts, said before. Through Spark Connect it can't be asked, and is said then."""
    frame: Any = getattr(rows, "_jdf", None)
    if frame is None:
        return
    java: Any = rows.sparkSession._jvm.org.apache.spark.sql  # noqa: SLF001  what checks it is not in PySpark
    if isinstance(sink, FormatSink):
        with pointing(pipeline, (*sink.key_path, "format")):
            settings = rows.sparkSession._jsparkSession.sessionState().conf()  # noqa: SLF001  nor is this
            java.execution.datasources.DataSource.lookupDataSource(sink.format, settings)
    modes = java.streaming.OutputMode
    chosen = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[sink.mode]()
    with pointing(pipeline, (*sink.key_path, "mode")):
        java.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(frame.queryExecution().analyzed(), chosen)
