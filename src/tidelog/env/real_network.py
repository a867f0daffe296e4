"""Real sockets: non-blocking, without Nagle's delay."""

import errno
import resource
import socket
from contextlib import suppress
from struct import pack
from typing import cast

from tidelog.env.loop import Loop
from tidelog.env.network import Socket
from tidelog.env.promise import Promise
from tidelog.env.real_connect import Connecting, Lookups, both_loopbacks

PORT_TRIES = 20
RESERVED_FILES = 64
"""Descriptors, or a quarter of all, that connections leave to the logs: the last ones are no use to a client."""


NO_LINGERING = pack("ii", 1, 0)


class RealListener:
    """Every address of one host, on one port."""

    __slots__ = ("_buffers", "host", "port", "sockets")

    def __init__(self, host: str, port: int, sockets: list[socket.socket], buffers: list[tuple[int, int]]) -> None:
        self.host = host
        self.port = port
        self._buffers = buffers
        self.sockets = cast("list[Socket]", sockets)

    def accept(self, sock: Socket) -> tuple[Socket, str] | None:
        try:
            connection, address = cast(socket.socket, sock).accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if connection.fileno() >= limit - min(RESERVED_FILES, limit // 4):  # the lowest that is free is given
            connection.close()
            raise OSError(errno.EMFILE, f"of {limit} files that this process may open, the last are for the logs")
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in self._buffers:
            connection.setsockopt(socket.SOL_SOCKET, option, size)
        return cast(Socket, connection), address[0]

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


class RealNetwork:
    def __init__(self) -> None:
        self._lookups = Lookups()

    def connect(self, loop: Loop, host: str, port: int, timeout_s: float) -> Promise[Socket]:
        return Connecting(loop, self._lookups, host, port, timeout_s).promise

    def abandon(self, sock: Socket) -> None:
        """With a reset, so that the system forgets what it holds."""
        with suppress(OSError):
            cast(socket.socket, sock).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
        sock.close()

    def listen(
        self, host: str, port: int, backlog: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> RealListener:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in infos))
        if host in ("", "localhost"):  # whatever the resolver says, both are what a client may try
            addresses = _both_families("" if not host else "loopback")
        for attempt in range(PORT_TRIES):
            bound = _bind_all(addresses, port, last_try=port != 0 or attempt == PORT_TRIES - 1)
            if bound is not None:
                for sock in bound:
                    sock.listen(backlog)
                wanted = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
                buffers = [(option, size) for option, size in wanted if size > 0]
                return RealListener(host, bound[0].getsockname()[1], bound, buffers)
        raise OSError(f"no free port found for every address of {host!r}")


def _both_families(which: str) -> list[tuple[socket.AddressFamily, str]]:
    addresses = both_loopbacks() if which else [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
    return addresses if socket.has_ipv6 and _has_ipv6_loopback() else addresses[:1]


def _has_ipv6_loopback() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
        return True


def _bind_all(
    addresses: list[tuple[socket.AddressFamily, str]], port: int, *, last_try: bool
) -> list[socket.socket] | None:
    """Bind all to one port; None where port 0 gave one that is taken at another address."""
    bound: list[socket.socket] = []
    try:
        for family, address in addresses:
            sock = socket.socket(family)
            bound.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address, port))
            port = sock.getsockname()[1]
    except OSError:
        for sock in bound:
            sock.close()
        if last_try:
            raise
        return None
    return bound
