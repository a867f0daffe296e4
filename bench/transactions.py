"""What transactions cost: throughput by how often a producer commits, beside the same producer without transactions.

Both brokers leave their files to the page cache, `__transaction_state` included: Tidelog is started with
`tidelog.durability=os`, Kafka does so by itself. The series with fsync says what durability costs on top: Kafka syncs
the records then, and its coordinator's state still not.
"""

from functools import partial

from bench.brokers import TIDELOG, Broker, Tidelog
from bench.case import BOTH, Bench, Case, Metrics
from bench.loads import Outcome

SIZE = 100
PARTITIONS = 8
SECONDS = 4.0
CURVE: dict[str, tuple[str, dict[str, int]]] = {
    "each-100": ("a commit each 100 records", {"each": 100}),
    "each-1000": ("a commit each 1,000 records", {"each": 1000}),
    "each-10000": ("a commit each 10,000 records", {"each": 10_000}),
    "each-100ms": ("a commit each 100 ms", {"each_ms": 100}),
}


class UnsyncedTidelog(Tidelog):
    """All its topics leave their files to the page cache, those of the coordinators too."""

    def command(self) -> list[str]:
        return [*super().command(), "--set", "tidelog.durability=os"]


def transact(bench: Bench, name: str, *, options: dict[str, int], fsync: bool) -> Metrics:
    """With transactions, and right after it the same without: `of_idempotent` is what is left of the throughput."""
    broker = bench.long_lived(name) if fsync or name != TIDELOG else bench.long_lived(name, UnsyncedTidelog)
    done = _load(bench, broker, options, fsync)
    plain = _load(bench, broker, {}, fsync)
    rate = done["messages"] / done["seconds"]
    return {
        "messages_per_s": rate,
        "of_idempotent": rate / (plain["messages"] / plain["seconds"]),
        "transactions_per_s": done["transactions"] / done["seconds"],
        "commit_p50_us": done["commit_p50_us"],
        "commit_p99_us": done["commit_p99_us"],
        "cpu_s_per_million": done.broker_cpu_s / (done["messages"] / 1e6),
    }


def _load(bench: Bench, broker: Broker, options: dict[str, int], fsync: bool) -> Outcome:
    seconds = max(1.0, SECONDS * bench.scale)
    with broker.topic(PARTITIONS, fsync=fsync) as topic:
        return bench.loads.transactions(broker, topic, partitions=PARTITIONS, size=SIZE, seconds=seconds, **options)


def _case(point: str, *, fsync: bool) -> Case:
    words, options = CURVE[point]
    return Case(
        f"transactions-fsync-{point}" if fsync else f"transactions-{point}",
        f"transactions{' with fsync' if fsync else ''}, 100 B, 8 partitions, {words}",
        partial(transact, options=options, fsync=fsync),
        brokers=BOTH,
    )


CASES = (*(_case(point, fsync=False) for point in CURVE), *(_case(point, fsync=True) for point in CURVE))
