"""What a benchmark case is, and what it is given."""

from collections.abc import Callable, Mapping
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
    kafka_rounds: int | None = None
    """Fewer, where Apache Kafka takes minutes for one."""
    each_round: bool = False
    """Whether the rounds are shown beside their medians."""
    note: str = ""
    """What a reader of the figures has to know: what was left out or made smaller, and why."""

    def rounds_of(self, name: str, asked: int) -> int:
        rounds = self.rounds or asked
        return min(rounds, self.kafka_rounds or rounds) if name == KAFKA else rounds


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
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Asked for on the command line, for every Tidelog that is started."""
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

    def make(self, name: str, special: type[Tidelog] = Tidelog) -> Broker:
        """A new broker on an empty folder; not started. `special`: a Tidelog that is started in another way."""
        folder = self.work / f"{name}-{len(self._made)}"
        if name == FLOOR:
            broker: Broker = Floor(folder, self.programs)
        elif name == TIDELOG:
            broker = special(folder, self.settings)
        elif self.jars is not None:
            broker = Kafka(folder, self.jars)
        else:
            raise BenchError("Apache Kafka's jars aren't there")
        self._made.append(broker)
        return broker

    def long_lived(self, name: str, special: type[Tidelog] = Tidelog) -> Broker:
        """`special`: one that is started in another way, beside the usual one."""
        key = name if special is Tidelog else special.__name__
        known = self._long_lived.get(key)
        if known is None or known.process is None or known.process.poll() is not None:
            broker = self.make(name, special)
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
