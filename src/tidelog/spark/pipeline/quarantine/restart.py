"""A query that a row ended goes on without it: the row is a bad one now, as one is that can't be decoded."""

from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tidelog.spark.checkpoint import unfinished
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import Undecoded
from tidelog.spark.pipeline.quarantine import notes
from tidelog.spark.pipeline.quarantine.bisection import Bisection, as_a_stream, sources_of
from tidelog.spark.pipeline.quarantine.notes import Unfit
from tidelog.spark.pipeline.quarantine.offset_ranges import around, options_for
from tidelog.spark.pipeline.run.queries import LATE, TRIES
from tidelog.spark.pipeline.run.resets import checkpoint_of
from tidelog.spark.pipeline.sinks import left_out
from tidelog.spark.pipeline.sinks.writers import send_letters, where_bad_rows_go
from tidelog.spark.pipeline.tables.decode import BAD, REASON, decoded
from tidelog.spark.pipeline.tables.error_location import failed_on_a_row, row_failure

T = TypeVar("T")
ROWS_MAX = 100
"""Where more rows of a micro-batch fail, it is the step that is to be mended; and each takes some seconds to find."""


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
    cause = row_failure(pipeline, failure)
    batch = unfinished(checkpoint_of(pipeline, query))
    if cause is None or batch is None or pipeline.spec.bad_rows is None or not hasattr(spark, "_jsparkSession"):
        return False
    by_row = [sources_of(pipeline, tables[step.name]) for step in pipeline.steps]
    sources = by_row[cause.step]
    if pipeline.sink(query) is None or not sources:
        return False
    step = pipeline.steps[cause.step].name
    tell(f"{pipeline.name}: {query}: step {step} failed on a row of batch {batch}: looking for it")
    before = set(notes.aside(pipeline.state, query, batch))
    known = notes.known(pipeline.state) - before

    def new() -> list[Unfit]:
        unfit: list[Unfit] = []
        for source in sources:
            takes = [index for index, names in enumerate(by_row) if source in names]
            for each in Bisection(spark, pipeline, query, source, takes, tables, alive).unfit_rows(batch, known):
                unfit += [each] if each.row not in before else []
                if len(before) + len(unfit) > ROWS_MAX:
                    raise failed_on_a_row(pipeline, failure, f"more than {ROWS_MAX} rows of batch {batch}") or failure
        return unfit

    with as_a_stream(spark):
        unfit = _patiently(new)
    if unfit:
        notes.add(pipeline.state, query, batch, unfit)
        _patiently(lambda: settle(spark, pipeline))
    return bool(unfit)


def _patiently(act: Callable[[], T]) -> T:
    """Again, where a Python process was late to come up, as a query is that fails of it."""
    for _ in range(TRIES - 1):
        try:
            return act()
        except PySparkException as error:
            if LATE not in str(error):
                raise
    return act()


def settle(spark: Any, pipeline: Pipeline) -> None:
    """Do what notes ask for that are open: send letters, and count. A run that repeats this sends none twice."""
    for query, note in notes.notes(pipeline.state).items():
        if not note.open or note.first is None:
            continue
        if note.owed:
            letters = _letters(spark, pipeline, note.owed)
            send_letters(pipeline, f"{query}:unfit", letters, note.number, {"jobInput": f"note-{note.number}"})
        row, step, reason = note.first
        where = f"failed in step {step}, {where_bad_rows_go(pipeline)}"
        example = f"{row.topic}-{row.partition} offset {row.offset}: {reason}"
        left_out.add(pipeline.state, f"{query}-failed", note.batch, len(note.rows), where, example)
        notes.close(pipeline.state, query)


def _letters(spark: Any, pipeline: Pipeline, owed: list[Unfit]) -> Any:
    """The records of these rows as they stand in their topics, as bad ones: whatever became of their transactions."""
    given = {**pipeline.kafka, **options_for(around(each.row.place for each in owed)), "includeHeaders": "true"}
    given |= {"kafka.isolation.level": "read_uncommitted", "failOnDataLoss": "false"}
    rows = spark.read.format("tidelog").options(**given).load()
    why = [(*each.row.place, f"step {each.step}: {each.reason}") for each in owed]
    reasons = F.broadcast(spark.createDataFrame(why, f"_topic string, _partition int, _offset long, {REASON} string"))
    rows = decoded(rows, Undecoded()).drop(BAD, REASON).join(reasons, ["_topic", "_partition", "_offset"])
    return rows.withColumn(BAD, F.lit(True))
