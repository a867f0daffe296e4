"""`spark.read.format("tidelog")` and `spark.readStream.format("tidelog")`: PySpark's data source API on rpc/."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog.rpc import Cluster
from tidelog.rpc.errors import Unreachable, Unsupported
from tidelog.rpc.groups import commit_offsets
from tidelog.spark import plan
from tidelog.spark.identity import TopicIds
from tidelog.spark.lookup import Lookup
from tidelog.spark.options import OptionError, SourceOptions, read_options
from tidelog.spark.plan import OffsetRange, Offsets
from tidelog.spark.progress import Progress, task_done, write_file
from tidelog.spark.push import Narrowed
from tidelog.spark.reader import DataLost, read_range
from tidelog.spark.schema import schema
from tidelog.spark.sink import TopicStreamWriter, TopicWriter, check_columns
from tidelog.spark.sink_options import read_sink_options
from tidelog.wire.errors import KafkaError

logger = logging.getLogger("tidelog.spark")

Json = dict[str, dict[str, int]]
BEHIND_PAUSE_S = 0.5


@dataclass
class TaskRanges(InputPartition):
    """What one task reads."""

    ranges: tuple[OffsetRange, ...]

    @property
    def name(self) -> str:
        if not self.ranges:
            return "nothing"
        first, last = self.ranges[0], self.ranges[-1]
        return f"{first.topic}-{first.partition}-{first.start}-{last.topic}-{last.partition}-{last.end}"


class TidelogSource(DataSource):
    """Topics as tables. Options and columns are those of Spark's own Kafka source; docs/pipelines/source.md."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        return schema(str(self.options.get("includeHeaders", "false")).lower() == "true")

    def reader(self, schema: StructType) -> "TopicReader":
        return TopicReader(read_options(self._given(), streaming=False))

    def streamReader(self, schema: StructType) -> "TopicStreamReader":
        return TopicStreamReader(read_options(self._given(), streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        options = read_sink_options(self._given(), streaming=False)
        check_columns(schema, options)
        if options.delivery == "at-least-once":
            logger.warning("writing at least once: set the option jobId to have a repeated job write nothing twice")
        return TopicWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        options = read_sink_options(self._given(), streaming=True)
        check_columns(schema, options)
        return TopicStreamWriter(options)

    def _given(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in self.options.items()}


class _Reading:
    """What batch and stream have in common: the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, TaskRanges)
        rows = size = 0
        for each in partition.ranges:
            for batch in read_range(self._options, each):
                rows += batch.num_rows
                size += batch.nbytes
                yield batch
        task_done(self._options.progress_path, partition.name, rows, size)

    def _tasks(self, start: Offsets, end: Offsets) -> list[TaskRanges]:
        parts = plan.split(plan.ranges(start, end), self._options.min_partitions, self._options.max_records)
        small = 0 if self._options.min_partitions or self._options.max_records else plan.SMALL_RANGE_RECORDS
        return [TaskRanges(each) for each in plan.shared(parts, small)]


class TopicReader(_Reading, DataSourceReader):
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
            start, end = lookup.start(options.start), lookup.end(options.end)
            places = [place for place in end if narrowed.keeps(*place)]
            start, end = {place: start[place] for place in places}, {place: end[place] for place in places}
            if "offsets" in (options.start.kind, options.end.kind):
                start, end, losses = plan.available(start, end, lookup.earliest(places), lookup.latest(places))
                _settle(options, losses)
            if narrowed.since_ms is not None:
                since = lookup.first_since(places, narrowed.since_ms)
                start = {place: max(offset, since[place]) for place, offset in start.items()}
        start = {place: max(offset, narrowed.first_offset) for place, offset in start.items()}
        if narrowed.end_offset is not None:
            end = {place: min(offset, narrowed.end_offset) for place, offset in end.items()}
        return self._tasks(start, end) or [_NOTHING]


_NOTHING = TaskRanges(ranges=())


class _Pushing:
    """Takes pushed filters without looking as if it did: see TopicReader."""

    def __init__(self, narrowed: Narrowed) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._narrowed = narrowed

    def __call__(self, filters: Any) -> Any:
        return self._narrowed(filters)


class TopicStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: Spark's checkpoint holds the offsets, in the form of Spark's own Kafka source."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._initial: Json | None = None
        self._until: Offsets | None = None  # the ends when an AvailableNow query began
        self._latest: Offsets = {}
        self._made_anew: set[str] = set()  # topics that were, where loss is ignored
        self._last_trigger = time.monotonic()
        self._driver: tuple[Cluster, Lookup, Progress, TopicIds] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options; connections stay with the driver."""
        return {**self.__dict__, "_driver": None}

    def initialOffset(self) -> Json:
        if self._initial is None:
            self._initial = self._kept_initial() or plan.to_json(self._lookup().start(self._options.start))
            self._keep_initial(self._initial)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_per_trigger:
            return ReadMaxRows(max_rows=self._options.max_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        self._own(start)
        begin = plan.from_json(start)
        end = self._not_before(begin, self._ends())
        begin |= self._lookup().earliest([place for place in end if place not in begin])
        if isinstance(limit, ReadMaxRows):
            end = plan.limited(begin, end, limit.max_rows)
        if self._too_few(plan.lag(begin, end)):
            return start
        self._last_trigger = time.monotonic()
        return plan.to_json(end)

    def reportLatestOffset(self) -> Json:
        return plan.to_json(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._latest = self._lookup().latest(self._places())

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        self._own(end)
        low, high = plan.from_json(start), plan.from_json(end)
        lookup = self._lookup()
        there = lookup.present(low.keys() | high.keys())
        self._same_topics()
        earliest, latest = lookup.earliest(there), lookup.latest(there)
        low, high, losses = plan.available(low, high, earliest, latest)
        _settle(self._options, losses)
        tasks = self._tasks(low, high)
        records = sum(each.count for task in tasks for each in task.ranges)
        self._progress().planned(records, len(tasks), plan.lag(high, latest), end)
        return tasks

    def commit(self, end: Json) -> None:
        """Spark is done with `end`. What is told here is for those who look at lag; nothing is read from it.

        So nothing that goes wrong with it may end the query, whatever it is.
        """
        try:
            self._progress().committed(end)
            if self._options.group is not None:
                commit_offsets(self._open()[0], self._options.group, plan.from_json(end))
        except (KafkaError, Unreachable, Unsupported) as error:
            logger.warning("group %s shows an old lag, its offsets can't be committed: %s", self._options.group, error)
        except Exception:
            logger.exception("group %s shows an old lag, its offsets can't be committed", self._options.group)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver[0].close()
            self._driver = None

    def _ends(self) -> Offsets:
        if self._until is not None:
            return self._until
        self._latest = self._lookup().latest(self._places())
        return self._latest

    def _places(self) -> list[plan.Place]:
        places = self._lookup().places_of_old()
        self._same_topics()
        return places

    def _own(self, offsets: Mapping[str, Any]) -> None:
        """Offsets of which none is of this subscription come from the checkpoint of another query."""
        strangers = [topic for topic in offsets if not self._lookup().subscribed(topic)]
        if strangers and len(strangers) == len(offsets):
            raise OptionError(
                f"the checkpoint holds offsets of {', '.join(strangers[:10])}, which this query does not read: it is "
                "another's. Give this query a checkpoint of its own"
            )

    def _same_topics(self) -> None:
        """Topics that were deleted and made again: what is at an offset there is not what follows what was read."""
        lookup, ids = self._open()[1], self._open()[3]
        others = ids.made_anew(lookup.ids)
        if others:
            what = f"{', '.join(others)} was deleted and made again since it was read: what was not read yet is gone"
            _settle(self._options, [plan.Loss(what)])
            ids.learn({topic: lookup.ids[topic] for topic in others})
            self._made_anew.update(others)

    def _not_before(self, begin: Mapping[plan.Place, int], end: Offsets) -> Offsets:
        """The ends, each looked at again where it is before what was read: a leader may be behind for a moment."""
        deadline = time.monotonic() + self._options.rpc.unknown_topic_s
        while True:
            behind = [place for place, offset in end.items() if offset < begin.get(place, offset)]
            if not behind:
                return end
            if time.monotonic() > deadline or all(topic in self._made_anew for topic, _ in behind):
                break
            time.sleep(BEHIND_PAUSE_S)
            end = end | self._lookup().latest(behind)
        _settle(self._options, [plan.made_anew(place, end[place], begin[place]) for place in behind])
        return end

    def _too_few(self, waiting: int) -> bool:
        """Whether to wait for more records: fewer than minOffsetsPerTrigger, and not for too long yet."""
        least = self._options.min_per_trigger
        if least is None or self._until is not None or waiting >= least:
            return False
        return (time.monotonic() - self._last_trigger) * 1000 < self._options.max_trigger_delay_ms

    def _kept_initial(self) -> Json | None:
        """Where the query began, kept beside the checkpoint: `latest` would be another place after a crash."""
        import json

        path = self._options.initial_offsets_path
        if path is None or not Path(path).exists():
            return None
        return json.loads(Path(path).read_text())

    def _keep_initial(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        import json

        path = self._options.initial_offsets_path
        if path is not None and not Path(path).exists():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_file(Path(path), json.dumps(offsets))

    def _open(self) -> tuple[Cluster, Lookup, Progress, TopicIds]:
        if self._driver is None:
            cluster = Cluster(self._options.bootstrap, self._options.rpc)
            progress, ids = Progress(self._options.progress_path), TopicIds(self._options.topic_ids_path)
            self._driver = cluster, Lookup(self._options, cluster), progress, ids
        return self._driver

    def _lookup(self) -> Lookup:
        return self._open()[1]

    def _progress(self) -> Progress:
        return self._open()[2]


def _settle(options: SourceOptions, losses: list[plan.Loss]) -> None:
    """Fail on lost data, or say it and go on."""
    if losses and options.fail_on_loss:
        more = f" (and {len(losses) - 1} more partitions)" if len(losses) > 1 else ""
        raise DataLost(losses[0].what + more)
    for loss in losses:
        logger.warning("%s; reading goes on without them", loss.what)
