"""A topic as a stream: what is read next, and what became of topics meanwhile. Its tasks are those of a table."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tidelog.env.log_lines import LineFormatter
from tidelog.rpc import Cluster
from tidelog.rpc.errors import Unreachable, Unsupported
from tidelog.rpc.groups import commit_offsets
from tidelog.spark.source import plan
from tidelog.spark.source.lookup import Lookup
from tidelog.spark.source.options import OptionError, SourceOptions
from tidelog.spark.source.plan import Offsets
from tidelog.spark.source.progress import Progress, write_file
from tidelog.spark.source.tasks import Reading, settle
from tidelog.wire.errors import KafkaError
from tidelog.wire.topic_partition import TopicPartition

logger = logging.getLogger("tidelog.spark")

Json = dict[str, dict[str, int]]
BEHIND_PAUSE_S = 0.5
MONITORING_PATIENCE_S = 5.0
"""How long the offsets that are for people to look at may hold up a query."""


def _log_to_stderr() -> None:
    """Spark runs this in a process of its own, where nobody set up logging: TIDELOG_LOG_LEVEL=info shows each batch."""
    level = logging.getLevelNamesMapping().get(os.environ.get("TIDELOG_LOG_LEVEL", "").upper())
    if level is not None:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LineFormatter())
        logging.basicConfig(level=level, handlers=[handler])


class _Driver(NamedTuple):
    """What a stream's reader holds on the driver. `monitor` is for what must not hold it up."""

    cluster: Cluster
    monitor: Cluster
    lookup: Lookup
    progress: Progress


