"""Which segments go: those below the log's start, then the oldest while the log is too large, then those too old."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment


def apply(log: Log, now_ms: int) -> int:
    """Delete what the topic's settings let go; how many segments. Nothing at or above the high watermark goes."""
    config = log.config
    gone = _delete(log, _below_start(log), now_ms)
    if "delete" in config.cleanup_policy:
        gone += _delete(log, _too_large(log, config.retention_bytes), now_ms)
        gone += _delete(log, _too_old(log, config.retention_ms, now_ms), now_ms)
    return gone


def _committed(log: Log) -> int:
    """How many segments, from the first, are wholly below the high watermark."""
    limit = log.durable_end if log.high_watermark < 0 else log.high_watermark
    ends = [segment.base for segment in log.segments[1:]]
    ends.append(log.log_end)
    return sum(1 for end in ends if end <= limit)


def _below_start(log: Log) -> int:
    return min(_committed(log), sum(1 for segment in log.segments[1:] if segment.base <= log.log_start))


def _too_large(log: Log, retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    sizes = [log.look(segment, number) for number, segment in enumerate(log.segments)]
    excess = sum(sizes) - retention_bytes
    count = 0
    for size in sizes[: _committed(log)]:
        if excess - size < 0:
            break
        excess -= size
        count += 1
    return _not_empty_last(log, count)


def _too_old(log: Log, retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for number, segment in enumerate(log.segments[: _committed(log)]):
        log.look(segment, number)
        if now_ms - _newest(segment) <= retention_ms:
            break
        count += 1
    return _not_empty_last(log, count)


def _newest(segment: Segment) -> int:
    """The newest timestamp; where no batch has one, the time since which this process knows the segment."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms


def _not_empty_last(log: Log, count: int) -> int:
    """An empty last segment has nothing to delete."""
    return count - 1 if count == len(log.segments) and log.segments[-1].size == 0 else count


def _delete(log: Log, count: int, now_ms: int) -> int:
    if not count:
        return 0
    if count == len(log.segments):
        log.roll(now_ms)  # a log has at least one segment: it keeps the next offset
    going = log.segments[:count]
    start = log.segments[count].base
    if start > log.log_start:
        log.log_start = start
        log.epochs.truncate_from_start(start)
    log.forget_segments(going)
    log._store.start_moved(log)
    return count
