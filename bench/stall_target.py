"""The broker as a stall's case sees it: requests made ahead, so that sending them is all that is left to do."""

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from confluent_kafka.admin import NewTopic
from tests.raw import ClosedError, Connection, build, request_class

from bench.brokers import ADMIN_TIMEOUT_S, Broker
from tidelog.wire.codec import encoder
from tidelog.wire.keys import RANGES, ApiKey

GIVES_UP_S = 60.0
CLIENT = b"stall"
READ_BYTES = 1 << 20


def frame_of(key: ApiKey, version: int, fields: Mapping[str, Any]) -> bytes:
    """A request with its size field."""
    return framed(key, version, encoder(request_class(key), version)(build(request_class(key), fields)))


def framed(key: ApiKey, version: int, body: bytes) -> bytes:
    flexible = version >= RANGES[key].flexible_from
    head = struct.pack(">hhih", key, version, 7, len(CLIENT)) + CLIENT + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


class Target:
    """Opens connections, and closes them in the end."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.settings: dict[str, str] = {"tidelog.durability": "os"}
        self.extra: dict[str, float] = {}
        """Further figures of a case."""
        self._connections: list[Connection] = []

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def connect(self) -> Connection:
        connection = Connection(self.broker.at, timeout_s=GIVES_UP_S)
        self._connections.append(connection)
        return connection

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        """Configs with underscores for dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, 1, config=settings)
        self.broker.admin.create_topics([new], operation_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)

    def exchange(self, frames: Sequence[bytes], answers: int | None = None) -> Callable[[], None]:
        """What sends them on one connection and waits for as many answers, which nobody decodes."""
        connection = self.connect()
        data = b"".join(frames)
        count = len(frames) if answers is None else answers

        def send() -> None:
            connection.send_bytes(data)
            for _ in range(count):
                skip_answer(connection.socket)

        return send


def skip_answer(sock: socket.socket) -> None:
    head = sock.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise ClosedError("closed")
    left: int = struct.unpack(">i", head)[0]
    while left:
        got = len(sock.recv(min(left, READ_BYTES)))
        if not got:
            raise ClosedError("closed")
        left -= got


Attack: TypeAlias = Callable[[Target], Callable[[], None]]
"""Prepares the broker; what it returns is what is measured."""
