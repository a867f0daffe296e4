"""Which fault comes next, and how it goes: drawn from a seed.

Pure. Kinds are dealt like cards: each of them once, in some order, before any comes again, so that every kind has its
turn in a short run too.
"""

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import NamedTuple


class Kind(Enum):
    """What happens to one node; the value is what it is called in the report."""

    KILL_LEADER = "kill -9 of a leader"
    KILL_CONTROLLER = "kill -9 of the active controller"
    FREEZE = "SIGSTOP"
    DISK_FULL = "full disk"
    SPLIT_BOTH = "split, both ways"
    SPLIT_ONE_WAY = "split, one way"
    STOP = "planned stop"


class Split(Enum):
    """Which packets of one node are lost."""

    BOTH = "from and to the other nodes"
    OUT = "from it to the other nodes"
    IN = "to it from the other nodes"
    ALL = "from and to the other nodes and all clients"


class Fault(NamedTuple):
    """`lasts_s`: how long it is frozen, full, split or down. `victim` in [0, 1) chooses among the nodes that fit."""

    kind: Kind
    lasts_s: float
    victim: float
    split: Split | None = None
    pause_s: float = 0.0
    """After all replicas are in sync again, before the next one."""


def deal(seed: int, session_s: float) -> Iterator[Fault]:
    """Faults without end. What is frozen or cut off stays so for longer than its session in two of three cases, so that
    it comes back fenced; in the third it is back before anybody missed it."""
    dice = Random(seed)
    while True:
        deck = list(Kind)
        dice.shuffle(deck)
        for kind in deck:
            long = dice.random() < 2 / 3
            match kind:
                case Kind.FREEZE | Kind.SPLIT_BOTH | Kind.SPLIT_ONE_WAY:
                    lasts_s = session_s * dice.uniform(1.3, 1.6) if long else session_s * dice.uniform(0.1, 0.7)
                case Kind.DISK_FULL:
                    lasts_s = dice.uniform(2.0, 5.0)
                case Kind.KILL_LEADER | Kind.KILL_CONTROLLER:
                    lasts_s = dice.uniform(1.0, 4.0) if long else 0.0
                case Kind.STOP:
                    lasts_s = dice.uniform(0.0, 2.0)
            split = {
                Kind.SPLIT_BOTH: dice.choice((Split.BOTH, Split.ALL)),
                Kind.SPLIT_ONE_WAY: dice.choice((Split.OUT, Split.IN)),
            }.get(kind)
            yield Fault(kind, lasts_s, dice.random(), split, dice.uniform(0.5, 2.0))
