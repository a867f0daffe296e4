"""Errors of Spark's, told at the line of the pipeline's file that they are about."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from tidelog.spark.pipeline.file.check import PipelineError
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.toml_lines import KeyPath
from tidelog.spark.pipeline.run.reason import own_reason
from tidelog.spark.pipeline.tables.decode import DecodeError

ADVICE = {
    "aggregations without watermark": "give the source a watermark (watermark = 'at 10 minutes') and group by "
    "window(at, '1 minute'), or set mode = 'update'",
    "No suitable driver": 'name the jar of the database\'s driver in [spark] "spark.jars"',
    "[DATA_SOURCE_NOT_FOUND]": "docs/pipelines/formats.md names the jars that formats take",
    "Schema must be specified": "give the source a schema",
    "but class was expected": "a jar in [spark] is built for another version of Spark",
}
"""What to do about some things that Spark says."""
_SPOT = re.compile(r"== SQL(?: of [^\n]+)? \(line (\d+), position (\d+)\) ==\n([^\n]*)(?:\n( *)(\^+))?")
"""Where in which SQL: a line of it, or some of a long one, and below that which part is meant."""
_ROWS_REASON = re.compile(
    r"\[(?!STREAM_FAILED|FOREACH_BATCH|TASK_WRITE_FAILED)[A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] .*(?= SQLSTATE)", re.DOTALL
)
REASON_CHARS = 500
"""So much is told of a reason: there may be a whole value in it."""
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ")
_PLACE = re.compile(r"line (\d+)")
_NO_TABLE = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view `(\w+)`")


@contextmanager
def pointing(pipeline: Pipeline, path: KeyPath, decoding: KeyPath = (), unless: str | None = None) -> Generator[None]:
    """What Spark or Java can't do inside is a problem at this key, what can't be decoded at that of the decoding.

    An error that says `unless` is left as it is.
    """
    try:
        yield
    except DecodeError as error:
        raise pipeline.problem(decoding, str(error)) from None
    except (PySparkException, Py4JError) as error:
        if unless is not None and unless in str(error):
            raise
        raise pipeline.problem(path, short(error)) from None


@contextmanager
def pointing_at_sql(pipeline: Pipeline, index: int) -> Generator[None]:
    """What is wrong with a step's SQL is told at its line of the SQL."""
    path: KeyPath = ("step", index, "sql")
    try:
        yield
    except AnalysisException as error:
        text = short(error)
        later = [step.name.lower() for step in pipeline.steps[index:]]
        absent = _NO_TABLE.match(text)
        if absent and absent[1].lower() in later:
            text = f"{absent[1]} is made by this step or a later one: a step sees only those before it"
        raise pipeline.problem(path, text, _below(pipeline, index, error)) from None
    except (PySparkException, Py4JError) as error:
        raise pipeline.problem(path, short(error)) from None


@contextmanager
def pointing_at_rows(pipeline: Pipeline) -> Generator[None]:
    """A row that a step fails on while something is written is told at the step's line."""
    try:
        yield
    except PySparkException as error:
        raise failed_on_a_row(pipeline, error) or error from None


class RowFailure(NamedTuple):
    """A row that a step's SQL can't be put through: which step, which line of it, and why.

    Where several steps have the same words in the same place it may be any of them; it is told of the first.
    """

    steps: tuple[int, ...]
    line: int
    reason: str

    @property
    def step(self) -> int:
        return self.steps[0]


def row_failure(pipeline: Pipeline, failure: BaseException) -> RowFailure | None:
    """What ended a query, where it is a row that a step failed on."""
    text = str(failure)
    spot = _SPOT.search(text)
    reason = _ROWS_REASON.search(text, 0, spot.start()) if spot else None
    if spot is None or reason is None:
        return None
    line, position = int(spot[1]), int(spot[2])
    part = spot[3].strip().removeprefix("...").removesuffix("...")  # of a long line Spark shows no more than a part
    meant = spot[3][len(spot[4] or "") :][: len(spot[5] or "")]
    lines = {step.index: step.sql.split("\n")[line - 1 : line] for step in pipeline.steps}
    candidates = [index for index, shown in lines.items() if shown and part in shown[0]]
    there = [index for index in candidates if lines[index][0].startswith(meant, position - 1)]
    message = " ".join(reason[0].split())
    message = message if len(message) <= REASON_CHARS else f"{message[:REASON_CHARS]}..."
    return RowFailure(tuple(there or candidates), line, message) if candidates else None


def failed_on_a_row(pipeline: Pipeline, failure: BaseException, what: str = "a row") -> PipelineError | None:
    """A query's end at the line of the step whose SQL a row can't be put through, where that is what ended it."""
    cause = row_failure(pipeline, failure)
    if cause is None:
        return None
    return pipeline.problem(
        ("step", cause.step, "sql"),
        f"step {pipeline.steps[cause.step].name} can't go on with {what}: {cause.reason} Mend the step and run "
        "it again: it goes on with the same rows, none is lost",
        _first(pipeline, cause.step) + cause.line - 1,
    )


def _below(pipeline: Pipeline, index: int, error: AnalysisException) -> int:
    """How many lines below its key the part of a step's SQL stands that an error is about."""
    sql = pipeline.steps[index].sql
    first = _first(pipeline, index)
    contexts: Any = error.getQueryContext()
    if contexts:
        return first + sql[: contexts[0].startIndex()].count("\n")
    match = _PLACE.search(str(error))
    return first + (int(match[1]) - 1 if match else 0)


def _first(pipeline: Pipeline, index: int) -> int:
    """How many lines below its key the first line of a step's SQL stands."""
    opening = pipeline.file.read_text().splitlines()[pipeline.lines["step", index, "sql"] - 1]
    return 1 if opening.rstrip().endswith(('"""', "'''")) and "\n" in pipeline.steps[index].sql else 0


def short(error: BaseException) -> str:
    """The first sentence of an error of Spark's, which goes on with plans; the reason of one of Tidelog's in it."""
    thrown: Any = getattr(error, "java_exception", None)
    text = str(error if thrown is None else thrown).strip()
    lines = text.splitlines() or [type(error).__name__]
    own = own_reason(lines)
    if own is not None:
        return own
    what = _CLASS.sub("", lines[0].split(" SQLSTATE")[0])
    return next((f"{what.rstrip('.')}: {advice}" for sign, advice in ADVICE.items() if sign in what), what)
