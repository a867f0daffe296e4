"""The running queries of a pipeline; one that failed for want of a moment is started again.

Spark gives a new Python process ten seconds to come up, which can't be set, and a busy machine takes longer. So queries
start one after the other. One that fails nevertheless loses nothing by it: it goes on from its checkpoint, as after a
crash.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tidelog.spark.pipeline.run.reason import words_of

logger = logging.getLogger("tidelog.spark")

LATE = "Python worker failed to connect back"
TRIES = 5
UP_S = 15.0
POLL_S = 0.05
PAUSE_S = 3.0


class Queries:
    """By name; `tell` is told when one is started again."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.by_name: dict[str, Any] = {}
        self._begin: dict[str, Callable[[], Any]] = {}
        self._tries: dict[str, int] = {}
        self._tell = tell

    def start(self, name: str, begin: Callable[[], Any]) -> None:
        """Start one, and wait until it is up; not for long, and not for it to do anything."""
        self._begin[name] = begin
        query = self.by_name[name] = self._begun(name)
        deadline = time.monotonic() + UP_S
        while query.isActive and query.status["message"].startswith("Initializing") and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _begun(self, name: str) -> Any:
        """A query that was begun. Through Spark Connect it is the start itself that fails."""
        for number in range(1, TRIES + 1):
            try:
                return self._begin[name]()
            except Exception as error:
                if LATE not in str(error):
                    raise
            self._tell(f"{name}: a Python process was late to come up; starting again")
            time.sleep(number * PAUSE_S)  # the queries that run already may be done with what keeps the machine busy
        raise RuntimeError(f"{name}: {LATE} {TRIES} times: this machine has too much to do")

    def mend(self) -> list[str]:
        """Start those again whose Python process came up too late: five times, and anew once a batch was done.

        Returns the names of those that failed for good.
        """
        failed: list[str] = []
        for name, query in list(self.by_name.items()):
            failure = query.exception()
            if failure is None:
                continue
            self._tries[name] = 1 if query.lastProgress else self._tries.get(name, 0) + 1
            if LATE not in str(failure) or self._tries[name] > TRIES:
                failed.append(name)
                continue
            self._tell(f"{name}: a Python process was late to come up; going on from the checkpoint")
            self.start(name, self._begin[name])
        return failed

    def again(self, name: str) -> None:
        """Start one again whose failure was seen to."""
        self._tries.pop(name, None)
        self.start(name, self._begin[name])

    def stop(self) -> None:
        """Stop all, at once: one that waits for a broker takes half a minute.

        One that does not end in time is cut off with its Spark, and goes on from its checkpoint.
        """
        if self.by_name:
            with ThreadPoolExecutor(len(self.by_name)) as together:
                list(together.map(_stopped, self.by_name, self.by_name.values()))


def _stopped(name: str, query: Any) -> None:
    try:
        query.stop()
    except Exception as error:  # of Java's, or that there is no Java any more
        logger.warning("%s did not stop: %s", name, words_of(error))
