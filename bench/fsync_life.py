"""Cases of a broker that ends right after the first record to each of many partitions: stopped, and killed."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from bench.brokers import TIDELOG, Broker, Topic, WatchedTidelog
from bench.case import BOTH, Bench, Case, Metrics
from bench.stalls import longest_turn_ms

READERS = 10
READ_WITHIN_S = 30
SETTLES_S = 1.0
"""What a start leaves for later is part of its turns."""
UNTOLD_MS = 10.0
"""No turn was longer where none is told of (bench/watched.py)."""


def stop(bench: Bench, name: str, *, partitions: int) -> Metrics:
    """SIGTERM as soon as the last one is acknowledged: until the process has ended, and the start after it."""
    with _written(bench, name, partitions) as (broker, _):
        return {"stop_s": broker.stop(), "restart_s": broker.start()}


def kill(bench: Bench, name: str, *, partitions: int) -> Metrics:
    """kill -9 then, and a start: until a client is answered, one has read a record, and ten have read all of them."""
    with _written(bench, name, partitions) as (broker, topic):
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
    return metrics


def _all_read(bench: Bench, broker: Broker, topic: Topic, partitions: int) -> bool:
    """Ten clients read the record of each partition, a tenth of them each; whether they had all in half a minute."""
    each = partitions // READERS
    options = {"partitions": each, "count": each, "patience": READ_WITHIN_S}
    readers = [
        bench.loads.start_rdkafka("consume", broker, topic, **options, **{"from": place * each})
        for place in range(READERS)
    ]
    reports = [bench.loads.finish(reader) for reader in readers]
    return not any(report["missing"] for report in reports)


@contextmanager
def _written(bench: Bench, name: str, partitions: int) -> Iterator[tuple[Broker, Topic]]:
    """A new broker whose new topic has a record in each partition."""
    broker = bench.make(name, WatchedTidelog)
    try:
        broker.start()
        topic = broker.create_topic("many", partitions, fsync=True)
        bench.loads.rdkafka("first", broker, topic, partitions=partitions)
        yield broker, topic
    finally:
        broker.remove()


def _cases(partitions: int, brokers: tuple[str, ...], note: str, rounds: int | None) -> tuple[Case, Case]:
    title = f"a record in each of {partitions:,} partitions"

    def case(how: str, words: str, run: Callable[..., Metrics]) -> Case:
        name, measured = f"fsync-{how}-{partitions}p", partial(run, partitions=partitions)
        return Case(name, f"fsync, {title}, {words}", measured, brokers, rounds, False, each_round=True, note=note)

    return case("stop", "SIGTERM", stop), case("kill", "kill -9", kill)


CASES = (
    *_cases(1000, BOTH, "one round, for comparison", 1),
    *_cases(
        10_000,
        (TIDELOG,),
        "not measured with Apache Kafka, to keep the run short: it makes folders when a topic is made",
        None,
    ),
)
