"""What the figures have to be (each issue's "It must show"), each measured from the run that was made."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from bench.brokers import FLOOR, KAFKA, TIDELOG
from bench.case import Metrics
from bench.spark_stage import CONNECTOR
from bench.stalls import STALLS

Medians = Mapping[str, Mapping[str, Metrics]]
"""Case -> broker -> metric -> median."""


@dataclass(frozen=True, slots=True)
class Target:
    """`metric` of Tidelog in `case`: divided by that of `against`, or by its own in `of_case`, or as it is; at most or
    at least `limit`."""

    case: str
    metric: str
    limit: float
    against: str | None = None
    at_least: bool = False
    words: str = ""
    of_case: str = ""

    def measure(self, medians: Medians) -> float | None:
        """None where the run has no figure for it."""
        own = medians.get(self.case, {}).get(TIDELOG, {}).get(self.metric)
        if own is None or not self.is_ratio:
            return own
        other = medians.get(self.of_case or self.case, {}).get(self.against or TIDELOG, {}).get(self.metric)
        return own / other if other and isfinite(other) else None

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    @property
    def is_ratio(self) -> bool:
        return self.against is not None or bool(self.of_case)

    @property
    def says(self) -> str:
        bound = "at least" if self.at_least else "at most"
        if self.of_case:
            return f"{bound} {self.limit:g}x that of {self.of_case}: {self.words}"
        if self.against is None:
            return f"{bound} {self.limit:g} {self.words}"
        whose = {FLOOR: "the floor's", CONNECTOR: "the connector's"}.get(self.against, "Kafka's")
        return f"{bound} {self.limit:g}x {whose} {self.words}"


RDKAFKA_PRODUCE = ("produce-1kb-1p", "produce-1kb-8p", "produce-100b-1p", "produce-100b-8p")

TARGETS = (
    *(Target(case, "cpu_s_per_gb", 1.4, FLOOR, words="CPU") for case in RDKAFKA_PRODUCE),
    Target("produce-16kb-raw", "cpu_s_per_gb", 1.6, FLOOR, words="CPU"),
    Target("fetch-1mb-raw", "cpu_s_per_gb", 1.3, FLOOR, words="CPU"),
    Target("fetch-16kb-raw", "cpu_s_per_gb", 1.8, FLOOR, words="CPU"),
    Target("produce-one-raw", "cpu_us_per_request", 5.0, FLOOR, words="CPU"),
    *(Target(case, "cpu_s_per_gb", 0.5, KAFKA, words="CPU") for case in RDKAFKA_PRODUCE),
    Target("produce-one-raw", "cpu_us_per_request", 0.4, KAFKA, words="CPU"),
    Target("produce-16kb-raw", "cpu_s_per_gb", 0.7, KAFKA, words="CPU"),
    *(Target(f"consume-1kb-{count}p", "cpu_s_per_gb", 0.7, KAFKA, words="CPU") for count in (1, 8)),
    *(Target(case, "messages_per_s", 1.2, KAFKA, at_least=True, words="throughput") for case in RDKAFKA_PRODUCE),
    Target("latency", "ack_p99_us", 0.5, KAFKA, words="ack p99"),
    *(
        Target(case, f"ack_{percentile}_us", 1.0, KAFKA, words=f"ack {percentile}")
        for case in ("fsync-1p", "fsync-8p", "fsync-1000p")
        for percentile in ("p50", "p99")
    ),
    *(
        target
        for count in (1, 8, 1000, 10_000)
        for target in (
            Target(f"fsync-{count}p", "ack_p50_us", 1000, words="us ack p50"),
            Target(f"fsync-{count}p", "ack_p99_us", 10_000, words="us ack p99"),
        )
    ),
    Target("fsync-10000p", "first_s", 3.0, words="s until first records are acknowledged"),
    Target("fsync-10000p", "ack_beside_p99_us", 50_000, words="us ack p99 of another client meanwhile"),
    Target("fsync-writer", "ack_p99_us", 50_000, words="us ack p99"),
    *(
        Target("fsync-1000p", metric, 0.6, at_least=True, words=words, of_case="fsync-8p")
        for metric, words in (("messages_per_s", "messages/s of 1 KB"), ("small_per_s", "messages/s of 100 B"))
    ),
    *(
        Target(f"fsync-bytes-{what}", "device_per_byte", limit, words="bytes to the device a byte acknowledged")
        for what, limit in (("small", 2.1), ("16kb", 1.1), ("1mb", 1.1))
    ),
    Target("fsync-bytes-rate", "given_per_byte", 2.1, words="bytes the process writes a byte acknowledged"),
    Target("fsync-stop-10000p", "stop_s", 3.0, words="s to stop"),
    Target("fsync-kill-10000p", "served_s", 1.0, words="s until the first client has a record"),
    Target("fsync-kill-10000p", "read_all_s", 10.0, words="s until all partitions were read"),
    Target("fsync-kill-10000p", "turn_ms", 50.0, words="CPU ms in a turn of the loop"),
    *(
        Target(f"transactions-each-{point}", "messages_per_s", 1.0, KAFKA, at_least=True, words="throughput")
        for point in ("100", "1000", "10000", "100ms")
    ),
    Target("transactions-each-100ms", "of_idempotent", 0.8, at_least=True, words="of idempotent production"),
    Target("groups-crowd", "generations", 1.0, words="generations"),
    Target("groups-settle-classic", "settle_s", 10.0, words="s to settle"),
    Target("groups-settle-consumer", "settle_s", 10.0, words="s to settle"),
    Target("groups-many", "memory_mb", 500.0, words="MB of memory"),
    Target("groups-commit", "commit_to_ack", 3.0, words="times a produce's p99"),
    *(
        Target(f"groups-first-{protocol}", "first_ms", 500.0, words="ms to the first message")
        for protocol in ("classic", "consumer")
    ),
    *(
        Target(f"groups-others-{protocol}", "others_share", 0.95, at_least=True, words="of the others' throughput")
        for protocol in ("classic", "consumer")
    ),
    Target("start", "start_s", 0.25, KAFKA, words="start time"),
    Target("memory", "memory_mb", 0.2, KAFKA, words="memory"),
    Target("partitions-10k", "create_s", 3.0, words="s to create"),
    Target("partitions-10k", "requests", 1.0, words="request to create"),
    Target("partitions-10k", "restart_s", 2.0, words="s to restart"),
    Target("partitions-100k", "memory_restarted_mb", 1000.0, words="MB of memory"),
    Target("partitions-100k", "restart_s", 60.0, words="s to start"),
    *(
        Target(f"spark-read-{size}-{how}", "rows_per_s", 1.0, CONNECTOR, at_least=True, words="rows/s")
        for size in ("100b", "1kb")
        for how in ("batch", "now")
    ),
    Target("spark-write-100b", "rows_per_s", 0.7, CONNECTOR, at_least=True, words="rows/s"),
    Target("spark-latency", "latency_ms", 600.0, words="ms from record to result"),
    Target("spark-memory", "memory_growth", 1.25, words="times the memory for ten times the partition"),
    *(
        target
        for stall in STALLS
        for target in (
            Target(f"stalls-{stall.name}", "turn_ms", 50.0, words="CPU ms in a turn of the loop"),
            Target(f"stalls-{stall.name}", "ping_ms", 50.0, words="ms for another client"),
            Target(f"stalls-{stall.name}", "kept", 0.5, at_least=True, words="of a steady producer's rate"),
        )
    ),
    Target("stalls-fetch-sessions", "session_left", 1.0, at_least=True, words="session for others"),
    Target("metadata-create", "shown_s", 2.0, words="s until every node shows them"),
    Target("metadata-create", "idle_percent", 2.0, words="% of a core for an idle node"),
    *(
        target
        for how in ("kill", "silence")
        for target in (
            Target(f"metadata-fence-{how}", "fenced_s", 2.0, words="s to fence it"),
            Target(f"metadata-fence-{how}", "turn_ms", 200.0, words="CPU ms in a turn of any loop"),
        )
    ),
    Target("metadata-fence-kill", "gone_s", 2.0, words="s from the kill until all others show other leaders"),
    Target("kill", "served_s", 1.0, words="s until its client is served"),
)
