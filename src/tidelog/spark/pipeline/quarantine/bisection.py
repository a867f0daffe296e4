"""Which rows of a micro-batch a step fails on: they are put through the steps again, as tables, in ever smaller parts.

A row is found only where it fails all by itself, in a step that takes the rows of a stream one by one: what comes of
groups, windows and joins of two streams is no single row's fault.
"""

import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import FormatSource, TopicSource
from tidelog.spark.pipeline.quarantine.notes import Row, Unfit
from tidelog.spark.pipeline.quarantine.offset_ranges import around, between, halves, lying_in, read_by, size
from tidelog.spark.pipeline.run.resets import checkpoint_of
from tidelog.spark.pipeline.sinks.writers import taken
from tidelog.spark.pipeline.tables.build import good, stepped
from tidelog.spark.pipeline.tables.error_location import RowFailure, row_failure
from tidelog.spark.pipeline.tables.sources import initial_offsets, read
from tidelog.spark.pipeline.tables.views import Views
from tidelog.spark.source.plan import OffsetRange

HELD_MAX = 50_000
"""Parts of so many rows are kept in memory while they are looked through."""
PLACE = ("_topic", "_partition", "_offset")
RELATION = "StreamingRelationV2"
ROW_BY_ROW = {
    "Project",
    "Filter",
    "SubqueryAlias",
    "Generate",
    "Join",
    "Union",
    "CollectMetrics",
    "EventTimeWatermark",
    RELATION,
}
"""What Spark calls the parts of a plan that take rows of a stream one by one. A join is so with one stream in it."""
AS_A_STREAM = {
    "spark.sql.adaptive.enabled": "false",  # would leave out what is joined with nothing, and never compute it
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # so would a join that needs no shuffle; streams always have one
    "spark.sql.shuffle.partitions": "2",
}
STREAMING = re.compile(r"^[\s:+-]*~(\w+)(?: (\w+)$)?", re.MULTILINE)


def sources_of(pipeline: Pipeline, table: Any) -> list[str]:
    """The streams of topics that a step takes its rows from, one by one; none where it takes them in any other way.

    That one row of several is kept, which comes last in a step (`dedup`), does not change how its SQL takes them.
    """
    plan: str = table._jdf.queryExecution().analyzed().toString()  # noqa: SLF001  PySpark only prints it
    nodes = [(operator, name.lower()) for operator, name in STREAMING.findall(plan)]
    operators = [operator for operator, _ in nodes]
    if operators and operators[0].startswith("Deduplicate"):
        operators = operators[1:]
    if not ROW_BY_ROW.issuperset(operators) or ("Join" in operators and operators.count(RELATION) != 1):
        return []
    tables = {name for operator, name in nodes if operator == "SubqueryAlias"}
    names = [name for name in pipeline.sources if name.lower() in tables]
    return [] if any(isinstance(pipeline.sources[name], FormatSource) for name in names) else names


