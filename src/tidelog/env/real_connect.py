"""Connecting outward with real sockets: one address after the other, and names looked up beside the loop.

The resolver of the system blocks, for half a minute where nobody answers it. The threads beside the loop are those of
the group commit, so that only a few of them may ever wait for names: others wait in a line, and whoever asks for a name
that is being looked up waits for the same answer.
"""

import errno
import os
import socket
from collections import deque
from functools import partial
from ipaddress import ip_address
from typing import TypeAlias, cast

from tidelog.env.bounds import LOOKUPS_AT_ONCE, LOOKUPS_WAITING_MAX
from tidelog.env.loop import Loop
from tidelog.env.network import Socket
from tidelog.env.promise import Promise

Addresses: TypeAlias = list[tuple[socket.AddressFamily, str]]

ADDRESSES_MAX = 8
"""Of one name: those behind them aren't tried."""


def both_loopbacks() -> Addresses:
    return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]


def known_addresses(host: str) -> Addresses | None:
    """The addresses of a host that nobody needs to be asked for; None for a name."""
    if host == "localhost":
        return both_loopbacks()
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return [(socket.AF_INET if address.version == 4 else socket.AF_INET6, host)]


def _look_up(host: str) -> Addresses:
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in infos)
    return list(found)[:ADDRESSES_MAX]


class Lookups:
    """Names that are being looked up, and those that wait for their turn."""

    def __init__(self) -> None:
        self._asked: dict[str, Promise[Addresses]] = {}
        self._waiting: deque[tuple[Loop, str]] = deque()
        self._under_way = 0

    def addresses(self, loop: Loop, host: str) -> Promise[Addresses]:
        """Raises OSError where too many wait already."""
        asked = self._asked.get(host)
        if asked is not None:
            return asked
        if len(self._waiting) >= LOOKUPS_WAITING_MAX:
            raise OSError(errno.EAGAIN, f"{LOOKUPS_WAITING_MAX} names wait to be looked up")
        promise: Promise[Addresses] = Promise()
        self._asked[host] = promise
        self._waiting.append((loop, host))
        self._next()
        return promise

    def _next(self) -> None:
        while self._waiting and self._under_way < LOOKUPS_AT_ONCE:
            loop, host = self._waiting.popleft()
            self._under_way += 1
            loop.run_blocking(partial(_look_up, host)).on_done(partial(self._found, host))

    def _found(self, host: str, found: Promise[Addresses]) -> None:
        self._under_way -= 1
        promise = self._asked.pop(host)
        if found.error is None:
            promise.resolve(found.result())
        else:
            promise.fail(found.error)
        self._next()


class Connecting:
    """One try to connect, to one address after the other; each has its part of the time that is left."""

    def __init__(self, loop: Loop, lookups: Lookups, host: str, port: int, timeout_s: float) -> None:
        self.promise: Promise[Socket] = Promise()
        self._loop = loop
        self._port = port
        self._share_s = timeout_s
        self._left: Addresses = []
        self._sock: socket.socket | None = None
        self._last: OSError = TimeoutError(f"no connection within {timeout_s:g} s")
        self._over = loop.call_later(timeout_s, self._give_up, self._last)
        self._next_try = loop.call_later(timeout_s, _nothing)
        known = known_addresses(host)
        if known is not None:
            self._left = known
            loop.call_soon(self._begin, timeout_s)
            return
        try:
            lookups.addresses(loop, host).on_done(partial(self._looked_up, timeout_s))
        except OSError as error:
            loop.call_soon(self._give_up, error)

    def _looked_up(self, timeout_s: float, found: Promise[Addresses]) -> None:
        if found.error is None:
            self._left = list(found.result())
            self._begin(timeout_s)
        elif isinstance(found.error, OSError):
            self._give_up(found.error)
        else:  # a name that can't even be encoded
            self._give_up(OSError(errno.EINVAL, str(found.error)))

    def _begin(self, timeout_s: float) -> None:
        self._share_s = timeout_s / max(len(self._left), 1)
        self._try_next()

    def _try_next(self) -> None:
        """The next address that may take us; the last error where there is none."""
        while not self.promise.done:
            if not self._left:
                self._give_up(self._last)
                return
            family, address = self._left.pop(0)
            try:
                if self._start(family, address):
                    return
            except OSError as error:
                self._failed(error)

    def _start(self, family: socket.AddressFamily, address: str) -> bool:
        """Whether it is under way, or there already."""
        sock = self._sock = socket.socket(family)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        code = sock.connect_ex((address, self._port))
        if code not in (0, errno.EINPROGRESS):
            raise _error(code)
        self._loop.add_writer(cast(Socket, sock), self._writable)
        self._next_try = self._loop.call_later(self._share_s, self._too_slow)
        return True

    def _writable(self) -> None:
        sock = self._sock
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._failed(_error(code))
            self._try_next()
            return
        self._let_go()
        self._over.cancel()
        self.promise.resolve(cast(Socket, sock))

    def _too_slow(self) -> None:
        if self._left:
            self._failed(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
            self._try_next()

    def _failed(self, error: OSError) -> None:
        self._last = error
        sock = self._let_go()
        if sock is not None:
            sock.close()

    def _let_go(self) -> socket.socket | None:
        self._next_try.cancel()
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_writer(cast(Socket, sock))
        return sock

    def _give_up(self, error: OSError) -> None:
        if self.promise.done:
            return
        self._failed(error)
        self._over.cancel()
        self.promise.fail(error)


def _error(code: int) -> OSError:
    """As Python itself would raise it: ConnectionRefusedError and others of its kind."""
    return OSError(code, os.strerror(code))


def _nothing() -> None:
    """Before the first try there is none to give up."""
