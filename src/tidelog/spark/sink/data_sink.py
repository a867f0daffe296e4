"""`df.write.format("tidelog")` and `df.writeStream.format("tidelog")`: rows to topics.

A stream is exactly once for readers of committed records: tasks write in transactions that the driver ends, after it
decided the batch (decisions.py). A batch is so under a `jobId`; without one it is written at least once.
"""

import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, LongType, StringType, StructType

from tidelog.rpc import Cluster
from tidelog.rpc.produce import Refused
from tidelog.rpc.transactions import ENDED, Producer, abort_exactly, init_producer
from tidelog.spark.connections import cluster_of
from tidelog.spark.identity import NONE
from tidelog.spark.sink.abort_run import end_owned, end_sink
from tidelog.spark.sink.decisions import Decisions, Replaced
from tidelog.spark.sink.fingerprint import HASHES, Fingerprint, batch_input
from tidelog.spark.sink.lease_renewal import Renewal
from tidelog.spark.sink.outbound import Outbound
from tidelog.spark.sink.producers import Attempt, Owner, Producers, producers, writer_of
from tidelog.spark.sink.row_hash import RowHash
from tidelog.spark.sink.sink_name import Job, job_of, job_sink
from tidelog.spark.sink.sink_options import SinkOptions
from tidelog.spark.sink.sink_progress import Standing, standing
from tidelog.spark.source.options import OptionError

logger = logging.getLogger("tidelog.spark")

HEADERS = "array<struct<key:string,value:binary>>"
COLUMNS = ("key", "value", "topic", "partition", "headers")
TOPICS_MAX = 1000
"""Of how many topics that rows name a decision holds the ids: the first by their names, the same in a repetition."""
DRIVERS_MAX = 256
DRIVER_IDLE_S = 600
"""After so long a driver takes its transactional id anew: coordinators forget what isn't used."""


@dataclass
class Written(WriterCommitMessage):
    """What a task reports: for whom it wrote, in which term it began, and who has what it wrote open."""

    attempt: Attempt
    term: int | None
    producer: Producer | None
    rows: int
    hash: int = 0
    topics: frozenset[str] = frozenset()
    """Those that its rows name, where no option does."""


def check_columns(schema: StructType, options: SinkOptions, *, overwrite: bool = False) -> None:
    """OptionError where the rows can't be records, or are to take the place of others."""
    if overwrite:
        raise OptionError("a topic can't be overwritten: write with mode append, to a topic of its own where need be")
    types: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    allowed: dict[str, tuple[type[DataType], ...]] = {
        "key": (StringType, BinaryType),
        "value": (StringType, BinaryType),
        "topic": (StringType,),
        "partition": (IntegerType, LongType),
        "headers": (ArrayType,),
    }
    if "value" not in types:
        raise OptionError(f"there is no column value among {', '.join(types)}; to_json(struct(*)) makes one")
    if "topic" not in types and options.topic is None:
        raise OptionError("where to: set the option topic, or give the rows a column topic")
    for name, kind in types.items():
        if name not in allowed:
            raise OptionError(f"column {name} is none of {', '.join(COLUMNS)}; leave it out, or put it into value")
        if not isinstance(kind, allowed[name]):
            names = " or ".join(one.typeName() for one in allowed[name])
            raise OptionError(f"column {name} is {kind.simpleString()}, expected {names}")
    headers = types.get("headers")
    if headers is not None and headers.simpleString() != HEADERS:
        raise OptionError(f"column headers is {headers.simpleString()}, expected {HEADERS}")


class TopicWriter(DataSourceArrowWriter):
    """A batch: everything once under a job's id, or at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.run = uuid.uuid4().hex  # made once: what is sent to the tasks is this object
        self.name = writer_of(
            options.bootstrap, options.job or "", options.query or "any query", options.topic or "any"
        )

    def write(self, iterator: Iterator[Any]) -> Written:
        return write_rows(self.options, self._attempt(_run() or self.run), iterator)

    def _attempt(self, run: str) -> Attempt:
        options = self.options
        query = options.query or _local("sql.streaming.queryId")
        sink = job_sink(Job(options.topic or "", query, options.job)) if options.job else ""
        return Attempt(sink, run, options.job_batch, self.name)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        settle(self.options, self.options.job_batch, messages, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        settle(self.options, self.options.job_batch, messages, commit=False)
        _end_rest(self.options, messages, self.name, self.run)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A stream: each micro-batch once, whatever is repeated, speculated or killed."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        # Where the session says where checkpoints lie, a sink isn't told; but no two queries of it have one name.
        named = f"query {options.query_name}" if options.query_name else ""
        self.name = writer_of(options.bootstrap, options.checkpoint or named)

    def write(self, iterator: Iterator[Any]) -> Written:
        query, batch = _local("sql.streaming.queryId"), _local("streaming.sql.batchId")
        if not query or not batch:
            raise RuntimeError("Spark does not tell tasks which query and batch they write for: is this a stream?")
        return write_rows(self.options, Attempt(query, _run() or uuid.uuid4().hex, int(batch), self.name), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        settle(self.options, batchId, messages, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Also when the query is stopped: Spark waits for this, and kills what tasks are at it."""
        settle(self.options, batchId, messages, commit=False)
        _end_rest(self.options, messages, self.name)