class Bisection:
    """Looks through what a query was to read of a source in the micro-batch that it failed in."""

    def __init__(
        self,
        spark: Any,
        pipeline: Pipeline,
        query: str,
        source: str,
        by_row: Collection[int],
        tables: Mapping[str, Any],
        alive: Callable[[], None],
    ) -> None:
        """`by_row`: the steps that take the rows of the source one by one. `tables`: all of them, as streams.

        `alive` is called again and again.
        """
        self._spark = spark
        self._pipeline = pipeline
        self._query = query
        self._source = source
        self._by_row = by_row
        self._alive = alive
        self._given = {name: self._beside(name, tables[name]) for name in pipeline.sources}

    def _beside(self, name: str, rows: Any) -> Any:
        """What the source's rows are put through the steps with: tables, and nothing of any stream.

        That it is nothing is not to be seen before it is read: Spark would leave out what can't come to anything.
        """
        if not self._pipeline.sources[name].is_stream:
            return rows
        return self._spark.createDataFrame(self._spark.sparkContext.emptyRDD(), rows.schema)

    def unfit_rows(self, batch: int, known: Collection[Row]) -> Iterator[Unfit]:
        """The rows that steps fail on, each by itself. Only those that are `known` are tried, where one of them does.

        None where steps fail without any: it is a table beside the stream, say.
        """
        ranges = self._ranges(batch)
        if not ranges or self._fails(self._given[self._source]) is not None:
            return
        any_known = False
        for each in self._among([row.place for row in sorted(known) if lying_in(ranges, row.place)]):
            any_known = True
            yield each
        if not any_known:
            yield from self._look(ranges, certain=True)

    def _ranges(self, batch: int) -> list[OffsetRange]:
        source = self._pipeline.sources[self._source]
        assert isinstance(source, TopicSource), f"{self._source} is no topic, and rows of it are not looked for"
        checkpoint = checkpoint_of(self._pipeline, self._query)
        return read_by(checkpoint, batch, initial_offsets(self._pipeline, self._source), source.reads)

    def _among(self, places: Sequence[tuple[str, int, int]]) -> Iterator[Unfit]:
        if not places:
            return
        wanted = F.broadcast(self._spark.createDataFrame(places, "_topic string, _partition int, _offset long"))
        with self._held(self._some(around(places)).join(wanted, list(PLACE), "left_semi")) as held:
            yield from self._look_within(*held)

    def _look(self, ranges: Sequence[OffsetRange], *, certain: bool = False) -> Iterator[Unfit]:
        """In parts that are small enough to be held. `certain`: it is known that these rows fail."""
        rows = self._some(ranges)
        if not certain and self._fails(rows) is None:
            return
        if size(ranges) <= HELD_MAX:
            with self._held(rows) as held:
                yield from self._look_within(*held, certain=True)
            return
        left, right = halves(ranges)
        any_unfit = False
        for each in self._look(left):
            any_unfit = True
            yield each
        yield from self._look(right, certain=not any_unfit)

    def _some(self, ranges: Sequence[OffsetRange]) -> Any:
        return good(read(self._spark, self._pipeline, self._source, Views(self._spark), still=ranges))

    @contextmanager
    def _held(self, rows: Any) -> Generator[tuple[Any, list[Row]]]:
        """Rows that are read once, and which they are, in order."""
        held = rows.persist()
        at_ms = F.coalesce(F.unix_millis("_timestamp"), F.lit(0))
        try:
            yield held, sorted(Row(*each) for each in held.select(*PLACE, at_ms).collect())
        finally:
            held.unpersist()

    def _look_within(self, held: Any, rows: Sequence[Row], *, certain: bool = False) -> Iterator[Unfit]:
        if not rows:
            return
        failure = None
        if not certain or len(rows) == 1:
            failure = self._fails(held.where(between(rows[0].place, rows[-1].place)))
            if failure is None:
                return
        if len(rows) == 1 and failure is not None:
            yield Unfit(rows[0], self._pipeline.steps[failure.step].name, failure.reason)
            return
        middle = len(rows) // 2
        any_unfit = False
        for each in self._look_within(held, rows[:middle]):
            any_unfit = True
            yield each
        yield from self._look_within(held, rows[middle:], certain=not any_unfit)

    def _fails(self, rows: Any) -> RowFailure | None:
        """How the sink's rows can't be made, were these all that there is of the source.

        Only what a step fails on that takes them one by one: a group of a few rows may fail where the whole does not.
        """
        self._alive()
        sink = self._pipeline.sink(self._query)
        assert sink is not None, f"{self._query} writes to a sink of the file"
        tables = stepped(self._pipeline, {**self._given, self._source: rows}, Views(self._spark))
        try:
            taken(sink, tables[sink.from_table]).write.format("noop").mode("overwrite").save()
        except PySparkException as error:
            failure = row_failure(self._pipeline, error)
            if failure is None:  # brokers that are away, or a run that is to stop
                raise
            return failure if set(self._by_row).issuperset(failure.steps) else None
        return None


@contextmanager
def as_a_stream(spark: Any) -> Generator[None]:
    """Tables are computed as streams are, as far as settings can have it."""
    before = {name: spark.conf.get(name) for name in AS_A_STREAM}
    try:
        for name, value in AS_A_STREAM.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
