"""Cutting a log: a follower drops what its new leader doesn't have, or starts anew."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.log import indexing
from tidelog.log.segment import NEVER

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment


def truncate_to(log: Log, offset: int) -> bool:
    assert offset >= 0, f"truncating to {offset}"
    if offset >= log.log_end or not log.segments:
        log.epochs.truncate_from_end(log.log_end)
        return False
    if offset < log.segments[0].base:
        start_at(log, offset, log._store.clock.now_ms())
        return True
    number = log._segment_number(offset)
    segment = log.segments[number]
    log.look(segment, number)
    found = log._position(segment, offset)
    rest_end = indexing.end_of_batches(log, segment, offset)
    _fall_back(log, offset, rest_end)
    log.forget_segments(log.segments[:number:-1])  # the last one first: a crash in between leaves no hole
    log._store.disk.sync_folder(log.folder)  # what goes must not come back behind the cut, or beside what is new
    file = log.file_of(segment)
    file.truncate(segment.size if found is None else found[0])
    file.sync()
    _reopen_last(log, segment)
    segment.aborted(log._store.disk).truncate_to(offset)
    log.epochs.truncate_from_end(offset)
    log.ends.cut(offset)
    if rest_end < offset:
        _go_on_behind_hole(log, segment, offset)
    log.touch()
    return True


def _reopen_last(log: Log, segment: Segment) -> None:
    """The segment was cut and is the last one now: learn its indexes and timestamps again."""
    log._sealed_unsaved = [pair for pair in log._sealed_unsaved if pair[0] is not segment]
    log._sealed_unsynced = [other for other in log._sealed_unsynced if other is not segment]
    indexing.scan(log, segment, NEVER, check=False)
    log._become_last(segment)


def _go_on_behind_hole(log: Log, segment: Segment, offset: int) -> None:
    """Compaction took what was right before `offset`: an empty segment tells where the log goes on.

    Recovery takes it for a hole that compaction made: the one before it begins below the end of what is compacted.
    One that kept nothing would begin just there: it goes.
    """
    now_ms = log._store.clock.now_ms()
    if segment.size:
        log.roll_at_end(now_ms)
        return
    log.forget_segments([segment])
    log._begin_segment(offset, now_ms)
    if len(log.segments) == 1:
        log.ends.move_start(offset)
        log._store.starts.moved(log)


def start_at(log: Log, offset: int, now_ms: int) -> None:
    """All segments go; an empty one keeps the place."""
    _fall_back(log, offset, offset)
    log.epochs.clear()
    log.ends.start_at(offset)
    log.forget_segments(log.segments[::-1])
    log._make_folder()
    log._store.disk.sync_folder(log.folder)
    log._begin_segment(offset, now_ms)
    log._store.starts.moved(log)
    log.touch()


def _fall_back(log: Log, offset: int, rest_end: int) -> None:
    """Nothing that was known of offsets from `offset` on holds any longer; the batches before it end at `rest_end`.

    The recovery point goes first, durably: a crash right after the cut must not find records missing below it.
    """
    epochs = log.epochs  # loaded before the batches go that it may be built from
    assert epochs is not None
    if log.ends.fall_back(offset, rest_end):
        log._store.save_recovery_point(log)
    log._new_names = True
    log._marks = None
    log._unreadable = None
    log._producers = None
    log._epoch = -1
    log._sealed_unsynced = [segment for segment in log._sealed_unsynced if segment.base < offset]
    log._sealed_unsaved = [(segment, data) for segment, data in log._sealed_unsaved if segment.base < offset]
    for stale in [known for known in log._snapshots if known > offset]:
        with suppress(FileNotFoundError):
            log._store.disk.remove(log.snapshot_path(stale))
    log._snapshots = [known for known in log._snapshots if known <= offset]
