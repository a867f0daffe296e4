"""A run of a cluster: admins, watchers, writers, and faults; then peace, at first without a minority of the voters.

At the end there is a leader within bounded time, dead brokers are fenced, and the account (`cluster/account.py`) is
right: after the faults, in some runs also while everybody leads in turn, and after a stop of all nodes.
"""

from collections.abc import Callable

from tidelog.sim.cluster.account import HEALED_S_MAX, Account
from tidelog.sim.cluster.admins import Admin
from tidelog.sim.cluster.aims import Aim, aim_of
from tidelog.sim.cluster.faults import ClusterFaults
from tidelog.sim.cluster.members import MemberAdmin
from tidelog.sim.cluster.node import Machine
from tidelog.sim.cluster.shape import ROLES_OF_FIVE, ROLES_OF_THREE, Roles, draw
from tidelog.sim.cluster.watchers import QuorumWatcher, Watcher, Writer
from tidelog.sim.cluster.world import ClusterWorld
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.scenario_run import Outcome
from tidelog.sim.world.random import SimRandom

BEFORE_S = 0.5
"""So long nothing goes wrong at first."""
CHAOS_S = (6.0, 12.0)
WATCHED_S = 3.0
"""So long after its earlier incarnation was stopped a broker isn't to be fenced."""
NO_ONE_DEAD = 0.3
"""In so many runs nobody stays dead when the faults are over."""
BROKER_DEAD = 0.5
STOPS = 0.1
"""In so many runs all nodes are stopped at the end, lose power, and are looked at once more."""


