"""A TCP proxy between a client and a broker that loses answers.

The broker advertises the proxy's address, so a client that starts at the proxy stays with it. Requests always go
through; answers to Produce are held back until `in_flight` of them are there (or none more comes for a moment), then
lost with the connection: the broker has the batches, and the client can't know.
"""

import contextlib
import socket
import struct
import threading

PRODUCE = 0
QUIET_S = 0.15
"""No further answer for so long: fewer than `in_flight` were on their way."""


class Proxy:
    """Listens on a port of its own from the start; `connect_to` says where it leads. Threads, ended by `close`."""

    def __init__(self, in_flight: int = 5, answers_between: int = 20) -> None:
        self.in_flight = in_flight
        self.answers_between = answers_between
        self.losses: list[int] = []
        """How many answers each cut lost."""
        self._target = 0
        self._passed = 0
        self._calm = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def connect_to(self, port: int) -> None:
        self._target = port

    def calm_down(self) -> None:
        """Lose nothing from now on."""
        self._calm = True

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5.0)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._target), timeout=5.0)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            pair = _Pair(self, client, broker)
            with self._lock:
                self._open |= {client, broker}
            for work in (pair.forward_requests, pair.forward_answers):
                thread = threading.Thread(target=work, daemon=True)
                self._threads.append(thread)
                thread.start()

    def is_time_to_lose(self) -> bool:
        """Whether enough answers have passed since the last cut."""
        with self._lock:
            return not self._calm and self._passed >= self.answers_between

    def passed_one(self) -> None:
        with self._lock:
            self._passed += 1

    def lost(self, count: int) -> None:
        with self._lock:
            self._passed = 0
            self.losses.append(count)

    def forget(self, *connections: socket.socket) -> None:
        with self._lock:
            self._open -= set(connections)
        for connection in connections:
            connection.close()


class _Pair:
    """One client's connection and the proxy's own to the broker."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.broker = broker
        self.produced: set[int] = set()

    def forward_requests(self) -> None:
        while (frame := read_frame(self.client)) is not None:
            if struct.unpack_from(">h", frame, 4)[0] == PRODUCE:
                self.produced.add(struct.unpack_from(">i", frame, 8)[0])
            with contextlib.suppress(OSError):
                self.broker.sendall(frame)
        self._cut()

    def forward_answers(self) -> None:
        held = 0
        while True:
            self.broker.settimeout(QUIET_S if held else None)
            try:
                frame = read_frame(self.broker)
            except TimeoutError:
                break
            if frame is None:
                break
            correlation_id = struct.unpack_from(">i", frame, 4)[0]
            if correlation_id in self.produced:
                self.produced.discard(correlation_id)
                if held or self.proxy.is_time_to_lose():
                    held += 1
                    if held == self.proxy.in_flight:
                        break
                    continue
                self.proxy.passed_one()
            elif held:
                continue
            with contextlib.suppress(OSError):
                self.client.sendall(frame)
        if held:
            self.proxy.lost(held)
        self._cut()
        self.proxy.forget(self.client, self.broker)

    def _cut(self) -> None:
        for connection in (self.client, self.broker):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def read_frame(connection: socket.socket) -> bytes | None:
    """A frame with its length in front; None where the connection ends."""
    head = _read(connection, 4)
    if head is None:
        return None
    body = _read(connection, struct.unpack(">i", head)[0])
    return None if body is None else head + body


def _read(connection: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        try:
            more = connection.recv(count - len(data))
        except TimeoutError:
            raise
        except OSError:
            return None
        if not more:
            return None
        data += more
    return bytes(data)
