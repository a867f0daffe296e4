"""`tidelog bench`: a quick load test of a running broker through confluent-kafka, with real figures."""

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from tidelog.cli.failure import Failure
from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.produce import COMPRESSIONS
from tidelog.cli.show import show_json, show_table

STALL_S = 30.0
STAMP_BYTES = 8


@dataclass(frozen=True, slots=True)
class Result:
    """One phase. Latencies are milliseconds; rates are of records and of megabytes (10^6) of values."""

    work: str
    records: int
    seconds: float
    records_per_s: float
    mb_per_s: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


@click.command()
@click.option("--records", "-n", type=click.IntRange(1, 100_000_000), metavar="N", default=500_000, show_default=True)
@click.option("--size", "-s", type=click.IntRange(STAMP_BYTES, 10_000_000), metavar="N", default=100, show_default=True,
              help="Bytes of a record's value.")  # fmt: skip
@click.option("--partitions", "-p", type=click.IntRange(1, 10_000), metavar="N", default=1, show_default=True)
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option("--rate", "-r", type=click.IntRange(1, 100_000), metavar="N", default=1000, show_default=True,
              help="Records a second while latency is measured.")  # fmt: skip
@click.option(
    "--seconds",
    type=click.IntRange(1, 600),
    metavar="N",
    default=5,
    show_default=True,
    help="How long to measure latency.",
)
@bootstrap_option
@json_option
def bench(
    records: int,
    size: int,
    partitions: int,
    compression: str,
    acks: str,
    rate: int,
    seconds: int,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Load a running broker and measure it.

    It writes, reads, then measures acknowledgement and end-to-end latency at a steady rate.

    It makes a topic of its own and deletes it afterwards. The client is Python on librdkafka and shares the machine
    with the broker if both are here: `make bench` of the source tree measures the broker alone.

    \b
    Examples:
      tidelog bench
      tidelog bench --records 2000000 --size 1000 --partitions 8 --compression lz4
      tidelog bench --acks 1 --rate 5000 --json
    """
    from tidelog.client import Admin

    admin = Admin(bootstrap)
    topic = f"tidelog-bench-{os.getpid()}-{time.time_ns() // 1_000_000}"
    admin.create_topic(topic, partitions)
    load = _Load(bootstrap, topic, size, partitions, {"acks": acks, "compression_type": compression})
    try:
        with _waiting("Writing", as_json):
            results = [load.write(records)]
        if acks != "0":
            with _waiting("Reading", as_json):
                results.append(load.read(records))
            with _waiting("Measuring latency", as_json):
                results += load.latency(rate, seconds)
    finally:
        admin.delete_topic(topic)
    if as_json:
        show_json([asdict(result) for result in results])
    else:
        _show(results)


class _Load:
    def __init__(self, bootstrap: str, topic: str, size: int, partitions: int, producer: dict[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._size = size
        self._partitions = partitions
        self._producer = producer

    def write(self, records: int) -> Result:
        """As fast as the client goes; the clock stops when the last record is acknowledged."""
        from confluent_kafka import Producer

        from tidelog.client.connect import settings

        queue = {"queue_buffering_max_messages": 1_000_000, "linger_ms": 5, "batch_size": 1_000_000}
        producer = Producer(settings(self._bootstrap, **queue, **self._producer))
        value = os.urandom(self._size)
        began = time.perf_counter()
        for index in range(records):
            while True:
                try:
                    producer.produce(self._topic, value, partition=index % self._partitions)
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(STALL_S + records / 10_000):
            raise Failure("the broker did not acknowledge everything in time")
        return self._result("write", records, time.perf_counter() - began)

    def read(self, records: int) -> Result:
        consumer = self._consumer("beginning")
        began = time.perf_counter()
        seen, last = 0, began
        try:
            while seen < records:
                got = len(consumer.consume(10_000, 0.1))
                seen += got
                now = time.perf_counter()
                last = now if got else last
                if now - last > STALL_S:
                    raise Failure(f"read {seen:,} of {records:,} records, then nothing for {STALL_S:.0f} s")
            return self._result("read", records, time.perf_counter() - began)
        finally:
            consumer.close()

    def latency(self, rate: int, seconds: int) -> list[Result]:
        """A record every 1/rate seconds, each stamped: how long until it is acknowledged, and until it is read."""
        from confluent_kafka import Producer

        from tidelog.client.connect import settings

        count = rate * seconds
        acked: list[float] = []
        arrived: list[float] = []
        ready = threading.Event()
        reader = threading.Thread(target=self._collect, args=(count, arrived, ready), daemon=True)
        reader.start()
        if not ready.wait(STALL_S):
            raise Failure(f"the reader did not reach the topic's end within {STALL_S:.0f} s")
        producer = Producer(settings(self._bootstrap, linger_ms=0, **self._producer))
        filling = bytes(self._size - STAMP_BYTES)
        began = time.perf_counter()
        for index in range(count):
            due = began + index / rate
            while (wait := due - time.perf_counter()) > 0:
                producer.poll(wait)
            sent = time.perf_counter_ns()

            def done(error: object, message: object, sent: int = sent) -> None:
                if error is None:
                    acked.append((time.perf_counter_ns() - sent) / 1e6)

            producer.produce(
                self._topic, sent.to_bytes(STAMP_BYTES) + filling, partition=index % self._partitions, on_delivery=done
            )
        producer.flush(STALL_S)
        elapsed = time.perf_counter() - began
        reader.join(STALL_S)
        return [self._spread("acknowledged", acked, elapsed), self._spread("end to end", arrived, elapsed)]

    def _collect(self, count: int, arrived: list[float], ready: threading.Event) -> None:
        """Read from the end on; `ready` when it was reached in every partition, so that no record is missed."""
        from confluent_kafka import KafkaError

        consumer = self._consumer("end")
        at_end: set[int | None] = set()
        deadline = time.perf_counter() + STALL_S + count / 100
        try:
            while len(arrived) < count and time.perf_counter() < deadline:
                message = consumer.poll(0.2)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    sent = int.from_bytes(message.value()[:STAMP_BYTES])
                    arrived.append((time.perf_counter_ns() - sent) / 1e6)
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                    if len(at_end) == self._partitions:
                        ready.set()
        finally:
            consumer.close()

    def _consumer(self, where: str) -> Any:
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

        from tidelog.client.connect import settings

        group = {"group_id": "tidelog", "enable_auto_commit": False, "enable_partition_eof": where == "end"}
        consumer = Consumer(settings(self._bootstrap, **group, fetch_wait_max_ms=100))
        offset = OFFSET_BEGINNING if where == "beginning" else OFFSET_END
        consumer.assign([TopicPartition(self._topic, partition, offset) for partition in range(self._partitions)])
        return consumer

    def _result(self, work: str, records: int, seconds: float) -> Result:
        return Result(work, records, seconds, records / seconds, records * self._size / seconds / 1e6)

    def _spread(self, work: str, latencies: list[float], seconds: float) -> Result:
        if not latencies:
            raise Failure(f"no record was {work} while latency was measured")
        latencies.sort()
        count = len(latencies)
        p50, p99 = latencies[count // 2], latencies[count * 99 // 100]
        return replace(self._result(work, count, seconds), p50_ms=p50, p99_ms=p99, max_ms=latencies[-1])


@contextmanager
def _waiting(doing: str, quiet: bool) -> Generator[None]:
    """A spinner on stderr while a phase runs, where a person watches."""
    import sys

    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{doing} ..."):
        yield


def _show(results: list[Result]) -> None:
    def cell(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:,.{digits}f}"

    show_table(
        ["Work", "Records", "Seconds", "Records/s", "MB/s", "p50 ms", "p99 ms", "max ms"],
        [
            (
                result.work,
                f"{result.records:,}",
                cell(result.seconds, 2),
                cell(result.records_per_s, 0),
                cell(result.mb_per_s, 1),
                cell(result.p50_ms, 2),
                cell(result.p99_ms, 2),
                cell(result.max_ms, 2),
            )
            for result in results
        ],
        right=range(1, 8),
    )
