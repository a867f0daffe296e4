"""Actors that take turns: threads of which one moves at a time, from one request to a broker to the next.

A seed chooses whose turn it is, so a play that went wrong can be played again. Some actors are killed where they stand,
some requests fail for good, and some answers are lost though what was asked for is done.
"""

import random
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.spark.writing import Killed
from tidelog.rpc import transactions
from tidelog.rpc.errors import Unreachable
from tidelog.spark.sink import data_sink, decisions, producers, sink_progress
from tidelog.spark.sink.decisions import Aborted, Replaced, RolledBack

PATIENCE_S = 60
FAILING = 0.004
"""Of all requests: so many never come to a broker, and of so many the answer is lost."""
REQUESTS: dict[ModuleType, tuple[str, ...]] = {
    decisions: (
        "init_producer",
        "describe_all",
        "prepare",
        "produce",
        "commit_offsets_in",
        "end_transaction",
        "open_transactions",
        "abort_exactly",
        "commit_exactly",
    ),
    producers: ("describe", "init_producer"),
    data_sink: ("abort_exactly",),
    sink_progress: ("committed_offset",),
    transactions: ("end_transaction", "describe_all"),
}
"""Before each of these an actor stops until it is its turn."""


class Actor(threading.Thread):
    """Somebody who stops before each request to a broker until it is their turn, or they are killed."""

    def __init__(self, script: Callable[[], object], chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._script = script
        self._chance = chance
        self._turn = threading.Event()
        self._stands = threading.Event()
        self.killed = False
        self.done = False
        self.trouble: BaseException | None = None

    def run(self) -> None:
        try:
            self.step()
            self._script()
            self.done = True
        except (Killed, Replaced, RolledBack, Aborted, Unreachable):
            pass
        except BaseException as error:
            self.trouble = error
        finally:
            self._stands.set()

    def begin(self) -> None:
        self.start()
        assert self._stands.wait(PATIENCE_S)

    def step(self) -> None:
        """Wait for the next turn."""
        if not self.killed:
            self._stands.set()
            assert self._turn.wait(PATIENCE_S), "nobody gives this actor a turn"
            self._turn.clear()
        if self.killed:
            raise Killed

    def ask(self, request: Callable[[], Any]) -> Any:
        """Its next request, when it is its turn; what comes back may be that no broker could be reached."""
        self.step()
        drawn = self._chance.random()
        if drawn < FAILING:
            raise Unreachable("no broker was reached, says the play")
        answer = request()
        if drawn > 1 - FAILING:
            raise Unreachable("no broker answered, says the play")
        return answer

    def move(self) -> None:
        """Let it go on to its next request."""
        self._stands.clear()
        self._turn.set()
        assert self._stands.wait(PATIENCE_S), "an actor does not come to its next step"


class Play:
    """Everybody on stage, and the dice."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.actors: list[Actor] = []

    def spawn(self, script: Callable[[], object]) -> Actor:
        actor = Actor(script, self.chance)
        self.actors.append(actor)
        actor.begin()
        return actor

    def alive(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.is_alive()]

    def turn(self, *, kill: bool) -> None:
        """Some moves of somebody; with `kill` the last."""
        actor = self.chance.choice(self.alive())
        actor.killed = kill
        for _ in range(self.chance.choice((1, 2, 5, 15))):
            if actor.is_alive():
                actor.move()
        if kill:
            actor.join(PATIENCE_S)

    def troubles(self) -> list[BaseException]:
        return [actor.trouble for actor in self.actors if actor.trouble is not None]


def step() -> None:
    """Where an actor stops; whoever is none goes on."""
    actor = threading.current_thread()
    if isinstance(actor, Actor):
        actor.step()


def in_turns(patch: pytest.MonkeyPatch) -> None:
    """From here on requests of actors wait for their turn."""
    for module, names in REQUESTS.items():
        for name in names:
            patch.setattr(module, name, _stepping(getattr(module, name)))


def _stepping(real: Any) -> Any:
    def asked(*args: Any, **named: Any) -> Any:
        actor = threading.current_thread()
        if isinstance(actor, Actor):
            return actor.ask(lambda: real(*args, **named))
        return real(*args, **named)

    return asked
