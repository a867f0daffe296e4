"""What a run of the scenario `cluster` may aim at: the faults that matter for one safeguard of the replication."""

from collections.abc import Mapping

from tidelog.sim.cluster.aims import Aim
from tidelog.sim.replicated.faults import REPLICA_FAULTS

ANY = Aim(REPLICA_FAULTS, members=0.0)

REPLICA_AIMS: Mapping[str, Aim] = {}


def replica_aim_of(name: str | None) -> Aim:
    return ANY if name is None else REPLICA_AIMS[name]
