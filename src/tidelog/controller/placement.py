"""Where the replicas of new partitions go: no two on one host while there is another, in as many racks as there are,
evenly, and so that the leaders which a broker leaves when it goes are spread over all others.

A host runs as many brokers as it has cores, and all of them go with it: so it counts more than the rack, of which two
replicas in one are only less than could be had. Where hosts stand in racks, as machines do, racks are used as evenly as
they can be with each replica on a host of its own. Brokers that are all on one host share it: there is no other.

Leaders go round the active brokers. The second replica is who leads when the first is gone: of those in other racks the
one that stands behind this leader least often so far, and each further one is who holds fewest replicas. Where that is
all the same, each round begins with another one, so that topics of a few partitions spread too. After as many rounds as
there are other brokers it begins anew: what was chosen is remembered, and 10,000 partitions are as quick to place as
100. With very many brokers it is sooner (`CHOICES_A_TOPIC`), and where a topic begins makes the difference.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from tidelog.config.cluster import HOST
from tidelog.metadata.image import BROKER_RESOURCE, BrokerImage, ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError

CHOICES_A_TOPIC = 600
"""Each looks at all brokers: with a hundred of them 80 us, so that a topic holds the loop for some 50 ms."""


class Placement:
    """Where the brokers as they are take new replicas; for as many topics as one change makes."""

    __slots__ = ("_active", "_behind", "_chosen", "_held", "_hosts", "_racks", "_ring")

    def __init__(self, brokers: Mapping[int, BrokerImage], hosts: Mapping[int, str] | None = None) -> None:
        """`hosts` of the brokers (`hosts_of`); one that isn't named there has a host to itself."""
        usable = [broker for broker in brokers.values() if _has_room(broker)]
        self._hosts: dict[int, str | int] = {broker.id: (hosts or {}).get(broker.id, broker.id) for broker in usable}
        self._ring = _ring(usable, self._hosts)
        self._racks = {broker.id: broker.rack for broker in usable}
        self._active = {broker.id for broker in usable if broker.active}
        self._chosen: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self._behind: Counter[tuple[int, int]] = Counter()
        """How often a broker is the second replica behind a leader."""
        self._held: Counter[int] = Counter()
        """How many replicas behind leaders a broker was given."""

    def place(self, first: int, count: int, replication_factor: int, start: int) -> list[tuple[int, ...]]:
        """Replicas for partitions [first, first + count), leader first. `start` says where on the ring number 0 begins.

        Fenced brokers don't lead, and hold replicas where there are too few others on as many hosts and racks.
        INVALID_REPLICATION_FACTOR where there are too few brokers.
        """
        ring = self._ring
        if replication_factor <= 0:
            raise _impossible(replication_factor, "a partition has at least one replica")
        if not self._active:
            raise _impossible(replication_factor, "all brokers are fenced, or all their log directories are cordoned")
        if replication_factor > len(ring):
            raise _impossible(replication_factor, f"only {len(ring)} broker(s) are registered and have room")
        start_lap, start_at = divmod(start, len(ring))
        laps = max(1, min(len(ring) - 1, CHOICES_A_TOPIC // len(ring)))
        placed: list[tuple[int, ...]] = []
        for index in range(first, first + count):
            lap, at = divmod(start_at + index, len(ring))
            placed.append(self._at(at, (start_lap + lap % laps) % max(len(ring) - 1, 1), replication_factor))
        return placed

    def _at(self, at: int, lap: int, count: int) -> tuple[int, ...]:
        ring = self._ring
        replicas = self._chosen.get((at, lap, count))
        if replicas is None:
            replicas = self._chosen[at, lap, count] = self._choose(ring[at:] + ring[:at], count, lap)
        return replicas

    def _choose(self, order: Sequence[int], count: int, lap: int) -> tuple[int, ...]:
        """The leader is the first of `order` that may lead. Who follows is on the host, and of these in the rack, that
        has fewest of them yet; one that is fenced comes after those that aren't."""
        leader = next(broker for broker in order if broker in self._active)
        replicas, racks, hosts = [leader], Counter([self._racks[leader]]), Counter([self._hosts[leader]])
        others = [broker for broker in order if broker != leader]
        left = others[lap:] + others[:lap]
        while len(replicas) < count:
            second = len(replicas) == 1

            def burden(broker: int, second: bool = second) -> tuple[int, int, bool, int, int]:
                behind = self._behind[leader, broker] if second else 0
                fenced = broker not in self._active
                return hosts[self._hosts[broker]], racks[self._racks[broker]], fenced, behind, self._held[broker]

            chosen = min(left, key=burden)
            left.remove(chosen)
            replicas.append(chosen)
            racks[self._racks[chosen]] += 1
            hosts[self._hosts[chosen]] += 1
            self._held[chosen] += 1
            if second:
                self._behind[leader, chosen] += 1
        return tuple(replicas)


def _impossible(replication_factor: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): {reason}.",
    )


def _has_room(broker: BrokerImage) -> bool:
    return not broker.cordoned_log_dirs or bool(set(broker.log_dirs) - set(broker.cordoned_log_dirs))


def _ring(brokers: Sequence[BrokerImage], hosts: Mapping[int, str | int]) -> list[int]:
    """All brokers, one rack after the other in turn, and of each rack its hosts in turn, so that neighbours on the ring
    are in different racks, or on different hosts at least."""
    racks: dict[str | None, dict[str | int, list[int]]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack, {}).setdefault(hosts[broker.id], []).append(broker.id)
    return _in_turn([_in_turn(list(by_host.values())) for by_host in racks.values()])


def _in_turn(some: Sequence[Sequence[int]]) -> list[int]:
    return [broker for turn in zip_longest(*some) for broker in turn if broker is not None]


def hosts_of(image: ClusterImage) -> dict[int, str]:
    """The machine that each broker runs on: as its config record says (`tidelog.host`), else where it listens."""
    hosts: dict[int, str] = {}
    for broker in image.brokers.values():
        said = image.configs.get((BROKER_RESOURCE, str(broker.id)), {}).get(HOST)
        if said or broker.endpoints:
            hosts[broker.id] = said or broker.endpoints[0].host
    return hosts
