"""Two polite clients beside a stall, each a process of its own: one asks for metadata, one produces at a steady rate.

`python -m bench.stall_clients ping|steady PORT TOPIC` runs until its standard input is closed, then prints every
request as JSON: [when it was sent, when it was answered], in seconds of the machine's monotonic clock.
"""

import json
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from bench.programs import BenchError
from bench.requests import batch_of, metadata, produce

PING_EVERY_S = 0.004
STEADY_EVERY_S = 0.002
STEADY_IN_FLIGHT = 5
"""As Java's producer has it: whoever is answered after 10 ms keeps its rate, after 20 ms half of it."""
STEADY_BATCH_BYTES = 4096
STEADY_RECORDS = 20
ENDS_WITHIN_S = 90.0

Asked = tuple[float, float]


class PoliteClient:
    """One of the two, seen from the benchmark."""

    def __init__(self, what: str, port: int, topic: str) -> None:
        command = [sys.executable, "-m", "bench.stall_clients", what, str(port), topic]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end(self) -> list[Asked]:
        """When its last request is answered, or the broker leaves it alone for too long: what it asked."""
        try:
            out, _ = self._process.communicate(b"", ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BenchError("a polite client got no answer to its last request") from None
        return [(sent, answered) for sent, answered in json.loads(out)]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _read_answer(connection: socket.socket) -> None:
    left = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    while left:
        left -= len(connection.recv(left, socket.MSG_WAITALL))


def ping(port: int, topic: str, over: Callable[[], bool]) -> list[Asked]:
    """Metadata of one topic, one request at a time."""
    connection, frame, asked = _connect(port), metadata(topic), list[Asked]()
    while not over():
        began = time.monotonic()
        connection.sendall(frame)
        _read_answer(connection)
        ended = time.monotonic()
        asked.append((began, ended))
        time.sleep(max(0.0, began + PING_EVERY_S - ended))
    return asked


def steady(port: int, topic: str, over: Callable[[], bool]) -> list[Asked]:
    """A batch each 2 ms with acks=1, while fewer than five wait for their answer; a turn that is missed is not made up
    for, so that what it keeps of its rate is what the broker left it."""
    connection, asked, sent = _connect(port), list[Asked](), list[float]()
    frame = produce(topic, batch_of(STEADY_BATCH_BYTES, STEADY_RECORDS), acks=1).frame
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ)
    due = time.monotonic()
    while sent or not over():
        now = time.monotonic()
        if now >= due:
            due = now + STEADY_EVERY_S - (now - due) % STEADY_EVERY_S
            if len(sent) < STEADY_IN_FLIGHT and not over():
                connection.sendall(frame)
                sent.append(now)
        if selector.select(max(0.0, due - time.monotonic())):
            _read_answer(connection)
            asked.append((sent.pop(0), time.monotonic()))
    return asked


def main() -> None:
    what, port, topic = sys.argv[1:]
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    with suppress(KeyboardInterrupt):
        print(json.dumps({"ping": ping, "steady": steady}[what](int(port), topic, ended.is_set)))


if __name__ == "__main__":
    main()
