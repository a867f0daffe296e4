"""The course of a run that most scenarios share: topics, clients, faults; then peace, and twice an account of all.

The second account is taken after a clean stop and a power loss.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog.sim.clients.actor import Client
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.topics import TopicMaker
from tidelog.sim.world.faults import FAULTS
from tidelog.sim.world.folder_faults import FolderFaults
from tidelog.sim.world.world import DATA, World

W = TypeVar("W", bound=World)

SETTINGS = {
    "log.dirs": DATA,
    "listeners": "PLAINTEXT://localhost:9092",
    "node.id": "1",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.initial.task.delay.ms": "100",
}


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


class ScenarioRun(ABC, Generic[W]):
    """A run from a seed. What it is about is in its subclass; `clients` are all who go home before the account."""

    FAULTS_MOST = (2, 7)
    """So many faults happen: at least, at most."""
    PEACE_S_MAX = 30.0
    """How long anything may take while nothing goes wrong."""

    def __init__(self, world: W, name: str, faults: tuple[tuple[str, float], ...] = FAULTS) -> None:
        self._faults = faults
        self.world = world
        self.random = world.random.fork(name)
        self.clients: list[Client] = []

    def go(self) -> Outcome:
        world = self.world
        world.start_and_wait()
        self.begin()
        count = self.random.random_int(*self.FAULTS_MOST)
        faults = FolderFaults(world, self.random.fork("faults"), count, self._faults)
        self.wait(lambda: faults.over, "the faults to be over")
        world.note("peace")
        self.finish()
        for client in self.clients:
            client.loop.kill()
        self.account()
        world.stop_and_wait()
        world.lose_power()
        world.start_and_wait()
        self.account()
        self.afterwards()
        return Outcome(
            world.seed,
            world.fingerprint(),
            *self.tally(),
            world.timeline.now,
            world.timeline.events,
            tuple(world.trace),
        )

    def make_topics(self, topics: Mapping[str, int], settings: Mapping[str, Mapping[str, str]] | None = None) -> None:
        maker = TopicMaker(self.world, self.random.fork("topics"), topics, settings)
        self.wait(lambda: maker.done, "the topics to be made")
        maker.loop.kill()

    def wait(self, done: Callable[[], bool], what: str) -> None:
        if not self.world.timeline.run_until(done, self.world.timeline.now + self.PEACE_S_MAX):
            raise Violation(f"waited {self.PEACE_S_MAX} s for {what}")

    def rest(self, seconds: float) -> None:
        self.world.timeline.run_until(lambda: False, self.world.timeline.now + seconds)

    @abstractmethod
    def begin(self) -> None:
        """Make the topics, send the clients out; soon the faults come."""

    @abstractmethod
    def finish(self) -> None:
        """Nothing goes wrong any more: have everyone come to an end."""

    @abstractmethod
    def account(self) -> None:
        """Read everything, and compare it with what was promised."""

    def afterwards(self) -> None:
        """What else is tried when all was accounted for twice."""

    def tally(self) -> tuple[int, int]:
        """What was acknowledged, and what was fetched."""
        return self.world.history.acknowledged, self.world.history.fetched
