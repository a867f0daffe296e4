"""How far each replica that fetches has come, and when: what DescribeQuorum tells and a new voter is measured by. Pure.

It is known to the leader only, and begins anew with each epoch that it leads. Where a log ends is `Quorum`'s to know.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.raft.quorum import REPLICAS_MAX
from tidelog.raft.voters import ReplicaKey

OBSERVER_SESSION_MS = 300_000
"""An observer that fetched nothing for so long is forgotten: Kafka's own."""
UNKNOWN = -1


class Progress(NamedTuple):
    """`leader_end` is where the leader's log ended when the replica fetched last."""

    fetch_ms: int = UNKNOWN
    caught_up_ms: int = UNKNOWN
    leader_end: int = UNKNOWN


class ReplicaProgress:
    """Of all replicas that fetched from this leader in its epoch."""

    def __init__(self) -> None:
        self._epoch = UNKNOWN
        self._replicas: dict[ReplicaKey, Progress] = {}

    def fetched(self, epoch: int, replica: ReplicaKey, offset: int, leader_end: int, now_ms: int) -> None:
        """The replica asked for what starts at `offset`. It has caught up where that is the log's end, and had when it
        fetched last where it is at least what was the end then."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._replicas.clear()
        before = self._replicas.pop(replica, Progress())
        caught_up_ms = before.caught_up_ms
        if offset >= leader_end:
            caught_up_ms = max(now_ms, caught_up_ms)
        elif 0 < before.leader_end <= offset:
            caught_up_ms = max(before.fetch_ms, caught_up_ms)
        self._replicas[replica] = Progress(max(now_ms, before.fetch_ms), caught_up_ms, leader_end)
        if len(self._replicas) > REPLICAS_MAX:
            del self._replicas[next(iter(self._replicas))]

    def of(self, epoch: int, replica: ReplicaKey) -> Progress:
        if epoch != self._epoch:
            return Progress()
        found = self._replicas.get(replica)
        if found is None:  # a voter may be known without its directory
            same = [progress for key, progress in self._replicas.items() if key.is_same(replica)]
            found = max(same, default=Progress())
        return found

    def observers(self, epoch: int, now_ms: int, is_voter: Callable[[ReplicaKey], bool]) -> list[ReplicaKey]:
        """Those that are no voters, and fetched lately."""
        if epoch != self._epoch:
            return []
        for key in [key for key, one in self._replicas.items() if one.fetch_ms < now_ms - OBSERVER_SESSION_MS]:
            if not is_voter(key):
                del self._replicas[key]
        return [key for key in self._replicas if not is_voter(key)]
