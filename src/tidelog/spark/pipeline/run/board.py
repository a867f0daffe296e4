"""What is shown of a run while it runs: the status file, a line in the log for each micro-batch, a word now and then.

The log is `pipeline.log` beside the state. What libraries of this process log goes there too, and not to the terminal.
"""

import logging
import logging.handlers
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tidelog.env.log_lines import LineFormatter
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.run.current_lag import Ends
from tidelog.spark.pipeline.run.lag_groups import LagGroups
from tidelog.spark.pipeline.run.reason import words_of
from tidelog.spark.pipeline.run.status import done_by, figures, late_rows, query_status, write_status
from tidelog.spark.pipeline.run.stop_signals import Stop
from tidelog.spark.pipeline.sinks import left_out

LOG = "pipeline.log"
LOG_BYTES_MAX = 10_000_000
TELL_S = 10.0
LATE = "came later than the watermark allows"

logger = logging.getLogger("tidelog.spark")


class Board:
    """Entered when a run begins, left when it ends: how it ended stands in the status file then.

    What fails because a stop was wished is no failure: it does not come out of here. And none of this may end a run:
    where the disk is full that is said once, and queries go on as far as they can.
    """

    def __init__(self, pipeline: Pipeline, tell: Callable[[str], None], stop: Stop) -> None:
        self.tell = tell
        self.done = False
        self._pipeline = pipeline
        self._stop = stop
        self._queries: dict[str, Any] = {}
        self._seen: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._last_word = time.monotonic()
        self._known = left_out.left_out(pipeline.state)
        self._silent = False
        self._log: _Log | None = None
        self._ends = Ends(pipeline, tell)
        self._groups = LagGroups(pipeline)

    def __enter__(self) -> "Board":
        self._ends.begin()
        self._groups.begin()
        self._log = _opened(self._pipeline.state / LOG)
        self.write("starting")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._ends.end()
        self._groups.end()
        stopped = bool(self._stop) and isinstance(error, Exception)
        if error is None:
            self.write("done" if self.done else "stopped")
        elif stopped or isinstance(error, KeyboardInterrupt):
            self.write("stopped")
        else:
            logger.error("failed: %s", words_of(error))
            self.write("failed", words_of(error))
        if self._log is not None:
            self._log.end()
        return stopped

    def look(self, queries: dict[str, Any], outcome: str) -> None:
        """Show how the queries are."""
        self._queries = {name: query_status(query) for name, query in queries.items()}
        self._behind({name: query.lastProgress for name, query in queries.items()}, last=outcome == "done")
        for name, status in self._queries.items():
            if status.get("batch", -1) > self._seen.get(name, -1):
                with self._said_once():
                    self._batches(name, queries[name].recentProgress)
        self.write(outcome)
        if time.monotonic() > self._last_word + TELL_S:
            self._tell_progress()

    def _behind(self, progresses: dict[str, Any], *, last: bool) -> None:
        """What is behind the last batch of each query by now, where brokers tell."""
        done = {name: done_by(progress) for name, progress in progresses.items() if progress is not None}
        self._groups.tell(done)
        self._ends.watch({place for each in done.values() for place in each})
        if last:
            self._ends.ask_now()
        for name, each in done.items():
            behind = self._ends.behind(each)
            if behind is not None:
                self._queries[name]["lag"] = behind

    def write(self, outcome: str, why: str | None = None) -> None:
        """The status file; and who was left out since the last time, to whoever watches."""
        state, name = self._pipeline.state, self._pipeline.name
        left_out_rows = left_out.left_out(state)
        with self._said_once():
            more = {
                "why": why,
                "away": self._ends.away,
                "held_up": [each.to_json() for each in self._ends.held_up] or None,
            }
            write_status(state, name, self._queries, outcome, left_out_rows, **more)
            self._silent = False
        for query, each in left_out_rows.items():
            if self._known.get(query) != each:
                self.tell(f"{name}: {query}: {each.summary}")
        self._known = left_out_rows

    @contextmanager
    def _said_once(self) -> Generator[None]:
        """What can't be written is told of, once until it can be again."""
        try:
            yield
        except OSError as error:
            if not self._silent:
                self.tell(f"{self._pipeline.name}: its status can't be written to {self._pipeline.state}: {error}")
            self._silent = True

    def _batches(self, name: str, progresses: list[Any]) -> None:
        """Every micro-batch since the last look: a line, and the rows that were too late for it."""
        for progress in progresses:
            batch = progress["batchId"]
            if batch <= self._seen.get(name, -1):
                continue
            stats = figures(progress)
            logger.info(
                "%s: batch %d: %d rows, %d bytes, %.0f rows/s, %s ms, %d behind",
                *(name, batch, stats["rows"], stats["bytes"]),
                *(stats["rows_per_s"] or 0.0, stats["batch_ms"], stats["lag"]),
            )
            if late := late_rows(progress):
                left_out.add(self._pipeline.state, f"{name}-late", batch, late, LATE, "")
            self._seen[name] = batch
            self._rows[name] = self._rows.get(name, 0) + stats["rows"]

    def _tell_progress(self) -> None:
        """Rows since the last word, where there were any."""
        seconds = time.monotonic() - self._last_word
        words = [
            f"{name} batch {self._seen[name]}, {rows / seconds:,.0f} rows/s{self._lag_of(name)}"
            for name, rows in self._rows.items()
            if rows
        ]
        if words:
            self.tell(f"{self._pipeline.name}: {'; '.join(words)}")
        self._rows.clear()
        self._last_word = time.monotonic()

    def _lag_of(self, name: str) -> str:
        """A query that was just started again has none yet."""
        lag = self._queries[name].get("lag")
        return "" if lag is None else f", {lag:,} behind"


class _Log(logging.handlers.RotatingFileHandler):
    """Takes what everything in this process logs, until its end."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, maxBytes=LOG_BYTES_MAX, backupCount=1, encoding="utf-8")
        self.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s"))
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logging.getLogger().addHandler(self)

    def end(self) -> None:
        logging.getLogger().removeHandler(self)
        logger.setLevel(self._level)
        with suppress(OSError):
            self.close()

    def handleError(self, record: logging.LogRecord) -> None:
        """A disk that is full is told of by the status file."""


def _opened(file: Path) -> _Log | None:
    """None where it can't be written, which is no reason not to run."""
    try:
        return _Log(file)
    except OSError:
        return None
