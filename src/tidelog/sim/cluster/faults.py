"""What goes wrong in a cluster, and when, as the seed decides: faults of one machine, and those that take several."""

from collections.abc import Mapping

from tidelog.sim.cluster.machine_faults import LONG_S, QUICK_S, MachineFaults
from tidelog.sim.cluster.members import MemberAdmin
from tidelog.sim.cluster.node import Machine

FAULTS: Mapping[str, float] = {
    "kill": 3.0,
    "power": 3.0,
    "blackout": 1.0,
    "freeze": 2.5,
    "split": 3.0,
    "isolate": 2.0,
    "slow": 1.0,
    "reset": 1.5,
    "full": 0.8,
    "sync": 0.8,
    "disk": 0.6,
    "wipe": 1.0,
    "amnesia": 0.6,
    "stop": 1.5,
    "coup": 0.6,
    "alone": 0.7,
    "twin": 0.4,
    "reform": 1.2,
    "oblivion": 0.5,
    "fresh": 0.8,
}
"""How likely each kind is; what it does is the method of its name."""

SOON_S = 0.3


class ClusterFaults(MachineFaults):
    """Faults of `machine_faults.py`, and these. `reformed`: voters were changed behind a split."""

    reformed = False

    def _coup(self) -> None:
        """Whoever comes to lead next is cut off at once, and all others lose power."""

        def leads(leader: Machine, epoch: int) -> None:
            if self.over:
                return
            self._world.note(f"coup in epoch {epoch}", leader.id)
            self._cut_off(leader, self._random.between(1.0, 4.0))
            for machine in self._world.machines.values():
                if machine is not leader:
                    machine.lose_power()
                    self._world.timeline.plan(self._random.between(*QUICK_S), self._world.revive, machine)

        self._world.on_leader = leads
        leader = self._world.leader()
        if leader is not None and self._random.chance(0.7):
            leader.kill()

    def _reform(self) -> None:
        """Whoever leads is cut off, and asked to change the voters: nobody else hears of that, and others lead."""
        leader = self._world.leader()
        if leader is None or self._world.shape.static:
            return
        heals_s = self._random.between(2.0, 5.0)
        self._cut_off(leader, heals_s)
        self._quiet_s = heals_s
        if self._random.chance(0.5):  # the last fault of all: whoever was cut off isn't started anew
            self._until = self._world.timeline.now + heals_s + SOON_S
        self.reformed = True
        MemberAdmin(self._world, self._random.fork(f"members {self._world.timeline.events}"), leader)

    def _alone(self) -> None:
        """All other voters go, for so long that a leader gives up."""
        leader = self._world.leader()
        if leader is None:
            return
        others = [machine for machine in self._world.controllers if machine is not leader]
        self._world.note("alone", leader.id)
        for machine in others:
            machine.down = True
            machine.kill()

        def back() -> None:
            for machine in others if not self.over else ():  # in peace it is decided anew who stays down
                machine.down = False
                self._world.timeline.plan(self._random.between(*QUICK_S), self._world.revive, machine)

        self._world.timeline.plan(self._random.between(1.0, 3.5), back)

    def _oblivion(self) -> None:
        """Of three voters one is left behind; then another one's disks come back empty, and the leader is gone for a
        while: nobody else has what was committed last, and it has to be waited for."""
        world, leader = self._world, self._world.leader()
        others = [machine for machine in world.controllers if machine is not leader]
        if leader is None or len(others) != 2 or not all(one.up for one in others):
            self._wipe()
            return
        behind, forgets = others if self._random.chance(0.5) else reversed(others)
        behind.down = True
        behind.kill()

        def forget() -> None:
            if world.leader() is leader and self._may_be_wiped(forgets):
                forgets.kill()
                self._wipe_machine(forgets)
                leader.down = True
                leader.kill()
            behind.down = False
            world.revive(behind)

        def back() -> None:
            leader.down = False
            world.revive(leader)

        self._later(self._random.between(0.4, 1.5), forget)
        self._later(self._random.between(3.0, 5.0), back)

    def _twin(self) -> None:
        """A broker's machine stops, as if it were dead; another one takes its id, with empty disks; the old one wakes
        up."""
        machine = self._any(lambda machine: machine.ready and not machine.shape.is_controller and not machine.frozen)
        if machine is None or self._world.replaced:
            return
        machine.freeze()
        self._world.ledger.broker_wiped(machine.id)
        self._world.replace(machine)
        self._world.timeline.plan(self._random.between(*LONG_S), machine.thaw)

    def _fresh(self) -> None:
        """A broker ends, one way or the other, that has just begun to write a new partition, and is back at once."""
        world = self._world
        written = [
            (topic, index)
            for topic in world.ledger.topics.values()
            for index in range(topic.partitions if topic.stays else 0)
            if topic.id is not None and world.history.of(topic.id.hex(), index).values
        ]
        if not written:
            return
        topic, index = self._random.choose(written[-2:])
        machine = world.machines.get(topic.brokers.get(index, 0))
        if machine is None or not machine.ready or machine.frozen:
            return
        process = machine.running
        if machine.shape.own_metadata_disk and not machine.shape.is_controller and self._random.chance(0.3):
            machine.kill()
            machine.forget_metadata()
        elif self._random.chance(0.5):
            process.stop(lambda: world.struck("stop"))
        else:
            machine.kill()
        world.timeline.plan(self._random.between(0.001, 0.2), world.revive, machine)
