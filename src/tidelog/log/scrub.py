"""The slow check of sealed segments in the background: sendfile doesn't look at what it sends.

One step reads a bounded piece of one segment and checks every batch in it. A bad one takes its log offline with the
place named: better no answer than a wrong one. Only what the recovery point has passed is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.names import LOG
from tidelog.log.scan import BadBatch, batches

if TYPE_CHECKING:
    from tidelog.env import Environment
    from tidelog.env.disk import File
    from tidelog.env.promise import Promise
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment
    from tidelog.log.store import Store

STEP_BYTES = 64 * 1024 * 1024
STEP_S = 10.0
"""64 MB every 10 s: a terabyte in two days, at less than one percent of a core."""


class Scrub:
    """Goes round all sealed segments of a store, one step at a time."""

    def __init__(self, env: Environment, store: Store) -> None:
        self._env = env
        self._store = store
        self._round: list[tuple[Log, Segment]] = []
        self._pos = 0
        self.busy = False

    def step(self) -> None:
        """Check the next piece, off the loop."""
        if self.busy:
            return
        found = self._next()
        if found is None:
            return
        log, segment = found
        self.busy = True
        pos = self._pos
        disk, path, base = self._env.disk, segment.stem + LOG, segment.base
        end = next(other.base for other in log.segments if other.base > base)
        done = self._env.loop.run_blocking(lambda: check_piece(disk.open(path), pos, STEP_BYTES, (base, end)))
        done.on_done(lambda promise: self._checked(log, segment, promise))

    def _next(self) -> tuple[Log, Segment] | None:
        """The segment to go on with; a new round begins when the last one is through."""
        if not self._round:
            self._round = self._sealed()
            self._pos = 0
        while self._round:
            log, segment = self._round[-1]
            if log.offline is None and any(segment is other for other in log.segments[:-1]):
                return log, segment
            self._round.pop()
            self._pos = 0
        return None

    def _sealed(self) -> list[tuple[Log, Segment]]:
        return [
            (log, segment)
            for log in self._store.logs()
            for segment, behind in zip(log.segments, log.segments[1:], strict=False)
            if behind.base <= log.recovery_point and log.offline is None
        ]

    def _checked(self, log: Log, segment: Segment, promise: Promise[int | None]) -> None:
        self.busy = False
        error = promise.error
        if not any(segment is other for other in log.segments):
            error = None  # retention was faster, or compaction: another file may have the name now
        if error is not None:
            where = segment.stem + LOG
            log.go_offline(f"the scrub found damage: {error}" if isinstance(error, BadBatch) else f"{where}: {error}")
        pos = None if promise.error is not None else promise.result()
        if pos is None:
            self._round.pop()
            self._pos = 0
        else:
            self._pos = pos


def check_piece(file: File, pos: int, count: int, offsets: tuple[int, int]) -> int | None:
    """Check batches from `pos` on for about `count` bytes; where to go on, None at the end. Raises BadBatch.

    Offsets, which the checksum doesn't cover, must rise within the range that the segment has.
    """
    end = file.size()
    stop = pos + count
    least, limit = offsets
    for at, fields in batches(file, pos, end, check=True):
        last = fields[0] + fields[6]
        if not least <= fields[0] <= last < limit:
            raise BadBatch(file.path, at, f"a batch of offsets {fields[0]} to {last}, between {least} and {limit - 1}")
        least = last + 1
        behind = at + fields[1] + 12
        if behind >= stop:
            return behind if behind < end else None
    return None
