"""Running a pipeline: a Spark session, a query for each sink and one for bad rows, watched until they end."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog.spark.pipeline.build import build, check_topics, make_topics
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.session import NoSpark, session
from tidelog.spark.pipeline.sinks import dead_letters, start_stream, write_batch
from tidelog.spark.pipeline.status import told_of, write_status

WATCH_S = 0.5
BAD_ROWS = "bad-rows"

__all__ = ["NoSpark", "check", "found_in", "reason_of", "run", "session"]


def check(pipeline: Pipeline, spark: Any) -> dict[str, list[str]]:
    """Everything that can be known before it runs; the columns of each table."""
    check_topics(pipeline)
    tables = build(spark, pipeline)
    return {name: rows.columns for name, rows in tables.items() if not name.endswith("!")}


def run(
    pipeline: Pipeline, spark: Any, *, once: bool = False, start: str | None = None, tell: Callable[[str], None] = print
) -> None:
    """Run until it is stopped; with `once` until everything that is there now is done. Raises what ends a query."""
    check_topics(pipeline)
    pipeline.take_state()
    if start is not None and (pipeline.state / "checkpoints").exists():
        raise pipeline.problem(
            ("state",),
            f"--from is for the first run, and {pipeline.state} holds a checkpoint: remove the folder to begin anew",
        )
    make_topics(pipeline)
    tables = build(spark, pipeline, start)
    if not pipeline.streams:
        _run_still(pipeline, tables, tell)
        return
    _warm(pipeline, spark)
    queries: dict[str, Any] = {}
    try:
        for name, sink in pipeline.sinks:
            queries[name] = start_stream(pipeline, name, sink, tables[sink["from"]], once=once)
        for source, rows in _bad(pipeline, tables):
            name = BAD_ROWS if len(pipeline.sources) == 1 else f"{BAD_ROWS}-{source}"
            sink = {"topic": pipeline.bad_topic}
            letters = dead_letters(rows, pipeline.name)
            queries[name] = _start_letters(pipeline, name, sink, letters, once)
        tell(f"{pipeline.name} runs: {', '.join(queries)}")
        _watch(pipeline, queries)
    finally:
        for query in queries.values():
            query.stop()


def _warm(pipeline: Pipeline, spark: Any) -> None:
    """Run one small task before several queries start at once.

    Spark fills a map of the data source when its first task runs, and fails other queries that are being sent out then
    ("Task not serializable: Illegal size of collection").
    """
    topics = [topic for source in pipeline.sources.values() for topic in source.get("topics", ())]
    if topics:
        reading = spark.read.format("tidelog").option("kafka.bootstrap.servers", pipeline.bootstrap)
        reading.option("subscribe", topics[0]).option("endingTimestamp", "0").load().count()


def _start_letters(pipeline: Pipeline, name: str, sink: dict[str, Any], letters: Any, once: bool) -> Any:
    writing = letters.writeStream.format("tidelog").option("kafka.bootstrap.servers", pipeline.bootstrap)
    writing = writing.option("topic", sink["topic"]).queryName(f"{pipeline.name}:{name}")
    writing = writing.option("checkpointLocation", str(pipeline.state.resolve() / "checkpoints" / name))
    return (writing.trigger(availableNow=True) if once else writing).start()


def _bad(pipeline: Pipeline, tables: dict[str, Any]) -> list[tuple[str, Any]]:
    if pipeline.bad_topic is None:
        return []
    decoded = [name for name, source in pipeline.sources.items() if source.get("decode", "none") != "none"]
    return [(name, tables[f"{name}!"]) for name in decoded if pipeline.is_stream(name)]


def _watch(pipeline: Pipeline, queries: dict[str, Any]) -> None:
    """Until all are done or one failed; the status file is kept fresh."""
    while True:
        told = {name: told_of(query) for name, query in queries.items()}
        failed = [name for name, query in queries.items() if query.exception() is not None]
        active = [name for name, query in queries.items() if query.isActive]
        outcome = "failed" if failed else "running" if active else "done"
        write_status(pipeline.state, pipeline.name, told, outcome)
        if failed:
            raise RuntimeError(f"{pipeline.name}: {failed[0]}: {reason_of(queries[failed[0]].exception())}")
        if not active:
            return
        time.sleep(WATCH_S)


def _run_still(pipeline: Pipeline, tables: dict[str, Any], tell: Callable[[str], None]) -> None:
    """A pipeline without streams: every table once."""
    began = time.time()
    for name, sink in pipeline.sinks:
        write_batch(pipeline, name, sink, tables[sink["from"]], int(began))
        tell(f"{pipeline.name}: {name} done after {time.time() - began:.1f} s")
    write_status(pipeline.state, pipeline.name, {}, "done")


_RAISED = re.compile(r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout)\b(?::|$)")
"""The line of a traceback that names the error."""


def reason_of(failure: Any) -> str:
    """The line of a stream's failure that says why: the last error of Python's, or else the first line."""
    text = str(failure)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("tidelog.") and ": " in line]
    if told:
        return told[-1].partition(": ")[2]
    raised = [line for line in lines if _RAISED.match(line)]
    return raised[-1] if raised else lines[0] if lines else text


def found_in(folder: Path) -> list[Path]:
    """The pipeline files in a folder."""
    return sorted(file for file in folder.glob("*.toml") if "[source" in file.read_text(errors="replace"))
