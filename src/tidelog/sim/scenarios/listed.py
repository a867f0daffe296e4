"""The scenarios of the simulator, by name. A seed has one of them, in turn: seed 0 the first, seed 1 the second, ..."""

from importlib import import_module
from typing import Protocol

from tidelog.sim.scenarios.scenario_run import Outcome
from tidelog.sim.world.world import World

SCENARIOS = {
    "records": "scenario:Run",
    "compacted": "compacted:CompactedRun",
    "kept": "kept:KeptRun",
    "again": "recreated:AgainRun",
    "transactions": "transactions:TransactionsRun",
    "groups": "groups:GroupsRun",
    "changes": "changes:ChangesRun",
    "folders": "folders:FoldersRun",
}


class Scenario(Protocol):
    """One run from one seed."""

    world: World

    def go(self) -> Outcome: ...


def of_seed(seed: int) -> str:
    """The name of the scenario that a seed runs unless another is asked for."""
    names = list(SCENARIOS)
    return names[seed % len(names)]


def make(name: str, seed: int) -> Scenario:
    module, run = SCENARIOS[name].split(":")
    scenario: Scenario = getattr(import_module(f"tidelog.sim.scenarios.{module}"), run)(seed)
    return scenario
