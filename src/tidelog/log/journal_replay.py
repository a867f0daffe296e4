"""What a journal adds to a log that is opened after a crash: the batches that come next behind what its segments have.

Nothing that is sound in a segment is written over, and only what goes on where the segments end is added: a second
start does the same. What others wrote to the log meanwhile (Apache Kafka took over the folder, say) is told from what
the journal knows by the checksum of the batch before, and by leader epochs, which never fall in a log.

What an earlier segment than the last one had doesn't matter: all of it was durable before anything in a later one was,
and compaction may have written it anew since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.log.journal_blocks import batches_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.log.journal_blocks import Entry, Found
    from tidelog.log.scan import HeaderFields


class Addition(NamedTuple):
    """Batches for a segment: for the last one, or for a new one where that is the offset that comes next."""

    segment_base: int
    start: int
    end: int
    data: bytes


def lasting(entries: Iterable[Entry]) -> list[Entry]:
    """Those that count, of one log, in the order of their blocks: who begins before another's end took its place."""
    kept: list[Entry] = []
    for entry in entries:
        while kept and kept[-1].end > entry.start:
            kept.pop()
        kept.append(entry)
    return kept


def row_to_the_end(entries: Sequence[Entry], segment_base: int, log_end: int) -> list[Entry]:
    """Those that follow each other in the last segment, whose base this is, up to the log's end; none where the journal
    doesn't reach that, or goes beyond it.

    What comes before the first of them was durable in the segments when that was written.
    """
    if any(entry.end > log_end for entry in entries):
        return []
    row: list[Entry] = []
    for entry in reversed(lasting(entries)):
        if entry.segment_base != segment_base or entry.end != (row[-1].start if row else log_end):
            break
        row.append(entry)
    return row[::-1]


def additions(
    entries: Sequence[Entry],
    read: Callable[[Entry], bytes],
    segment_base: int,
    next_offset: int,
    last: HeaderFields | None,
) -> list[Addition]:
    """What comes from `next_offset` on, behind the segment of this base. `last` is the batch right before that, where
    there is one."""
    added: list[Addition] = []
    at = next_offset
    for entry in lasting(entries):
        if entry.end < next_offset or entry.segment_base < segment_base:
            continue
        if entry.start > at:
            break
        data = read(entry)
        batches = batches_of(data)
        if batches is None or (entry.start <= next_offset and not _follows(batches, next_offset, last)):
            break
        behind = [batch for batch in batches if batch.base >= at]
        if behind:
            added.append(Addition(entry.segment_base, at, entry.end, data[behind[0].pos :]))
            at = entry.end
    return added


def _follows(batches: list[Found], next_offset: int, last: HeaderFields | None) -> bool:
    """Whether these may go on behind the batch `last`, or have it in their midst."""
    if last is None:
        return True
    for batch in batches:
        if batch.base < next_offset < batch.end:
            return False
        if batch.end == next_offset and batch.crc != last.crc:
            return False
        if batch.base >= next_offset:
            return batch.leader_epoch >= last.leader_epoch
    return True
