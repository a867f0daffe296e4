"""One run of the simulator for groups: members of both protocols come, go and die, and so does the broker.

Meanwhile somebody looks at the offsets. In the end everybody settles down, the power goes once more, and no committed
offset has gone back.
"""

from collections.abc import Callable

from tidelog.sim.checkers import History, Violation
from tidelog.sim.faults import FAULTS, Faults
from tidelog.sim.group_clients import PARTITIONS, TOPIC, GroupMember, OffsetWatcher
from tidelog.sim.group_history import GroupHistory
from tidelog.sim.group_members import ClassicMember, ConsumerMember
from tidelog.sim.scenario import Outcome, TopicMaker
from tidelog.sim.world import DATA, World

PEACE_S_MAX = 60.0
GROUPS: dict[str, type[ClassicMember] | type[ConsumerMember]] = {"classic": ClassicMember, "modern": ConsumerMember}
MEMBERS_MAX = 4
CHANGES_MAX = 12


class GroupsWorld(World):
    """A world that remembers what groups were told."""

    groups: GroupHistory


class GroupsRun:
    """The parts of one run, in their order."""

    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = FAULTS) -> None:
        self._faults = faults
        settings = {
            "log.dirs": DATA,
            "listeners": "PLAINTEXT://localhost:9092",
            "node.id": "1",
            "log.flush.offset.checkpoint.interval.ms": "300",
            "log.initial.task.delay.ms": "100",
            "offsets.topic.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "100",
            "group.consumer.min.session.timeout.ms": "100",
            "group.consumer.min.heartbeat.interval.ms": "10",
            "group.consumer.heartbeat.interval.ms": "100",
            "group.consumer.session.timeout.ms": "3000",
        }
        self.world = GroupsWorld(seed, settings, History())
        self.world.groups = GroupHistory()
        self.random = self.world.random.fork("groups")
        self._members: dict[str, list[GroupMember]] = {group: [] for group in GROUPS}
        self._watchers: list[OffsetWatcher] = []
        self._born = 0
        self._changes = 0

    def go(self) -> Outcome:
        world = self.world
        world.start_and_wait()
        maker = TopicMaker(world, self.random.fork("topics"), {TOPIC: PARTITIONS})
        self._wait(lambda: maker.done, "the topic to be made")
        maker.loop.kill()
        self._begin()
        faults = Faults(world, self.random.fork("faults"), self.random.random_int(3, 8), self._faults)
        self._wait(lambda: faults.over, "the faults to be over")
        self._heal()
        world.stop_and_wait()
        world.lose_power()
        world.start_and_wait()
        self._look_at_the_end()
        groups = world.groups
        return Outcome(
            world.seed,
            world.fingerprint(),
            groups.commits,
            groups.handovers,
            world.timeline.now,
            world.timeline.events,
            tuple(world.trace),
        )

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        if not self.world.timeline.run_until(done, self.world.timeline.now + PEACE_S_MAX):
            raise Violation(f"waited {PEACE_S_MAX} s for {what}")

    def _begin(self) -> None:
        for group in GROUPS:
            for _ in range(self.random.random_int(1, 3)):
                self._come(group)
            name = f"watches {group}"
            self._watchers.append(OffsetWatcher(self.world, name, self.random.fork(name), group))
        self._plan_change()

    def _come(self, group: str) -> None:
        self._born += 1
        name = f"{group} {self._born}"
        self.world.note(f"{name} comes")
        self._members[group].append(GROUPS[group](self.world, name, self.random.fork(name), group))

    def _plan_change(self) -> None:
        self._changes += 1
        if self._changes <= CHANGES_MAX:
            self.world.timeline.plan(self.random.between(0.1, 1.0), self._change)

    def _change(self) -> None:
        """Somebody comes, leaves, or dies."""
        group = self.random.choose(tuple(GROUPS))
        there = [member for member in self._members[group] if not member.leaving]
        if len(there) < 2 or (len(there) < MEMBERS_MAX and self.random.chance(0.5)):
            self._come(group)
        else:
            gone = self.random.choose(there)
            if self.random.chance(0.5):
                self.world.note(f"{gone.name} leaves")
                gone.leaving = True
            else:
                self.world.note(f"{gone.name} dies")
                gone.die()
                self._members[group].remove(gone)
        self._plan_change()

    def _heal(self) -> None:
        """Nothing goes wrong any more: the groups settle, and commits go through."""
        self.world.note("peace")
        self._changes = CHANGES_MAX + 1
        self._wait(lambda: all(self._is_settled(group) for group in GROUPS), "the groups to settle")
        goals = self.world.groups.commits + 10
        self._wait(lambda: self.world.groups.commits >= goals, "ten more commits")
        for client in (*(member for members in self._members.values() for member in members), *self._watchers):
            client.loop.kill()
        self._look_at_the_end()

    def _is_settled(self, group: str) -> bool:
        there = [member for member in self._members[group] if not member.leaving]
        shares = [len(member.owned) for member in there]
        return sum(shares) == PARTITIONS and self.world.groups.owned(group, PARTITIONS) == PARTITIONS

    def _look_at_the_end(self) -> None:
        for group in GROUPS:
            name = f"looks at {group} at {self.world.timeline.events}"
            watcher = OffsetWatcher(self.world, name, self.random.fork(name), group, final=True)
            self._wait(lambda watcher=watcher: watcher.done, f"the offsets of {group}")
            watcher.loop.kill()
