"""Cases at full speed: broker CPU for a GB and for a million messages, and throughput."""

from functools import partial

from bench.case import Bench, Case, Metrics
from bench.programs import BenchError
from bench.requests import batch_of, fetch, produce

GB = 1e9
BATCH_BYTES = 16384
BATCH_RECORDS = 100


def speed(cpu_s: float, seconds: float, messages: float, data_bytes: float) -> Metrics:
    return {
        "cpu_s_per_gb": cpu_s / (data_bytes / GB),
        "cpu_s_per_million": cpu_s / (messages / 1e6),
        "mb_per_s": data_bytes / 1e6 / seconds,
        "messages_per_s": messages / seconds,
    }


def produce_rdkafka(bench: Bench, name: str, *, size: int, partitions: int, count: int) -> Metrics:
    broker, total = bench.long_lived(name), bench.count(count)
    with broker.topic(partitions) as topic:
        done = bench.loads.rdkafka("produce", broker, topic, partitions=partitions, size=size, count=total)
    return speed(done.broker_cpu_s, done["seconds"], done["messages"], done["messages"] * size)


def consume_rdkafka(bench: Bench, name: str, *, size: int, partitions: int, count: int) -> Metrics:
    broker, total = bench.long_lived(name), bench.count(count)
    with broker.topic(partitions) as topic:
        bench.loads.rdkafka("produce", broker, topic, partitions=partitions, size=size, count=total)
        done = bench.loads.rdkafka("consume", broker, topic, partitions=partitions, count=total)
    return speed(done.broker_cpu_s, done["seconds"], done["messages"], done["bytes"])


def produce_raw(
    bench: Bench, name: str, *, batch_bytes: int, records: int, connections: int, depth: int, count: int
) -> Metrics:
    broker = bench.long_lived(name)
    with broker.topic() as topic:
        request = produce(topic.name, batch_of(batch_bytes, records))
        done = bench.loads.raw(
            broker, request, connections=connections, depth=depth, count=bench.count(count), seconds=5
        )
    return requests(done.broker_cpu_s, done["seconds"], done["requests"], done["requests"] * batch_bytes)


def fetch_raw(bench: Bench, name: str, *, max_bytes: int, connections: int, count: int) -> Metrics:
    """Fetches of exactly `max_bytes` from a log that is there, going round and round in it."""
    broker, batches = bench.long_lived(name), bench.count(8192)
    step = max_bytes // BATCH_BYTES * BATCH_RECORDS
    modulo = batches * BATCH_RECORDS // step * step
    with broker.topic() as topic:
        bench.loads.raw(broker, produce(topic.name, batch_of(BATCH_BYTES, BATCH_RECORDS)), depth=8, count=batches)
        options = {
            "connections": connections,
            "count": bench.count(count),
            "seconds": 5,
            "step": step,
            "modulo": modulo,
        }
        done = bench.loads.raw(broker, fetch(topic.id, max_bytes), **options)
    answer_bytes = done["bytes_in"] / done["requests"]
    if not max_bytes <= answer_bytes < max_bytes + 256:
        raise BenchError(f"{name} answered {answer_bytes:.0f} bytes to a fetch of {max_bytes}")
    return requests(done.broker_cpu_s, done["seconds"], done["requests"], done["requests"] * max_bytes)


def requests(cpu_s: float, seconds: float, count: float, data_bytes: float) -> Metrics:
    return {
        "cpu_us_per_request": cpu_s / count * 1e6,
        "cpu_s_per_gb": cpu_s / (data_bytes / GB),
        "requests_per_s": count / seconds,
        "mb_per_s": data_bytes / 1e6 / seconds,
    }


def _produce(label: str, size: int, partitions: int, count: int) -> Case:
    run = partial(produce_rdkafka, size=size, partitions=partitions, count=count)
    name = f"produce-{label.replace(' ', '').lower()}-{partitions}p"
    return Case(name, f"produce {label} to {_partitions(partitions)}", run)


def _consume(partitions: int) -> Case:
    run = partial(consume_rdkafka, size=1000, partitions=partitions, count=400_000)
    return Case(f"consume-1kb-{partitions}p", f"consume 1 KB from {_partitions(partitions)}", run)


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


CASES = (
    _produce("1 KB", 1000, 1, 400_000),
    _produce("1 KB", 1000, 8, 400_000),
    _produce("100 B", 100, 1, 4_000_000),
    _produce("100 B", 100, 8, 4_000_000),
    Case(
        "produce-16kb-raw",
        "produce requests of 16 KB",
        partial(produce_raw, batch_bytes=BATCH_BYTES, records=BATCH_RECORDS, connections=8, depth=4, count=30_000),
    ),
    Case(
        "produce-one-raw",
        "produce requests of one record, 5 in flight",
        partial(produce_raw, batch_bytes=180, records=1, connections=8, depth=5, count=200_000),
    ),
    Case(
        "produce-one-deep-raw",
        "produce requests of one record, 32 in flight",
        partial(produce_raw, batch_bytes=180, records=1, connections=8, depth=32, count=300_000),
    ),
    _consume(1),
    _consume(8),
    Case("fetch-1mb-raw", "fetches of 1 MB", partial(fetch_raw, max_bytes=1 << 20, connections=4, count=2_000)),
    Case("fetch-16kb-raw", "fetches of 16 KB", partial(fetch_raw, max_bytes=1 << 14, connections=8, count=50_000)),
)
