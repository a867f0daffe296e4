"""The scenarios of the simulator, by name. A seed has one of them, in turn: seed 0 the first, seed 1 the second, ...

Those of a whole cluster are asked for by name.
"""

from collections import Counter
from importlib import import_module
from typing import Protocol

from tidelog.sim.scenarios.scenario_run import Outcome
from tidelog.sim.world.loop import Timeline

SCENARIOS = {
    "records": "scenario:Run",
    "compacted": "compacted:CompactedRun",
    "kept": "kept:KeptRun",
    "again": "recreated:AgainRun",
    "transactions": "transactions:TransactionsRun",
    "groups": "groups:GroupsRun",
    "changes": "changes:ChangesRun",
    "folders": "folders:FoldersRun",
    "quorum": "quorum:QuorumRun",
    "cluster": "cluster:ClusterRun",
}
BY_NAME_ONLY = ("quorum", "cluster")


class RunWorld(Protocol):
    """What is told of a run's world."""

    seed: int
    timeline: Timeline
    faults: Counter[str]
    trace: list[str]

    def last_events(self) -> list[str]:
        """What a failure tells."""
        ...


class Scenario(Protocol):
    """One run from one seed."""

    @property
    def world(self) -> RunWorld: ...

    def go(self) -> Outcome: ...


def of_seed(seed: int) -> str:
    """The name of the scenario that a seed runs unless another is asked for."""
    names = [name for name in SCENARIOS if name not in BY_NAME_ONLY]
    return names[seed % len(names)]


def make(name: str, seed: int, aim: str | None = None, *, breaks: bool = False) -> Scenario:
    """`aim` and `breaks` are for a cluster: what it aims at, and whether a safeguard is switched off."""
    module, run = SCENARIOS[name].split(":")
    kind = getattr(import_module(f"tidelog.sim.scenarios.{module}"), run)
    scenario: Scenario = kind(seed, aim, breaks=breaks) if name in BY_NAME_ONLY else kind(seed)
    return scenario
