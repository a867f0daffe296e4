"""One run of the simulator: topics, clients, faults; then peace, and an account of every record.

At the end the whole log of each partition is read: once as it is, once after a clean stop and a power loss, and in some
runs once more after a bit was flipped in data that was long durable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.sim.actor import Client
from tidelog.sim.checkers import History, Violation, check_numbered
from tidelog.sim.client import ClientConnection
from tidelog.sim.faults import FAULTS, Faults
from tidelog.sim.random import SimRandom
from tidelog.sim.reader import WholeReader
from tidelog.sim.watchers import Consumer, Deleter, OffsetAsker
from tidelog.sim.workloads import IdempotentProducer, PlainProducer
from tidelog.sim.world import DATA, World
from tidelog.wire.batch import ATTRIBUTES_AT, BatchHeader, iterate
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

PEACE_S_MAX = 30.0
TOPICS = {"tide": 2, "ebb": 1, "surf": 1, "foam": 1}
"""Names and partitions. `ebb` gets shorter (DeleteRecords), `surf` counts on the page cache, `foam` is in memory."""
POWERLESS = frozenset(("surf",))
FORGETFUL = frozenset(("foam",))
PLAIN = (("tide", 0, 1), ("ebb", 0, 1), ("tide", 1, 0), ("surf", 0, 1), ("foam", 0, 1))
"""Topic, partition and acks of producers that aren't idempotent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    seed: int
    fingerprint: str
    acknowledged: int
    fetched: int
    virtual_s: float
    events: int
    trace: tuple[str, ...]


class TopicMaker(Client):
    """Creates the topics, again and again until they are there."""

    def __init__(
        self,
        world: World,
        random: SimRandom,
        topics: Mapping[str, int] = TOPICS,
        settings: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.done = False
        self._settings = settings or {}
        self._topics = [self._topic(random, name, count) for name, count in topics.items()]
        super().__init__(world, "admin", random)

    def _topic(self, random: SimRandom, name: str, partitions: int) -> CreatableTopic:
        configs = {
            "internal.segment.bytes": str(random.choose((20_000, 60_000, 1 << 20))),
            "index.interval.bytes": str(random.choose((0, 500, 4096))),
            "message.timestamp.type": random.choose(("CreateTime", "CreateTime", "LogAppendTime")),
            "compression.type": random.choose(("producer", "producer", "producer", "zstd", "uncompressed")),
            "tidelog.durability": "os" if name in POWERLESS else "fsync",
            "tidelog.storage": "memory" if name in FORGETFUL else "disk",
            "tidelog.validate": random.choose(("batch", "batch", "records")),
        }
        configs |= self._settings.get(name, {})
        return CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )

    def connected(self, connection: ClientConnection) -> None:
        connection.ask(CreateTopicsRequest(topics=self._topics), CreateTopicsResponse, 19, 7, self._answered)

    def _answered(self, response: CreateTopicsResponse) -> None:
        codes = {ErrorCode(topic.error_code) for topic in response.topics}
        if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            self.done = True
            return
        if unexpected := codes - {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT}:
            raise Violation(f"CreateTopics answered {sorted(code.name for code in unexpected)}: {response.topics}")
        self.later(self.connected, 0.1)


