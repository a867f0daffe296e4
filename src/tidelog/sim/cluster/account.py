"""The account at the end of a run, when nothing goes wrong any more: whether all that was acknowledged is there.

All brokers are let in, all nodes come to the same end of the metadata, every broker shows all that was acknowledged and
nothing that was deleted, whoever leads names the voters that are committed, and no record is lost.
"""

from collections.abc import Callable, Mapping

from tidelog.sim.cluster.ledger import KnownTopic
from tidelog.sim.cluster.watchers import PartitionReader, QuorumWatcher, Watcher
from tidelog.sim.cluster.world import ClusterWorld
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom

HEALED_S_MAX = 60.0
"""Within this there is a leader, and whatever else is promised of a cluster in which nothing goes wrong any more."""
SHOWN_S_MAX = 10.0
"""Within this a broker that has come to the end of the metadata shows it."""


class Account:
    """Of one run. `watchers` look at the brokers, by id, and `asking` ask the controllers."""

    def __init__(
        self, world: ClusterWorld, watchers: Mapping[int, Watcher], asking: Mapping[int, QuorumWatcher]
    ) -> None:
        self._world = world
        self._watchers = watchers
        self._asking = asking

    def wait(self, done: Callable[[], bool], what: str | Callable[[], str]) -> None:
        self._world.wait(done, HEALED_S_MAX, what if callable(what) else lambda: what)

    def take(self, random: SimRandom) -> None:
        """Check everything once."""
        self._wait_until_let_in()
        self._wait_for_the_end()
        self._check_topics()
        self._check_settings()
        self.check_voters()
        self._check_strays()
        self._check_records(random)
        self._world.look()

    # -- the metadata

    def _wait_until_let_in(self) -> None:
        every = {machine.id for machine in self._world.brokers}
        self.wait(
            lambda: all(watcher.shown_brokers == every for watcher in self._watchers.values()),
            lambda: (
                "every broker to be let in: "
                + "; ".join(
                    f"node {id} shows {sorted(watcher.shown_brokers)}" for id, watcher in self._watchers.items()
                )
            ),
        )

    def _wait_for_the_end(self) -> None:
        world = self._world
        replicas = {machine.id: world.replica(machine) for machine in world.machines.values()}
        end = max(replica.high_watermark for replica in replicas.values())
        self.wait(
            lambda: all(replica.high_watermark >= end for replica in replicas.values()),
            lambda: (
                f"all nodes to have the metadata up to {end}: they have it up to "
                f"{ ({id: replica.high_watermark for id, replica in replicas.items()}) }"
            ),
        )

    def _check_topics(self) -> None:
        world, since = self._world, self._world.timeline.now

        def check() -> None:
            for watcher in self._watchers.values():
                world.ledger.check_all(f"node {watcher.broker_id}", watcher.shown)

        def is_right() -> bool:
            if not all(watcher.asked_at > since for watcher in self._watchers.values()):
                return False
            try:
                check()
            except Violation:
                return False
            return True

        if not world.run_until(is_right, since + SHOWN_S_MAX):
            check()
            raise Violation(f"waited {SHOWN_S_MAX:g} s for every broker to show its metadata")

    def _check_settings(self) -> None:
        topics = self._that_stay()
        for watcher in self._watchers.values() if topics else ():
            self.wait(lambda watcher=watcher: watcher.ask_settings(topics), "a connection to every broker")
            self.wait(lambda watcher=watcher: bool(watcher.settings), "every broker's settings of topics")
            for topic in topics:
                self._world.ledger.check_value(f"node {watcher.broker_id}", topic, watcher.settings.get(topic.name))

    def check_voters(self) -> None:
        """Whoever leads names the voters that the last committed record names, as soon as no change is under way."""
        world, since = self._world, self._world.timeline.now

        def agree() -> bool:
            newest = max(self._asking.values(), key=lambda one: one.asked_at)
            if newest.newest is None or newest.asked_at < since:
                return False
            told = {(one.replica_id, one.replica_directory_id) for one in newest.newest.current_voters}
            return world.shape.static or told == set(world.voters())

        self.wait(agree, "the leader to name the voters that are committed")

    # -- files and records

    def _that_stay(self) -> list[KnownTopic]:
        return [topic for topic in self._world.ledger.topics.values() if topic.stays]

    def _check_strays(self) -> None:
        """No files of a partition that there is were put aside."""
        for topic in self._that_stay():
            for index, broker_id in topic.brokers.items():
                if self._world.machines[broker_id].has_stray(topic.name, index, topic.id or b""):
                    raise Violation(
                        f"node {broker_id} has put the files of {topic.name}-{index} aside, a partition of the cluster"
                    )

    def _check_records(self, random: SimRandom) -> None:
        """Each that was acknowledged, unless the only disk that had it came back empty."""
        world = self._world
        readers: list[tuple[PartitionReader, str, int]] = []
        for topic in self._that_stay():
            name = (topic.id or b"").hex()
            for index in range(topic.partitions):
                lost = (topic.id, index) in world.ledger.lost_directories
                if not lost and world.history.of(name, index).values:
                    reader = PartitionReader(world, f"reads {topic.name}-{index}", random.fork(name), topic, index)
                    readers.append((reader, name, index))
        self.wait(
            lambda: all(reader.done for reader, _, _ in readers),
            lambda: (
                "records to be read: "
                + ", ".join(f"{reader.topic}-{reader.partition}" for reader, _, _ in readers if not reader.done)
            ),
        )
        for reader, name, index in readers:
            reader.loop.kill()
            world.history.check_whole(name, index, reader.start, reader.values)
