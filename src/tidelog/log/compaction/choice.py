"""Which log is due for compaction: how much of it may be cleaned, and whether that is enough or waited long enough.

A log is cleaned by whole segments, and never beyond the last stable offset, the recovery point that is saved (what is
behind it isn't known to be durable, and recovery takes a hole there for a loss), the segment that is written, and the
first segment too young for `min.compaction.lag.ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.setting import LONG_MAX
from tidelog.log.scan import read_fields
from tidelog.wire.batch import HEADER_BYTES

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment


class Due(NamedTuple):
    """The first `number` segments of the log are to be cleaned, up to `end`; `ratio` of their bytes is dirty."""

    log: Log
    number: int
    first_dirty: int
    end: int
    ratio: float


def look(log: Log, clean_end: int, saved_point: int, now_ms: int) -> Due | None:
    """What is to be done for this log, if it is due. `clean_end` is how far the last cleaning came,
    `saved_point` the recovery point that is saved.

    Raises OSError and BadBatch where its files can't be read.
    """
    segments = log.segments
    if len(segments) < 2 or log.offline is not None:
        return None
    start = max(log.log_start, segments[0].base)
    first_dirty = start if clean_end > log.log_end else max(clean_end, start)
    committed = log.durable_end if log.high_watermark < 0 else log.high_watermark
    durable = min(log.recovery_point, saved_point)
    count = _cleanable(log, first_dirty, min(committed, durable), now_ms)
    ratio = _dirty_ratio(log, first_dirty, count)
    if not ratio or (ratio <= log.config.min_cleanable_dirty_ratio and not _overdue(log, first_dirty, count, now_ms)):
        return None
    unstable = log.producers.first_unstable  # asked last: it may have to be read from the disk
    if 0 <= unstable < segments[count].base:
        count = sum(1 for segment in segments[1:] if segment.base <= unstable)
        ratio = _dirty_ratio(log, first_dirty, count)
    return Due(log, count, first_dirty, segments[count].base, ratio) if ratio else None


def _dirty_ratio(log: Log, first_dirty: int, count: int) -> float:
    """The share of bytes in the first `count` segments that were not cleaned yet."""
    dirty = clean = 0
    for segment, behind in zip(log.segments[:count], log.segments[1:], strict=False):
        size = segment.size_now(log.segments.around.disk)
        if segment.base < first_dirty:
            clean += size
        if behind.base > first_dirty:
            dirty += size
    return dirty / (clean + dirty) if dirty else 0.0


def _cleanable(log: Log, first_dirty: int, limit: int, now_ms: int) -> int:
    """How many segments, from the first, may be cleaned: all below `limit`."""
    segments = log.segments
    unsaved = log.unsynced.bases
    lag_ms = log.config.min_compaction_lag_ms
    for number, behind in enumerate(segments[1:]):
        segment = segments[number]
        if behind.base > limit or segment.base in unsaved:
            return number
        if lag_ms > 0 and behind.base > first_dirty:
            log.segments.look(segment, number)
            if segment.max_timestamp > now_ms - lag_ms:
                return number
    return len(segments) - 1


def _overdue(log: Log, first_dirty: int, count: int, now_ms: int) -> bool:
    """Whether a dirty segment began longer than `max.compaction.lag.ms` ago."""
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= LONG_MAX:
        return False
    return any(
        0 < _first_timestamp(log, segment) < now_ms - lag_ms
        for segment, behind in zip(log.segments[:count], log.segments[1:], strict=False)
        if behind.base > first_dirty
    )


def _first_timestamp(log: Log, segment: Segment) -> int:
    known = segment.first_timestamp
    if known is None:
        header = log.segments.reader_of(segment).read(0, HEADER_BYTES)
        known = segment.first_timestamp = read_fields(header).max_timestamp if len(header) == HEADER_BYTES else -1
    return known
