"""What goes wrong with one machine, its disks, or the ways to it: faults that overlap, each with its own end.

A controller's disk comes back empty only while a majority of the voters keep theirs, as Kafka demands: a cluster whose
majority has forgotten is lost, whoever runs it.
"""

from collections.abc import Callable, Mapping

from tidelog.sim.cluster.node import Machine
from tidelog.sim.cluster.world import ClusterWorld
from tidelog.sim.world.random import SimRandom

BETWEEN_S = (0.05, 0.9)
QUICK_S = (0.01, 0.3)
LONG_S = (0.3, 4.0)


class MachineFaults:
    """Lets faults happen until `until`; `weights` say how likely each kind is."""

    def __init__(self, world: ClusterWorld, random: SimRandom, until: float, weights: Mapping[str, float]) -> None:
        self._world = world
        self._random = random
        self._until = until
        self._weights = list(weights.items())
        self._quiet_s = 0.0
        """Before the next fault."""
        self._plan_next()

    @property
    def over(self) -> bool:
        return self._world.timeline.now >= self._until

    def _plan_next(self) -> None:
        quiet_s, self._quiet_s = self._quiet_s, 0.0
        self._later(quiet_s + self._random.between(*BETWEEN_S), self._strike)

    def _later(self, delay_s: float, what: Callable[..., None], *args: object) -> None:
        """Not once it is time for peace."""

        def then() -> None:
            if not self.over:
                what(*args)

        self._world.timeline.plan(delay_s, then)

    def _strike(self) -> None:
        kind = self._random.weighted(self._weights)
        self._world.note(f"fault: {kind}")
        strike: Callable[[], None] = getattr(self, f"_{kind}")
        strike()
        self._plan_next()

    def _any(self, wanted: Callable[[Machine], bool] = lambda machine: machine.up) -> Machine | None:
        found = [machine for machine in self._world.machines.values() if wanted(machine)]
        return self._random.choose(found) if found else None

    def _leader_or_any(self) -> Machine | None:
        """Most often the one that matters."""
        leader = self._world.leader()
        return leader if leader is not None and self._random.chance(0.5) else self._any()

    # -- processes

    def _kill(self) -> None:
        machine = self._leader_or_any()
        if machine is not None:
            machine.kill()

    def _power(self) -> None:
        machine = self._leader_or_any()
        if machine is not None:
            machine.lose_power()

    def _blackout(self) -> None:
        for machine in self._world.every:
            machine.lose_power()
        self._world.struck("all lose power")

    def _freeze(self) -> None:
        machine = self._leader_or_any()
        if machine is not None:
            machine.freeze()
            self._later(self._random.between(*LONG_S), machine.thaw)

    def _stop(self) -> None:
        """SIGTERM; now and then nobody waits for its end."""
        machine = self._any(lambda machine: machine.ready and not machine.frozen)
        if machine is None:
            return
        process, world = machine.running, self._world

        def stopped() -> None:
            world.struck("stop")
            world.note("stopped", machine.id)

        process.stop(stopped)
        if self._random.chance(0.3):
            self._later(self._random.between(*QUICK_S), lambda: machine.kill() if machine.process is process else None)

    # -- the network

    def _split(self) -> None:
        """Some machines on one side, the others on the other; now and then only one way is cut."""
        machines = list(self._world.machines.values())
        side = {machine.id for machine in machines if self._random.chance(0.5)}
        one_way = self._random.chance(0.25)
        for one in machines:
            for other in machines:
                if one.id in side and other.id not in side:
                    self._cut(one, other, one_way=one_way)
        self._world.struck("one-way split" if one_way else "split")

    def _isolate(self) -> None:
        machine = self._leader_or_any()
        if machine is not None:
            self._cut_off(machine, self._random.between(*LONG_S))

    def _cut_off(self, machine: Machine, heals_s: float) -> None:
        one_way = self._random.chance(0.2)
        for other in self._world.machines.values():
            if other is not machine:
                self._cut(machine, other, one_way=one_way, heals_s=heals_s)
        self._world.struck("one-way split" if one_way else "split")
        self._world.note("cut off", machine.id)

    def _cut(self, one: Machine, other: Machine, *, one_way: bool, heals_s: float | None = None) -> None:
        heals_s = self._random.between(*LONG_S) if heals_s is None else heals_s
        network = self._world.network
        network.split(one.address, other.address, one_way=one_way)
        self._world.timeline.plan(heals_s, network.heal, one.address, other.address)

    def _slow(self) -> None:
        one, other = self._any(), self._any()
        if one is None or other is None or one is other:
            return
        network = self._world.network
        network.slow(one.address, other.address, self._random.between(10.0, 500.0))
        self._world.struck("slow link")
        self._later(self._random.between(*LONG_S), network.heal, one.address, other.address)

    def _reset(self) -> None:
        machine = self._any()
        if machine is None:
            return
        for sock in self._world.network.connections(machine.running.name):
            if self._random.chance(0.6):
                self._world.network.drop(sock)
                self._world.struck("dropped connection")

    # -- disks

    def _full(self) -> None:
        machine = self._any()
        if machine is None:
            return
        disk = machine.disk
        disk.capacity = disk.used_bytes() + self._random.random_int(0, 3000)

        def room_again() -> None:
            disk.capacity = None

        self._later(self._random.between(0.2, 2.0), room_again)

    def _sync(self) -> None:
        machine = self._any()
        if machine is not None:
            self._fail_syncs(machine)

    def _fail_syncs(self, machine: Machine) -> None:
        disk = machine.disk
        machine.lost_cache()
        disk.failing_syncs = self._random.random_int(1, 3)
        machine.sync_failed = True
        disk.failed_sync_keeps_cache = self._random.chance(0.5)

        def works_again() -> None:
            machine.lost_cache()
            disk.failing_syncs = 0
            machine.kill()

        self._later(self._random.between(0.1, 1.0), works_again)

    def _disk(self) -> None:
        """Its syncs take long for a while."""
        machine = self._any()
        if machine is None:
            return
        disk = machine.disk
        disk.slow, disk.slow_s = self._random.choose(machine.folders), self._random.between(0.02, 0.4)

        def fast_again() -> None:
            disk.slow = None

        self._later(self._random.between(0.2, 2.0), fast_again)

    def _wipe(self) -> None:
        """All disks of a machine come back empty."""
        machine = self._any(self._may_be_wiped)
        if machine is None:
            return
        machine.kill()
        self._wipe_machine(machine)

    def _wipe_machine(self, machine: Machine) -> None:
        machine.wipe(machine.folders)
        if machine.shape.is_broker:
            self._world.ledger.broker_wiped(machine.id)

    def _may_be_wiped(self, machine: Machine) -> bool:
        if not machine.shape.is_controller:
            return True
        world = self._world
        if world.shape.static or machine.wiped > 1:
            return False
        leader = world.leader()
        if leader is None:
            return False
        driver = world.replica(leader)
        if not driver.voters_committed:
            return False
        voters = [voter.key for voter in driver.voters.voters]
        intact = [
            key for key in voters if key.id != machine.id and key.directory_id == world.machines[key.id].directory_id
        ]
        return len(intact) >= driver.voters.majority

    def _amnesia(self) -> None:
        """The disk of a broker's metadata comes back empty; its records are on another."""
        machine = self._any(lambda machine: machine.shape.own_metadata_disk and not machine.shape.is_controller)
        if machine is not None:
            machine.kill()
            machine.forget_metadata()