def _end_rest(options: SinkOptions, messages: list[WriterCommitMessage | None], writer: str, run: str = "") -> None:
    """End what tasks of a batch that failed leave: Spark kills those that are still at it, some after the abort began.

    Whose that is, is told by those that came to their end, by the writer's name, and by a run of its own. The same name
    may be another query's too, of a job that both write in their callbacks: then the first of these tells them apart.
    """
    runs = {(each.attempt.sink, each.attempt.run) for each in messages if isinstance(each, Written)}
    sinks = {sink for sink, _ in runs}
    if options.delivery != "exactly-once" or not (runs or writer or run):
        return

    def is_left(owner: Owner) -> bool:
        is_named = writer != "" and owner.writer == writer and (not sinks or owner.sink in sinks)
        return (owner.sink, owner.run) in runs or owner.run == run or is_named

    end_owned(options, is_left, "what wrote this batch", is_ending=True)


def write_rows(
    options: SinkOptions, attempt: Attempt, batches: Iterator[Any], worker: Producers = producers
) -> Written:
    """A task: its rows written and acknowledged, in a transaction that stays open where delivery is exactly once.

    Where the batch turns out to be decided already, before or after, the rows are dropped: they are there.
    """
    rows = (each for each in batches if each.num_rows)
    if options.delivery == "exactly-once":
        with Renewal(options, attempt):  # from before the first row: that may take long to come, and others wait for it
            return _write_once(options, attempt, rows, worker)
    first = next(rows, None)
    if first is None:
        return Written(attempt, None, None, 0)
    cluster = _connected(options)
    outbound = Outbound(cluster, options, init_producer(cluster, None))
    return _written(attempt, None, None, _send(outbound, first, rows))


def _write_once(options: SinkOptions, attempt: Attempt, rows: Iterator[Any], worker: Producers) -> Written:
    first = next(rows, None)
    if first is None:
        return Written(attempt, None, None, 0)
    cluster = _connected(options)
    before = standing(cluster, attempt.sink, options.decisions)
    if before.batch >= attempt.batch:
        # Read all the same: what stands before the sink may have state of its own, and are these the rows it had?
        return _written(attempt, before.term, None, _hashed(options, first, rows))
    producer = worker.take(cluster, attempt, leased=options.leased)
    try:
        written = _send(Outbound(cluster, options, producer), first, rows)
        now = standing(cluster, attempt.sink, options.decisions)
        if _is_late(attempt, before, now):
            abort_exactly(cluster, [producer])
            return _written(attempt, before.term, None, written)
    except BaseException as error:
        _abandon(cluster, producer)
        if isinstance(error, Refused) and error.code in ENDED:
            raise Replaced(
                f"what this attempt wrote for batch {attempt.batch} of {attempt.sink} was aborted while it was "
                "writing: the batch was decided without it, or another driver of the query took over"
            ) from error
        raise
    return _written(attempt, before.term, producer, written)


def _connected(options: SinkOptions) -> Cluster:
    cluster = cluster_of(options.bootstrap, options.rpc)
    cluster.forget()  # topics may have grown since the last task
    return cluster


def _written(attempt: Attempt, term: int | None, producer: Producer | None, rows: RowHash) -> Written:
    return Written(attempt, term, producer, rows.rows, rows.total % HASHES, frozenset(rows.topics))


def _send(outbound: Outbound, first: Any, rest: Iterator[Any]) -> RowHash:
    outbound.add(first)
    for each in rest:
        outbound.add(each)
    outbound.flush()
    return outbound.hash


def _hashed(options: SinkOptions, first: Any, rest: Iterator[Any]) -> RowHash:
    rows = RowHash(options.topic)
    rows.add(first)
    for each in rest:
        rows.add(each)
    return rows


