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
from tidelog.spark.decisions import Decisions, Replaced
from tidelog.spark.leaving import end_run
from tidelog.spark.options import OptionError
from tidelog.spark.outbound import Outbound
from tidelog.spark.producers import Attempt, Producers, producers
from tidelog.spark.sink_options import SinkOptions
from tidelog.spark.standing import Standing, standing

logger = logging.getLogger("tidelog.spark")

HEADERS = "array<struct<key:string,value:binary>>"
COLUMNS = ("key", "value", "topic", "partition", "headers")
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

    def write(self, iterator: Iterator[Any]) -> Written:
        return write_rows(self.options, self._attempt(_run() or self.run), iterator)

    def _attempt(self, run: str) -> Attempt:
        return Attempt(f"job-{self.options.job}" if self.options.job else "", run, self.options.job_batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        settle(self.options, self.options.job_batch, messages, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        settle(self.options, self.options.job_batch, messages, commit=False, otherwise=self._attempt(self.run))
        if self.options.delivery == "exactly-once":  # Spark kills other tasks of the job, some after this was called
            end_run(self.options, self.run, is_ending=True)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A stream: each micro-batch once, whatever is repeated, speculated or killed."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        query, batch = _local("sql.streaming.queryId"), _local("streaming.sql.batchId")
        if not query or not batch:
            raise RuntimeError("Spark does not tell tasks which query and batch they write for: is this a stream?")
        return write_rows(self.options, Attempt(query, _run() or uuid.uuid4().hex, int(batch)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        settle(self.options, batchId, messages, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        settle(self.options, batchId, messages, commit=False)


def write_rows(
    options: SinkOptions, attempt: Attempt, batches: Iterator[Any], worker: Producers = producers
) -> Written:
    """A task: its rows written and acknowledged, in a transaction that stays open where delivery is exactly once.

    Where the batch turns out to be decided already, before or after, the rows are dropped: they are there.
    """
    rows = (each for each in batches if each.num_rows)
    first = next(rows, None)
    if first is None:
        return Written(attempt, None, None, 0)
    cluster = cluster_of(options.bootstrap, options.rpc)
    cluster.forget()  # topics may have grown since the last task
    if options.delivery != "exactly-once":
        outbound = Outbound(cluster, options, init_producer(cluster, None))
        return Written(attempt, None, None, _send(outbound, first, rows))
    before = standing(cluster, attempt.sink, options.decisions)
    if before.batch >= attempt.batch:
        # Read all the same: what stands before the sink may have state of its own.
        return Written(attempt, before.term, None, first.num_rows + sum(each.num_rows for each in rows))
    producer = worker.take(cluster, attempt)
    try:
        written = _send(Outbound(cluster, options, producer), first, rows)
        now = standing(cluster, attempt.sink, options.decisions)
        if _is_late(attempt, before, now):
            abort_exactly(cluster, [producer])
            return Written(attempt, before.term, None, written)
    except BaseException as error:
        _abandon(cluster, producer)
        if isinstance(error, Refused) and error.code in ENDED:
            raise Replaced(
                f"what this attempt wrote for batch {attempt.batch} of {attempt.sink} was aborted while it was "
                "writing: the batch was decided without it, or another driver of the query took over"
            ) from error
        raise
    return Written(attempt, before.term, producer, written)


def _send(outbound: Outbound, first: Any, rest: Iterator[Any]) -> int:
    outbound.add(first)
    for each in rest:
        outbound.add(each)
    outbound.flush()
    return outbound.rows


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
    otherwise: Attempt | None = None,
) -> None:
    """The driver: end what tasks left open, by the decision on the batch.

    `otherwise` is for whom tasks wrote, where none came to tell it.
    """
    told = [each for each in messages if isinstance(each, Written)]
    attempt = told[0].attempt if told else otherwise
    if options.delivery != "exactly-once" or attempt is None:
        return
    term = min((each.term for each in told if each.term is not None), default=None)
    reported = [each.producer for each in told if each.producer is not None]
    cluster = cluster_of(options.bootstrap, options.rpc)
    decisions = _decisions(cluster, options, attempt)
    if commit:
        decisions.commit(batch, term, reported, sum(each.rows for each in told))
    else:
        decisions.abort(batch, term, reported)


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
