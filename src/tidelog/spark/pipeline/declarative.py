"""A pipeline's file as a project of Spark Declarative Pipelines: the file stays the only definition.

A project's Python file says `declare("orders.toml")`, and `spark-pipelines run` does the rest: each sink is a flow, a
topic a sink of format tidelog, a Parquet folder a streaming table. `write_project` makes such a project.
"""

import json
import logging
import re
from pathlib import Path
from typing import Any

from tidelog.spark.pipeline.file.model import Pipeline, load
from tidelog.spark.pipeline.file.spec import ConsoleSink, FolderSink, FormatSink, JdbcSink, Sink, TopicSink, UpsertSink
from tidelog.spark.pipeline.run.session import SQL
from tidelog.spark.pipeline.sinks.writers import dead_letters, records, shown
from tidelog.spark.pipeline.tables.build import Views, build, check_topics, make_topics

logger = logging.getLogger("tidelog.spark")

SPEC = "spark-pipeline.yml"
SETTINGS = "conf/spark-defaults.conf"
DEFINITIONS = "transformations"


class Relations(Views):
    """How SQL finds the tables before it in a project, whose definitions may make no views: they go with the query."""

    def __init__(self, spark: Any) -> None:
        super().__init__(spark)
        self._tables: dict[str, Any] = {}

    def add(self, name: str, rows: Any) -> None:
        self._tables[name] = rows

    def counted(self, name: str, rows: Any) -> Any:
        """As they are: a project has no status of ours."""
        return rows

    def sql(self, text: str) -> Any:
        from pyspark.sql.connect.dataframe import DataFrame
        from pyspark.sql.connect.plan import SQL as Query
        from pyspark.sql.connect.plan import SubqueryAlias

        # The server names and forgets these one after the other, and for a table those that it is made of: the last
        # table first, so that none is forgotten that is still to be read.
        named = [name for name in reversed(self._tables) if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE)]
        # PySpark has no other way to name a table for one text alone.
        views = [SubqueryAlias(self._tables[name]._plan, name) for name in named]  # noqa: SLF001
        rows: Any = DataFrame(Query(text, views=views), self._spark)
        rows.columns  # noqa: B018  looked at now, for an error that is about this text
        return rows


def declare(file: str | Path, bootstrap: str | None = None) -> None:
    """Declare what a pipeline's file says, in a definitions file of a project; PipelineError where it can't be.

    Topics that sinks may make (`partitions`) are made, also by a dry run.
    """
    from pyspark.sql import SparkSession

    pipeline = load(Path(file), bootstrap)
    check_declarable(pipeline)
    check_topics(pipeline)
    make_topics(pipeline)
    spark = SparkSession.getActiveSession()
    assert spark is not None, "declare() is for definitions files, which spark-pipelines runs"
    tables = build(spark, pipeline, views=Relations(spark))
    for sink in pipeline.sinks:
        _declare_sink(pipeline, sink, tables[sink.from_table])
    if pipeline.bad_topic is not None:
        for name in pipeline.sources:
            if f"{name}!" in tables and tables[f"{name}!"].isStreaming:
                letters = dead_letters(tables[f"{name}!"], pipeline.name)
                _to_sink(f"bad_rows_{name}", "tidelog", _topic(pipeline, pipeline.bad_topic), letters)


def check_declarable(pipeline: Pipeline) -> None:
    """PipelineError at the first key for which Declarative Pipelines have nothing: they append rows, and no more."""
    if pipeline.spec.bad_rows is not None and pipeline.bad_topic is None:
        raise pipeline.problem(
            ("bad_rows", "drop"),
            "Declarative Pipelines count no rows that are left out: give bad_rows a topic in place of drop",
        )
    for sink in pipeline.sinks:
        name, path = sink.name, sink.key_path
        if sink.mode != "append":
            raise pipeline.problem(
                (*path, "mode"), f"sink {name}: mode = {sink.mode!r}: Declarative Pipelines only append"
            )
        if isinstance(sink, UpsertSink | JdbcSink):
            key = "upsert_by" if isinstance(sink, UpsertSink) else "jdbc"
            raise pipeline.problem(
                (*path, key), f"sink {name}: Declarative Pipelines have no {key}: use tidelog pipeline run"
            )
        if not pipeline.streams and not isinstance(sink, FolderSink):
            raise pipeline.problem(path, f"sink {name}: without a stream only tables (path) can be declared")
        if isinstance(sink, FolderSink) and sink.compact_files is not None:
            logger.warning("sink %s: Declarative Pipelines merge no files, compact_files has no effect", name)


