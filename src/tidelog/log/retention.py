"""Which segments go: those below the log's start, then the oldest while the log is too large, then those too old.

Only what goes is decided here; deletion.py takes it away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment


def look(log: Log, start: int, now_ms: int) -> int:
    """How many segments, from the first, the topic's settings let go. Nothing at or above the high watermark goes.

    `start`: the log's start, as far as it holds; a client's that can't be written down is taken back.
    """
    config, most = log.config, _committed(log)
    count = _below_start(log, start, most)
    if "delete" in config.cleanup_policy:
        count += _too_large(log, count, most, config.retention_bytes)
        count += _too_old(log, count, most, config.retention_ms, now_ms)
    if count == len(log.segments) and log.segments[-1].size == 0:
        return count - 1  # an empty last segment has nothing to delete
    return count


def _committed(log: Log) -> int:
    """How many segments, from the first, are wholly below the high watermark."""
    limit = log.durable_end if log.high_watermark < 0 else log.high_watermark
    ends = [segment.base for segment in log.segments[1:]]
    ends.append(log.log_end)
    return sum(1 for end in ends if end <= limit)


def _below_start(log: Log, start: int, most: int) -> int:
    return min(most, sum(1 for segment in log.segments[1:] if segment.base <= start))


def _too_large(log: Log, first: int, most: int, retention_bytes: int) -> int:
    """How many from the `first` on, and at most up to `most`, go for their size."""
    if retention_bytes < 0:
        return 0
    sizes = [log.segments.look(segment, number) for number, segment in enumerate(log.segments)][first:]
    excess = sum(sizes) - retention_bytes
    count = 0
    for size in sizes[: most - first]:
        if excess - size < 0:
            break
        excess -= size
        count += 1
    return count


def _too_old(log: Log, first: int, most: int, retention_ms: int, now_ms: int) -> int:
    """How many from the `first` on, and at most up to `most`, go for their age.

    Those that compaction emptied have that of their file: consumers that stand before them may come yet, and would be
    out of range if the log started behind them at once.
    """
    if retention_ms < 0:
        return 0
    count = 0
    for number in range(first, most):
        segment = log.segments[number]
        log.segments.look(segment, number)
        if now_ms - _newest(log, segment) <= retention_ms:
            break
        count += 1
    return count


def _newest(log: Log, segment: Segment) -> int:
    """The newest timestamp; where no batch has one, the time when the file was last written to, as in Kafka."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else log.written_ms(segment)