def _abandon(cluster: Cluster, producer: Producer) -> None:
    """Abort what a failed attempt wrote, so that nobody waits for it; where that fails, the next commit does it."""
    try:
        abort_exactly(cluster, [producer])
    except Exception as error:
        logger.warning("%s stays open until the next commit: %s", producer.transactional_id, error)


def _is_late(attempt: Attempt, before: Standing, now: Standing) -> bool:
    """Whether the driver has decided without this attempt, or has been replaced: nobody will end what it left open."""
    return now.batch >= attempt.batch or now.term != before.term


def settle(
    options: SinkOptions,
    batch: int,
    messages: list[WriterCommitMessage | None],
    *,
    commit: bool,
) -> None:
    """The driver: end what tasks left open, by the decision on the batch."""
    reports = [each for each in messages if isinstance(each, Written)]
    if not reports:
        return
    attempt = reports[0].attempt
    if options.delivery != "exactly-once":
        _end_earlier(options, attempt)
        return
    term = min((each.term for each in reports if each.term is not None), default=None)
    reported = [each.producer for each in reports if each.producer is not None]
    cluster = cluster_of(options.bootstrap, options.rpc)
    decisions = _decisions(cluster, options, attempt)
    if commit:
        made = _fingerprint(cluster, options, attempt, reports)
        decisions.commit(batch, term, reported, made, checked=not options.keeps)
    else:
        decisions.abort(batch, term, reported)


_gone_on: OrderedDict[tuple[str, str, str], None] = OrderedDict()
"""Runs at least once whose sinks' earlier runs have nothing open any more."""


def _end_earlier(options: SinkOptions, attempt: Attempt) -> None:
    """Once in a run: a query may have been exactly once before, and killed while it committed."""
    place = (options.bootstrap, attempt.sink, attempt.run)
    if attempt.sink and place not in _gone_on:
        end_sink(options, attempt.sink)
        _gone_on[place] = None
        while len(_gone_on) > DRIVERS_MAX:
            _gone_on.popitem(last=False)


def _fingerprint(cluster: Cluster, options: SinkOptions, attempt: Attempt, reports: list[Written]) -> Fingerprint:
    """What a batch was made of, by what its tasks reported and what the driver can see."""
    rows = sum(each.rows for each in reports)
    named = {options.topic} if options.topic and rows else {topic for each in reports for topic in each.topics}
    ids = _ids(cluster, sorted(named)[:TOPICS_MAX])
    job = job_of(attempt.sink)
    query = attempt.sink if job is None else job.query
    planned = None if options.input else batch_input(options.checkpoint, query, attempt.batch)
    return Fingerprint(
        rows,
        sum(each.hash for each in reports) % HASHES,
        options.input or (planned and planned.offsets),
        options.topic or "",
        ids.get(options.topic) if options.topic else None,
        None if options.topic or not ids else ids,
        planned and planned.planned,
    )


def _ids(cluster: Cluster, topics: list[str]) -> dict[str, str]:
    by_name = cluster.topics(topics) if topics else {}
    return {name: topic.id.hex() for name, topic in by_name.items() if topic.id.hex() != NONE}


_drivers: OrderedDict[tuple[str, str, str, str], tuple[Decisions, float]] = OrderedDict()
"""Of this process: which has the transactional ids of which drivers, and when it last used them."""


def _decisions(cluster: Cluster, options: SinkOptions, attempt: Attempt) -> Decisions:
    place = (options.bootstrap, options.decisions, attempt.sink, attempt.run)
    now = time.monotonic()
    held, used = _drivers.pop(place, (None, 0.0))
    if held is None or now - used > DRIVER_IDLE_S:
        held = Decisions(cluster, attempt.sink, attempt.run, options.decisions)
    _drivers[place] = (held, now)
    while len(_drivers) > DRIVERS_MAX:
        _drivers.popitem(last=False)
    return held.use(cluster)


def _local(name: str) -> str:
    """A local property of the job that this task belongs to."""
    context = TaskContext.get()
    return (context.getLocalProperty(name) if context is not None else None) or ""


def _run() -> str:
    """The run of the streaming query that this task belongs to: a new one whenever it starts. Empty outside of queries.

    Spark names a query's jobs by it. Somebody else's name for a group of jobs could come back in another driver.
    """
    group = _local("spark.jobGroup.id")
    try:
        return str(uuid.UUID(group)) if _local("sql.streaming.queryId") else ""
    except ValueError:
        return ""
