"""A raw driver that plays the members of groups: many connections on one selector, requests through Tidelog's codec."""

import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any

from tests.raw import build, request_class, response_class

from bench.programs import BenchError
from tidelog.wire.codec import decoder, encoder
from tidelog.wire.keys import RANGES, ApiKey

CLIENT = b"bench"
READ_BYTES = 1 << 16
LOOK_S = 0.02

Answered = Callable[[Any], None]


class Stage:
    """Where players act: runs them until a condition holds."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._players: list[Player] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        for player in self._players:
            player.socket.close()
        self._selector.close()

    def player(self) -> "Player":
        player = Player(socket.create_connection(("127.0.0.1", self._port)))
        self._players.append(player)
        self._selector.register(player.socket, selectors.EVENT_READ, player)
        return player

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        heappush(self._later, (time.monotonic() + delay_s, next(self._order), action))

    def run(self, done: Callable[[], bool], within_s: float, what: str) -> None:
        """Until `done`; BenchError where that takes too long."""
        looked = began = time.monotonic()
        while True:
            now = time.monotonic()
            if now - looked >= LOOK_S:  # looking may take long with thousands of members
                if done():
                    return
                looked = time.monotonic()
                if now - began > within_s:
                    raise BenchError(f"{what} took over {within_s:.0f} s")
            while self._later and self._later[0][0] <= now:
                heappop(self._later)[2]()
            for key, _ in self._selector.select(LOOK_S / 4):
                key.data.readable()


class Player:
    """One connection: requests go out at once, answers come back in order."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._awaited: deque[tuple[ApiKey, int, Answered]] = deque()
        self._read = bytearray()

    def ask(self, key: ApiKey, version: int, fields: Mapping[str, Any], answered: Answered) -> None:
        cls = request_class(key)
        flexible = version >= RANGES[key].flexible_from
        head = struct.pack(">hhih", key, version, 7, len(CLIENT)) + CLIENT + (b"\0" if flexible else b"")
        body = encoder(cls, version)(build(cls, fields))
        self._awaited.append((key, version, answered))
        self.socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def readable(self) -> None:
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise BenchError("the broker closed the connection of a member")
        self._read += data
        while len(self._read) >= 4:
            size = struct.unpack_from(">i", self._read)[0]
            if len(self._read) < 4 + size:
                return
            frame = bytes(self._read[4 : 4 + size])
            del self._read[: 4 + size]
            key, version, answered = self._awaited.popleft()
            start = 5 if version >= RANGES[key].flexible_from else 4
            answered(decoder(response_class(key), version)(frame, start)[0])
