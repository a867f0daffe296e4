"""Cases of what acknowledged bytes cost the disk. What is counted, and how: bench/disk.py.

A byte acknowledged is one of a record batch, as it lies in the log.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.brokers import TIDELOG, Broker, Topic
from bench.case import BOTH, Bench, Case, Metrics
from bench.disk import DiskMeter, log_bytes
from bench.requests import batch_of, produce

SMALL_PARTITIONS = 1000
SMALL_VALUE_BYTES = 230
"""With it a batch of one record is of 300 B."""
SMALL_RATE = 10_000
SMALL_S = 5.0
FULL_S = 3.0
FULL_QUEUE = 50_000
A_BATCH = 3
LARGE_MESSAGES = 150_000
RAW_BATCHES = 6_000
RAW_BYTES = 16384

Load = Callable[[Bench, Broker, Topic], object]


def measure(bench: Bench, name: str, *, partitions: int, load: Load) -> Metrics:
    """The load in the steady state of its topic: every partition has a record already."""
    broker = bench.long_lived(name)
    with broker.topic(partitions, fsync=True) as topic:
        bench.loads.rdkafka("first", broker, topic, partitions=partitions)
        before = log_bytes(broker.folder, topic.name)
        meter = DiskMeter(broker.pid, broker.folder)
        load(bench, broker, topic)
        written = meter.end()
        acked = log_bytes(broker.folder, topic.name) - before
    return {
        "acked_mb": acked / 1e6,
        "given_per_byte": written.given / acked,
        "pages_per_byte": written.pages / acked,
        "device_per_byte": written.device / acked,
    }


def at_a_rate(bench: Bench, broker: Broker, topic: Topic) -> None:
    """Batches of 300 B, each to the next partition, at a rate."""
    count = bench.count(int(SMALL_RATE * SMALL_S))
    options = {"partitions": SMALL_PARTITIONS, "rate": SMALL_RATE, "count": count, "size": SMALL_VALUE_BYTES}
    bench.loads.rdkafka("latency", broker, topic, **options, read=0)


def small_at_full_speed(bench: Bench, broker: Broker, topic: Topic) -> None:
    """Batches of three records of 100 B, as fast as they are taken."""
    options = {"partitions": SMALL_PARTITIONS, "size": 100, "count": 10**9, "queue": FULL_QUEUE, "batch": A_BATCH}
    bench.loads.rdkafka("produce", broker, topic, **options, seconds=FULL_S * bench.scale)


def sixteen_kb(bench: Bench, broker: Broker, topic: Topic) -> None:
    request = produce(topic.name, batch_of(RAW_BYTES, 100))
    bench.loads.raw(broker, request, connections=8, depth=4, count=bench.count(RAW_BATCHES), seconds=5)


def large(bench: Bench, broker: Broker, topic: Topic) -> None:
    """Batches of up to 1 MB."""
    bench.loads.rdkafka("produce", broker, topic, partitions=8, size=1000, count=bench.count(LARGE_MESSAGES))


def _case(what: str, title: str, partitions: int, load: Load, **more: Any) -> Case:
    run = partial(measure, partitions=partitions, load=load)
    return Case(f"fsync-bytes-{what}", f"fsync, {title}", run, **{"brokers": BOTH, **more}, warm=False, each_round=True)


CASES = (
    _case(
        "rate",
        f"batches of 300 B to {SMALL_PARTITIONS:,} partitions, 10,000 a second",
        SMALL_PARTITIONS,
        at_a_rate,
        brokers=(TIDELOG,),
        note="not measured with Apache Kafka, to keep the run short",
    ),
    _case(
        "small",
        f"batches of 3 x 100 B to {SMALL_PARTITIONS:,} partitions",
        SMALL_PARTITIONS,
        small_at_full_speed,
        kafka_rounds=1,
        note="one round of Apache Kafka, to keep the run short",
    ),
    _case("16kb", "batches of 16 KB to 1 partition", 1, sixteen_kb),
    _case("1mb", "batches of up to 1 MB to 8 partitions", 8, large),
)
