"""What a run of the scenario `cluster` may aim at: the faults that matter for one safeguard of the replication."""

from collections.abc import Mapping

from tidelog.sim.cluster.aims import Aim
from tidelog.sim.replicated.faults import REPLICA_FAULTS

ANY = Aim(REPLICA_FAULTS, members=0.0)


def _more(**weights: float) -> Mapping[str, float]:
    return {kind: weights.get(kind, weight) for kind, weight in REPLICA_FAULTS.items()}


def _aim(*, apart: bool = False, settings: Mapping[str, str] | None = None, **weights: float) -> Aim:
    return Aim(_more(**weights), members=0.0, powerless=0.0, settings=settings or {}, apart=apart)


SELDOM_KNOWN = {"replica.high.watermark.checkpoint.interval.ms": "5000"}
"""A broker that comes back knows of an old high watermark."""

REPLICA_AIMS: Mapping[str, Aim] = {
    "epoch-truncation": _aim(settings=SELDOM_KNOWN, blackout=8.0, kill=6.0, elect=6.0),
    "maximal-isr": _aim(apart=True, ambush=20.0, kill=6.0),
    "min-isr-hw": _aim(wipe=6.0, isolate=8.0, split=6.0),
    "hw-on-election": _aim(elect=10.0, kill=8.0),
    "leader-epoch-fence": _aim(elect=10.0, split=8.0, freeze=6.0, isolate=6.0),
    "replica-claim": _aim(wipe=12.0, kill=8.0),
    "elr": _aim(kill=8.0, isolate=8.0, split=6.0),
    "marker-retry": _aim(kill=8.0, elect=8.0),
}


def replica_aim_of(name: str | None) -> Aim:
    return ANY if name is None else REPLICA_AIMS[name]
