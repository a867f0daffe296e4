"""A client of the simulated world: one connection, made anew whenever it is lost."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from tidelog.sim.clients.connection import HERE, ClientConnection
from tidelog.sim.scenarios.checkers import History
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.network import LOOPBACK, SimNetwork
from tidelog.sim.world.random import SimRandom

RETRY_S = 0.05


class ClientWorld(Protocol):
    """The part of the world that a client lives in."""

    timeline: Timeline
    network: SimNetwork
    history: History

    def note(self, text: str) -> None: ...


class Client(ABC):
    """A client with one connection, which it makes anew whenever it is lost."""

    ADDRESS = LOOPBACK
    """Of the machine that it is on."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.loop = SimLoop(world.timeline, random)
        self.connection: ClientConnection | None = None
        self._losses = 0
        self.loop.call_later(random.between(0.0, 0.01), self._connect)

    @property
    def outdated(self) -> bool:
        """Whether an answer that comes now may be from before the page cache was lost."""
        return self._losses != self.world.history.losses

    def _connect(self) -> None:
        self._losses = self.world.history.losses
        self.connection = ClientConnection(
            self.name, self.loop, self.world.network, self._was_lost, self.where(), self.ADDRESS
        )
        self.connected(self.connection)

    def where(self) -> tuple[str, int]:
        """The address and the port to connect to next."""
        return HERE

    def _was_lost(self) -> None:
        self.connection = None
        self.lost()
        self.loop.call_later(self.random.between(0.01, 0.1), self._connect)

    def later(self, callback: Callable[[ClientConnection], None], delay_s: float) -> None:
        """Call back with the connection, unless it is lost until then."""
        connection = self.connection

        def when_it_is_time() -> None:
            if connection is not None and connection is self.connection:
                callback(connection)

        self.loop.call_later(delay_s, when_it_is_time)

    @abstractmethod
    def connected(self, connection: ClientConnection) -> None:
        """Begin to talk."""

    def lost(self) -> None:  # noqa: B027 - most clients have nothing to do
        """What was awaited won't come."""
