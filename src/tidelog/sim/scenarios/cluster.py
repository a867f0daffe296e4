"""A run of a cluster whose topics are replicated: producers, transactions, consumers, and faults of brokers that lead.

It is a run of `quorum` with data in it (`replicated/`): after the faults, in some runs after one broker was dead for a
while, and in some after all lost power at once, every record that was acknowledged is accounted for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.sim.cluster.admins import Admin
from tidelog.sim.cluster.shape import BOTH, BROKER, CONTROLLER, Roles
from tidelog.sim.cluster.watchers import QuorumWatcher, Watcher
from tidelog.sim.replicated.account import ReplicaAccount
from tidelog.sim.replicated.aims import replica_aim_of
from tidelog.sim.replicated.bearing import Bearing
from tidelog.sim.replicated.faults import ReplicaFaults
from tidelog.sim.replicated.pacts import PactProducer
from tidelog.sim.replicated.probe import ReplicaProbe
from tidelog.sim.replicated.producers import PlainProducer, SureProducer
from tidelog.sim.replicated.promises import Promises
from tidelog.sim.replicated.readers import Consumer, EndAsker, RecordsDeleter
from tidelog.sim.replicated.topics import EBB, LOOSE, PACT, SURF, TIDE, TOPICS, TopicsMaker
from tidelog.sim.scenarios.quorum import QuorumRun

if TYPE_CHECKING:
    from tidelog.sim.cluster.aims import Aim
    from tidelog.sim.cluster.faults import ClusterFaults
    from tidelog.sim.replicated.roaming import RoamingClient
    from tidelog.sim.scenarios.scenario_run import Outcome
    from tidelog.sim.world.random import SimRandom
    from tidelog.wire.topic_partition import TopicPartition

APART: Roles = (((CONTROLLER, CONTROLLER, CONTROLLER, BROKER, BROKER, BROKER), 1.0),)
SHAPES: tuple[Roles, Roles] = (
    (
        ((BOTH, BOTH, BOTH), 4.0),
        ((BOTH, BOTH, BOTH, BROKER), 3.0),
        *APART,
    ),
    (((BOTH, BOTH, BOTH, CONTROLLER, CONTROLLER), 1.0),),
)
"""Three brokers at least."""
PLAIN: tuple[tuple[TopicPartition, int], ...] = (
    (("tide", 0), 1),
    (("tide", 1), -1),
    (("ebb", 0), -1),
    (("loose", 0), -1),
    (("surf", 0), -1),
)
"""Partition and acks of producers that aren't idempotent."""
SURE: tuple[TopicPartition, ...] = (("tide", 0), ("tide", 1), ("ebb", 0), ("loose", 0))

ONE_DEAD = 0.5
"""In so many runs one broker is dead for a while when the faults are over."""
BLACKOUT = 0.3
"""In so many runs all lose power at the end, and everything is accounted for once more."""


