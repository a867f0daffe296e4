"""Which rows of a micro-batch a step fails on: they are put through the steps again, as tables, in ever smaller parts.

A row is found only where it fails all by itself, in a step that looks at one row of one stream at a time: what comes of
groups, windows and joins of two streams is no single row's fault.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.errors import PySparkException

from tidelog.spark.options import compiled
from tidelog.spark.pipeline.build import good, stepped
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.pointing import row_failure
from tidelog.spark.pipeline.sinks import written
from tidelog.spark.pipeline.sources import initial_offsets, read
from tidelog.spark.pipeline.stretches import around, halves, read_by, size, within
from tidelog.spark.pipeline.unfit import Row
from tidelog.spark.pipeline.views import Views
from tidelog.spark.plan import OffsetRange

HELD_MAX = 50_000
"""Parts of so many rows are kept in memory while they are looked through."""
ROW_BY_ROW = {
    "Project",
    "Filter",
    "SubqueryAlias",
    "Generate",
    "Join",
    "CollectMetrics",
    "EventTimeWatermark",
    "StreamingRelationV2",
}
"""What Spark calls the parts of a plan that take rows of a stream one by one. A join is so with one stream in it."""
_STREAMING = re.compile(r"^[\s:+-]*~(\w+)(?: (\w+)$)?", re.MULTILINE)


class Unfit(NamedTuple):
    """A row, the step that fails on it, and why."""

    row: Row
    step: str
    reason: str


def source_of(pipeline: Pipeline, table: Any) -> str | None:
    """The stream of topics that a table is made from, row by row; None where it is made in any other way."""
    plan: str = table._jdf.queryExecution().analyzed().toString()
    found = [(operator, name.lower()) for operator, name in _STREAMING.findall(plan)]
    operators = [operator for operator, _ in found]
    sources = {name.lower(): name for name in pipeline.sources}
    names = {sources[name] for operator, name in found if operator == "SubqueryAlias" and name in sources}
    if not ROW_BY_ROW.issuperset(operators) or operators.count("StreamingRelationV2") != 1 or len(names) != 1:
        return None
    [name] = names
    return None if "format" in pipeline.sources[name] else name


class Finding:
    """Looks through what a query was to read in the micro-batch that it failed in."""

    def __init__(self, spark: Any, pipeline: Pipeline, query: str, batch: int, by_row: dict[str, str]) -> None:
        """`by_row`: the steps that take rows one by one, each with the source that they are of."""
        self._spark = spark
        self._pipeline = pipeline
        self._sink = dict(pipeline.sinks)[query]
        self._by_row = by_row
        self._read = {name: self._ranges(name, query, batch) for name in pipeline.sources if pipeline.is_stream(name)}
        self._given = {name: self._all(name) for name in pipeline.sources}

    def _ranges(self, name: str, query: str, batch: int) -> list[OffsetRange]:
        source = self._pipeline.sources[name]
        if "format" in source:
            return []
        pattern = compiled(source["pattern"]) if "pattern" in source else None

        def is_read(topic: str) -> bool:
            return topic in source.get("topics", ()) or (pattern is not None and pattern.search(topic) is not None)

        checkpoint = self._pipeline.state / "checkpoints" / query
        return read_by(checkpoint, batch, initial_offsets(self._pipeline, name), is_read)

    def _all(self, name: str) -> Any:
        """A source as the batch has it, as a table."""
        rows = self._some(name, self._read.get(name, ()))
        nothing = name in self._read and not self._read[name] and "format" not in self._pipeline.sources[name]
        return rows.where("false") if nothing else rows

    def among(self, source: str, rows: Collection[Row]) -> Iterator[Unfit]:
        """Those of some rows that were read in this batch, too, and that steps fail on."""
        alone = [OffsetRange(*row, row.offset + 1) for row in sorted(rows)]
        alone = [one for one in alone if any(self._has(each, one) for each in self._read[source])]
        if not alone:
            return
        held = self._some(source, around((one.topic, one.partition, one.start) for one in alone))
        held = held.where(within(alone)).persist()
        try:
            for one in alone:
                yield from self._look_within(source, held, [one])
        finally:
            held.unpersist()

    @staticmethod
    def _has(outer: OffsetRange, inner: OffsetRange) -> bool:
        same = (outer.topic, outer.partition) == (inner.topic, inner.partition)
        return same and outer.start <= inner.start and inner.end <= outer.end

    def of(self, source: str) -> Iterator[Unfit]:
        """The rows of a source that steps fail on, each by itself."""
        yield from self._look(source, self._read[source])

    def _look(self, source: str, ranges: Sequence[OffsetRange]) -> Iterator[Unfit]:
        """In parts that are small enough to be held."""
        if not ranges or self._fails(source, self._some(source, ranges)) is None:
            return
        if size(ranges) > HELD_MAX:
            for half in halves(ranges):
                yield from self._look(source, half)
            return
        held = self._some(source, ranges).persist()
        try:
            yield from self._look_within(source, held, ranges, certain=True)
        finally:
            held.unpersist()

    def _some(self, source: str, ranges: Sequence[OffsetRange]) -> Any:
        return good(read(self._spark, self._pipeline, source, Views(self._spark), still=ranges))

    def _look_within(
        self, source: str, held: Any, ranges: Sequence[OffsetRange], *, certain: bool = False
    ) -> Iterator[Unfit]:
        """`certain`: it is known that these rows fail."""
        is_one = size(ranges) == 1
        failure = None if certain and not is_one else self._fails(source, held.where(within(ranges)))
        if failure is None and (is_one or not certain):
            return
        if is_one:
            [at] = ranges
            told = None if failure is None else row_failure(self._pipeline, failure)
            name = "" if told is None else self._pipeline.steps[told.step]["name"]
            if told is not None and self._by_row.get(name) == source:
                yield Unfit(Row(at.topic, at.partition, at.start), name, told.reason)
            return
        left, right = halves(ranges)
        found = False
        for each in self._look_within(source, held, left):
            found = True
            yield each
        yield from self._look_within(source, held, right, certain=not found)

    def _fails(self, source: str, rows: Any) -> Exception | None:
        """Why the sink's rows can't be made, were these all that there is of the source."""
        tables = stepped(self._pipeline, {**self._given, source: rows}, Views(self._spark))
        try:
            written(self._sink, tables[self._sink["from"]]).write.format("noop").mode("overwrite").save()
        except PySparkException as error:
            if row_failure(self._pipeline, error) is None:  # brokers that are away, or a run that is to stop
                raise
            return error
        return None
