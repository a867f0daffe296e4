"""What Spark's Java and Python processes write to their error output: into the log, and not over the terminal.

Java's own warnings, and the tracebacks of Python processes that a query's end cut off, tell nothing to who runs a
pipeline, who is told of failures in a sentence. Other lines, such as Tidelog's own in those processes, are passed on.
"""

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

LINES_KEPT = 50
WINDOW_S = 60.0
TOLD_MAX = 20
"""Lines that are told within a window, each once."""
LINE_CHARS_MAX = 2000
ERROR_OUTPUT = 2
TRACEBACK = re.compile(
    r"Traceback \(most recent call last\)|During handling of|The above exception|Exception ignored in"
)
NOISE = re.compile(
    r"\s|$|WARNING:|OpenJDK |Picked up |SLF4J|Using Spark's |Setting default |Exception|Caused by|\.\.\."
)
THROWN = re.compile(r'^Exception in thread "[^"]*" [\w.$]+: ')
JAVA_FAILED = re.compile(r"(?:Error|Exception in thread|Unrecognized|Invalid)\b.*")

logger = logging.getLogger("tidelog.spark")


class StderrCapture:
    """Listens to processes; `tell` is told what is worth it."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self._tell = tell
        self._recent_lines: dict[str, float] = {}
        self._traced = False
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)

    @contextmanager
    def children(self) -> Generator[None]:
        """Processes that are started meanwhile are listened to, for as long as they live."""
        reading, writing = os.pipe()
        kept = os.dup(ERROR_OUTPUT)
        os.dup2(writing, ERROR_OUTPUT)
        os.close(writing)
        threading.Thread(target=self._listen, args=(reading,), daemon=True).start()
        try:
            yield
        finally:
            os.dup2(kept, ERROR_OUTPUT)
            os.close(kept)

    def _listen(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self.hear(line.rstrip()[:LINE_CHARS_MAX])

    def hear(self, line: str) -> None:
        """One line: kept, logged, and told where it is neither noise nor part of a traceback."""
        self._lines.append(line)
        logger.info("spark: %s", line)
        if TRACEBACK.match(line):
            self._traced = True
        elif self._traced:
            self._traced = not line or line[0].isspace()  # the line after them is the error itself
        elif not NOISE.match(line) and self._tell is not None and self._is_new(line):
            self._tell(line)

    def _is_new(self, line: str) -> bool:
        now = time.monotonic()
        self._recent_lines = {each: at for each, at in self._recent_lines.items() if now - at < WINDOW_S}
        if line in self._recent_lines or len(self._recent_lines) >= TOLD_MAX:
            return False
        self._recent_lines[line] = now
        return True

    def failure(self) -> str | None:
        """What Java said when it did not start."""
        message = next((line for line in self._lines if JAVA_FAILED.match(line)), None)
        return None if message is None else THROWN.sub("", message)
