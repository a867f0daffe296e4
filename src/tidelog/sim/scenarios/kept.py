"""A run with records that are let go: by age (`brook`), size (`pond`), DeleteRecords (`lake`), from memory (`mist`).

`lake` counts on the page cache. To `bursts` transactions and idempotent batches are written, with pauses in which all
of it gets too old. Consumers with fetch sessions follow all of them, named.
"""

from tidelog.sim.clients.bursts import Burst, CommittedWatcher, StableEnd
from tidelog.sim.clients.reader import WholeReader
from tidelog.sim.clients.sessions import Followed, SessionConsumer
from tidelog.sim.clients.watchers import Consumer, Deleter, OffsetAsker, StartAsker
from tidelog.sim.clients.workloads import IdempotentProducer, PlainProducer
from tidelog.sim.scenarios.checkers import History, Violation
from tidelog.sim.scenarios.scenario_run import SETTINGS, ScenarioRun
from tidelog.sim.scenarios.topics import TopicSetter
from tidelog.sim.world.faults import FAULTS
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.world import World

TOPICS = {"brook": 1, "pond": 2, "lake": 1, "mist": 1, "bursts": 2}
KEPT_FAULTS = (*FAULTS, ("retention", 4.0), ("retention bursts", 16.0))
POND_BYTES = 80_000
SLACK_BYTES = 40_000
"""What may have been in the log when its beginning went, and was cut off since: never acknowledged."""
MIST_BYTES = 300_000
MANY = 100_000
"""More records than are made in any run."""


