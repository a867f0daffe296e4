"""Learning a segment from its batches: its size, its indexes and timestamps, and where its offsets end.

An index is only ever a shortcut: what of it can be trusted is taken over, the rest is built again from the segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.log.bounds import LOOKED_BEHIND_BYTES
from tidelog.log.index import BuiltIndex, OffsetIndex, SealedIndexes, TimeIndex
from tidelog.log.names import LOG, OFFSET_INDEX, TIME_INDEX
from tidelog.log.scan import BadBatch, batches, locate, raw_batches, read_fields
from tidelog.log.segment import NEVER, Segment
from tidelog.log.unreadable import UNREADABLE
from tidelog.wire.batch import HEADER_BYTES, LOG_OVERHEAD

if TYPE_CHECKING:
    from tidelog.env.disk import Disk
    from tidelog.log.segments import Segments


class Scanned(NamedTuple):
    """The offset behind a segment, and how many batches were read to find out."""

    next_offset: int
    batches: int


def scan(
    segments: Segments,
    segment: Segment,
    trusted: int,
    *,
    check: bool,
    found_epochs: list[tuple[int, int]] | None = None,
) -> Scanned:
    """Go through the segment from its last index entry below offset `trusted`; where that ends.

    Fills in size, indexes and timestamps, and adds (leader epoch, offset) where a new epoch begins. Where BadBatch is
    raised they stand for what came before it.
    """
    disk = segments.around.disk
    file = segments.reader_of(segment)
    end = file.size()
    start, next_offset = _trusted_indexes(disk, segment, trusted, end)
    segment.size = start
    segment.index_next = start + segments.folder.config.index_interval_bytes
    segment.first_timestamp = _first_timestamp(segments, segment) if end >= HEADER_BYTES else None
    interval, index_bytes = segments.folder.config.index_interval_bytes, segments.folder.config.segment_index_bytes
    limit, index_next, newest = segment.offset_limit, segment.index_next, segment.max_timestamp
    epoch = found_epochs[-1][0] if found_epochs else -1
    count = 0
    for pos, fields in raw_batches(file, start, end, check=check):
        base, length, leader_epoch, _, _, _, delta, _, max_timestamp, _, _, _, _ = fields
        last_offset = base + delta
        if base < next_offset or delta < 0 or last_offset > limit:
            raise BadBatch(file.path, pos, f"a batch of offsets {base} to {last_offset}, but {next_offset} comes next")
        if max_timestamp > newest:
            newest = segment.max_timestamp = max_timestamp
            segment.max_timestamp_offset = last_offset
        if pos > index_next:
            segment.add_entries(base, last_offset, pos, index_bytes)
            index_next = segment.index_next = pos + interval
        if leader_epoch > epoch and found_epochs is not None:
            epoch = leader_epoch
            found_epochs.append((epoch, base))
        next_offset = last_offset + 1
        segment.size = pos + length + LOG_OVERHEAD
        count += 1
    return Scanned(next_offset, count)


def _trusted_indexes(disk: Disk, segment: Segment, trusted: int, log_bytes: int) -> tuple[int, int]:
    """Load the indexes below offset `trusted`. (position, least offset) of the batch from which to read on."""
    offsets, times = OffsetIndex(segment.base), TimeIndex(segment.base)
    segment.offsets, segment.times, segment.sealed = offsets, times, None
    segment.indexed = False
    segment.learnt += 1
    segment.max_timestamp, segment.max_timestamp_offset = -1, segment.base
    try:
        sound = offsets.load(disk.read_whole(segment.stem + OFFSET_INDEX), log_bytes)
        sound = times.load(disk.read_whole(segment.stem + TIME_INDEX)) and sound
    except FileNotFoundError:
        sound = False
    if trusted < NEVER:
        offsets.truncate(trusted)  # the batch that begins there may be torn
    if sound and offsets:
        indexed, position = segment.base + offsets.offsets[-1], offsets.positions[-1]
        header = disk.open(segment.stem + LOG).read(position, HEADER_BYTES)
        if len(header) == HEADER_BYTES:
            fields = read_fields(header)
            if fields.last_offset == indexed and fields.base_offset > segment.base:
                times.truncate(indexed + 1)
                if times.last[0] >= fields.max_timestamp:  # else it lacks entries
                    segment.max_timestamp, segment.max_timestamp_offset = times.last
                    return position, fields.base_offset
    segment.offsets, segment.times = OffsetIndex(segment.base), TimeIndex(segment.base)
    return 0, segment.base


def _first_timestamp(segments: Segments, segment: Segment) -> int:
    return read_fields(segments.reader_of(segment).read(0, HEADER_BYTES)).max_timestamp


def next_offset_of(segments: Segments, segment: Segment) -> int:
    """The offset behind the sound part of a segment whose scan stopped at `segment.size`."""
    assert segment.offsets is not None
    next_offset = segment.base
    start = segment.offsets.lookup(NEVER)
    for _, fields in batches(segments.reader_of(segment), start, segment.size, check=False):
        next_offset = fields.last_offset + 1
    return next_offset


def end_of_batches(segments: Segments, segment: Segment, offset: int) -> int:
    """The offset behind the segment's last batch that ends below `offset`; its base where none does."""
    next_offset = segment.base
    start = segments.indexes(segment).lookup(offset - 1)
    for _, fields in batches(segments.reader_of(segment), start, segment.size, check=False):
        if fields.last_offset >= offset:
            break
        next_offset = fields.last_offset + 1
    return next_offset


