"""Several batches with one write: what a client that doesn't wait for each answer sends to a partition in one go.

Only for batches that are plainly fine, of no idempotent producer, and in a log that acknowledges what the operating
system has: each is checked before anything is changed, and nothing is changed before all are written. Whatever else
comes is appended one by one (`Log.append`), which comes to the same.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.config.setting import LONG_MAX
from tidelog.log.index import TIME_ENTRY_BYTES
from tidelog.log.validate import RECORDS_MAX
from tidelog.wire.batch import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LOG_OVERHEAD, MAGIC, TRANSACTIONAL_FLAG
from tidelog.wire.crc import crc32c

if TYPE_CHECKING:
    from tidelog.env.network import Buffer
    from tidelog.log.log import Log
    from tidelog.log.segment import Segment

Placed = tuple[int, int, int, int, int, int]
"""Where a batch begins in the buffer, its bytes, first and last offset, position in the segment, newest timestamp."""

_unpack = HEADER.unpack_from
_patch = Struct(">qii").pack_into  # base offset, length, leader epoch


def append_run(
    log: Log, buffer: memoryview, ranges: list[tuple[int, int]], leader_epoch: int, now_ms: int
) -> list[int] | None:
    """Append the batches at these places of a writable buffer; their base offsets. None: nothing was appended."""
    segment = log._active
    if segment is None or log.ends.unsynced_max != LONG_MAX or leader_epoch != log._epoch or segment.offsets is None:
        return None
    if (len(segment.offsets.positions) + len(ranges) + 2) * TIME_ENTRY_BYTES > log.config.segment_index_bytes:
        return None
    file = segment.file
    placed = _place(log, segment, buffer, ranges, now_ms)
    if placed is None or file is None:
        return None
    parts: list[Buffer] = []
    bases: list[int] = []
    for start, size, base, _, _, _ in placed:
        _patch(buffer, start, base, size - LOG_OVERHEAD, leader_epoch)
        parts.append(buffer[start : start + size])
        bases.append(base)
    try:
        file.append_many(parts)
    except OSError as error:
        # Cut off, or the log is offline now; each by itself then has the answer that is due to it.
        log._write_failed(segment, error)
        for start, size, _, _, _, _ in placed:
            _patch(buffer, start, 0, size - LOG_OVERHEAD, leader_epoch)
        return None
    _take_note(log, segment, placed)
    if log._full:
        log.has_room()
    return bases


def _place(
    log: Log, segment: Segment, buffer: memoryview, ranges: list[tuple[int, int]], now_ms: int
) -> list[Placed] | None:
    """Where each will be; None where one isn't plainly fine, or doesn't fit into the segment."""
    base, position = log.ends.log_end, segment.size
    plain, max_bytes, newest = log._plain, log._max_bytes, min(now_ms + log._after_ms, segment.roll_after)
    placed: list[Placed] = []
    for start, end in ranges:
        size = end - start
        if not HEADER_BYTES <= size <= max_bytes:
            return None
        zero, length, _, magic, crc, attributes, delta, _, timestamp, producer_id, _, _, count = _unpack(buffer, start)
        if not (
            producer_id < 0
            and attributes in plain
            and not attributes & TRANSACTIONAL_FLAG
            and magic == MAGIC
            and length == size - LOG_OVERHEAD
            and not zero  # base offset
            and 0 <= delta == count - 1 < RECORDS_MAX
            and timestamp <= newest
            and crc32c(buffer[start + ATTRIBUTES_AT : end]) == crc
        ):
            return None
        last = base + delta
        placed.append((start, size, base, last, position, timestamp))
        base = last + 1
        position += size
    return placed if position <= log._size_limit and base - 1 <= segment.offset_limit else None


def _take_note(log: Log, segment: Segment, placed: list[Placed]) -> None:
    """They are written: as `Log.append` does for each."""
    interval, index_bytes, next_entry = log._interval, log.config.segment_index_bytes, segment.index_next
    for _, _, base, last, position, timestamp in placed:
        if timestamp > segment.max_timestamp:
            segment.max_timestamp = timestamp
            segment.max_timestamp_offset = last
        if position > next_entry:
            segment.add_entries(base, last, position, index_bytes)
            next_entry = position + interval
    _, size, _, last, position, _ = placed[-1]
    segment.index_next = next_entry
    segment.used = True
    segment.size = position + size
    log.batches += len(placed)
    log.ends.wrote(last + 1)
