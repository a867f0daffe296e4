"""One run of the simulator for transactions: copies that must be exact, whatever dies, with the power too.

Numbered records go to `source`; copiers copy each of its partitions to `target` and to `audit`, which all share, in
transactions with their offsets. Readers of committed records watch meanwhile. At the end each record of the source is
in both copies exactly once and in order, and what one transaction wrote to both is in both or in neither. Beside them a
driver writes batches of two-phase transactions (two_phase.py): what it decided is there whole, the rest not at all.
"""

from tidelog.sim.clients.committed import CommittedReader
from tidelog.sim.clients.copier import AUDIT, SOURCE, TARGET, Copier
from tidelog.sim.clients.two_phase import BATCHES, PARTS, Driver
from tidelog.sim.clients.two_phase import SETTINGS as TWO_PHASE
from tidelog.sim.clients.workloads import IdempotentProducer
from tidelog.sim.scenarios.checkers import History, Violation
from tidelog.sim.scenarios.scenario_run import SETTINGS, ScenarioRun
from tidelog.sim.world.faults import FAULTS
from tidelog.sim.world.world import World
from tidelog.wire.topic_partition import TopicPartition

TOPICS = {SOURCE: 2, TARGET: 2, AUDIT: 1, BATCHES: PARTS}


class TransactionsRun(ScenarioRun[World]):
    """What is copied, by whom, and who watches."""

    FAULTS_MOST = (3, 8)
    PEACE_S_MAX = 60.0

    def __init__(self, seed: int, faults: tuple[tuple[str, float], ...] = FAULTS) -> None:
        settings = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
        super().__init__(World(seed, {**SETTINGS, **TWO_PHASE, **settings}, History()), "transactions", faults)
        self._sources: list[IdempotentProducer] = []
        self._copiers: list[Copier] = []
        self._readers: list[CommittedReader] = []
        self._driver: Driver | None = None
        self._seen: dict[TopicPartition, list[bytes]] = {}
        self._lives = 0
        self._accounted = False

    def tally(self) -> tuple[int, int]:
        return self.world.history.acknowledged, sum(len(values) for values in self._seen.values())

    def begin(self) -> None:
        self.make_topics(TOPICS)
        world, random = self.world, self.random
        for partition in range(TOPICS[SOURCE]):
            name = f"n{partition}"
            total = random.random_int(30, 150)
            self._sources.append(IdempotentProducer(world, name, random.fork(name), SOURCE, partition, total))
            self._start_copier(partition)
        self._driver = Driver(world, "driver", random.fork("driver"))
        for topic in (TARGET, AUDIT, BATCHES):
            for partition in range(TOPICS[topic]):
                self._watch(topic, partition)
        self._plan_second()

    def _watch(self, topic: str, partition: int) -> CommittedReader:
        saw = self._seen[topic, partition] = []
        name = f"watches {topic}-{partition} from {self.world.timeline.events}"
        reader = CommittedReader(self.world, name, self.random.fork(name), topic, partition, saw.append)
        self._readers.append(reader)
        return reader

    def _start_copier(self, partition: int) -> None:
        self._lives += 1
        name = f"copier{partition}"
        random = self.random.fork(f"{name} {self._lives}")
        self._copiers.append(Copier(self.world, name, random, partition, self._lives))

    def _plan_second(self) -> None:
        """Now and then another copier begins while the one before still lives."""
        if self._lives < 8:
            self.world.timeline.plan(self.random.between(0.3, 3.0), self._second)

    def _second(self) -> None:
        partition = self.random.random_int(0, TOPICS[SOURCE] - 1)
        self.world.note(f"another copier of {partition}")
        for copier in self._copiers:
            if copier.partition == partition:
                copier.fenced = True  # it goes on with what it began, but doesn't begin anew
        self._start_copier(partition)
        self._plan_second()

    def finish(self) -> None:
        """All is copied."""
        self._lives = max(self._lives, 8)
        for partition in range(TOPICS[SOURCE]):
            for copier in self._copiers:
                if copier.partition == partition:
                    copier.fenced = True
            self._start_copier(partition)
        self.wait(lambda: all(producer.done for producer in self._sources), "the source to be full")
        self.wait(self._all_copied, "everything to be copied")
        for copier in self._copiers:
            copier.stopped = True
        driver = self._driver
        assert driver is not None
        before = driver.batches
        self.wait(lambda: driver.batches > before, "a batch to be decided and committed")
        driver.stopping = True
        self.wait(lambda: driver.idle, "the driver to have ended what it decided")
        self.wait(self._all_decided, "what is decided to be read, and the rest to be aborted")
        self.rest(3.0)  # what is open is aborted
        self.clients = [*self._sources, *self._copiers, *self._readers, driver]

    def account(self) -> None:
        if self._accounted:
            self._check_again()
        else:
            self._accounted = True
            self._check()

    def _total(self, partition: int) -> int:
        return self._sources[partition].made

    def _all_copied(self) -> bool:
        return all(
            len(self._seen[TARGET, partition]) >= self._total(partition) for partition in range(TOPICS[SOURCE])
        ) and len(self._seen[AUDIT, 0]) >= sum(map(self._total, range(TOPICS[SOURCE])))

    def _decided(self, partition: int) -> list[bytes]:
        return [] if self._driver is None else self._driver.decided[partition]

    def _all_decided(self) -> bool:
        return all(len(self._seen[BATCHES, part]) >= len(self._decided(part)) for part in range(PARTS))

    def _check_again(self) -> None:
        """After a clean stop and a power loss everything is as it was."""
        before = {place: list(values) for place, values in self._seen.items()}
        self._readers = [self._watch(topic, partition) for topic, partition in list(self._seen)]
        self.wait(lambda: self._all_copied() and self._all_decided(), "everything to be read again")
        for reader in self._readers:
            reader.loop.kill()
        if self._seen != before:
            raise Violation("what was committed is not the same after the power was lost")

    def _check(self) -> None:
        for part in range(PARTS):
            values, wanted = self._seen[BATCHES, part], self._decided(part)
            if values != wanted:
                raise Violation(f"{BATCHES}-{part} holds {_first_difference(values, wanted)} of what was decided")
        audit = self._seen[AUDIT, 0]
        for partition in range(TOPICS[SOURCE]):
            target = self._seen[TARGET, partition]
            wanted = [b"n%d:%d" % (partition, number) for number in range(self._total(partition))]
            for place, values in (
                ("target", target),
                ("audit", [v for v in audit if v.startswith(b"n%d:" % partition)]),
            ):
                copied = [value.split(b"|")[0] for value in values]
                if copied != wanted:
                    raise Violation(f"{place} holds {_first_difference(copied, wanted)} of partition {partition}")
            if target != [value for value in audit if value.startswith(b"n%d:" % partition)]:
                raise Violation(f"a transaction is in one copy of partition {partition} and not in the other")


def _first_difference(values: list[bytes], wanted: list[bytes]) -> str:
    for place, (have, want) in enumerate(zip(values, wanted, strict=False)):
        if have != want:
            return f"{have!r} where {want!r} comes next (place {place})"
    return f"{len(values)} records instead of {len(wanted)}"
