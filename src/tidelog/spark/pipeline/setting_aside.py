"""A query that a row ended goes on without it: the row is a bad one now, as one is that can't be decoded."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F

from tidelog.spark.pipeline import left_out, unfit
from tidelog.spark.pipeline.decode import BAD, REASON
from tidelog.spark.pipeline.finding import Finding, Unfit, source_of
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.pointing import failed_on_a_row, row_failure
from tidelog.spark.pipeline.sinks import send_letters, where_bad_rows_go
from tidelog.spark.pipeline.sources import read
from tidelog.spark.pipeline.stretches import around, unfinished
from tidelog.spark.pipeline.views import Views

ROWS_MAX = 100
"""Where more rows of a micro-batch fail, it is the step that is to be mended; and each takes some seconds to find."""
FOUND = "topic string, partition int, offset long, why string"


def set_aside(
    spark: Any,
    pipeline: Pipeline,
    query: str,
    tables: dict[str, Any],
    failure: BaseException,
    tell: Callable[[str], None],
    alive: Callable[[], None],
) -> bool:
    """Whether a query can go on: the rows that ended it were found, and went where bad rows go.

    `alive` is called now and then: it may take minutes. Not through Spark Connect, whose queries look for their tables
    by name, and would find those that are made here.
    """
    told = row_failure(pipeline, failure)
    batch = unfinished(pipeline.state / "checkpoints" / query)
    if told is None or batch is None or "bad_rows" not in pipeline.told or not hasattr(spark, "_jsparkSession"):
        return False
    by_row = {name: source for step in pipeline.steps if (source := source_of(pipeline, tables[name := step["name"]]))}
    step = pipeline.steps[told.step]["name"]
    if query not in dict(pipeline.sinks) or step not in by_row:
        return False
    tell(f"{pipeline.name}: {query}: step {step} failed on a row of batch {batch}: looking for it")
    finding = Finding(spark, pipeline, query, batch, by_row)
    known = unfit.known(pipeline.state, (query, batch))
    before = set(unfit.aside(pipeline.state, query))
    found = list(finding.among(by_row[step], known - before))
    for each in () if found else finding.of(by_row[step]):
        found += [each] if each.row not in before else []
        alive()
        if len(found) > ROWS_MAX:
            raise failed_on_a_row(pipeline, failure, f"more than {ROWS_MAX} rows of batch {batch}") or failure
    if not found:
        return False
    _send(spark, pipeline, query, by_row[step], [each for each in found if each.row not in known])
    _count(pipeline, query, batch, found)
    return True


def _send(spark: Any, pipeline: Pipeline, query: str, source: str, found: list[Unfit]) -> None:
    """Letters, once: named by the rows they are of, so that a run that repeats this after a crash sends no others."""
    new = sorted(found)
    if not new:
        return
    rows = read(spark, pipeline, source, Views(spark), bad=True, still=around(each.row for each in new))
    why = [(*each.row, f"step {each.step}: {each.reason}") for each in new]
    told = F.broadcast(spark.createDataFrame(why, FOUND))
    same = [rows[f"_{name}"] == told[name] for name in ("topic", "partition", "offset")]
    letters = rows.join(told, same).withColumn(BAD, F.lit(True)).withColumn(REASON, F.col("why"))
    name = hashlib.sha256(json.dumps([each.row for each in new]).encode()).hexdigest()[:16]
    send_letters(pipeline, f"{query}-{name}", letters, 0)


def _count(pipeline: Pipeline, query: str, batch: int, found: list[Unfit]) -> None:
    count = unfit.note(pipeline.state, query, batch, (each.row for each in found))
    first = min(found)
    example = f"{first.row.topic}-{first.row.partition} offset {first.row.offset}: {first.reason}"
    where = f"failed in step {first.step}, {where_bad_rows_go(pipeline)}"
    left_out.add(pipeline.state, f"{query}-failed", batch, count, where, example)
