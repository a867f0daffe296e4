"""Safeguards of the replication that can be switched off: `python -m tidelog.sim --break NAME --aim NAME`.

Each is what somebody has to notice who reads what was acknowledged, or shown, and not an assertion of a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller import brokers, partition_change
from tidelog.coordinator.txn.ending import Ending
from tidelog.metadata.image import NO_LEADER
from tidelog.replica.leading import Leading
from tidelog.replica.partition import Partition
from tidelog.replica.replica import Replica
from tidelog.sim.safeguard import CLUSTER, Safeguard
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from typing import Any

    from tidelog.controller.partition_change import Electors, Target
    from tidelog.metadata.image import PartitionImage
    from tidelog.replica.leading import Brokers
    from tidelog.replica.replica import Follower

_follow = Partition.follow
_change_leaders = brokers.change_leaders


def _cut_to_high_watermark(partition: Partition, follower: Follower) -> None:
    _follow(partition, follower)
    partition.log.truncate_to(max(partition.high_watermark, partition.log.log_start))


def _end_of_committed_isr(leading: Leading, durable_end: int, log_end: int, brokers: Brokers) -> int:
    ends = [follower.end for id, follower in leading.followers.items() if id in leading.isr]
    return min([durable_end, *ends])


def _no_least_isr(_: Replica) -> bool:
    return False


def _check_leader_of_any_epoch(replica: Replica, current_epoch: int = -1) -> None:
    if not replica.is_served:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _change_leaders_of_a_whole(*given: Any, unclean: int = NO_LEADER, lost: object = None, **more: Any) -> Any:
    if unclean != NO_LEADER:
        more["leaving"] = unclean
    return _change_leaders(*given, **more)


def _every_replica(partition: PartitionImage, target: Target, electors: Electors) -> list[int]:
    return sorted(set(target.replicas) - set(target.isr)) if len(target.isr) < electors.min_isr else []


def _never(*_: object) -> bool:
    return False


REPLICA_SAFEGUARDS = {
    "epoch-truncation": Safeguard(
        Partition,
        "follow",
        _cut_to_high_watermark,
        "cutting a follower's log where leader epochs say that it parts: it is cut to its high watermark",
        CLUSTER,
    ),
    "maximal-isr": Safeguard(
        Leading,
        "committed_end",
        _end_of_committed_isr,
        "those that may be in the ISR by now, or are about to be",
        CLUSTER,
    ),
    "min-isr-hw": Safeguard(
        Replica,
        "_is_below_min_isr",
        _no_least_isr,
        "the least number of replicas in sync for what is committed",
        CLUSTER,
    ),
    "hw-on-election": Safeguard(
        Replica,
        "catching_up",
        property(_never),
        "the wait of a new leader until it knows that it shows what others have shown",
        CLUSTER,
    ),
    "leader-epoch-fence": Safeguard(
        Replica, "check_leader", _check_leader_of_any_epoch, "refusing who knows another leader epoch", CLUSTER
    ),
    "replica-claim": Safeguard(
        brokers,
        "change_leaders",
        _change_leaders_of_a_whole,
        "whether a broker that came back has what it had",
        CLUSTER,
    ),
    "elr": Safeguard(
        partition_change,
        "_eligible",
        _every_replica,
        "whether who may lead without being in sync has everything",
        CLUSTER,
    ),
    "marker-retry": Safeguard(Ending, "_try_again", _never, "writing a marker again that couldn't be written", CLUSTER),
}
