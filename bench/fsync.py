"""Cases of acknowledgements with fsync: by the number of partitions, and beside another writer.

A topic's first records are apart from its steady state: they make folders and files, and whoever writes to another
topic meanwhile should not notice. Each round has its own topics in a broker that lived through the rounds before; only
10,000 partitions have a broker of their own, since deleting them takes longer than measuring them. They come first, and
their folders stay until the run is over: an ext4 without a journal looks for a free inode among those that were deleted
in the last minutes, one by one, so that making a file takes several times as long after tens of thousands were.
"""

import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.brokers import TIDELOG, Broker, Topic
from bench.case import BOTH, Bench, Case, Metrics
from bench.disk_writer import DiskWriter
from bench.latency import NAMES, RATE
from bench.loads import Outcome
from bench.programs import BenchError
from bench.requests import batch_of, produce

SKIPPED_S = 0.5
STEADY_S = 3.0
READ_S = 2.0
FULL_S = 2.0
FULL_QUEUE = 50_000
FULL_SIZES = {"messages_per_s": 1000, "small_per_s": 100}
FULL_MAX = 1000
"""Partitions; above it the client is what is measured: of 50,000 messages in its queue five are for each."""

RAW_BATCH_BYTES = 170
"""A record of 100 B, as librdkafka sends it."""

OTHER_RATE = 500
OTHER_ALONE_S = 1.0
OTHER_MAX_S = 90
OTHER_FROM = 1000
"""Partitions; first records to a few are over before another client has sent one."""

WRITER_PARTITIONS = 1000
WRITER_RATE = 5000
WRITER_MB_PER_S = 300
WRITER_S = 4.5
"""Of 300 MB/s, in each round of each broker: 1.35 GB, and four of them in a run."""


def acks(bench: Bench, name: str, *, partitions: int) -> Metrics:
    """The first record to each partition; then 1,000 messages a second without and with a reader; then full speed."""
    with _topics(bench, name, partitions) as (broker, topic, other):
        metrics = first_records(bench, broker, topic, partitions, other)
        steady = at_a_rate(bench, broker, topic, partitions, RATE, STEADY_S, read=0)
        metrics |= {each: steady[each] for each in NAMES if each.startswith("ack")}
        metrics["cpu_us_per_message"] = steady.broker_cpu_s / steady["messages"] * 1e6
        if partitions > FULL_MAX:  # here the client goes through all of its partitions for each request
            metrics |= {"client_cpu_us": steady["client_cpu_s"] / steady["messages"] * 1e6}
            metrics |= raw_at_a_rate(bench, broker, topic, partitions)
        if partitions <= FULL_MAX:
            read = at_a_rate(bench, broker, topic, partitions, RATE, READ_S, read=1)
            metrics |= {"ack_read_p50_us": read["ack_p50_us"], "ack_read_p99_us": read["ack_p99_us"]}
            metrics |= {each: read[each] for each in NAMES if each.startswith("end")}
            metrics |= full_speed(bench, broker, topic, partitions)
    return metrics


@contextmanager
def _topics(bench: Bench, name: str, partitions: int) -> Iterator[tuple[Broker, Topic, Topic]]:
    """The broker, a topic to be measured, and one for another client."""
    if partitions <= FULL_MAX:
        broker = bench.long_lived(name)
        with broker.topic(1, fsync=True) as other, broker.topic(partitions, fsync=True) as topic:
            yield broker, topic, other
        return
    broker = bench.make(name)
    try:
        broker.start()
        yield broker, broker.create_topic("many", partitions, fsync=True), broker.create_topic("other", 1, fsync=True)
    finally:
        broker.kill()


def first_records(bench: Bench, broker: Broker, topic: Topic, partitions: int, other: Topic) -> Metrics:
    """Until all are acknowledged; and the p99 of another client's acks meanwhile."""
    beside = OtherClient(bench, broker, other) if partitions >= OTHER_FROM else None
    try:
        first = bench.loads.rdkafka("first", broker, topic, partitions=partitions)
    finally:
        times = beside.end() if beside else []
    metrics = {"first_s": first["seconds"]}
    if times:
        meanwhile = sorted(acked - sent for sent, acked in times if first["begin"] <= sent <= first["end"])
        if not meanwhile:
            raise BenchError("the other client sent nothing while first records were written")
        metrics["ack_beside_p99_us"] = meanwhile[int(len(meanwhile) * 0.99)] * 1e6
    return metrics


