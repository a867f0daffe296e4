"""The case of compaction: how fast a log with each key five times is compacted, and what producers feel of it."""

import random
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.brokers import ADMIN_TIMEOUT_S, Broker
from bench.case import BOTH, Bench, Case, Metrics
from bench.programs import BenchError

RECORDS = 1_500_000
VALUE_BYTES = 100
TIMES_A_KEY = 5
RATE = 1000
SKIP = 500
QUIET_S = 3.0
DONE_WITHIN_S = 120.0
POLL_S = 0.005
TOPIC = "compacted"
# Nothing is compacted before it is asked for; then whatever is dirty. One segment stays, which is being written.
NOT_YET = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "segment.bytes": str(32 << 20)}
AT_ONCE = {"min.cleanable.dirty.ratio": "0.01"}


def compact(bench: Bench, name: str) -> Metrics:
    """Fill a topic, have it compacted, and meanwhile measure acks at a low rate on another one, with fsync."""
    broker = bench.make(name)
    broker.start()
    records = bench.count(RECORDS)
    broker.create_topic(TOPIC, 1)
    _configure(broker, NOT_YET)
    _fill(broker, records)
    sealed = _sealed_bytes(broker)
    quiet = _acks(bench, broker, int(QUIET_S * RATE))
    began = time.monotonic()
    _configure(broker, AT_ONCE)
    acks = broker.create_topic("acks-beside", 1, fsync=True)
    options = {"partitions": 1, "rate": RATE, "skip": SKIP, "count": SKIP + int(QUIET_S * RATE)}
    beside = bench.loads.start_rdkafka("latency", broker, acks, **options)
    seconds = _wait(broker, began)
    busy = bench.loads.finish(beside)
    metrics = {
        "mb_per_s": sealed / 1e6 / seconds,
        "left_percent": 100 * _sealed_bytes(broker) / sealed,
        "ack_p99_us": quiet,
        "ack_beside_p99_us": busy["ack_p99_us"],
    }
    broker.remove()
    return metrics


def _configure(broker: Broker, settings: dict[str, str]) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    for future in broker.admin.incremental_alter_configs([resource]).values():
        future.result(ADMIN_TIMEOUT_S)


def _fill(broker: Broker, records: int) -> None:
    source = random.Random(4)
    producer = Producer({"bootstrap.servers": broker.at, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    keys, value = records // TIMES_A_KEY, b"v" * VALUE_BYTES
    for _ in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, b"%012d" % source.randrange(keys))
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(ADMIN_TIMEOUT_S):
        raise BenchError(f"{broker.name} didn't take all records to compact")


def _segments(broker: Broker) -> list[tuple[int, int]]:
    """(base offset, bytes) of the segments."""
    return sorted((int(path.stem), path.stat().st_size) for path in (broker.folder / f"{TOPIC}-0").glob("*.log"))


def _sealed_bytes(broker: Broker) -> int:
    return sum(size for _, size in _segments(broker)[:-1])


def _wait(broker: Broker, began: float) -> float:
    """Until the checkpoint says that all but the last segment is clean; the seconds since `began`."""
    end = _segments(broker)[-1][0]
    checkpoint = broker.folder / "cleaner-offset-checkpoint"
    while time.monotonic() - began < DONE_WITHIN_S:
        if checkpoint.exists():
            for line in checkpoint.read_text().splitlines():
                if line.startswith(f"{TOPIC} 0 ") and int(line.split()[2]) >= end:
                    return time.monotonic() - began
        time.sleep(POLL_S)
    raise BenchError(f"{broker.name} compacted nothing in {DONE_WITHIN_S:.0f} s")


def _acks(bench: Bench, broker: Broker, count: int) -> float:
    with broker.topic(1, fsync=True) as topic:
        done = bench.loads.rdkafka("latency", broker, topic, partitions=1, count=SKIP + count, rate=RATE, skip=SKIP)
    return done["ack_p99_us"]


CASES = (Case("compaction", "compaction of 100 B records, each key 5 times", compact, BOTH, rounds=1, warm=False),)
