"""Cases of a broker that ends right after the first record to each of many partitions: stopped, and killed."""

import math
import time
from functools import partial

from bench.brokers import TIDELOG, Broker, Topic, WatchedTidelog
from bench.case import BOTH, Bench, Case, Metrics
from bench.stalls import longest_turn_ms

MANY, KAFKAS = 10_000, 1000
READERS = 10
SETTLES_S = 1.0
"""What a start leaves for later is part of its turns."""
UNTOLD_MS = 10.0
"""No turn was longer where none is told of (bench/watched.py)."""


def stop(bench: Bench, name: str, *, partitions: int) -> Metrics:
    """SIGTERM as soon as the last one is acknowledged: until the process has ended, and the start after it."""
    broker, _ = _written(bench, name, partitions)
    metrics = {"stop_s": broker.stop()}
    metrics["restart_s"] = broker.start()
    broker.remove()
    return metrics


def kill(bench: Bench, name: str, *, partitions: int) -> Metrics:
    """kill -9 then, and a start: until a client is answered, one has read a record, and ten have read all of them."""
    broker, topic = _written(bench, name, partitions)
    broker.kill()
    said = broker.output.stat().st_size
    began = time.monotonic()
    metrics = {"start_s": broker.start()}
    bench.loads.rdkafka("consume", broker, topic, partitions=1, count=1)
    metrics["served_s"] = time.monotonic() - began
    metrics["read_all_s"] = time.monotonic() - began if _all_read(bench, broker, topic, partitions) else math.inf
    time.sleep(SETTLES_S)
    if name == TIDELOG:
        told = longest_turn_ms(broker.output, said)
        metrics["turn_ms"] = UNTOLD_MS if math.isnan(told) else told
    broker.remove()
    return metrics


def _all_read(bench: Bench, broker: Broker, topic: Topic, partitions: int) -> bool:
    """Ten clients read the record of each partition, a tenth of them each; whether they had all within a minute."""
    each = partitions // READERS
    readers = [
        bench.loads.start_rdkafka("consume", broker, topic, **{"from": place * each, "partitions": each, "count": each})
        for place in range(READERS)
    ]
    reports = [bench.loads.finish(reader) for reader in readers]
    return not any(report["missing"] for report in reports)


def _written(bench: Bench, name: str, partitions: int) -> tuple[Broker, Topic]:
    broker = bench.make(name, WatchedTidelog)
    broker.start()
    topic = broker.create_topic("many", partitions, fsync=True)
    bench.loads.rdkafka("first", broker, topic, partitions=partitions)
    return broker, topic


def _cases(partitions: int) -> tuple[Case, Case]:
    brokers = BOTH if partitions <= KAFKAS else (TIDELOG,)
    note = f"one round of Apache Kafka; it is left out at {MANY:,}, which takes it minutes" if len(brokers) > 1 else ""
    options = {"brokers": brokers, "warm": False, "kafka_rounds": 1, "each_round": True, "note": note}
    title = f"a record in each of {partitions:,} partitions"
    return (
        Case(f"fsync-stop-{partitions}p", f"fsync, {title}, SIGTERM", partial(stop, partitions=partitions), **options),
        Case(f"fsync-kill-{partitions}p", f"fsync, {title}, kill -9", partial(kill, partitions=partitions), **options),
    )


CASES = (*_cases(KAFKAS), *_cases(MANY))