class TopicStreamReader(Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: Spark's checkpoint holds the offsets, in the form of Spark's own Kafka source."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._initial: Json | None = None
        self._initial_kept = False
        self._first = True  # nothing but the first batch was asked about
        self._asked = False  # for a new batch, in this run
        self._last_done: Json | None = None
        self._until: Offsets | None = None  # the ends when an AvailableNow query began
        self._until_ids: dict[str, int] = {}  # and whose they are
        self._latest: Offsets = {}
        self._ids: dict[str, int] = {}  # topics as this run saw them: a checkpoint of Spark's own source has no ids
        self._settled: dict[str, int] = {}  # topics that were made again, where loss is ignored
        self._last_trigger: float | None = None
        self._driver: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options; connections stay with the driver."""
        return {**self.__dict__, "_driver": None}

    def initialOffset(self) -> Json:
        if self._initial is None:
            self._initial = self._kept_initial()
            self._initial_kept = self._initial is not None
        if self._initial is None:
            lookup = self._open().lookup
            start = lookup.start(self._options.start, lookup.places())
            self._initial = plan.to_json(start, ids=lookup.ids)
            self._keep_initial(self._initial)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_per_trigger:
            return ReadMaxRows(max_rows=self._options.max_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        self._own(start)
        self._asked = True
        first = self._is_first(start)
        if not first:
            self._done(start)  # who asks what comes next is done with what was: Spark tells it of all but a last batch
        lookup = self._open().lookup
        ends, again = self._ends(plan.topic_ids(start))
        before = {place: offset for place, offset in plan.from_json(start).items() if place[0] not in again}
        begin = {place: offset for place, offset in before.items() if lookup.subscribed(place)}
        end = self._not_before(begin, self._whole(begin, ends))
        begin |= lookup.earliest([place for place in end if place not in begin])
        if isinstance(limit, ReadMaxRows):
            end = plan.limited(begin, end, limit.max_rows)
        if self._too_few(plan.lag(begin, end)):
            return start
        self._last_trigger = time.monotonic()
        ids = lookup.ids if self._until is None else self._until_ids
        if first:
            initial = plan.from_json(start)
            return plan.to_json(end, {place: offset for place, offset in begin.items() if place in initial}, ids)
        return start if end == before else plan.to_json(end, ids=ids)

    def reportLatestOffset(self) -> Json:
        return plan.to_json(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        lookup = self._open().lookup
        self._until = self._latest = lookup.latest(lookup.places_of_old())
        self._until_ids = dict(lookup.ids)

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        self._own(end)
        lookup = self._open().lookup
        high = plan.from_json(end)
        low, read = self._begun(start, end)
        low = {place: offset for place, offset in low.items() if place in high or lookup.subscribed(place)}
        there = lookup.present(low.keys() | high.keys())
        planned = plan.topic_ids(end)
        before = plan.other_ids(read, planned)  # when it was planned that was let go of
        since = self._made_again(planned, lambda: lookup.present(there))
        settle(self._options, [plan.made_again(before)] if before else [])
        low, high = (_without(since, each) for each in (_without(before, low), high))
        there = [place for place in there if place in low or place in high]
        earliest, latest = lookup.earliest(there), self._caught_up(high, lookup.latest(there))
        low |= {place: earliest[place] for place in high if place[0] in before and place in earliest}
        low, high, losses = plan.available(low, high, earliest, latest, self._by_option(low))
        settle(self._options, losses)
        tasks = self._tasks(low, high, lookup.ids)
        records = sum(each.count for task in tasks for each in task.ranges)
        self._open().progress.planned(records, len(tasks), plan.lag(high, latest), plan.to_json(plan.from_json(end)))
        return tasks

    def commit(self, end: Json) -> None:
        self._done(end)

    def _done(self, end: Json) -> None:
        """Spark is done with `end`. What is told here is for those who look at lag; nothing is read from it.

        So nothing that goes wrong with it may end the query, whatever it is.
        """
        if end == self._last_done:
            return
        self._last_done = end
        try:
            offsets = plan.from_json(end)
            self._open().progress.committed(plan.to_json(offsets))
            if self._options.group is not None:
                commit_offsets(self._open().monitor, self._options.group, offsets)
        except (KafkaError, Unreachable, Unsupported) as error:
            logger.warning("group %s shows an old lag, its offsets can't be committed: %s", self._options.group, error)
        except Exception:
            logger.exception("group %s shows an old lag, its offsets can't be committed", self._options.group)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.cluster.close()
            self._driver.monitor.close()
            self._driver = None

    def _ends(self, read: Mapping[str, int]) -> tuple[Offsets, set[str]]:
        """The ends, and which topics are others than those that were read."""
        lookup = self._open().lookup
        if self._until is not None:
            return self._until, self._made_again(read, None)
        places = lookup.places_of_old()

        def look() -> None:
            nonlocal places
            places = lookup.places_of_old()

        again = self._made_again(read, look)
        self._latest = lookup.latest(places)
        return self._latest, again

    def _own(self, offsets: Mapping[str, Any]) -> None:
        """Offsets of which none is of this subscription come from the checkpoint of another query."""
        strangers = [topic for topic in offsets if not self._open().lookup.subscribed_topic(topic)]
        if strangers and len(strangers) == len(offsets):
            raise OptionError(
                f"the checkpoint holds offsets of {', '.join(strangers[:10])}, which this query does not read: it is "
                "another's. Give this query a checkpoint of its own"
            )

    def _is_first(self, start: Json) -> bool:
        """Whether a batch is the first; a later one may begin where a first one would, if that began anew."""
        self._first = self._first and start == self._initial
        return self._first

    def _by_option(self, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Those that are where the query was told to start, and not how far it had read."""
        initial = plan.from_json(self._initial or {}) if self._first else {}
        return {place for place, offset in offsets.items() if initial.get(place) == offset}

    def _begun(self, start: Json, end: Json) -> tuple[Offsets, dict[str, int]]:
        """Where a batch begins, and in which topics: at `start`, but for the first one after a run that planned it and
        did not finish it.

        Spark has `initialOffset` for that, which may be elsewhere by now; its end tells, if this source wrote it.
        """
        first = self._is_first(start)
        begun = plan.began(end) if first else {}
        again = first and bool(end) and not self._asked and not self._initial_kept
        if again and not begun and self._options.starts_at_an_end:
            what = (
                "the first micro-batch of this checkpoint was not finished, and it began at what were the latest "
                "offsets then: which those were is not known any more"
            )
            why = "Say where to begin by startingOffsets, or use a new checkpoint"
            settle(self._options, [plan.Loss(what, why)])
        return (begun, plan.topic_ids(end)) if begun else (plan.from_json(start), plan.topic_ids(start))

    def _made_again(self, read: Mapping[str, int], look: Callable[[], object] | None) -> set[str]:
        """Topics that were deleted and made again since they were read: what is at an offset there is not what follows.

        Brokers may differ about it for a moment, so they are asked again (`look`).
        """
        lookup = self._open().lookup
        known = {**self._ids, **read}
        deadline = time.monotonic() + self._options.rpc.unknown_topic_s
        while True:
            now = lookup.ids if look is not None else self._until_ids
            others = plan.other_ids(known, now)
            fresh = {topic for topic in others if self._settled.get(topic) != now[topic]}
            if not fresh or look is None or time.monotonic() > deadline:
                break
            time.sleep(BEHIND_PAUSE_S)
            look()
        if fresh:
            settle(self._options, [plan.made_again(fresh)])
            self._settled |= {topic: now[topic] for topic in fresh}
        self._ids |= now
        return others

    def _whole(self, begin: Mapping[TopicPartition, int], end: Offsets) -> Offsets:
        """The ends, with those that were not told: a broker that starts may not know all topics yet.

        A partition without an end would be new to the batch after, and be read again from its beginning.
        """
        missing = [place for place in begin if place not in end]
        if not missing:
            return end
        lookup = self._open().lookup
        latest = lookup.latest(lookup.present(missing))
        if self._until is not None:
            self._until = self._until | latest
            self._until_ids |= {topic: lookup.ids[topic] for topic, _ in latest if topic in lookup.ids}
        gone = [place for place in missing if place not in latest]
        settle(self._options, [plan.Loss(f"{topic}-{partition} is gone") for topic, partition in gone])
        return end | latest

    def _caught_up(self, least: Mapping[TopicPartition, int], ends: Offsets) -> Offsets:
        """The ends, each asked for again where it is before what was seen: a leader may be behind for a moment."""
        deadline = time.monotonic() + self._options.rpc.unknown_topic_s
        while True:
            behind = [place for place, offset in ends.items() if offset < least.get(place, offset)]
            if not behind or time.monotonic() > deadline:
                return ends
            time.sleep(BEHIND_PAUSE_S)
            ends = ends | self._open().lookup.latest(behind)

    def _not_before(self, begin: Mapping[TopicPartition, int], end: Offsets) -> Offsets:
        """The ends; one that stays before what was read is a loss."""
        end = self._caught_up(begin, end)
        behind = [place for place, offset in end.items() if offset < begin.get(place, offset)]
        by_option = self._by_option(begin)
        settle(self._options, [plan.too_short(place, end[place], begin[place], place in by_option) for place in behind])
        return end

    def _too_few(self, waiting: int) -> bool:
        """Whether to wait for more records: fewer than minOffsetsPerTrigger, and not for too long yet.

        The first batch of a run waits for nothing: nobody knows how long ago the one before it was.
        """
        least = self._options.min_per_trigger
        if least is None or self._until is not None or self._last_trigger is None or waiting >= least:
            return False
        return (time.monotonic() - self._last_trigger) * 1000 < self._options.max_trigger_delay_ms

    def _kept_initial(self) -> Json | None:
        """Where the query began, kept beside the checkpoint: `latest` would be another place after a crash."""
        path = self._options.initial_offsets_path
        if path is None or not Path(path).exists():
            return None
        return json.loads(Path(path).read_text())

    def _keep_initial(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        path = self._options.initial_offsets_path
        if path is not None and not Path(path).exists():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_file(Path(path), json.dumps(offsets), durable=True)

    def _open(self) -> _Driver:
        if self._driver is None:
            _log_to_stderr()
            options = self._options
            hasty = replace(
                options.rpc,
                patience_s=min(options.rpc.patience_s, MONITORING_PATIENCE_S),
                request_timeout_s=min(options.rpc.request_timeout_s, MONITORING_PATIENCE_S),
                connect_timeout_s=min(options.rpc.connect_timeout_s, MONITORING_PATIENCE_S),
            )
            cluster = Cluster(options.bootstrap, options.rpc)
            self._driver = _Driver(
                cluster,
                Cluster(options.bootstrap, hasty),
                Lookup(options, cluster),
                Progress(options.progress_path),
            )
        return self._driver


def _without(topics: Collection[str], offsets: Offsets) -> Offsets:
    return {place: offset for place, offset in offsets.items() if place[0] not in topics}
