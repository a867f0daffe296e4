"""A run with a topic that is deleted and made again, and again: no life of it has another's records or offsets.

Consumers follow the topic by id in fetch sessions; producers write to its id; others read and delete by its name.
"""

from collections.abc import Mapping

from tidelog.sim.clients.actor import Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.reader import WholeReader
from tidelog.sim.clients.sessions import Followed, SessionConsumer
from tidelog.sim.scenarios.checkers import History, Violation, check_numbered
from tidelog.sim.scenarios.incarnations import NAME, PARTITIONS, IdProducer, Life, NameConsumer, Recreator
from tidelog.sim.scenarios.scenario_run import SETTINGS, ScenarioRun
from tidelog.sim.world.faults import FAULTS
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.world import World
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

GRACE_S = 1.0
"""A request whose connection was lost is carried out until then, or never."""


class NameDeleter(Client):
    """Deletes records by the topic's name, and has the topic stay until it knows what became of that."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: Recreator) -> None:
        self._topic = topic
        self._holding = False
        self.stopped = False
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        self.later(self._ask, self.random.between(0.1, 0.8))

    def _ask(self, connection: ClientConnection) -> None:
        life = self._topic.life
        if life is None or life.leaving or self.stopped:
            self.later(self._ask, 0.05)
            return
        known = self.world.history.of(life.name, 0)
        offset = self.random.random_int(min(known.start, known.end), known.end)
        known.start_max = max(known.start_max, offset)
        self._holding = True
        self._topic.held += 1
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name=NAME, partitions=[asked])]

        def answered(response: DeleteRecordsResponse) -> None:
            answer = response.topics[0].partitions[0]
            self.world.note(f"{self.name} {life.name} below {offset}: {answer.error_code} {answer.low_watermark}")
            self._release()
            if not answer.error_code and not (self.outdated and life.name in self.world.history.powerless):
                self.world.history.saw_deleted(life.name, 0, answer.low_watermark, offset)
            self.later(self._ask, self.random.between(0.1, 0.8))

        connection.ask(DeleteRecordsRequest(topics=topics, timeout_ms=3000), DeleteRecordsResponse, 21, 2, answered)

    def lost(self) -> None:
        if self._holding:
            self._holding = False
            self.loop.call_later(GRACE_S, self._let_go)

    def _release(self) -> None:
        self._holding = False
        self._let_go()

    def _let_go(self) -> None:
        self._topic.held -= 1


class AgainRun(ScenarioRun[World]):
    MORE_SETTINGS: Mapping[str, str] = {}

    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = FAULTS) -> None:
        random = SimRandom(seed).fork("again settings")
        settings = {  # the metadata is written down again and again, and the log before it goes
            "metadata.log.max.snapshot.interval.ms": str(random.choose((100, 400, 3_600_000))),
            "metadata.log.max.record.bytes.between.snapshots": str(random.choose((300, 2000, 20_000_000))),
            "metadata.max.retention.bytes": str(random.choose((1000, 5000, 100_000_000))),
        }
        super().__init__(World(seed, {**SETTINGS, **settings, **self.MORE_SETTINGS}, History()), "again", faults)
        self._topic: Recreator
        self._deleter: NameDeleter
        self._producers: list[IdProducer] = []
        self._sessions: list[SessionConsumer] = []

    def begin(self) -> None:
        self._topic = Recreator(self.world, self.random.fork("recreates"))
        self.wait(lambda: self._topic.life is not None, "the topic to be made")
        for partition in range(PARTITIONS):
            name = f"p{partition}"
            random = self.random.fork(name)
            self._producers.append(IdProducer(self.world, name, random, self._topic, partition))
            self.clients.append(
                NameConsumer(self.world, f"reads {partition}", random.fork("reads"), self._topic, partition)
            )
        self._deleter = NameDeleter(self.world, "deletes", self.random.fork("deletes"), self._topic)
        self.clients.append(self._deleter)
        for number in range(2):
            name = f"session{number}"
            random = self.random.fork(name)
            version = random.choose((13, 16, 17))
            self._sessions.append(SessionConsumer(self.world, name, random, [], version, self._gone))
        self.clients += (self._topic, *self._producers, *self._sessions)
        self._follow()

    def _follow(self) -> None:
        """Have the sessions follow the present life; old ones are left to find out."""
        life = self._topic.life
        if life is not None:
            for session in self._sessions:
                for partition in range(PARTITIONS):
                    if (life.name, partition) not in session.followed:
                        session.follow(Followed(life.name, partition, life.id))
        self.world.timeline.plan(0.05, self._follow)

    def _gone(self, followed: Followed) -> None:
        life = next(life for life in self._topic.lives if life.id == followed.topic_id)
        if not life.leaving:
            raise Violation(f"{life.name}-{followed.partition} is not known, though nobody deleted it")
        for session in self._sessions:
            if session.followed.get((followed.topic, followed.partition)) is followed:
                session.drop(followed)

    def finish(self) -> None:
        self._topic.stopped = self._deleter.stopped = True
        self.wait(self._is_settled, "the topic to be there to stay")
        self.rest(0.5)
        for producer in self._producers:
            producer.stopped = True
        self.wait(lambda: all(producer.idle for producer in self._producers), "producers to be answered")
        self.wait(lambda: not self._topic.held, "deletions to be answered")
        life = self._present()
        ends = {(life.name, index): self.world.history.of(life.name, index).end for index in range(PARTITIONS)}
        self.wait(lambda: all(each.caught_up(ends) for each in self._sessions), "fetch sessions to see it all")

    def _is_settled(self) -> bool:
        life = self._topic.life
        return life is not None and not life.leaving

    def _present(self) -> Life:
        assert self._topic.life is not None
        return self._topic.life

    def account(self) -> None:
        """By name: the whole log is that of the last life, known by its id."""
        life, history = self._present(), self.world.history
        for partition in range(PARTITIONS):
            random = self.random.fork(f"read {self.world.timeline.events}")
            reader = WholeReader(self.world, f"whole {partition}", random, NAME, partition, known_as=life.name)
            self.wait(lambda reader=reader: reader.done, f"{NAME}-{partition} to be read")
            reader.loop.kill()
            history.check_whole(life.name, partition, reader.start, reader.values)
            for producer in self._producers:
                if producer.partition == partition and life.name not in history.powerless:
                    check_numbered(life.name, reader.values, producer.label(life), once=True, whole=not reader.start)
            self.world.note(f"{NAME}-{partition} holds {len(reader.values)} records from {reader.start} on")
