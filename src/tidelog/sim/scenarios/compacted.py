"""A run with compacted topics: cleanings go on while the broker dies, the disk fills up, and the power goes.

`shore` is compacted; `dune` is compacted and deleted from too (DeleteRecords).
"""

from tidelog.sim.clients.keyed import KeyedProducer, TableReader
from tidelog.sim.clients.watchers import Deleter
from tidelog.sim.scenarios.checkers import History
from tidelog.sim.scenarios.scenario_run import SETTINGS, ScenarioRun
from tidelog.sim.scenarios.table import Table
from tidelog.sim.world.faults import FAULTS
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.world import World
from tidelog.wire.topic_partition import TopicPartition

TOPICS = {"shore": 2, "dune": 1}
COMPACTED_FAULTS = (*FAULTS, ("full", 2.0), ("swap", 8.0))


class CompactedRun(ScenarioRun[World]):
    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = COMPACTED_FAULTS) -> None:
        random = SimRandom(seed).fork("compacted settings")
        settings = {
            "log.cleaner.backoff.ms": str(random.choose((5, 20, 100))),
            "log.cleaner.threads": str(random.choose((1, 1, 2))),
            "log.retention.check.interval.ms": "150",
        }
        super().__init__(World(seed, {**SETTINGS, **settings}, History()), "compacted", faults)
        self._tables: dict[TopicPartition, Table] = {}
        self._producers: list[KeyedProducer] = []

    def begin(self) -> None:
        random = self.random.fork("tables")
        settings: dict[str, dict[str, str]] = {}
        for topic, count in TOPICS.items():
            retention_ms = random.choose((0, 200, 1000, 86_400_000))
            settings[topic] = {
                "cleanup.policy": "compact" if topic == "shore" else "compact,delete",
                "min.cleanable.dirty.ratio": random.choose(("0.0", "0.1", "0.5")),
                "delete.retention.ms": str(retention_ms),
                "min.compaction.lag.ms": random.choose(("0", "0", "100")),
                "internal.segment.bytes": str(random.choose((3_500, 8_000, 20_000))),
                "file.delete.delay.ms": random.choose(("0", "300", "60000")),
            }
            for partition in range(count):
                self._tables[topic, partition] = Table(f"{topic}-{partition}", retention_ms)
        self.make_topics(TOPICS, settings)
        for topic, partition in self._tables:
            for number in range(self.random.random_int(1, 2)):
                self._add_producer(f"key{topic}{partition}{number}", topic, partition)
            self.clients.append(self._reader(topic, partition, once=False))
        self.clients.append(Deleter(self.world, "deletes", self.random.fork("deletes"), "dune", 0))

    def _add_producer(self, name: str, topic: str, partition: int) -> None:
        total, table = self.random.random_int(60, 300), self._tables[topic, partition]
        producer = KeyedProducer(self.world, name, self.random.fork(name), topic, partition, total, table)
        self._producers.append(producer)
        self.clients.append(producer)

    def _reader(self, topic: str, partition: int, *, once: bool) -> TableReader:
        random = self.random.fork(f"{topic}-{partition} at {self.world.timeline.events}")
        table = self._tables[topic, partition]
        return TableReader(self.world, f"reads {topic}-{partition}", random, topic, partition, table, once=once)

    def finish(self) -> None:
        self.wait(lambda: all(producer.done for producer in self._producers), "keyed producers to finish")
        self.rest(self.random.choose((0.1, 1.5)))

    def account(self) -> None:
        for topic, partition in self._tables:
            reader = self._reader(topic, partition, once=True)
            self.wait(lambda reader=reader: reader.done, f"{topic}-{partition} to be read")
            reader.loop.kill()
