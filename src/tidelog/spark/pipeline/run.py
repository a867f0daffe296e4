"""Running a pipeline: a Spark session, a query for each sink and one for bad rows, watched until they end."""

import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tidelog.spark.pipeline import left_out
from tidelog.spark.pipeline.build import build, check_topics, make_topics
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.queries import Queries
from tidelog.spark.pipeline.session import NoSpark, session
from tidelog.spark.pipeline.sinks import bad_rows, start_bad_rows, start_stream, write_bad_rows, write_batch
from tidelog.spark.pipeline.status import late_rows, told_of, write_status
from tidelog.spark.progress import write_file

WATCH_S = 0.5
BAD_ROWS = "bad-rows"

__all__ = ["NoSpark", "check", "check_topics", "found_in", "reason_of", "run", "session"]


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
    with pipeline.hold_state():
        _run(pipeline, spark, once, start, tell)


def _run(pipeline: Pipeline, spark: Any, once: bool, start: str | None, tell: Callable[[str], None]) -> None:
    pipeline.take_state()
    if start is not None and (pipeline.state / "checkpoints").exists():
        raise pipeline.problem(
            ("state",),
            f"--from is for the first run, and {pipeline.state} holds a checkpoint: remove the folder to begin anew",
        )
    make_topics(pipeline)
    tables = build(spark, pipeline, start)
    still = [name for name in pipeline.sources if pipeline.is_decoded(name) and not pipeline.is_stream(name)]
    if not pipeline.streams:
        _run_still(pipeline, tables, still, tell)
        return
    _still_bad_rows(pipeline, tables, still)
    _warm(pipeline, spark)
    queries = Queries(tell)
    try:
        for name, sink in pipeline.sinks:
            queries.start(name, partial(start_stream, pipeline, name, sink, tables[sink["from"]], once=once))
        for source in pipeline.sources:
            if pipeline.is_decoded(source) and source not in still:
                name = _bad_name(pipeline, source)
                queries.start(name, partial(start_bad_rows, pipeline, name, tables[f"{source}!"], once=once))
        tell(f"{pipeline.name} runs: {', '.join(queries.by_name)}")
        _watch(pipeline, queries, tell)
    finally:
        queries.stop()


def _warm(pipeline: Pipeline, spark: Any) -> None:
    """Run one small task before several queries start at once.

    Spark fills a map of the data source when its first task runs, and fails other queries that are being sent out then
    ("Task not serializable: Illegal size of collection").
    """
    topics = [topic for source in pipeline.sources.values() for topic in source.get("topics", ())]
    if topics:
        reading = spark.read.format("tidelog").options(**pipeline.kafka)
        reading.option("subscribe", topics[0]).option("endingTimestamp", "0").load().count()


def _bad_name(pipeline: Pipeline, source: str) -> str:
    return BAD_ROWS if len(pipeline.sources) == 1 else f"{BAD_ROWS}-{source}"


def _watch(pipeline: Pipeline, running: Queries, tell: Callable[[str], None]) -> None:
    """Until all are done or one failed; the status file is kept fresh, and rows that are left out are told of."""
    known = left_out.left_out(pipeline.state)
    seen: dict[str, int | None] = {}
    while True:
        failed = running.mend()
        queries = running.by_name
        active = [name for name, query in queries.items() if query.isActive]
        told = {name: told_of(query) for name, query in queries.items()}
        for name in [name for name, each in told.items() if each.get("batch") != seen.get(name)]:
            seen[name] = told[name].get("batch")
            for batch, rows in late_rows(queries[name]):
                left_out.add(pipeline.state, f"{name}-late", batch, rows, "came later than the watermark allows", "")
        outcome = "failed" if failed else "running" if active else "done"
        found = left_out.left_out(pipeline.state)
        write_status(pipeline.state, pipeline.name, told, outcome, found)
        for name, each in found.items():
            if known.get(name) != each:
                tell(f"{pipeline.name}: {name}: {each.told}")
        known = found
        if failed:
            raise RuntimeError(f"{pipeline.name}: {failed[0]}: {reason_of(queries[failed[0]].exception())}")
        if not active:
            return
        try:
            time.sleep(WATCH_S)
        except KeyboardInterrupt:
            write_status(pipeline.state, pipeline.name, told, "stopped", found)
            raise


def _run_still(pipeline: Pipeline, tables: dict[str, Any], decoded: list[str], tell: Callable[[str], None]) -> None:
    """A pipeline without streams: every table once. A run that was cut short is repeated in place of what it wrote."""
    began = time.time()
    kept = pipeline.state / "still.json"
    batch = int(kept.read_text()) if kept.exists() else int(began)
    write_file(kept, str(batch), durable=True)
    for name, sink in pipeline.sinks:
        write_batch(pipeline, name, sink, tables[sink["from"]], batch)
        tell(f"{pipeline.name}: {name} done after {time.time() - began:.1f} s")
    _still_bad_rows(pipeline, tables, decoded, batch)
    kept.unlink()
    found = left_out.left_out(pipeline.state)
    write_status(pipeline.state, pipeline.name, {}, "done", found)
    for name, each in found.items():
        if each.batch == batch:
            tell(f"{pipeline.name}: {name}: {each.told}")


def _still_bad_rows(pipeline: Pipeline, tables: dict[str, Any], sources: list[str], batch: int | None = None) -> None:
    """The bad rows of tables that are read as they are: sent by each run, since each run reads them anew."""
    for source in sources:
        number = int(time.time()) if batch is None else batch
        write_bad_rows(pipeline, _bad_name(pipeline, source), bad_rows(tables[f"{source}!"]), number)


_RAISED = re.compile(r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout)\b(?::|$)")
"""The line of a traceback that names the error."""
_MISSING_METHOD = re.compile(r"'[\w.$\[\]]+ [\w.$]+\.[\w<>$]+\(.*\)'$")
"""All that Java says of a method that a class no longer has."""
_CALLED_JAVA = "An error occurred while calling"


def reason_of(failure: Any) -> str:
    """The line of a stream's failure that says why: the last error of Python's or Java's, or else the first line."""
    text = str(failure)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("tidelog.") and ": " in line]
    if told:
        return told[-1].partition(": ")[2].replace("set failOnDataLoss=false", "set ignore_loss = true in its source")
    if lines and _MISSING_METHOD.match(lines[0]):
        return f"a jar in [spark] is built for another version of Spark: it wants {lines[0]}"
    raised = [line for line in lines if _RAISED.match(line)]
    if raised and _CALLED_JAVA in raised[-1]:  # py4j tells of Java's error in the next line
        raised += [line[2:] for line in lines if line.startswith(": ")][:1]
    return raised[-1] if raised else lines[0] if lines else text


def found_in(folder: Path) -> list[Path]:
    """The pipeline files in a folder."""
    return sorted(file for file in folder.glob("*.toml") if "[source" in file.read_text(errors="replace"))