def write_project(pipeline: Pipeline, folder: Path) -> list[Path]:
    """A project that declares the pipeline's file; the files that were written.

    Files of its own from an earlier time are written anew; where another's has the name of one, nothing is written.
    """
    check_declarable(pipeline)
    storage = (pipeline.state / "declarative").resolve()
    spec = [
        f"# Made from {pipeline.file.name}, which each run reads anew.",
        f"name: {json.dumps(pipeline.name)}",
        f"storage: {json.dumps(storage.as_uri())}",
        "libraries:",
        f"  - glob: {{include: {DEFINITIONS}/**}}",
    ]
    # Not in the specification, where Spark sets them flow by flow and refuses those that it can't set any more; nor on
    # the command line, of which it hands only some on to the server that it starts.
    settings = {**_catalog(storage), **SQL, **pipeline.spec.spark}
    given = "" if pipeline.bootstrap == pipeline.spec.bootstrap else f", bootstrap={pipeline.bootstrap!r}"
    calls = [
        f'"""Declares what {pipeline.file.name} says: tables, and flows to topics."""',
        "",
        "from tidelog.spark import declare",
        "",
        f"declare({str(pipeline.file.resolve())!r}{given})",
    ]
    made = {
        folder / SPEC: spec,
        folder / SETTINGS: [spec[0], *(f"{name}={value}" for name, value in settings.items())],
        folder / DEFINITIONS / f"{_plain(pipeline.name)}.py": calls,
    }
    for file, text in made.items():
        if file.exists() and file.read_text().splitlines()[:1] != text[:1]:
            raise pipeline.problem(("name",), f"{file} is there, and not made from this file: name another folder")
    storage.mkdir(parents=True, exist_ok=True)
    for file, text in made.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(text) + "\n")
    return list(made)


def _catalog(storage: Path) -> dict[str, str]:
    """A catalog that remembers tables from run to run, beside their data; [spark] may name another."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (storage / "warehouse").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={storage / 'catalog'};create=true",
    }


def _declare_sink(pipeline: Pipeline, sink: Sink, rows: Any) -> None:
    name, options = _plain(sink.name), dict(sink.options)
    match sink:
        case TopicSink():
            _to_sink(name, "tidelog", _topic(pipeline, sink.topic) | options, records(rows, sink.key))
        case ConsoleSink():
            _to_sink(name, "console", {"truncate": "false"}, shown(rows))
        case FormatSink():
            _to_sink(name, sink.format, options, shown(rows))
        case FolderSink(is_address=True) if rows.isStreaming:
            _to_sink(name, "parquet", {"path": sink.path, **options}, shown(rows))
        case FolderSink():
            from pyspark import pipelines

            chosen = shown(rows)
            made: Any = pipelines.table if rows.isStreaming else pipelines.materialized_view
            made(name=name, format="parquet", partition_cols=list(sink.partition_by) or None)(lambda: chosen)
        case UpsertSink() | JdbcSink():
            raise AssertionError("check_declarable lets none of these through")


def _to_sink(name: str, format_name: str, options: dict[str, str], rows: Any) -> None:
    from pyspark import pipelines

    pipelines.create_sink(name, format_name, options)
    pipelines.append_flow(target=name, name=f"to_{name}")(lambda: rows)


def _topic(pipeline: Pipeline, topic: str) -> dict[str, str]:
    return {**pipeline.kafka, "topic": topic}


def _plain(name: str) -> str:
    """A name as SQL has them."""
    return re.sub(r"\W", "_", name)