class ClusterRun(QuorumRun):
    """One run from one seed."""

    NAME = "cluster"

    def __init__(self, seed: int, aim: str | None = None, *, breaks: bool = False) -> None:
        super().__init__(seed, aim, breaks=breaks)
        world = self.world
        self.promises = Promises()
        self.sure: list[SureProducer] = []
        self.plain: list[PlainProducer] = []
        self.pacts: list[PactProducer] = []
        self.readers: list[RoamingClient] = []
        self._accounted = False
        self._topics = (*TOPICS, SURF) if self.random.chance(self.aim.powerless) else TOPICS
        self._bearing = Bearing(world, self.promises, self._topics)
        self._data = ReplicaAccount(world, self.wait, self.promises, self._bearing, self._topics)
        for machine in world.brokers:
            machine.on_lost_cache = self._bearing.forgot

    def find_aim(self, name: str | None) -> Aim:
        return replica_aim_of(name)

    @property
    def shapes(self) -> tuple[Roles, Roles]:
        return (APART, APART) if self.aim.apart else SHAPES

    def settings(self, random: SimRandom) -> dict[str, str]:
        return {
            "leader.imbalance.check.interval.seconds": random.choose(("2", "300")),
            "log.flush.offset.checkpoint.interval.ms": random.choose(("300", "60000")),
            "min.insync.replicas": "2",
            "log.retention.check.interval.ms": "300",
            "offsets.topic.num.partitions": "1",
            "replica.fetch.backoff.ms": random.choose(("50", "300")),
            "replica.fetch.wait.max.ms": random.choose(("100", "500")),
            "replica.high.watermark.checkpoint.interval.ms": random.choose(("200", "5000")),
            "replica.lag.time.max.ms": random.choose(("700", "1500", "4000")),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "transaction.state.log.num.partitions": "2",
        }

    def make_faults(self, until: float) -> ClusterFaults:
        moved = (TIDE, EBB, LOOSE, PACT)
        weights = dict(self.aim.faults)
        if SURF in self._topics:
            weights["wipe"] = 0.0
        return ReplicaFaults(self.world, self.random.fork("faults"), until, weights, self._bearing, moved)

    def clients_come(self) -> None:
        world, random = self.world, self.random
        maker = TopicsMaker(world, random.fork("topics"), self._topics)
        self.wait(lambda: maker.done, "the topics to be made")
        maker.loop.kill()
        self._note_topics()
        ReplicaProbe(world, self.promises, [topic.name for topic in self._topics])
        self.admins = [Admin(world, "admin", random.fork("admin"), replicas=3)]
        for machine in world.brokers:
            self.watchers[machine.id] = Watcher(world, machine.id, random.fork(f"watches {machine.id}"))
        for machine in world.controllers:
            self.asking[machine.id] = QuorumWatcher(world, machine.id, random.fork(f"asks {machine.id}"))
        self._producers_come(random)
        self._readers_come(random)

    def _note_topics(self) -> None:
        """Watchers look whether they are there, too."""
        image = self._bearing.image()
        assert image is not None
        for topic in self._topics:
            self.world.ledger.created(
                self.world.ledger.asked(topic.name, topic.partitions), image.topics[topic.name].id
            )

    def _producers_come(self, random: SimRandom) -> None:
        world = self.world
        for number, place in enumerate(SURE):
            name = f"sure{number}"
            self.sure.append(SureProducer(world, name, random.fork(name), self.promises, place))
        for number, (place, acks) in enumerate(PLAIN):
            name = f"plain{number}"
            if any(place in topic.places for topic in self._topics):
                self.plain.append(PlainProducer(world, name, random.fork(name), self.promises, place, acks))

    def _readers_come(self, random: SimRandom) -> None:
        world, promises, may_show = self.world, self.promises, set[bytes]()
        for number in range(2):
            name = f"pact{number}"
            producer = PactProducer(world, name, random.fork(name), PACT.places, may_show, second=bool(number))
            self.pacts.append(producer)
        for topic in self._topics:
            for place in topic.places:
                name, shown = f"{place[0]}-{place[1]}", may_show if topic is PACT else None
                fork = random.fork(f"reads {name}")
                self.readers.append(
                    Consumer(world, f"reads {name}", fork, promises, place, shown, records_go=topic.records_go)
                )
        for place in (("tide", 0), ("loose", 0), ("pact", 0)):
            name = f"asks {place[0]}-{place[1]}"
            self.readers.append(EndAsker(world, name, random.fork(name), promises, place))
        self.readers.append(RecordsDeleter(world, "deletes", random.fork("deletes"), promises, EBB.places[0]))

    # -- nothing goes wrong any more

    def account(self, random: SimRandom) -> None:
        super().account(random)
        if not self._accounted:
            self._accounted = True
            if self.random.chance(ONE_DEAD):
                self._live_with_one_dead()
            self._stop_clients()
            self._take(random)
            if not self.random.chance(BLACKOUT):
                return
            self._lose_all_power()
        self._take(random.fork("again"))

    def _live_with_one_dead(self) -> None:
        """Any broker may die, with its disk: producers go on by themselves, and nothing of it is needed."""
        world = self.world
        self._data.wait_until_whole()
        spare = [one for one in world.brokers if not one.shape.is_controller or self.can_be_spared([one])]
        if not spare:
            return
        machine = self.random.choose(spare)
        before = [producer.acknowledged for producer in self.sure]
        machine.down = True
        if self.random.chance(0.5):
            machine.kill()
        else:
            machine.lose_power()
        world.note("stays dead for a while", machine.id)
        self.wait(
            lambda: all(one.acknowledged > count for one, count in zip(self.sure, before, strict=True)),
            lambda: f"producers to go on while broker {machine.id} is dead",
        )
        if not machine.shape.is_controller and self._bearing.may_be_emptied(machine):
            self._bearing.emptied(machine)
            machine.wipe(machine.folders)
        machine.down = False
        world.revive(machine)
        self.wait_until_all_serve()

    def _lose_all_power(self) -> None:
        world = self.world
        for machine in world.machines.values():
            machine.lose_power()
        world.struck("all lose power")
        for machine in world.machines.values():
            world.revive(machine)
        self.wait_until_all_serve()

    def _stop_clients(self) -> None:
        world = self.world
        for client in (*self.sure, *self.plain, *self.pacts, *self.readers):
            client.stopped = True
        self.wait(
            lambda: all(producer.done for producer in self.sure),
            lambda: f"{', '.join(one.name for one in self.sure if not one.done)} to have all acknowledged",
        )
        self.wait(
            lambda: all(producer.done for producer in self.pacts),
            lambda: f"{', '.join(one.name for one in self.pacts if not one.done)} to end their transactions",
        )
        world.run_until(lambda: False, world.timeline.now + 0.5)

    def _take(self, random: SimRandom) -> None:
        self._data.take(random.fork("data"), self.sure, self.plain, self.pacts)

    def outcome(self) -> Outcome:
        made = super().outcome()
        return replace(
            made,
            acknowledged=made.acknowledged + self.promises.acknowledged,
            fetched=made.fetched + self.promises.fetched,
        )
