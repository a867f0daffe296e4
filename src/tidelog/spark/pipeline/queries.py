"""The running queries of a pipeline; one that failed for want of a moment is started again.

Spark gives a new Python process ten seconds to come up, which can't be set, and a busy machine takes longer. The query
fails, and loses nothing by it: it goes on from its checkpoint, as after a crash.
"""

import time
from collections.abc import Callable
from typing import Any

LATE = "Python worker failed to connect back"
TRIES = 5
PAUSE_S = 2.0


class Queries:
    """By name; `tell` is told when one is started again."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.by_name: dict[str, Any] = {}
        self._begin: dict[str, Callable[[], Any]] = {}
        self._tries: dict[str, int] = {}
        self._tell = tell

    def start(self, name: str, begin: Callable[[], Any]) -> None:
        self._begin[name] = begin
        self.by_name[name] = begin()

    def mend(self) -> None:
        """Start those again whose Python process came up too late: five times, and anew once a batch was done."""
        for name, query in self.by_name.items():
            failure = query.exception()
            if failure is None or LATE not in str(failure):
                continue
            self._tries[name] = 1 if query.lastProgress else self._tries.get(name, 0) + 1
            if self._tries[name] > TRIES:
                continue
            self._tell(f"{name}: a Python process was late to come up; going on from the checkpoint")
            time.sleep(PAUSE_S * self._tries[name])
            self.by_name[name] = self._begin[name]()

    def stop(self) -> None:
        for query in self.by_name.values():
            query.stop()
