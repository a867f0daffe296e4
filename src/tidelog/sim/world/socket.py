"""One end of a simulated connection: non-blocking, with a bounded buffer, told when it becomes ready."""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING

from tidelog.env.network import Buffer

if TYPE_CHECKING:
    from tidelog.sim.world.network import SimNetwork

WINDOW_BYTES = 256 * 1024
"""Bytes that may be on their way or unread before a sender has to wait."""


class SimSocket:
    """A connected socket, or a listening one (whose `accepted` are the connections that wait)."""

    __slots__ = (
        "_ended",
        "_inbox",
        "_network",
        "_number",
        "_reset",
        "accepted",
        "address",
        "arrives",
        "changed",
        "closed",
        "owner",
        "peer",
        "slowness",
        "unread",
    )

    def __init__(self, network: "SimNetwork", numbers: "count[int]", owner: str, address: str) -> None:
        self._network = network
        self._number = next(numbers)
        self._inbox: deque[memoryview] = deque()
        self._ended = False
        self._reset = False
        self.owner = owner
        self.address = address
        self.closed = False
        self.peer: SimSocket | None = None
        self.accepted: deque[SimSocket] = deque()
        self.arrives = 0.0
        self.unread = 0
        self.slowness = 1.0
        self.changed: Callable[[SimSocket], None] | None = None

    # What env.Socket promises

    def fileno(self) -> int:
        return -1 if self.closed else self._number

    def recv_into(self, buffer: memoryview, /) -> int:
        self._check_open()
        if self._reset:
            raise ConnectionResetError("the simulated connection was reset")
        if not self._inbox:
            if self._ended:
                return 0
            raise BlockingIOError
        piece = self._inbox[0]
        taken = min(len(piece), len(buffer))
        buffer[:taken] = piece[:taken]
        if taken == len(piece):
            self._inbox.popleft()
        else:
            self._inbox[0] = piece[taken:]
        self.unread -= taken
        if self.peer is not None:
            self.peer.notify()
        return taken

    def send(self, data: Buffer, /) -> int:
        self._check_open()
        if self._reset:
            raise ConnectionResetError("the simulated connection was reset")
        peer = self.peer
        if peer is None or (peer.closed and not self._network.is_split(self, peer)):
            raise BrokenPipeError("the other end of the simulated connection is closed")
        if not len(data):
            return 0
        room = WINDOW_BYTES - peer.unread
        if room <= 0:
            raise BlockingIOError
        taken = self._network.accept_bytes(min(room, len(data)))
        peer.unread += taken
        self._network.carry(peer, bytes(memoryview(data)[:taken]))
        return taken

    def sendmsg(self, buffers: Iterable[Buffer], ancillary: tuple[()] = (), flags: int = 0, /) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._network.closed(self)

    # What the network and the loop do with it

    @property
    def readable(self) -> bool:
        return not self.closed and bool(self._inbox or self._ended or self._reset or self.accepted)

    @property
    def writable(self) -> bool:
        if self.closed:
            return False
        peer = self.peer
        return self._reset or peer is None or peer.closed or peer.unread < WINDOW_BYTES

    def deliver(self, piece: bytes) -> None:
        if not self.closed and not self._reset:
            self._inbox.append(memoryview(piece))
            self.notify()

    def end(self) -> None:
        """The other end closed: what was sent can still be read, then comes the end."""
        self._ended = True
        self.notify()

    def reset(self) -> None:
        """The connection is gone: what wasn't read is lost."""
        self._reset = True
        self._inbox.clear()
        self.notify()

    def notify(self) -> None:
        if self.changed is not None and not self.closed:
            self.changed(self)

    def _check_open(self) -> None:
        if self.closed:
            raise OSError(9, "the simulated socket is closed")
