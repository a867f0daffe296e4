"""Any order of steps of drivers and tasks that don't know of each other: each batch is there once.

Drivers, their tasks and late attempts run as threads of which one moves at a time, from one request to a broker to the
next; a seed chooses which. Some are killed where they stand. A driver that dies is followed by a new run of the
query, as Spark starts it: from the checkpoint, which all share.
"""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

import pyarrow

from tidelog.client import Admin, read
from tidelog.rpc import Cluster, Options
from tidelog.rpc.transactions import open_transactions
from tidelog.spark import decisions, producers, sink
from tidelog.spark.decisions import Decisions, Replaced, RolledBack
from tidelog.spark.producers import Attempt, Producers
from tidelog.spark.sink import Written, write_rows
from tidelog.spark.sink_options import read_sink_options
from tidelog.testing import Broker

arrow: Any = pyarrow

BATCHES = 6
STEPS_MAX = 3000
ALIVE_MAX = 4
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks and drivers that are processes of their own have connections of their own."""
    made: list[Cluster] = []

    def cluster_of(bootstrap: str, options: Options) -> Cluster:
        made.append(Cluster(bootstrap, options))
        return made[-1]

    monkeypatch.setattr("tidelog.spark.sink.cluster_of", cluster_of)
    yield
    for cluster in made:
        cluster.close()


class Killed(BaseException):
    """kill -9, as far as a thread can tell."""


class Actor(threading.Thread):
    """Somebody who stops before each request to a broker until it is their turn, or they are killed."""

    def __init__(self, script: Any) -> None:
        super().__init__(daemon=True)
        self._script = script
        self._turn = threading.Event()
        self._stands = threading.Event()
        self.killed = False
        self.trouble: BaseException | None = None

    def run(self) -> None:
        try:
            self.step()
            self._script()
        except (Killed, Replaced, RolledBack):
            pass
        except BaseException as error:
            self.trouble = error
        finally:
            self._stands.set()

    def step(self) -> None:
        """Wait for the next turn."""
        if not self.killed:
            self._stands.set()
            assert self._turn.wait(PATIENCE_S), "nobody gives this actor a turn"
            self._turn.clear()
        if self.killed:
            raise Killed

    def move(self) -> None:
        """Let it go on to its next request."""
        self._stands.clear()
        self._turn.set()
        assert self._stands.wait(PATIENCE_S), "an actor does not come to its next step"


class Stage:
    """A query, its checkpoint, and everybody who works on it."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.sink = f"stage-{seed}"
        self.topic = f"stage-out-{seed}"
        self.bootstrap = broker.bootstrap
        self.chance = random.Random(seed)
        self.committed = -1
        self.runs = 0
        self.actors: list[Actor] = []
        Admin(broker.bootstrap).create_topic(self.topic, 2)
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": self.topic}
        self.options = read_sink_options(given, streaming=True)

    def spawn(self, script: Any) -> None:
        actor = Actor(script)
        self.actors.append(actor)
        actor.start()
        assert actor._stands.wait(PATIENCE_S)

    def start_run(self) -> None:
        self.runs += 1
        run, workers = f"run-{self.runs}", [Producers(), Producers()]
        self.spawn(lambda: self.drive(run, workers))

    def drive(self, run: str, workers: list[Producers]) -> None:
        """A driver, and its tasks one after the other; sometimes an attempt too many, which goes its own way."""
        with Cluster(self.bootstrap) as cluster:
            driver = Decisions(cluster, self.sink, run, self.options.decisions)
            while self.committed < BATCHES - 1:
                batch = self.committed + 1
                parts = self.chance.choice((1, 2, 3))
                if self.chance.random() < 0.4:
                    self.spawn(lambda batch=batch: self.write(run, batch, 0, 1, Producers()))
                told = [self.write(run, batch, part, parts, workers[part % 2]) for part in range(parts)]
                terms = {each.term for each in told if each.term is not None}
                reported = [each.producer for each in told if each.producer is not None]
                driver.commit(batch, min(terms, default=None), reported)
                self.committed = max(self.committed, batch)

    def write(self, run: str, batch: int, part: int, parts: int, worker: Producers) -> Written:
        values = [value for index, value in enumerate(rows_of(batch)) if index % parts == part]
        table = arrow.record_batch({"key": values, "value": values})
        return write_rows(self.options, Attempt(self.sink, run, batch), iter([table]), worker)

    def play(self) -> None:
        """Turns by chance: drivers are started while others live, and killed; until one has done all batches."""
        self.start_run()
        self.start_run()
        for _ in range(STEPS_MAX):
            alive = [actor for actor in self.actors if actor.is_alive()]
            drawn = self.chance.random()
            if not alive or (drawn < 0.2 and len(alive) < ALIVE_MAX):
                if self.committed == BATCHES - 1 and not alive:
                    return
                self.start_run()
                continue
            actor = self.chance.choice(alive)
            actor.killed = drawn > 0.97
            for _ in range(self.chance.choice((1, 2, 5, 15))):
                if actor.is_alive():
                    actor.move()
            if actor.killed:
                actor.join(PATIENCE_S)
        raise AssertionError("the play has no end")

    def finish(self) -> None:
        """A last driver, when all others are gone, does what is left, and one more batch."""
        run, workers = "last", [Producers()]
        with Cluster(self.bootstrap) as cluster:
            driver = Decisions(cluster, self.sink, run, self.options.decisions)
            for batch in range(self.committed + 1, BATCHES + 1):
                told = self.write(run, batch, 0, 1, workers[0])
                driver.commit(batch, told.term, [told.producer] if told.producer is not None else [])

    def seen(self) -> list[bytes]:
        found = read(self.bootstrap, self.topic, stop_at_end=True, isolation_level="read_committed")
        return sorted(message.value or b"" for message in found)


def rows_of(batch: int) -> list[bytes]:
    return [b"%d-%d" % (batch, row) for row in range(4)]


REQUESTS = {
    decisions: (
        "init_producer",
        "committed_offset",
        "produce",
        "commit_offsets_in",
        "end_transaction",
        "open_transactions",
        "abort_exactly",
    ),
    producers: ("describe", "init_producer"),
    sink: ("_send", "abort_exactly"),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.two.phase.commit.enable": True, "transaction.state.log.num.partitions": 2}
    with Broker(settings, offsets_topic_num_partitions=2) as broker:
        Admin(broker.bootstrap).create_topic("tidelog-spark-decisions", 1)
        yield broker


SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 150))]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_batch_is_there_once_in_any_order_of_steps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for module, names in REQUESTS.items():
        for name in names:
            monkeypatch.setattr(module, name, stepping(getattr(module, name)))
    monkeypatch.setattr(decisions, "TIMEOUTS_MS", (1000,))  # a driver waits for another's that stands still
    stage = Stage(broker, seed)
    stage.play()
    troubles = [actor.trouble for actor in stage.actors if actor.trouble is not None]
    monkeypatch.undo()
    stage.finish()
    assert (stage.seen(), troubles) == (sorted(row for batch in range(BATCHES + 1) for row in rows_of(batch)), [])
    with Cluster(broker.bootstrap) as cluster:
        assert open_transactions(cluster, lambda name: f"-{stage.sink}-task-" in name) == []


def stepping(real: Any) -> Any:
    def waited(*args: Any, **named: Any) -> Any:
        actor = threading.current_thread()
        if isinstance(actor, Actor):
            actor.step()
        return real(*args, **named)

    return waited