class Run:
    """The parts of one run, in their order. `faults` are the kinds that may happen."""

    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = FAULTS) -> None:
        self._faults = faults
        settings = {
            "log.dirs": DATA,
            "listeners": "PLAINTEXT://localhost:9092",
            "node.id": "1",
            "log.flush.offset.checkpoint.interval.ms": "300",
            "log.initial.task.delay.ms": "100",
        }
        self.world = World(seed, settings, History(POWERLESS, FORGETFUL))
        self.random = self.world.random.fork("run")
        self.idempotent: list[IdempotentProducer] = []
        self.plain: list[PlainProducer] = []
        self.others: list[Client] = []

    def go(self) -> Outcome:
        world = self.world
        world.start_and_wait()
        self._make_topics()
        self.begin()
        faults = Faults(world, self.random.fork("faults"), self.random.random_int(2, 6), self._faults)
        self._wait(lambda: faults.over, "the faults to be over")
        self._heal()
        world.stop_and_wait()
        world.lose_power()
        world.start_and_wait()
        self._read_all()
        if self.random.chance(0.3):
            self._flip_a_bit()
        return Outcome(
            world.seed,
            world.fingerprint(),
            world.history.acknowledged,
            world.history.fetched,
            world.timeline.now,
            world.timeline.events,
            tuple(world.trace),
        )

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        if not self.world.timeline.run_until(done, self.world.timeline.now + PEACE_S_MAX):
            raise Violation(f"waited {PEACE_S_MAX} s for {what}")

    def _make_topics(self) -> None:
        maker = TopicMaker(self.world, self.random.fork("topics"))
        self._wait(lambda: maker.done, "the topics to be made")
        maker.loop.kill()

    def begin(self) -> None:
        """The topics are there; clients come, and soon the faults."""
        world, random = self.world, self.random
        for number in range(random.random_int(2, 3)):
            name = f"sure{number}"
            total = random.random_int(50, 400)
            topic, partition = random.choose((("tide", 0), ("tide", 1), ("ebb", 0)))
            self.idempotent.append(IdempotentProducer(world, name, random.fork(name), topic, partition, total))
        for number, (topic, partition, acks) in enumerate(PLAIN):
            name = f"plain{number}"
            self.plain.append(PlainProducer(world, name, random.fork(name), topic, partition, acks))
        for topic, count in TOPICS.items():
            for partition in range(count):
                name = f"{topic}-{partition}"
                self.others.append(Consumer(world, f"reads {name}", random.fork(f"c{name}"), topic, partition))
                self.others.append(OffsetAsker(world, f"asks {name}", random.fork(f"o{name}"), topic, partition))

        self.others.append(Deleter(world, "deletes", random.fork("deletes"), "ebb", 0))

    def _heal(self) -> None:
        """Nothing goes wrong any more: every record that was sent must get through, and everything be there."""
        self.world.note("peace")
        for producer in self.plain:
            producer.stopped = True
        self._wait(lambda: all(producer.done for producer in self.idempotent), "idempotent producers to finish")
        self.world.timeline.run_until(lambda: False, self.world.timeline.now + 0.5)
        for client in (*self.idempotent, *self.plain, *self.others):
            client.loop.kill()
        self._read_all()

    def _read_all(self) -> None:
        for topic, count in TOPICS.items():
            for partition in range(count if topic not in FORGETFUL else 0):
                self._check_log(topic, partition, self._read(topic, partition))

    def _read(self, topic: str, partition: int, damaged: BatchHeader | None = None) -> WholeReader:
        random = self.random.fork(f"read {self.world.timeline.events}")
        reader = WholeReader(self.world, f"whole {topic}-{partition}", random, topic, partition, damaged)
        self._wait(lambda: reader.done or reader.refused, f"{topic}-{partition} to be read")
        reader.loop.kill()
        return reader

    def _check_log(self, topic: str, partition: int, reader: WholeReader) -> None:
        where = f"{topic}-{partition}"
        self.world.note(f"{where} holds {len(reader.values)} records")
        self.world.history.check_whole(topic, partition, reader.start, reader.values)
        for producer in self.idempotent:
            if (producer.topic, producer.partition) == (topic, partition):
                check_numbered(where, reader.values, producer.name, once=True, whole=not reader.start)
        for producer in self.plain:
            if (producer.topic, producer.partition) == (topic, partition):
                check_numbered(where, reader.values, producer.name, once=False)

    def _flip_a_bit(self) -> None:
        """In a batch below the recovery point: that batch is told apart from a good one, and nothing else changes."""
        world = self.world
        before = self._read("tide", 0)
        world.stop_and_wait()
        folder = f"{DATA}/tide-0"
        logs = [
            name
            for name in world.disk.list_folder(folder)
            if name.endswith(".log")
            if world.disk.size(f"{folder}/{name}")
        ]
        if not logs:
            world.start_and_wait()
            return
        path = f"{folder}/{self.random.choose(logs)}"
        header = self.random.choose(list(iterate(world.disk.read_whole(path))))
        world.disk.flip_bit(path, header.pos + ATTRIBUTES_AT, header.end)
        world.note(f"a bit is flipped in {path}, in the batch at offset {header.base_offset}")
        if self.random.chance(0.5):
            world.lose_power()
        world.start_and_wait()
        after = self._read("tide", 0, header)
        if after.refused:
            return
        if not after.found_damage:
            raise Violation(f"tide-0 doesn't give the batch at offset {header.base_offset} that was damaged")
        lost = range(header.base_offset, header.next_offset)
        expected = [value for offset, value in enumerate(before.values) if offset not in lost]
        if after.values != expected:
            raise Violation(
                f"tide-0 lost or changed more than the batch at offset {header.base_offset} that was damaged"
            )
