"""What a run may aim at: the faults that matter for one safeguard, made likelier, and a cluster in which they can."""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.sim.cluster.faults import FAULTS


class Aim(NamedTuple):
    """`static`: how likely it is that the voters are settings; `members`: that somebody changes them; `turns`: that
    everybody leads in turn at the end. `writers`: how many. `lame`: how many connections are on bad ways; None: as the
    seed has it. `observers`: whether a node is wanted that is only a broker. `powerless`: how likely a topic is that
    counts on the page cache. `apart`: whether no node is both a broker and a controller.
    """

    faults: Mapping[str, float] = FAULTS
    static: float = 0.1
    members: float = 0.4
    turns: float = 0.1
    writers: int = 1
    lame: float | None = None
    observers: bool = False
    settings: Mapping[str, str] = {}
    powerless: float = 0.3
    apart: bool = False


def _more(**weights: float) -> Mapping[str, float]:
    return {kind: weights.get(kind, weight) for kind, weight in FAULTS.items()}


CHECKPOINTS = {
    "metadata.log.max.record.bytes.between.snapshots": "600",
    "metadata.max.retention.bytes": "0",
}
FEW_CHECKPOINTS = {**CHECKPOINTS, "metadata.log.max.record.bytes.between.snapshots": "4000"}
STAYS_OUT = {"controller.quorum.auto.join.enable": "false"}
"""A controller that lost its disk is no voter again by itself."""

AIMS: Mapping[str, Aim] = {
    "vote-fsync": Aim(_more(coup=12.0)),
    "snapshot-epoch": Aim(_more(wipe=6.0, freeze=6.0, split=6.0), static=0.0, settings=FEW_CHECKPOINTS),
    "resigned-timer": Aim(_more(alone=10.0)),
    "data-directory": Aim(_more(oblivion=12.0), static=0.0, members=0.0, settings=STAYS_OUT),
    "stray-gate": Aim(_more(fresh=20.0), lame=0.3, writers=3, observers=True, settings=CHECKPOINTS),
    "voters-truncation": Aim(_more(reform=12.0), static=0.0, members=1.0, turns=1.0),
    "broker-epoch": Aim(_more(twin=15.0), observers=True),
}


def aim_of(name: str | None) -> Aim:
    return Aim() if name is None else AIMS[name]
