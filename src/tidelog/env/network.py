"""Listening and connecting. A `Socket` is non-blocking: it raises BlockingIOError where it would wait."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from tidelog.env.loop import Loop
    from tidelog.env.promise import Promise

Buffer: TypeAlias = bytes | bytearray | memoryview


class Socket(Protocol):
    """The part of `socket.socket` that the broker uses; a real one fits as it is."""

    def fileno(self) -> int: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def send(self, data: Buffer, /) -> int: ...

    def sendmsg(self, buffers: Iterable[Buffer], ancillary: tuple[()] = (), flags: int = 0, /) -> int: ...

    def close(self) -> None: ...


class Listener(Protocol):
    """A bound, listening socket. `host` and `port` are the real ones, also when port 0 was asked for."""

    host: str
    port: int
    sockets: "list[Socket]"

    def accept(self, sock: Socket) -> "tuple[Socket, str] | None":
        """The next connection waiting on one of `sockets` and its peer's address; None where none waits."""
        ...

    def close(self) -> None: ...


class Network(Protocol):
    def listen(
        self, host: str, port: int, backlog: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> Listener:
        """Bind every address of `host` (localhost: IPv4 and IPv6) to one port. Raises OSError.

        The buffers are those of each connection's socket; -1 leaves them to the system.
        """
        ...

    def connect(self, loop: "Loop", host: str, port: int, timeout_s: float) -> "Promise[Socket]":
        """A connection to the first address of `host` that takes one. Nothing blocks: names are looked up aside.

        The promise is settled on the loop, never before this returns. It fails with an OSError: refused, no such host,
        or TimeoutError when `timeout_s` is over, the look-up included. Whoever has lost interest meanwhile closes the
        socket when it comes.
        """
        ...

    def abandon(self, sock: Socket) -> None:
        """Close a connection, and take back what was given to it and hasn't arrived: `close` alone leaves that to the
        system, which may deliver it minutes later, when a network is whole again."""
        ...
