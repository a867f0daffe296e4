"""Where the replicas of new partitions go: spread over racks first, then brokers; leaders go round the active ones."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from tidelog.metadata.image import BrokerImage
from tidelog.wire.errors import ErrorCode, KafkaError


class Placement:
    """Where the brokers as they are take new replicas; for as many topics as one change makes."""

    __slots__ = ("_active", "_ring", "_turns")

    def __init__(self, brokers: Mapping[int, BrokerImage]) -> None:
        usable = [broker for broker in brokers.values() if _has_room(broker)]
        self._ring = _ring(usable)
        self._active = {broker.id for broker in usable if broker.active}
        self._turns: dict[tuple[int, int], tuple[int, ...]] = {}

    def place(self, first: int, count: int, replication_factor: int, start: int) -> list[tuple[int, ...]]:
        """Replicas for partitions [first, first + count), leader first. `start` says where on the ring number 0 begins.

        Fenced brokers may hold replicas but don't lead. INVALID_REPLICATION_FACTOR where there are too few brokers.
        """
        ring = self._ring
        if replication_factor <= 0:
            raise _impossible(replication_factor, "a partition has at least one replica")
        if not self._active:
            raise _impossible(replication_factor, "all brokers are fenced, or all their log directories are cordoned")
        if replication_factor > len(ring):
            raise _impossible(replication_factor, f"only {len(ring)} broker(s) are registered and have room")
        return [self._at((start + index) % len(ring), replication_factor) for index in range(first, first + count)]

    def _at(self, at: int, count: int) -> tuple[int, ...]:
        replicas = self._turns.get((at, count))
        if replicas is None:
            order = self._ring[at:] + self._ring[:at]
            leader = next(broker for broker in order if broker in self._active)
            others = [broker for broker in order if broker != leader]
            replicas = self._turns[at, count] = (leader, *others[: count - 1])
        return replicas


def _impossible(replication_factor: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): {reason}.",
    )


def _has_room(broker: BrokerImage) -> bool:
    return not broker.cordoned_log_dirs or bool(set(broker.log_dirs) - set(broker.cordoned_log_dirs))


def _ring(brokers: Sequence[BrokerImage]) -> list[int]:
    """All brokers, one rack after the other in turn, so that neighbours on the ring are in different racks."""
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack, []).append(broker.id)
    return [broker for turn in zip_longest(*racks.values()) for broker in turn if broker is not None]
