"""The settings of the metadata log and its quorum, as raft takes them."""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.raft.events import SetTimer, TimerKind

CHECK_QUORUM_FACTOR = 1.5
"""A leader waits so much longer for its followers than they wait for it: Kafka's own constant."""


BROKEN_MS = (300, 700)
"""How long a leader whose connection broke has to be heard again: random, so that voters don't stand all at once."""


BACKOFF_SHARE = 4
"""Of the longest wait after a lost election, the shortest one: votes that are on their way come first."""


class RaftSettings(NamedTuple):
    """Kafka's settings for the metadata log, under their own names but for the dots."""

    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3600 * 1000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000

    def timeout_ms(self, timer: SetTimer, random_int: Callable[[int, int], int]) -> int:
        """How long the timer of a role runs. Elections are spread: who stands at the same time may win none."""
        match timer.kind:
            case TimerKind.ELECTION:
                return self.election_timeout_ms + random_int(0, self.election_timeout_ms)
            case TimerKind.FETCH:
                return self.fetch_timeout_ms
            case TimerKind.CHECK_QUORUM:
                return int(self.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
            case TimerKind.BROKEN:
                return min(self.fetch_timeout_ms, random_int(*BROKEN_MS))
            case TimerKind.BACKOFF:
                most_ms = min(self.election_backoff_max_ms, self.election_timeout_ms)
                return random_int(most_ms // BACKOFF_SHARE, most_ms)
            case TimerKind.SUCCESSION:
                return self.election_backoff_max_ms >> timer.halvings
