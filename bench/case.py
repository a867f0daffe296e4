"""What a benchmark case is, and what it is given."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.brokers import FLOOR, KAFKA, TIDELOG, Broker, Floor, Kafka, Tidelog
from bench.loads import Loads
from bench.programs import BenchError, Programs

Metrics = dict[str, float]
EVERYONE = (FLOOR, TIDELOG, KAFKA)
BOTH = (TIDELOG, KAFKA)


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured, on each of `brokers`; the medians of its rounds are what counts.

    `rounds` is for cases that take long; others take the number that was asked for, after one round that warms.
    """

    name: str
    title: str
    run: Callable[["Bench", str], Metrics]
    """Given the broker's name; measures one round."""
    brokers: tuple[str, ...] = EVERYONE
    rounds: int | None = None
    warm: bool = True


@dataclass(slots=True)
class Bench:
    """The brokers that live through the whole run, the load, and a way to make further brokers.

    Long-lived ones are started when first needed; a case that starts, stops or kills makes its own.
    """

    programs: Programs
    work: Path
    jars: Path | None
    scale: float = 1.0
    """Below 1 where a quick look is enough: fewer messages, shorter runs."""
    kept: dict[str, object] = field(default_factory=dict[str, object])
    """What else lives through the whole run; `ends` are called when it is over."""
    ends: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    _long_lived: dict[str, Broker] = field(default_factory=dict)
    _made: list[Broker] = field(default_factory=list)

    @property
    def loads(self) -> Loads:
        return Loads(self.programs, self.work)

    def count(self, count: int) -> int:
        return max(64, int(count * self.scale))

    def make(self, name: str) -> Broker:
        """A new broker on an empty folder; not started."""
        folder = self.work / f"{name}-{len(self._made)}"
        if name == FLOOR:
            broker: Broker = Floor(folder, self.programs)
        elif name == TIDELOG:
            broker = Tidelog(folder)
        elif self.jars is not None:
            broker = Kafka(folder, self.jars)
        else:
            raise BenchError("Apache Kafka's jars aren't there")
        self._made.append(broker)
        return broker

    def long_lived(self, name: str, special: type[Tidelog] | None = None) -> Broker:
        """`special`: one that is started in another way, beside the usual one."""
        key = name if special is None else special.__name__
        known = self._long_lived.get(key)
        if known is None or known.process is None or known.process.poll() is not None:
            broker = self.make(name) if special is None else special(self.work / f"{key}-{len(self._made)}")
            if special is not None:
                self._made.append(broker)
            broker.start()
            self._long_lived[key] = broker
            if name != FLOOR:
                warm(self, broker)
        return self._long_lived[key]

    def end(self) -> None:
        for end in self.ends:
            end()
        for broker in self._made:
            broker.remove()


def warm(bench: Bench, broker: Broker) -> None:
    """Some seconds of load, so that a JVM has compiled what is measured later."""
    for size, count in ((1000, 400_000), (100, 2_000_000)):
        with broker.topic(8) as topic:
            total = bench.count(count)
            bench.loads.rdkafka("produce", broker, topic, partitions=8, size=size, count=total)
            bench.loads.rdkafka("consume", broker, topic, partitions=8, count=total)
