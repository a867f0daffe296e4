"""`spark.read.format("tidelog")` and `spark.readStream.format("tidelog")`: PySpark's data source API on rpc/."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.rpc import Cluster
from tidelog.rpc.offsets import EARLIEST, LATEST
from tidelog.spark.sink.data_sink import TopicStreamWriter, TopicWriter, check_columns
from tidelog.spark.sink.sink_options import read_sink_options
from tidelog.spark.source import plan
from tidelog.spark.source.filters import Narrowed
from tidelog.spark.source.lookup import Lookup
from tidelog.spark.source.options import OptionError, SourceOptions, read_options
from tidelog.spark.source.plan import Offsets
from tidelog.spark.source.schema import schema
from tidelog.spark.source.stream import TopicStreamReader
from tidelog.spark.source.tasks import Reading, TaskRanges, settle
from tidelog.wire.topic_partition import TopicPartition

logger = logging.getLogger("tidelog.spark")


class TidelogSource(DataSource):
    """Topics as tables. Options and columns are those of Spark's own Kafka source; docs/pipelines/source.md."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        return schema(str(self.options.get("includeHeaders", "false")).lower() == "true")

    def reader(self, schema: StructType) -> "TopicReader":
        self._check(schema)
        return TopicReader(read_options(self._given(), streaming=False))

    def streamReader(self, schema: StructType) -> "TopicStreamReader":
        self._check(schema)
        return TopicStreamReader(read_options(self._given(), streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        options = read_sink_options(self._given(), streaming=False)
        check_columns(schema, options, overwrite=overwrite)
        if options.delivery == "at-least-once":
            logger.warning("writing at least once: set the option jobId to have a repeated job write nothing twice")
        return TopicWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        options = read_sink_options(self._given(), streaming=True)
        check_columns(schema, options, overwrite=overwrite)
        return TopicStreamWriter(options)

    def _check(self, schema: StructType) -> None:
        own = self.schema().simpleString()
        if schema.simpleString() != own:
            raise OptionError(f"a topic's columns are fixed, leave schema(...) out: they are {own}")

    def _given(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in self.options.items()}


class TopicReader(Reading, DataSourceReader):
    """A batch query: what lies between two sets of offsets when it is planned."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._narrowed = Narrowed()
        # Spark refuses a reader whose class has pushFilters while filter pushdown is off, as it is by default, by
        # comparing __func__. What is called when it is on is this object.
        self.pushFilters: Any = _Pushing(self._narrowed)

    def partitions(self) -> Sequence[InputPartition]:
        options, narrowed = self._options, self._narrowed
        with Cluster(options.bootstrap, options.rpc) as cluster:
            lookup = Lookup(options, cluster)
            there = lookup.places()
            start, end = lookup.start(options.start, there), lookup.end(options.end, there)
            places = [place for place in there if narrowed.keeps(*place)]
            floating = {place for place in places if _at_earliest(options, place)}
            start, end = _in_order(options, places, floating, start, end)
            if "offsets" in (options.start.kind, options.end.kind):
                earliest, latest = lookup.earliest(places), lookup.latest(places)
                start, end, losses = plan.available(start, end, earliest, latest, by_option=places)
                settle(options, losses)
            if narrowed.since_ms is not None:
                since = lookup.first_since(places, narrowed.since_ms)
                start = {place: max(offset, since[place]) for place, offset in start.items()}
        start = {place: max(offset, narrowed.first_offset) for place, offset in start.items()}
        if narrowed.end_offset is not None:
            end = {place: min(offset, narrowed.end_offset) for place, offset in end.items()}
        return self._tasks(start, end, lookup.ids, floating) or [_NOTHING]


def _at_earliest(options: SourceOptions, place: TopicPartition) -> bool:
    """Whether a partition is to be read from wherever it begins: retention may move that until it is read."""
    return options.start.kind == "earliest" or options.start.at(place) == EARLIEST


def _in_order(
    options: SourceOptions,
    places: Collection[TopicPartition],
    floating: Collection[TopicPartition],
    start: Offsets,
    end: Offsets,
) -> tuple[Offsets, Offsets]:
    """Those of the places. What begins behind its end by now is empty; to be told so is a mistake."""
    for place in places:
        late = options.end.kind == "latest" or options.end.at(place) == LATEST
        if start[place] > end[place] and place not in floating and not late:
            raise OptionError(
                f"{place[0]}-{place[1]} is to be read from offset {start[place]}, which is after its end at offset "
                f"{end[place]}: change startingOffsets or endingOffsets, or their times"
            )
    low = {place: start[place] for place in places}
    return low, {place: max(end[place], low[place]) if place in floating else end[place] for place in places}


_NOTHING = TaskRanges(ranges=())


class _Pushing:
    """Takes pushed filters without looking as if it did: see TopicReader."""

    def __init__(self, narrowed: Narrowed) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._narrowed = narrowed

    def __call__(self, filters: Any) -> Any:
        return self._narrowed(filters)
