"""One run of the simulator for groups: members of both protocols come, go and die, and so does the broker.

Meanwhile somebody looks at the offsets. In the end everybody settles down, the power goes once more, and no committed
offset has gone back.
"""

from tidelog.sim.clients.group_clients import PARTITIONS, TOPIC, GroupMember, OffsetWatcher
from tidelog.sim.clients.group_members import ClassicMember, ConsumerMember
from tidelog.sim.scenarios.checkers import History
from tidelog.sim.scenarios.group_history import GroupHistory
from tidelog.sim.scenarios.scenario_run import SETTINGS, ScenarioRun
from tidelog.sim.world.faults import FAULTS
from tidelog.sim.world.world import World

GROUPS: dict[str, type[ClassicMember] | type[ConsumerMember]] = {"classic": ClassicMember, "modern": ConsumerMember}
MEMBERS_MAX = 4
CHANGES_MAX = 12


class GroupsWorld(World):
    """A world that remembers what groups were told."""

    groups: GroupHistory


class GroupsRun(ScenarioRun[GroupsWorld]):
    """Who belongs to which group, and who looks at their offsets."""

    FAULTS_MOST = (3, 8)
    PEACE_S_MAX = 60.0

    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = FAULTS) -> None:
        settings = {
            "offsets.topic.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "100",
            "group.consumer.min.session.timeout.ms": "100",
            "group.consumer.min.heartbeat.interval.ms": "10",
            "group.consumer.heartbeat.interval.ms": "100",
            "group.consumer.session.timeout.ms": "3000",
        }
        world = GroupsWorld(seed, {**SETTINGS, **settings}, History())
        world.groups = GroupHistory()
        super().__init__(world, "groups", faults)
        self._members: dict[str, list[GroupMember]] = {group: [] for group in GROUPS}
        self._watchers: list[OffsetWatcher] = []
        self._born = 0
        self._changes = 0

    def tally(self) -> tuple[int, int]:
        return self.world.groups.commits, self.world.groups.handovers

    def begin(self) -> None:
        self.make_topics({TOPIC: PARTITIONS})
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

    def finish(self) -> None:
        """The groups settle, and commits go through."""
        self._changes = CHANGES_MAX + 1
        self.wait(lambda: all(self._is_settled(group) for group in GROUPS), "the groups to settle")
        goals = self.world.groups.commits + 10
        self.wait(lambda: self.world.groups.commits >= goals, "ten more commits")
        self.clients = [*(member for members in self._members.values() for member in members), *self._watchers]

    def _is_settled(self, group: str) -> bool:
        there = [member for member in self._members[group] if not member.leaving]
        shares = [len(member.owned) for member in there]
        return sum(shares) == PARTITIONS and self.world.groups.owned(group, PARTITIONS) == PARTITIONS

    def account(self) -> None:
        for group in GROUPS:
            name = f"looks at {group} at {self.world.timeline.events}"
            watcher = OffsetWatcher(self.world, name, self.random.fork(name), group, final=True)
            self.wait(lambda watcher=watcher: watcher.done, f"the offsets of {group}")
            watcher.loop.kill()