class KeptRun(ScenarioRun[World]):
    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = KEPT_FAULTS) -> None:
        random = SimRandom(seed).fork("kept settings")
        self._brook_ms = random.choose((300, 1000, 3000))
        self._bursts_ms = random.choose((100, 300, 600))
        retained = {"brook": self._brook_ms, "pond": -1, "bursts": self._bursts_ms}
        history = History(frozenset(("lake",)), frozenset(("mist",)), retained)
        settings = {
            "log.retention.check.interval.ms": str(random.choose((20, 100, 300))),
            "transaction.state.log.num.partitions": "2",
        }
        super().__init__(World(seed, {**SETTINGS, **settings}, history), "kept", faults)
        self._idempotent: list[IdempotentProducer] = []
        self._plain: list[PlainProducer] = []
        self._sessions: list[SessionConsumer] = []
        self._bursts: list[Burst] = []

    def begin(self) -> None:
        random = self.random.fork("segments")
        small = {"file.delete.delay.ms": random.choose(("0", "200", "60000"))}
        self.make_topics(
            TOPICS,
            {
                "brook": {**small, "internal.segment.bytes": "16000", "retention.ms": str(self._brook_ms)},
                "pond": {**small, "internal.segment.bytes": "20000", "retention.bytes": str(POND_BYTES)},
                "lake": {**small, "internal.segment.bytes": "20000", "tidelog.durability": "os"},
                "bursts": {**small, "internal.segment.bytes": "16000", "retention.ms": str(self._bursts_ms)},
                "mist": {"tidelog.storage": "memory", "retention.bytes": str(MIST_BYTES)},
            },
        )
        self._send_producers()
        self._send_bursts()
        for topic in ("brook", "pond", "bursts"):
            for partition in range(TOPICS[topic]):
                name = f"asks where {topic}-{partition} starts"
                self.clients.append(StartAsker(self.world, name, self.random.fork(name), topic, partition))
        for topic, count in TOPICS.items():
            for partition in range(count):
                self._watch(topic, partition)
        for topic in ("lake", "mist"):
            self.clients.append(Deleter(self.world, f"deletes {topic}", self.random.fork(f"d{topic}"), topic, 0))
        for number, version in enumerate((7, 11, 12)):
            name = f"session{number}"
            followed = [Followed(topic, index) for topic, count in TOPICS.items() for index in range(count)]
            self._sessions.append(SessionConsumer(self.world, name, self.random.fork(name), followed, version))
        self.clients += self._sessions

    def _send_producers(self) -> None:
        for topic, partition in (("brook", 0), ("pond", 0), ("pond", 1)):
            name = f"sure{topic}{partition}"
            total = self.random.random_int(100, 400)
            random = self.random.fork(name)
            self._idempotent.append(IdempotentProducer(self.world, name, random, topic, partition, total))
        for topic, acks in (("brook", 1), ("pond", 0), ("lake", 1), ("mist", 1)):
            name = f"plain{topic}"
            self._plain.append(PlainProducer(self.world, name, self.random.fork(name), topic, 0, acks))
        self.clients += (*self._idempotent, *self._plain)

    def _send_bursts(self) -> None:
        pause_s = 3 * self._bursts_ms / 1000
        aborted = set[bytes]()
        for partition in range(TOPICS["bursts"]):
            name = f"rests{partition}"
            random = self.random.fork(name)
            resting = IdempotentProducer(self.world, name, random, "bursts", partition, MANY, pause_s)
            self._idempotent.append(resting)
            name = f"watches bursts-{partition}"
            random = self.random.fork(name)
            self.clients += (resting, CommittedWatcher(self.world, name, random, "bursts", partition, aborted))
        for number in range(2):
            name = f"burst{number}"
            random = self.random.fork(name)
            places = [("bursts", 0), ("bursts", 1), ("bursts", number), ("mist", 0)]
            self._bursts.append(Burst(self.world, name, random, places, pause_s, aborted))
        self.clients += self._bursts

    def _watch(self, topic: str, partition: int) -> None:
        name = f"{topic}-{partition}"
        self.clients.append(Consumer(self.world, f"reads {name}", self.random.fork(f"c{name}"), topic, partition))
        if topic not in ("brook", "pond", "bursts"):
            self.clients.append(OffsetAsker(self.world, f"asks {name}", self.random.fork(f"o{name}"), topic, partition))

    def finish(self) -> None:
        """Everyone is done, and whoever has a session has seen the ends. What hangs would stand in the way by then."""
        self._keep_bursts()
        for producer in (*self._plain, *self._bursts):
            producer.stopped = True
        for producer in self._idempotent:
            if producer.topic == "bursts":
                producer.enough()
        self.wait(lambda: all(producer.done for producer in self._idempotent), "idempotent producers to finish")
        self.wait(lambda: all(burst.done for burst in self._bursts), "transactions to end")
        self._stable("while the broker lives")
        self.rest(0.5)
        history = self.world.history
        ends = {place: history.of(*place).end for place in history.partitions()}
        self.wait(lambda: all(each.caught_up(ends) for each in self._sessions), "fetch sessions to see it all")

    def _keep_bursts(self) -> None:
        """From now on nothing goes any more, and something is written: retention would take what hangs out of sight."""
        keeping = TopicSetter(self.world, self.random.fork("keep"), "bursts", "retention.ms", "-1")
        self.wait(lambda: keeping.done, "bursts to be kept")
        keeping.loop.kill()
        self.rest(6 * self._bursts_ms / 1000)

    def _stable(self, when: str) -> None:
        """No transaction hangs: all have ended."""
        names = [f"end of bursts-{partition} {when}" for partition in range(TOPICS["bursts"])]
        ends = [
            StableEnd(self.world, name, self.random.fork(name), "bursts", index) for index, name in enumerate(names)
        ]
        self.wait(lambda: all(end.reached for end in ends), "the last stable offset to come to the end")
        for end in ends:
            end.loop.kill()

    def afterwards(self) -> None:
        self._stable("after the power was lost")

    def account(self) -> None:
        for topic, count in TOPICS.items():
            for partition in range(count if topic != "mist" else 0):
                reader = self._read(topic, partition)
                self.world.history.check_whole(topic, partition, reader.start, reader.values)
                where = f"{topic}-{partition}"
                self.world.note(f"{where} holds {len(reader.values)} records from {reader.start} on")
                if topic == "pond" and reader.start and reader.bytes < POND_BYTES - SLACK_BYTES:
                    raise Violation(f"{where} was let go of down to {reader.bytes} bytes; {POND_BYTES} are kept")

    def _read(self, topic: str, partition: int) -> WholeReader:
        random = self.random.fork(f"read {self.world.timeline.events}")
        reader = WholeReader(self.world, f"whole {topic}-{partition}", random, topic, partition)
        self.wait(lambda: reader.done, f"{topic}-{partition} to be read")
        reader.loop.kill()
        return reader