def fits(segments: Segments, segment: Segment, sealed: SealedIndexes) -> bool:
    """Whether the indexes of a sealed segment are this segment's, up to its end: a look at its last batches, and at
    those behind the newest one that the time index knows, which mostly are the same.

    A kill right after it was sealed leaves a time index without its last entry, others were never made durable. Where
    the disk doesn't give these batches back, the indexes are taken as they are: they lead to all the others.
    """
    file, end = segments.reader_of(segment), segment.measure(segments.around.disk)
    try:
        start, newest, newest_offset = sealed.lookup(NEVER), *sealed.last_time
        for pos, fields in batches(file, start, end, check=False):
            if fields.max_timestamp > newest or (pos == start > 0 and fields.last_offset != sealed.last_offset):
                return False
        if newest < 0:
            return True
        found = locate(file, sealed.lookup(newest_offset - 1), end, newest_offset)
        if found is None or read_fields(file.read(found[0], HEADER_BYTES)).max_timestamp != newest:
            return False
        for pos, fields in batches(file, found[0], end, check=False):
            if fields.max_timestamp > newest:
                return False
            if pos > found[0] + LOOKED_BEHIND_BYTES:
                break
        return True
    except BadBatch:
        return False
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        return error.filename == file.path


def rebuild_sealed(segments: Segments, segment: Segment, next_base: int) -> SealedIndexes:
    """Build the indexes of a sealed segment again. Raises BadBatch where the segment itself is damaged."""
    disk, file = segments.around.disk, segments.reader_of(segment)
    segments.around.report(f"{segment.stem}: its indexes are missing or damaged; building them again")
    offsets, times = OffsetIndex(segment.base), TimeIndex(segment.base)
    next_offset = segment.base
    index_next, newest, newest_offset = segments.folder.config.index_interval_bytes, -1, segment.base
    for pos, fields in batches(file, 0, segment.measure(disk), check=False):
        last_offset = fields.last_offset
        if not segment.base <= last_offset < next_base:
            raise BadBatch(file.path, pos, f"offset {last_offset} is not of this segment")
        next_offset = last_offset + 1
        if fields.max_timestamp > newest:
            newest, newest_offset = fields.max_timestamp, last_offset
        if pos > index_next:
            offsets.add(fields.base_offset, last_offset, pos)
            times.add(newest, newest_offset)
            index_next = pos + segments.folder.config.index_interval_bytes
    if next_offset != next_base and not _may_have_gaps(segments, segment) and next_base < NEVER:
        raise BadBatch(
            file.path, segment.size, f"it ends at offset {next_offset}, but the next one begins at {next_base}"
        )
    times.add(newest, newest_offset)
    contents = {OFFSET_INDEX: offsets.unsaved()[1], TIME_INDEX: times.unsaved()[1]}
    segments.around.index_files.save(segments, segment, contents)
    return SealedIndexes(segment.base, *map(BuiltIndex, contents.values()))


def tell_of_gap(segments: Segments, segment: Segment, next_base: int) -> None:
    """Say so where a sealed segment ends before the next one begins: a file in between is gone, or was compacted."""
    next_offset = segment.base
    start = segments.indexes(segment).lookup(NEVER)
    try:
        for _, fields in batches(segments.reader_of(segment), start, segment.size, check=False):
            next_offset = fields.last_offset + 1
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        return  # whoever asks for what is there is told
    if next_offset < next_base and not _may_have_gaps(segments, segment):
        folder = segments.folder
        segments.around.report(
            f"{folder.place}: offsets {next_offset} to {next_base - 1} are missing between its segments. Unless the "
            f"topic was compacted, a file was lost: stop the broker and restore {folder.folder} if you can"
        )


def _may_have_gaps(segments: Segments, segment: Segment) -> bool:
    """Whether the segment was compacted, or may have been: the topic's policy may have changed since."""
    return segments.folder.config.compacts or segment.base < segments.around.clean_end(segments.folder)
