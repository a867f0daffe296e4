"""Cases at a fixed rate, without and with fsync before each acknowledgement."""

from functools import partial

from bench.case import BOTH, Bench, Case, Metrics

RATE = 1000
SKIP = 500


def at_a_rate(bench: Bench, name: str, *, partitions: int, fsync: bool, seconds: float) -> Metrics:
    """1,000 messages of 100 B a second: from the send to its ack, and to the moment the consumer has it."""
    broker = bench.long_lived(name)
    with broker.topic(partitions, fsync=fsync) as topic:
        count = SKIP + max(RATE, int(seconds * RATE * bench.scale))
        done = bench.loads.rdkafka("latency", broker, topic, partitions=partitions, count=count, rate=RATE, skip=SKIP)
    names = ("ack_p50_us", "ack_p99_us", "ack_p999_us", "end_p50_us", "end_p99_us", "end_p999_us")
    return {**{each: done[each] for each in names}, "cpu_us_per_message": done.broker_cpu_s / count * 1e6}


def with_fsync(bench: Bench, name: str, *, partitions: int) -> Metrics:
    """Full speed for some seconds, then latency at a rate; every acknowledged message is on the disk."""
    broker = bench.long_lived(name)
    with broker.topic(partitions, fsync=True) as topic:
        options = {"partitions": partitions, "size": 1000, "count": 10**9, "queue": 50_000}
        full = bench.loads.rdkafka("produce", broker, topic, **options, seconds=3 * bench.scale)
    metrics = at_a_rate(bench, name, partitions=partitions, fsync=True, seconds=3)
    return {
        **metrics,
        "messages_per_s": full["messages"] / full["seconds"],
        "mb_per_s": full["messages"] / 1e3 / full["seconds"],
        "cpu_s_per_gb": full.broker_cpu_s / (full["messages"] / 1e6),
    }


CASES = (
    Case("latency", f"{RATE:,} msg/s, no fsync", partial(at_a_rate, partitions=1, fsync=False, seconds=5)),
    *(
        Case(
            f"fsync-{count}p",
            f"fsync, {count:,} partition{'s' * (count > 1)}",
            partial(with_fsync, partitions=count),
            BOTH,
        )
        for count in (1, 8, 1000)
    ),
)
