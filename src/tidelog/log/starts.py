"""Where logs start: a start that a client was told of survives a crash, or moves back where it can't be saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.durability import page_cache_counts
from tidelog.log.memory import MemoryLog

if TYPE_CHECKING:
    from tidelog.env.promise import Promise
    from tidelog.log.checkpoint_files import CheckpointFiles
    from tidelog.log.log import Log


class LogStarts:
    """Of all logs. `points` are the checkpoints, by data folder."""

    def __init__(self, points: dict[str, CheckpointFiles]) -> None:
        self._points = points
        self._moves: dict[Log, tuple[Promise[None], int]] = {}  # starts that are being saved, and what holds if not

    def moved(self, log: Log) -> None:
        """The log's start moved on, or all of the log did."""
        if not isinstance(log, MemoryLog):
            self.note(log)
            self._points[log.root].starts.save()

    def save(self, log: Log, start: int) -> Promise[None]:
        """Resolved when the log would start at `start` after a crash, or later; it doesn't yet."""
        key, points = (log.topic, log.partition), self._points[log.root]
        before = points.starts.offsets.get(key, 0)
        points.starts.put(key, max(start, before))
        saved = self._saved(log)
        if saved.error is not None:  # nothing was tried
            points.starts.put(key, before)
        return saved

    def move(self, log: Log, before: int) -> None:
        """The log's start moved on from `before`, for a client: back again where that can't be made durable."""
        if isinstance(log, MemoryLog):
            log.start_saved()
            return
        key, offset, starts = (log.topic, log.partition), log.log_start, self._points[log.root].starts
        if log in self._moves:
            before = self._moves[log][1]
        starts.put(key, offset)
        move = self._moves[log] = self._saved(log), before

        def settled(saved: Promise[None]) -> None:
            if self._moves.get(log) is not move:
                return  # a later move decides
            del self._moves[log]
            if saved.error is None:
                log.start_saved()
            elif log.log_start == offset and not log.deleted:
                log.start_failed(before)
                starts.put(key, log.log_start)

        move[0].on_done(settled)

    def saved(self, log: Log) -> Promise[None]:
        """Resolved when the log's start, as it is now, survives a crash; failed where it moved back instead."""
        move = self._moves.get(log)
        return self._saved(log) if move is None else move[0]

    def _saved(self, log: Log) -> Promise[None]:
        key, may_lose_end = (log.topic, log.partition), page_cache_counts(log.config)
        return self._points[log.root].save_starts(key, may_lose_end=may_lose_end)

    def note(self, log: Log) -> None:
        """Also where a segment begins there: a power loss may bring deleted segments back, but not their records."""
        if log.log_start > 0:
            self._points[log.root].starts.put((log.topic, log.partition), log.log_start)

    def settled(self, log: Log) -> int:
        """The log's start, unless a move of it may still fail: then the one that holds in any case."""
        return self._moves[log][1] if log in self._moves else log.log_start
