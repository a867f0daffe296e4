"""`df.write.format("tidelog")` and `df.writeStream.format("tidelog")`: rows to topics.

A stream is exactly once for readers of committed records: tasks write in transactions that the driver ends, after it
decided the batch (decisions.py). A batch is so under a `jobId`; without one it is written at least once.
"""

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, LongType, StringType, StructType

from tidelog.rpc import Cluster
from tidelog.rpc.transactions import Producer, abandon, init_producer
from tidelog.spark.decisions import Decisions, task_prefix
from tidelog.spark.options import OptionError
from tidelog.spark.outbound import Outbound
from tidelog.spark.sink_options import SinkOptions
from tidelog.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("tidelog.spark")

COLUMNS = ("key", "value", "topic", "partition", "headers")


@dataclass
class Written(WriterCommitMessage):
    """What a task reports: who wrote what for whom. Without a producer its rows are readable already."""

    sink: str
    producer: Producer | None
    rows: int


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """OptionError where the rows can't be records."""
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


class TopicWriter(DataSourceArrowWriter):
    """A batch: everything once under a job's id, or at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        sink = f"job-{self.options.job}" if self.options.job else ""
        return write_rows(self.options, sink, self.options.job_batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        settle(self.options, self.options.job_batch, messages, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        settle(self.options, self.options.job_batch, messages, commit=False)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A stream: each micro-batch once, whatever is repeated, speculated or killed."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        context = TaskContext.get()
        assert context is not None, "only tasks write"
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        return write_rows(self.options, query, batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        settle(self.options, batchId, messages, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        settle(self.options, batchId, messages, commit=False)


def write_rows(options: SinkOptions, sink: str, batch: int, batches: Iterator[Any]) -> Written:
    """A task: its rows written and acknowledged, in a transaction that stays open where delivery is exactly once."""
    exactly_once = options.delivery == "exactly-once"
    with Cluster(options.bootstrap, options.rpc) as cluster:
        outbound: Outbound | None = None
        producer: Producer | None = None
        try:
            for each in batches:
                if not each.num_rows:
                    continue
                if outbound is None:
                    name = _task_name(sink, batch) if exactly_once else None
                    producer = init_producer(cluster, name, two_phase=exactly_once)
                    outbound = Outbound(cluster, options, producer)
                outbound.add(each)
            if outbound is not None:
                outbound.flush()
        except BaseException:
            if producer is not None and producer.transactional_id is not None:
                abandon(cluster, [producer.transactional_id])
            raise
    rows = outbound.rows if outbound is not None else 0
    return Written(sink, producer if exactly_once else None, rows)


def settle(options: SinkOptions, batch: int, messages: list[WriterCommitMessage | None], *, commit: bool) -> None:
    """The driver: end what tasks left open, by the decision on the batch."""
    told = [each for each in messages if isinstance(each, Written)]
    reported = [each.producer for each in told if each.producer is not None]
    sinks = {each.sink for each in told if each.sink}
    if options.delivery != "exactly-once" or not sinks or (not reported and not options.job):
        return
    [sink] = sinks
    with Cluster(options.bootstrap, options.rpc) as cluster:
        _make_topic(cluster, options)
        decisions = Decisions(cluster, sink, options.decisions)
        if commit:
            decisions.commit(batch, reported)
        else:
            decisions.abort(reported)


def _task_name(sink: str, batch: int) -> str:
    """A transactional id that no other attempt has, not even one of the same task and batch: none touches another's."""
    return f"{task_prefix(sink)}{batch}-{uuid.uuid4().hex[:16]}"


def _make_topic(cluster: Cluster, options: SinkOptions) -> None:
    """The topic of decisions, made on first use: one partition, compacted, so that it stays small."""
    if options.decisions in cluster.topics([options.decisions]):
        return
    from tidelog.rpc.topics import create_topic

    try:
        create_topic(cluster, options.decisions, 1, {"cleanup.policy": "compact"})
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
