"""A way to a broker that breaks: connections through it end after so many bytes, in the middle of anything."""

import random
import socket
import threading
from contextlib import suppress
from types import TracebackType


class Flaky:
    """Give the broker `address` as its advertised listener, and `lead_to` it when it runs. A seed chooses the ends."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._target = ("", 0)
        self._chance = random.Random(0)
        self._there_max = self._back_max = 0
        self.broken = 0

    def __enter__(self) -> "Flaky":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def lead_to(self, bootstrap: str, seed: int, there_max: int, back_max: int) -> None:
        """From here on a connection ends after at most so many bytes there, or so many back."""
        host, port = bootstrap.rsplit(":", 1)
        self._target = (host, int(port))
        self._chance = random.Random(seed)
        self._there_max, self._back_max = there_max, back_max

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._target)
            there, back = self._chance.randrange(self._there_max), self._chance.randrange(self._back_max)
            for pair in ((client, broker, there), (broker, client, back)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, left: int) -> None:
        """Half of what would be too much goes on its way too: a request that is cut, an answer that is."""
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data[:left])
                left -= len(data)
                if left <= 0:
                    self.broken += 1
                    break
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
