"""A log that can't be flooded: a client that fails a thousand times a second is told of twenty times, and counted."""

import logging
from collections.abc import Callable
from time import monotonic

WINDOW_S = 10.0
TOLD_MAX = 20
TEMPLATES_MAX = 1000
KIND_CHARS = 120
_NO_DIGITS = str.maketrans("", "", "0123456789")


class Quiet(logging.Filter):
    """Lets the first lines of one kind pass in each window; the first one of the next window says how many did not.

    A kind is a logger and a message without its numbers.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # when the window began, lines since

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.name, record.getMessage()[:KIND_CHARS].translate(_NO_DIGITS)
        now = self._clock()
        began, count = self._seen.get(kind, (now, 0))
        if now - began < WINDOW_S:
            if len(self._seen) < TEMPLATES_MAX or kind in self._seen:
                self._seen[kind] = began, count + 1
            return count < TOLD_MAX
        self._seen[kind] = now, 1
        if count > TOLD_MAX:
            left_out = f" ({count - TOLD_MAX} more like this were left out in {now - began:.0f} s)"
            record.msg, record.args = record.getMessage() + left_out, None
        return True
