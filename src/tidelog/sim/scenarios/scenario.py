"""One run of the simulator: topics, clients, faults; then peace, and an account of every record.

At the end the whole log of each partition is read: once as it is, once after a clean stop and a power loss, and in some
runs once more after a bit was flipped in data that was long durable.
"""

from tidelog.sim.clients.reader import WholeReader
from tidelog.sim.clients.watchers import Consumer, Deleter, OffsetAsker
from tidelog.sim.clients.workloads import IdempotentProducer, PlainProducer
from tidelog.sim.scenarios.checkers import History, Violation, check_numbered
from tidelog.sim.scenarios.scenario_run import SETTINGS, ScenarioRun
from tidelog.sim.scenarios.switches import Switcher
from tidelog.sim.scenarios.topics import FORGETFUL, POWERLESS
from tidelog.sim.world.faults import FAULTS
from tidelog.sim.world.world import DATA, World
from tidelog.wire.batch import ATTRIBUTES_AT, BatchHeader, iterate

TOPICS = {"tide": 2, "ebb": 1, "surf": 1, "foam": 1, "swell": 1}
"""Names and partitions. `ebb` gets shorter (DeleteRecords), `surf` counts on the page cache, `foam` is in memory, the
settings of `swell` change."""
PLAIN = (("tide", 0, 1), ("ebb", 0, 1), ("tide", 1, 0), ("surf", 0, 1), ("foam", 0, 1))
"""Topic, partition and acks of producers that aren't idempotent."""


class Run(ScenarioRun[World]):
    """Records of all kinds of producers. `faults` are the kinds that may happen."""

    FAULTS_MOST = (2, 6)

    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = FAULTS) -> None:
        super().__init__(World(seed, SETTINGS, History(POWERLESS, FORGETFUL)), "run", faults)
        self.idempotent: list[IdempotentProducer] = []
        self.plain: list[PlainProducer] = []
        self.switcher: Switcher

    def begin(self) -> None:
        self.make_topics(TOPICS)
        self.clients_come()

    def clients_come(self) -> None:
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
                self.clients.append(Consumer(world, f"reads {name}", random.fork(f"c{name}"), topic, partition))
                self.clients.append(OffsetAsker(world, f"asks {name}", random.fork(f"o{name}"), topic, partition))

        self.clients.append(Deleter(world, "deletes", random.fork("deletes"), "ebb", 0))

        self.switcher = Switcher(world, "switches", random.fork("switches"), "swell", 0)
        self.clients += [*self.idempotent, *self.plain, self.switcher]

    def finish(self) -> None:
        """Every record that was sent must get through."""
        self.switcher.stopped = True
        for producer in self.plain:
            producer.stopped = True
        self.wait(lambda: all(producer.done for producer in self.idempotent), "idempotent producers to finish")
        self.rest(0.5)

    def account(self) -> None:
        for topic, count in TOPICS.items():
            for partition in range(count if topic not in FORGETFUL else 0):
                self._check_log(topic, partition, self._read(topic, partition))

    def _read(self, topic: str, partition: int, damaged: BatchHeader | None = None) -> WholeReader:
        random = self.random.fork(f"read {self.world.timeline.events}")
        reader = WholeReader(self.world, f"whole {topic}-{partition}", random, topic, partition, damaged)
        self.wait(lambda: reader.done or reader.refused, f"{topic}-{partition} to be read")
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
                check_numbered(where, reader.values, producer.name, once=False, connections=producer.connections)

    def afterwards(self) -> None:
        if self.random.chance(0.3):
            self._flip_a_bit()

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
