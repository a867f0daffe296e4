"""The only doors to the outside: clock, loop, disk, network, randomness, child processes.

Everything above takes an `Environment` and touches nothing else of the operating system, so the same code runs in
production (`tidelog.env.real`) and, seeded and on virtual time, in the simulator (`tidelog.sim`).
"""

from dataclasses import dataclass

from tidelog.env.child_processes import ChildProcesses
from tidelog.env.clock import Clock
from tidelog.env.disk import Disk
from tidelog.env.loop import Loop
from tidelog.env.network import Network
from tidelog.env.random import Random

__all__ = ["ChildProcesses", "Clock", "Disk", "Environment", "Loop", "Network", "Random"]


@dataclass(frozen=True, slots=True)
class Environment:
    """What a broker is given instead of the operating system."""

    clock: Clock
    loop: Loop
    disk: Disk
    network: Network
    random: Random
    child_processes: ChildProcesses | None = None
    """None: there is no other process, so such work is done in steps beside the loop."""
