"""The case at a fixed rate without fsync."""

from functools import partial

from bench.case import Bench, Case, Metrics

RATE = 1000
SKIP = 500
NAMES = ("ack_p50_us", "ack_p99_us", "ack_p999_us", "end_p50_us", "end_p99_us", "end_p999_us")


def at_a_rate(bench: Bench, name: str, *, partitions: int, seconds: float) -> Metrics:
    """1,000 messages of 100 B a second: from the send to its ack, and to the moment the consumer has it."""
    broker = bench.long_lived(name)
    with broker.topic(partitions) as topic:
        count = SKIP + max(RATE, int(seconds * RATE * bench.scale))
        done = bench.loads.rdkafka("latency", broker, topic, partitions=partitions, count=count, rate=RATE, skip=SKIP)
    return {**{each: done[each] for each in NAMES}, "cpu_us_per_message": done.broker_cpu_s / count * 1e6}


CASES = (Case("latency", f"{RATE:,} msg/s, no fsync", partial(at_a_rate, partitions=1, seconds=5)),)
