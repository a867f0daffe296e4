"""Where a client writes down what happens to it, as `history.py` reads it; and when it is to end: at SIGTERM."""

import faulthandler
import json
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

PRODUCER_PATIENCE_MS = 120_000
"""No outage of one node is to take that long: a record that is given up is a finding."""


class Pen:
    """One diary. Threads may share it."""

    def __init__(self, path: str, name: str, *, group: str | None = None, read_committed: bool = False) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._file = open(path, "a", buffering=1)  # noqa: SIM115
        first = {"client": name, "group": group, "read_committed": read_committed}
        self._file.write(json.dumps(first) + "\n")

    def __enter__(self) -> "Pen":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self.write("gave-up", why=repr(error))
        self._file.close()

    def write(self, what: str, **told: Any) -> None:
        line = json.dumps({"is": what, "at": round(time.monotonic(), 6), **told})
        with self._lock:
            self._file.write(line + "\n")

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def sent(self, topic: str, partition: int, value: str, **more: Any) -> None:
        self.write("sent", place=[topic, partition], value=value, **more)

    def acked(self, topic: str, partition: int, offset: int | None, value: str) -> None:
        self.write("acked", place=[topic, partition], offset=-1 if offset is None else offset, value=value)

    def read(self, topic: str, partition: int, offset: int, value: str) -> None:
        self.write("read", place=[topic, partition], offset=offset, value=value)

    def given(self, places: Iterable[tuple[str, int]]) -> None:
        self.write("given", places=list(places))

    def taken(self, places: Iterable[tuple[str, int]]) -> None:
        self.write("taken", places=list(places))

    def moved(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self.write("moved", offsets=[[list(place), offset] for place, offset in offsets.items()])

    def trouble(self, why: object) -> None:
        self.write("trouble", why=str(why))


class Ending:
    """Set once SIGTERM has come. At SIGUSR1 a client that doesn't end says where it is."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        faulthandler.register(signal.SIGUSR1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._asked.set())

    def __bool__(self) -> bool:
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        return self._asked.wait(seconds)


def options() -> dict[str, Any]:
    """What the run wants of this client, as JSON."""
    return json.loads(sys.argv[1])
