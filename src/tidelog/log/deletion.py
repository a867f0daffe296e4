"""Taking the first segments off a log, in steps: what a start would need in their place is durable before they go.

A start after a crash reads from the recovery point that is saved, with the producers of the newest snapshot up to
there. What it doesn't find in that snapshot it finds in the batches behind it; a marker that went with its segment it
would never find, and the transaction would be open for ever. So a segment goes when the snapshot that a start begins
with is behind it:

1. the recovery point is moved (flush.py), which writes a snapshot, and is saved; where it is far enough, it isn't;
2. the log's new start is saved: a power loss may bring files back, but not their records. On a full disk it can't be,
   and the segments go all the same, since that is what makes room; the names of the files tell the start then;
3. the log starts there, and the files get their other names, the first one first: a crash in between leaves no hole.

Each step ends before the next begins, none of them syncs anything on the loop, and whatever comes in between (a
truncation, a cleaning, the topic's deletion) ends it: the next look of retention begins anew.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.store import Store


class Deletion:
    """The logs of a store that are to lose their first segments."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[Log, int] = {}  # for their recovery point; the time that they were looked at for
        self._saving: set[Log] = set()  # their new starts are being saved

    def busy(self, log: Log) -> bool:
        """Whether segments of this log are about to go: a cleaning waits for that."""
        return log in self._waiting or log in self._saving

    def begin(self, log: Log, start: int, now_ms: int) -> None:
        """The segments that end at `start` or before are to go; it is the first offset of one that stays."""
        self._waiting[log] = now_ms
        if start > log.restart_snapshot():
            self._store.flush_soon(log)
        else:
            self.flush_ended(log)

    def flush_ended(self, log: Log) -> None:
        """The log was flushed, and its recovery point saved, or that failed: what may go by now goes."""
        now_ms = self._waiting.pop(log, None)
        if now_ms is not None and not log.deleted and not self._store.upkeep.cleaner.busy(log):
            with suppress(KafkaError):  # it went offline, or can't be looked at: both were told
                self._save(log, log.retained_from(now_ms))

    def forget(self, log: Log) -> None:
        """The log is no more."""
        self._waiting.pop(log, None)

    def _save(self, log: Log, wanted: int) -> None:
        """Save the new start: `wanted`, as far as a start after a crash doesn't need what is before it."""
        if log in self._saving or not log.segments:
            return
        limit = min(wanted, log.restart_snapshot())
        start = max((segment.base for segment in log.segments if segment.base <= limit), default=0)
        if start <= log.segments[0].base:
            return
        self._saving.add(log)
        generation = log.ends.generation
        self._store.starts.save(log, start).on_done(lambda _: self._let_go(log, start, generation))

    def _let_go(self, log: Log, start: int, generation: int) -> None:
        self._saving.discard(log)
        if log.deleted or log.offline is not None or generation != log.ends.generation:
            return
        if not self._store.upkeep.cleaner.busy(log):
            with suppress(KafkaError):  # it went offline, and its listener knows
                log.delete_segments(start)