class QuorumRun:
    """One run from one seed. `aim` makes faults likelier that matter for a safeguard; `breaks`: one is switched off."""

    NAME = "quorum"

    def __init__(self, seed: int, aim: str | None = None, *, breaks: bool = False) -> None:
        random = SimRandom(f"{self.NAME} {seed}")
        self.aim = self.find_aim(aim)
        shape = draw(random.fork("shape"), self.shapes, static=self.aim.static, observers=self.aim.observers)
        shape.settings.update(self.settings(random.fork("settings")))
        shape.settings.update(self.aim.settings)
        self.world = ClusterWorld(seed, random, shape, breaks=breaks)
        if self.aim.lame is not None:
            self.world.network.lame = self.aim.lame
        self.random = random.fork("run")
        self.admins: list[Admin] = []
        self.members: list[MemberAdmin] = []
        self.watchers: dict[int, Watcher] = {}
        self.asking: dict[int, QuorumWatcher] = {}
        self.writers: list[Writer] = []
        self._account = Account(self.world, self.watchers, self.asking)

    def find_aim(self, name: str | None) -> Aim:
        return aim_of(name)

    @property
    def shapes(self) -> tuple[Roles, Roles]:
        """With three controllers, and with five."""
        return ROLES_OF_THREE, ROLES_OF_FIVE

    def settings(self, random: SimRandom) -> dict[str, str]:
        """What else is set on every node."""
        return {}

    def go(self) -> Outcome:
        world = self.world
        for machine in world.machines.values():
            machine.start()
        self.wait_until_all_serve()
        self.clients_come()
        world.run_until(lambda: False, world.timeline.now + BEFORE_S)
        until = world.timeline.now + self.random.between(*CHAOS_S)
        faults = self.make_faults(until)
        world.run_until(lambda: faults.over, until + HEALED_S_MAX)
        self._peace()
        self.account(self.random.fork("account"))
        self._stop_the_replaced()
        if self.random.chance(self.aim.turns) or faults.reformed:
            self._lead_in_turn()
        if self.random.chance(STOPS):
            self._stop_and_start()
            self.account(self.random.fork("another account"))
        return self.outcome()

    def make_faults(self, until: float) -> ClusterFaults:
        return ClusterFaults(self.world, self.random.fork("faults"), until, self.aim.faults)

    def account(self, random: SimRandom) -> None:
        """Whether all that was acknowledged is there."""
        self._account.take(random)

    def outcome(self) -> Outcome:
        world = self.world
        acknowledged = world.ledger.acknowledged + world.history.acknowledged
        now, events = world.timeline.now, world.timeline.events
        return Outcome(
            world.seed, world.fingerprint(), acknowledged, world.ledger.looks, now, events, tuple(world.trace)
        )

    def wait(self, done: Callable[[], bool], what: str | Callable[[], str]) -> None:
        self._account.wait(done, what)

    def wait_until_all_serve(self) -> None:
        machines = self.world.machines
        self.wait(
            lambda: all(machine.ready for machine in machines.values()),
            lambda: f"nodes {[machine.id for machine in machines.values() if not machine.ready]} to serve",
        )

    def clients_come(self) -> None:
        world, random = self.world, self.random
        self.admins = [Admin(world, f"admin{number}", random.fork(f"admin {number}")) for number in range(2)]
        for machine in world.brokers:
            self.watchers[machine.id] = Watcher(world, machine.id, random.fork(f"watches {machine.id}"))
        for machine in world.controllers:
            self.asking[machine.id] = QuorumWatcher(world, machine.id, random.fork(f"asks {machine.id}"))
        names = [f"writer{number}" for number in range(self.aim.writers)]
        self.writers = [Writer(world, name, random.fork(name)) for name in names]
        if not world.shape.static and random.chance(self.aim.members):
            self.members = [MemberAdmin(world, random.fork("members"))]

    # -- nothing goes wrong any more

    def _peace(self) -> None:
        world = self.world
        world.note("peace")
        self._mend()
        for machine in world.machines.values():
            machine.down = False
            world.timeline.plan(self.random.between(0.0, 0.2), world.revive, machine)
        # Who votes stands in the logs of all controllers, also of those that are down.
        self.wait(lambda: all(map(world.is_looked_at, world.controllers)), "every controller to know who votes")
        dead = self._minority()
        for machine in dead:
            machine.down = True
            machine.kill()
            world.note("stays dead", machine.id)
        begin, before = world.timeline.now, world.ledger.acknowledged
        self.wait(
            lambda: self._is_fair(dead) and any(one.asked_at > begin for one in self.asking.values()),
            "a leader: there is no leader",
        )
        self.wait(
            lambda: self._is_fair(dead) and world.ledger.acknowledged > before,
            "a change to be acknowledged: no leader",
        )
        self._wait_until_fenced(dead)
        self._bring_back(dead)
        for client in (*self.admins, *self.writers):
            client.stopped = True
        self.wait_until_all_serve()
        self.wait(lambda: not any(one.connection and one.connection.awaited for one in self.admins), "the last answers")

    def _is_fair(self, dead: list[Machine]) -> bool:
        """True, after all. A change of the voters that somebody asked for before may still be written, and those who
        are dead may be too many of these voters: then they come back now."""
        alive = [machine for machine in self.world.controllers if self.world.is_looked_at(machine)]
        if not all(self.world.is_majority_left(self.world.voters_of(machine), dead) for machine in alive):
            self._bring_back(dead)
        return True

    def _bring_back(self, dead: list[Machine]) -> None:
        for machine in dead:
            machine.down = False
            self.world.revive(machine)
        dead.clear()

    def _mend(self) -> None:
        world = self.world
        world.on_leader = None
        world.network.heal_all()
        for member in self.members:
            member.stopped = True
        for machine in world.every:
            machine.disk.capacity = machine.disk.slow = None
            machine.disk.failing_syncs = 0
            if machine.sync_failed:
                machine.kill()
            machine.thaw()
        for old in world.replaced:  # taken for dead, and its successor waits until the id is free: it is found at last
            if old.up and not world.machines[old.id].ready:
                old.lose_power()

    def _minority(self) -> list[Machine]:
        """Voters that stay dead for a while, so few that the rest is a majority whichever set of voters counts; and
        brokers, but for one."""
        world, random = self.world, self.random
        dead: list[Machine] = []
        if random.chance(NO_ONE_DEAD):
            return dead
        for machine in sorted(world.controllers, key=lambda _: random.random_int(0, 1 << 30)):
            if self.can_be_spared([*dead, machine]):
                dead += self._but_for_the_last_broker(dead, machine)
        for machine in world.brokers:
            if not machine.shape.is_controller and random.chance(BROKER_DEAD):
                dead += self._but_for_the_last_broker(dead, machine)
        return dead

    def can_be_spared(self, dead: list[Machine]) -> bool:
        """Whether the rest is a majority whichever set of voters counts: those that are committed, or in a log."""
        world = self.world
        sets = [world.voters(), *(world.voters_of(machine) for machine in world.controllers)]
        return all(world.is_majority_left(voters, dead) for voters in sets)

    def _but_for_the_last_broker(self, dead: list[Machine], machine: Machine) -> list[Machine]:
        alive = [one for one in self.world.brokers if one not in dead and one is not machine]
        return [machine] if alive else []

    def _wait_until_fenced(self, dead: list[Machine]) -> None:
        gone = {machine.id for machine in dead if machine.shape.is_broker}
        alive = [watcher for id, watcher in self.watchers.items() if id not in gone]
        self.wait(
            lambda: all(not gone & watcher.shown_brokers for watcher in alive),
            lambda: f"dead brokers {sorted(gone)} to be fenced: they stay unfenced after their session",
        )

    # -- what else is looked at in peace

    def _stop_the_replaced(self) -> None:
        """A machine whose id another one has by now is stopped in order: nobody else has anything to do with that."""
        world = self.world
        for old in world.replaced:
            if not old.ready:
                continue
            world.note("the one that was replaced is stopped", old.id)
            old.running.stop(lambda old=old: world.note("the one that was replaced has stopped", old.id))

            def is_fenced(id: int = old.id) -> bool:
                return any(one.shown_brokers and id not in one.shown_brokers for one in self.watchers.values())

            if world.run_until(is_fenced, world.timeline.now + WATCHED_S):
                raise Violation(f"broker {old.id} was fenced when its earlier incarnation stopped")

    def _lead_in_turn(self) -> None:
        """Whoever leads is killed, as often as there are voters: nearly all of them lead once, and say who votes."""
        world = self.world
        for _ in range(len(world.voters())):
            leader = world.leader()
            if leader is None or not world.is_majority_left(world.voters(), [leader]):
                return
            leader.down = True
            leader.kill()
            self._account.check_voters()
            leader.down = False
            world.revive(leader)
            self.wait_until_all_serve()

    def _stop_and_start(self) -> None:
        world = self.world
        world.note("all stop")
        for machine in world.machines.values():
            machine.down = True
            if machine.up:
                machine.running.stop(lambda machine=machine: world.note("stopped", machine.id))
        self.wait(lambda: not any(machine.up for machine in world.machines.values()), "all nodes to stop")
        for machine in world.machines.values():
            machine.lose_power()
            machine.down = False
            world.revive(machine)
        self.wait_until_all_serve()