class OtherClient:
    """Sends to a topic of its own, at a steady rate, until it is ended."""

    def __init__(self, bench: Bench, broker: Broker, topic: Topic) -> None:
        self._loads = bench.loads
        self._samples: Path = bench.work / "samples"
        options = {"partitions": 1, "rate": OTHER_RATE, "count": OTHER_RATE * OTHER_MAX_S, "read": 0}
        self._process: subprocess.Popen[str] = self._loads.start_rdkafka(
            "latency", broker, topic, **options, samples=self._samples
        )
        time.sleep(OTHER_ALONE_S)

    def end(self) -> list[tuple[float, float]]:
        """(sent, acknowledged) of each message; one that never was is an error."""
        self._process.terminate()
        report = self._loads.finish(self._process)
        if report["failed"] or report["missing"]:
            raise BenchError(f"the other client: {report}")
        return [(sent, acked) for sent, acked, _ in struct.iter_unpack("ddd", self._samples.read_bytes())]


def at_a_rate(
    bench: Bench, broker: Broker, topic: Topic, partitions: int, rate: int, seconds: float, *, read: int
) -> Outcome:
    skip = int(SKIPPED_S * rate)
    count = skip + max(rate, int(seconds * rate * bench.scale))
    options = {"partitions": partitions, "count": count, "rate": rate, "skip": skip, "read": read}
    return bench.loads.rdkafka("latency", broker, topic, **options)


def raw_at_a_rate(bench: Bench, broker: Broker, topic: Topic, partitions: int) -> Metrics:
    """The steady state again, by a client that does nothing but send and take the time (load_raw.c)."""
    skip, count = int(SKIPPED_S * RATE), int(STEADY_S * RATE * bench.scale)
    request = produce(topic.name, batch_of(RAW_BATCH_BYTES, 1))
    done = bench.loads.raw(broker, request, rate=RATE, count=skip + max(RATE, count), skip=skip, partitions=partitions)
    return {"ack_raw_p50_us": done["ack_p50_us"], "ack_raw_p99_us": done["ack_p99_us"]}


def full_speed(bench: Bench, broker: Broker, topic: Topic, partitions: int) -> Metrics:
    metrics: Metrics = {}
    for metric, size in FULL_SIZES.items():
        options = {"partitions": partitions, "size": size, "count": 10**9, "queue": FULL_QUEUE}
        done = bench.loads.rdkafka("produce", broker, topic, **options, seconds=FULL_S * bench.scale)
        metrics[metric] = done["messages"] / done["seconds"]
        if size == 1000:
            metrics["cpu_s_per_gb"] = done.broker_cpu_s / (done["messages"] * size / 1e9)
    return metrics


def beside_writer(bench: Bench, name: str) -> Metrics:
    """5,000 messages a second to 1,000 partitions: alone, then while somebody writes 300 MB/s to the file system."""
    broker = bench.long_lived(name)
    with broker.topic(WRITER_PARTITIONS, fsync=True) as topic:
        bench.loads.rdkafka("first", broker, topic, partitions=WRITER_PARTITIONS)
        alone = at_a_rate(bench, broker, topic, WRITER_PARTITIONS, WRITER_RATE, READ_S, read=0)
        writer = DiskWriter(bench.work, WRITER_MB_PER_S, int(WRITER_MB_PER_S * WRITER_S))
        try:
            beside = at_a_rate(bench, broker, topic, WRITER_PARTITIONS, WRITER_RATE, STEADY_S, read=0)
        finally:
            written = writer.end()
    return {
        "ack_p50_us": beside["ack_p50_us"],
        "ack_p99_us": beside["ack_p99_us"],
        "ack_alone_p99_us": alone["ack_p99_us"],
        "writer_mb_per_s": written,
    }


def _acks(count: int) -> Case:
    many = count >= OTHER_FROM
    note = "one round of Apache Kafka, to keep the run short" if many else ""
    if count > FULL_MAX:
        note = (
            "without Apache Kafka, which takes minutes for it; no reader, since librdkafka names all 10,000 in a fetch"
        )
    return Case(
        f"fsync-{count}p",
        f"fsync, {count:,} partition{'s' * (count > 1)}",
        partial(acks, partitions=count),
        (TIDELOG,) if count > FULL_MAX else BOTH,
        warm=False,
        kafka_rounds=1 if many else None,
        each_round=True,
        note=note,
    )


CASES = (
    *(_acks(count) for count in (10_000, 1, 8, 1000)),
    Case(
        "fsync-writer",
        f"fsync, {WRITER_RATE:,} msg/s to {WRITER_PARTITIONS:,} partitions beside a writer",
        beside_writer,
        BOTH,
        warm=False,
        kafka_rounds=1,
        each_round=True,
        note="one round of Apache Kafka: the other writer may write 6 GB in a run",
    ),
)
