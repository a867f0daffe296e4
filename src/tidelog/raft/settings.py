"""The settings of the metadata log and its quorum, as raft takes them."""

from typing import NamedTuple


class RaftSettings(NamedTuple):
    """Kafka's settings for the metadata log, under their own names but for the dots."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3600 * 1000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000
