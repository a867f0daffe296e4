"""A world of several machines from one seed: time, network, nodes, what is seen of them, and a trace of it all."""

from collections import Counter
from collections.abc import Callable
from hashlib import sha256

from tidelog.raft.driver import RaftDriver
from tidelog.raft.quorum import Role
from tidelog.raft.voters import ReplicaKey
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.node import Machine, NodeProcess
from tidelog.sim.cluster.shape import Shape
from tidelog.sim.cluster.sights import Probe, Sights
from tidelog.sim.scenarios.checkers import History, Violation
from tidelog.sim.world.loop import Timeline
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.random import SimRandom

REVIVE_S = (0.05, 0.6)
"""A node that ended by itself is started again so much later."""
LAME = (0.0, 0.0, 0.02, 0.1)
"""How many of the connections are on bad ways; one of these for a whole run."""


class ClusterWorld:
    """What machines, clients and faults have in common. `machines` by node id: those that count; `replaced` are old
    ones whose ids others have now. `breaks`: a safeguard is switched off, so a node that meets what can't be goes on,
    as it does in production, until somebody sees the damage."""

    def __init__(self, seed: int, random: SimRandom, shape: Shape, *, breaks: bool = False) -> None:
        self.seed = seed
        self.random = random
        self.shape = shape
        self.timeline = Timeline()
        self.network = SimNetwork(self.timeline, random.fork("network"))
        self.network.lame = random.fork("lame").choose(LAME)
        self.history = History()
        self.ledger = Ledger()
        self.sights = Sights()
        self.faults: Counter[str] = Counter()
        self.trace: list[str] = []
        self.on_leader: Callable[[Machine, int], None] | None = None
        """Called, once, with the next machine whose node comes to lead, and the epoch."""
        self.replaced: list[Machine] = []
        self.leading: dict[tuple[bytes, int], int] = {}
        """The broker that leads a partition, by its topic's id and its index, as a watcher saw it last."""
        self._breaks = breaks
        self._probes: dict[NodeProcess, Probe] = {}
        self.machines = {node.id: Machine(self, shape, node, random.fork(f"machine {node.id}")) for node in shape.nodes}
        for machine in self.machines.values():
            machine.format(first=True)

    @property
    def every(self) -> list[Machine]:
        return [*self.machines.values(), *self.replaced]

    @property
    def controllers(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.shape.is_controller]

    @property
    def brokers(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.shape.is_broker]

    # -- what is noted

    def note(self, text: str, node_id: int | None = None) -> None:
        line = f"{self.timeline.now:.6f} {'' if node_id is None else f'node {node_id}: '}{text}"
        self.trace.append(line)
        if node_id is not None:
            self.machines[node_id].events.append(line)

    def struck(self, kind: str) -> None:
        self.faults[kind] += 1

    def fingerprint(self) -> str:
        """The same for the same run."""
        return sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    def last_events(self) -> list[str]:
        """Of each node the last things that happened to it."""
        lines: list[str] = []
        for machine in self.machines.values():
            state = "frozen" if machine.frozen else "serves" if machine.ready else "starts" if machine.up else "down"
            lines += [f"node {machine.id} ({machine.shape.roles}), {state}:", *(f"  {one}" for one in machine.events)]
        return lines

    # -- time

    def run_until(self, done: Callable[[], bool], deadline: float) -> bool:
        """As the timeline's. Where a safeguard is switched off, an exception ends the callback that it comes from, as
        on a real loop, and not the run."""

        def done_or_found() -> bool:
            if self.sights.found is not None:
                raise self.sights.found
            return done()

        while True:
            try:
                return self.timeline.run_until(done_or_found, deadline)
            except Violation:
                raise
            except Exception as error:
                if not self._breaks:
                    raise
                self.note(f"{type(error).__name__}: {error}")

    def wait(self, done: Callable[[], bool], most_s: float, what: Callable[[], str]) -> None:
        if not self.run_until(done, self.timeline.now + most_s):
            raise Violation(f"waited {most_s:g} s for {what()}")

    # -- what nodes tell the world

    def began(self, process: NodeProcess) -> None:
        self._probes[process] = Probe(process, self.sights, self._moved)

    def ended(self, process: NodeProcess) -> None:
        probe = self._probes.pop(process, None)
        if probe is not None:
            probe.look()
        if self.machines.get(process.machine.id) is process.machine:
            self.timeline.plan(self.random.between(*REVIVE_S), self.revive, process.machine)

    def revive(self, machine: Machine) -> None:
        """Start it, unless it is to stay down, runs, or was replaced."""
        if not machine.down and not machine.up and self.machines.get(machine.id) is machine:
            machine.start()

    def _moved(self, process: NodeProcess, epoch: int, role: Role) -> None:
        self.note(f"{role.value} in epoch {epoch}", process.machine.id)
        if role is Role.LEADER and self.on_leader is not None:
            call, self.on_leader = self.on_leader, None
            self.timeline.plan(0.0, call, process.machine, epoch)

    def look(self) -> None:
        """Compare what is committed on all nodes."""
        for probe in self._probes.values():
            probe.look()

    # -- machines

    def replace(self, old: Machine) -> None:
        """Another machine takes over the node's id, with empty disks, at an address of its own. The old one stays."""
        new = Machine(
            self, self.shape, old.shape, self.random.fork(f"machine {old.id} again"), address=f"10.0.0.{100 + old.id}"
        )
        new.events.extend(old.events)
        self.replaced.append(old)
        self.machines[old.id] = new
        self.struck("replaced machine")
        self.note(f"replaced by {new.address}", old.id)
        new.format(first=False)
        new.start()

    # -- who leads, and who votes

    def leader(self) -> Machine | None:
        """The node that leads in the newest epoch, where one does and can be reached."""
        leading = [
            (probe.driver.epoch, process.machine)
            for process, probe in self._probes.items()
            if probe.driver.leads and not process.machine.frozen
        ]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def replica(self, machine: Machine) -> RaftDriver:
        """Its replica of the metadata log."""
        return self._probes[machine.running].driver

    def is_looked_at(self, machine: Machine) -> bool:
        """Whether it runs, and has come so far that `replica` is there."""
        return machine.process in self._probes

    def voters_of(self, machine: Machine) -> frozenset[ReplicaKey]:
        """Who votes as its own log has it, committed or not."""
        return frozenset(voter.key for voter in self.replica(machine).voters.voters)

    def is_majority_left(self, voters: frozenset[ReplicaKey], dead: list[Machine]) -> bool:
        """Whether these voters are more than half without the machines that are dead, and disks that are lost."""
        gone = {machine.id for machine in dead}
        left = [
            key
            for key in voters
            if key.id not in gone and (self.shape.static or key.directory_id == self.machines[key.id].directory_id)
        ]
        return len(left) > len(voters) // 2

    def voters(self) -> frozenset[ReplicaKey]:
        """Who votes as far as is committed."""
        if self.sights.voters:
            return max(self.sights.voters, key=lambda pair: pair[0])[1]
        return frozenset(voter.key for voter in self.shape.initial.voters)
