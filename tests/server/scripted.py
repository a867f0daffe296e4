"""A loop and a socket that do nothing by themselves: a test says which event comes next, and how many bytes pass."""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from types import SimpleNamespace

from tidelog.env.slices import HEAVY, Weight


class ScriptedLoop:
    def __init__(self) -> None:
        self.alone = False
        self.turns = 0
        self.watch = SimpleNamespace(work=())
        self.soon: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self.in_turn: deque[Callable[[], None]] = deque()
        self.readers: dict[object, Callable[[], None]] = {}
        self.writers: dict[object, Callable[[], None]] = {}

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self.soon.append((callback, args))

    def call_in_turn(self, callback: Callable[[], None], weight: Weight = HEAVY) -> None:
        self.in_turn.append(callback)

    def add_reader(self, sock: object, callback: Callable[[], None]) -> None:
        assert sock not in self.readers
        self.readers[sock] = callback

    def remove_reader(self, sock: object) -> None:
        del self.readers[sock]

    def add_writer(self, sock: object, callback: Callable[[], None]) -> None:
        assert sock not in self.writers
        self.writers[sock] = callback

    def remove_writer(self, sock: object) -> None:
        del self.writers[sock]


class ScriptedSocket:
    """The broker's end. `arrived` is what it may receive, `window` how much the peer takes, `outgoing` what it took."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.arrived = bytearray()
        self.outgoing = bytearray()
        self.window = 0
        self.is_full = False  # the last send was cut short
        self.ended = False
        self.reset = False
        self.unsendable = False  # the peer has gone, and what it had sent is still to be read
        self.closed = False

    def fileno(self) -> int:
        return 7

    def recv_into(self, space: memoryview) -> int:
        assert not self.closed
        assert len(space), "a read without room looks as if the peer had gone"
        if self.reset:
            raise ConnectionResetError
        if not self.arrived:
            if self.ended:
                return 0
            raise BlockingIOError
        count = min(len(space), len(self.arrived))
        if self._random.random() < 0.3:
            count = self._random.randint(1, count)
        space[:count] = self.arrived[:count]
        del self.arrived[:count]
        return count

    def send(self, data: bytes | memoryview) -> int:
        assert not self.closed
        if self.reset or self.unsendable:
            raise BrokenPipeError
        self.is_full = len(data) > self.window
        count = min(len(data), self.window)
        if not count:
            raise BlockingIOError
        self.window -= count
        self.outgoing += data[:count]
        return count

    def sendmsg(self, parts: Iterable[bytes | memoryview], ancillary: tuple[()] = (), flags: int = 0) -> int:
        return self.send(b"".join(parts))

    def close(self) -> None:
        assert not self.closed
        self.closed = True
