"""Where the replicas of new partitions go: spread over racks first, then brokers; leaders go round the active ones."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from tidelog.metadata.image import BrokerImage
from tidelog.wire.errors import ErrorCode, KafkaError


def place(
    brokers: Mapping[int, BrokerImage], first: int, count: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """Replicas for partitions [first, first + count), leader first. `start` says where on the ring number 0 begins.

    Fenced brokers may hold replicas but don't lead. INVALID_REPLICATION_FACTOR where there are too few brokers.
    """
    if replication_factor <= 0:
        raise _impossible(replication_factor, "a partition has at least one replica")
    usable = [broker for broker in brokers.values() if _has_room(broker)]
    if not any(broker.active for broker in usable):
        raise _impossible(replication_factor, "all brokers are fenced, or all their log directories are cordoned")
    if replication_factor > len(usable):
        raise _impossible(replication_factor, f"only {len(usable)} broker(s) are registered and have room")
    ring = _ring(usable)
    active = {broker.id for broker in usable if broker.active}
    turns: dict[int, tuple[int, ...]] = {}
    return [
        _at(ring, active, (start + index) % len(ring), replication_factor, turns)
        for index in range(first, first + count)
    ]


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


def _at(ring: list[int], active: set[int], at: int, count: int, turns: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    replicas = turns.get(at)
    if replicas is None:
        order = ring[at:] + ring[:at]
        leader = next(broker for broker in order if broker in active)
        others = [broker for broker in order if broker != leader]
        replicas = turns[at] = (leader, *others[: count - 1])
    return replicas
