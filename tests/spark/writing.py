"""A query that writes, without Spark: its tasks and its driver as functions, and what readers see of them."""

import json
import re
import time
from collections.abc import Iterator
from copy import copy
from itertools import count
from typing import Any

import pyarrow
from confluent_kafka.admin import AdminClient

from tidelog.client import Admin, read
from tidelog.client.transactions import Transactions
from tidelog.rpc import Cluster
from tidelog.rpc.produce import produce
from tidelog.rpc.topics import create_topic
from tidelog.rpc.transactions import Producer, commit_offsets_in, end_transaction, init_producer, open_transactions
from tidelog.spark.sink.data_sink import Written, settle, write_rows
from tidelog.spark.sink.fingerprint import HASHES, Fingerprint
from tidelog.spark.sink.producers import Attempt, Producers, driver_id
from tidelog.spark.sink.sink_name import group_of
from tidelog.spark.sink.sink_options import SinkOptions, read_sink_options
from tidelog.wire.batch import build
from tidelog.wire.record import Record

arrow: Any = pyarrow
counter = count()

TWO_PHASE = {"transaction.two.phase.commit.enable": True, "transaction.state.log.num.partitions": 2}
"""What brokers must be told, and what makes them start sooner."""


class Killed(BaseException):
    """kill -9, as far as a function can tell."""


class Query:
    """A query of its own: its tasks, its driver, and what readers see of it."""

    def __init__(self, bootstrap: str, name: str = "query", **options: str) -> None:
        self.sink = f"{name}-{next(counter)}"
        self.topic = f"out-{self.sink}"
        self.bootstrap = bootstrap
        Admin(bootstrap).create_topic(self.topic, 2)
        given = {"kafka.bootstrap.servers": bootstrap, "topic": self.topic, **options}
        self.options: SinkOptions = read_sink_options(given, streaming=True)
        self.worker = Producers()

    def task(self, batch: int, *values: bytes, run: str = "run", worker: Producers | None = None) -> Written:
        table = arrow.record_batch({"key": list(values), "value": list(values)})
        return self.write(batch, iter([table]), run=run, worker=worker)

    def write(self, batch: int, rows: Iterator[Any], *, run: str = "run", worker: Producers | None = None) -> Written:
        return write_rows(self.options, Attempt(self.sink, run, batch), rows, worker or self.worker)

    def commit(self, batch: int, *written: Written) -> None:
        settle(self.options, batch, list(written), commit=True)

    def abort(self, batch: int, *written: Written) -> None:
        settle(self.options, batch, list(written), commit=False)

    def under(self, sink: str) -> "Query":
        """The same under another name."""
        other = copy(self)
        other.sink = sink
        return other

    def forget(self) -> None:
        """Delete its group's offsets, as brokers do after a week."""
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        client.delete_consumer_groups([group_of(self.sink)])[group_of(self.sink)].result()

    def seen(self) -> list[bytes]:
        """What a reader of committed records gets, up to the last stable offset."""
        messages = read(self.bootstrap, self.topic, stop_at_end=True, isolation_level="read_committed")
        return sorted(message.value or b"" for message in messages)

    def open(self) -> list[str]:
        """The transactional ids of its tasks that have something open."""
        with Cluster(self.bootstrap) as cluster:
            transactions = open_transactions(cluster, lambda name: self._is_own(name))
        return [each.transactional_id or "" for each in transactions]

    def ids(self) -> list[str]:
        """The transactional ids of its tasks that the coordinator knows."""
        with Transactions(self.bootstrap) as transactions:
            return [each.name for each in transactions.all() if self._is_own(each.name)]

    def _is_own(self, transactional_id: str) -> bool:
        """A job's id is the last part of its sink's name."""
        return re.search(rf"[-:]{re.escape(self.sink)}-task-", transactional_id) is not None


def own(*written: Written) -> list[Producer]:
    """What the driver is told of."""
    return [each.producer for each in written if each.producer is not None]


def made_of(*written: Written) -> Fingerprint:
    """What they make of a batch."""
    return Fingerprint(sum(each.rows for each in written), sum(each.hash for each in written) % HASHES)


def decided_before(options: SinkOptions, sink: str, batch: int, *written: Written, end: bool = True) -> None:
    """Decide a batch as versions did that knew a job by its `jobId` alone, and of its rows only how many there are."""
    transactions = own(*written)
    fields = {
        "batch": batch,
        "term": 3,
        "run": "before",
        "rows": sum(each.rows for each in written),
        "transactions": [[each.transactional_id, each.id, each.epoch] for each in transactions],
    }
    record = Record(timestamp=int(time.time() * 1000), key=sink.encode(), value=json.dumps(fields).encode())
    with Cluster(options.bootstrap) as cluster:
        if options.decisions not in cluster.topics([options.decisions]):
            create_topic(cluster, options.decisions, 1, {"cleanup.policy": "compact"})
        driver = init_producer(cluster, driver_id(sink), timeout_ms=10_000)
        made = build([record], producer_id=driver.id, producer_epoch=driver.epoch, base_sequence=0, transactional=True)
        at = produce(cluster, options.decisions, 0, made, transactional_id=driver.transactional_id)
        commit_offsets_in(cluster, driver, sink, {(options.decisions, 0): (batch, f"{at} 3 before")})
        end_transaction(cluster, driver, commit=True)
        for each in transactions if end else ():
            end_transaction(cluster, each, commit=True)


def dying_at(real: Any, call: int) -> Any:
    """The function, but its caller is killed before the call of this number."""
    calls = count()

    def dying(*args: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return real(*args, **named)

    return dying
