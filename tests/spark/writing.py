"""A query that writes, without Spark: its tasks and its driver as functions, and what readers see of them."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow
from confluent_kafka.admin import AdminClient

from tidelog.client import Admin, read
from tidelog.client.transactions import Transactions
from tidelog.rpc import Cluster
from tidelog.rpc.transactions import Producer, open_transactions
from tidelog.spark.producers import Attempt, Producers
from tidelog.spark.sink import Written, settle, write_rows
from tidelog.spark.sink_options import SinkOptions, read_sink_options

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

    def forget(self) -> None:
        """Delete its group's offsets, as brokers do after a week."""
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        client.delete_consumer_groups([self.sink])[self.sink].result()

    def seen(self) -> list[bytes]:
        """What a reader of committed records gets, up to the last stable offset."""
        found = read(self.bootstrap, self.topic, stop_at_end=True, isolation_level="read_committed")
        return sorted(message.value or b"" for message in found)

    def open(self) -> list[str]:
        """The transactional ids of its tasks that have something open."""
        with Cluster(self.bootstrap) as cluster:
            found = open_transactions(cluster, lambda name: f"-{self.sink}-task-" in name)
        return [each.transactional_id or "" for each in found]

    def ids(self) -> list[str]:
        """The transactional ids of its tasks that the coordinator knows."""
        with Transactions(self.bootstrap) as transactions:
            return [each.name for each in transactions.all() if f"-{self.sink}-task-" in each.name]


def own(*written: Written) -> list[Producer]:
    """What the driver is told of."""
    return [each.producer for each in written if each.producer is not None]


def dying_at(real: Any, call: int) -> Any:
    """The function, but its caller is killed before the call of this number."""
    calls = count()

    def dying(*args: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return real(*args, **named)

    return dying
