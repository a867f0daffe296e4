"""The slow check of sealed segments in the background: sendfile doesn't look at what it sends.

One step reads a bounded piece of one segment and checks every batch in it. A bad one takes its log offline with the
place named: better no answer than a wrong one. One that the disk doesn't give back is told, and the rest of its
segment left for the next round: nobody is given a wrong answer. Only what the recovery point has passed is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.commit import TOO_MANY_FILES
from tidelog.log.names import LOG
from tidelog.log.scan import BadBatch, batches
from tidelog.log.unreadable import Unreadable, UnreadableBytes
from tidelog.wire.batch import LOG_OVERHEAD

if TYPE_CHECKING:
    from tidelog.env import Environment
    from tidelog.env.disk import ReadableFile
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
        self._pos = self._least = 0
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
        pos, least = self._pos, max(self._least, segment.base)
        disk, clock, path = self._env.disk, self._env.clock, segment.stem + LOG
        end = next(other.base for other in log.segments if other.base > segment.base)

        def check() -> tuple[int, int] | None:
            return check_piece(Unreadable(clock).careful(disk.open(path)), pos, STEP_BYTES, (least, end))

        done = self._env.loop.run_blocking(check)
        done.on_done(lambda promise: self._checked(log, segment, promise))

    def _next(self) -> tuple[Log, Segment] | None:
        """The segment to go on with; a new round begins when the last one is through."""
        if not self._round:
            self._round = self._sealed()
            self._pos = self._least = 0
        while self._round:
            log, segment = self._round[-1]
            if log.offline is None and any(segment is other for other in log.segments[:-1]):
                return log, segment
            self._round.pop()
            self._pos = self._least = 0
        return None

    def _sealed(self) -> list[tuple[Log, Segment]]:
        return [
            (log, segment)
            for log in self._store.logs()
            for segment, behind in zip(log.segments, log.segments[1:], strict=False)
            if behind.base <= log.recovery_point and log.offline is None
        ]

    def _checked(self, log: Log, segment: Segment, promise: Promise[tuple[int, int] | None]) -> None:
        self.busy = False
        error = promise.error
        if not any(segment is other for other in log.segments):
            error = None  # retention was faster, or compaction: another file may have the name now
        if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:
            return  # the same piece again
        if isinstance(error, Unread):
            log.read_failed(error.error, error.offset)
        elif error is not None:
            where = segment.stem + LOG
            log.go_offline(f"the scrub found damage: {error}" if isinstance(error, BadBatch) else f"{where}: {error}")
        behind = None if promise.error is not None else promise.result()
        if behind is None:
            self._round.pop()
            self._pos = self._least = 0
        else:
            self._pos, self._least = behind


class Unread(Exception):
    """The batch with `offset`, or the next one, can't be read."""

    def __init__(self, error: UnreadableBytes, offset: int) -> None:
        super().__init__(error, offset)
        self.error = error
        self.offset = offset


def check_piece(file: ReadableFile, pos: int, count: int, offsets: tuple[int, int]) -> tuple[int, int] | None:
    """Check batches from `pos` on for about `count` bytes; the position and least offset to go on with, None at the
    end. Raises BadBatch, Unread.

    Offsets, which the checksum doesn't cover, must rise within the range that the segment has.
    """
    end = file.size()
    stop = pos + count
    least, limit = offsets
    try:
        for at, fields in batches(file, pos, end, check=True):
            first, last = fields.base_offset, fields.last_offset
            if not least <= first <= last < limit:
                raise BadBatch(file.path, at, f"a batch of offsets {first} to {last}, between {least} and {limit - 1}")
            least = last + 1
            behind = at + fields.length + LOG_OVERHEAD
            if behind >= stop:
                return (behind, least) if behind < end else None
    except UnreadableBytes as error:
        raise Unread(error, least) from error
    return None
