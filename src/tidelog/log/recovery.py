"""Opening a log that is on disk: what to trust, what to read again, where to cut.

After a clean stop the checkpoints are trusted, and the last segment is only opened when it is used. After any other
end, everything from the recovery point on is read and checked: at or above it the log is cut at the first bad batch,
since a crash may have torn it; below it a bad batch is corruption, which is reported and never cut. Indexes are built
again from the recovery point on, or from the segment's start where they can't be right.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.log import knowledge, truncation
from tidelog.log.checkpoints import PARTITION_METADATA
from tidelog.log.index import OffsetIndex, SealedIndexes, TimeIndex
from tidelog.log.leftovers import Found, tidy
from tidelog.log.names import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from tidelog.log.rewriting import write_again
from tidelog.log.scan import BadBatch, batches
from tidelog.log.segment import NEVER, Segment
from tidelog.wire.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD
from tidelog.wire.uuids import ZERO_UUID, uuid_text

if TYPE_CHECKING:
    from tidelog.env.disk import Disk, File
    from tidelog.log.log import Log
    from tidelog.log.reading import ReadableLog

UNNOTICED_BYTES = 4 * 1024 * 1024
"""Up to so much of a tail is written again in the time that a start takes anyway."""


def load(log: Log, *, clean: bool, recovery_point: int | None, log_start: int, lost: bool = False) -> None:
    """Find out what the folder of the log holds. Raises OSError, and BadBatch for damage below the recovery point.

    `lost`: the file with the recovery points can't be read. All is read then, and only the last segment is ever cut.
    """
    found = tidy(log._store.disk, log.folder)
    now_ms = log._store.clock.now_ms()
    log._segments = [Segment(log.folder, base, now_ms) for base in found.bases]
    log._snapshots = found.snapshots
    log.has_aborted = found.aborted
    if not clean:
        log._new_names = log._new_folder = True  # whether the names were made durable, nobody knows any more
    if not log._segments:
        _load_empty(log, found, recovery_point or 0, log_start)
        return
    log.log_start = max(log_start, found.bases[0])
    if clean and recovery_point is not None and recovery_point >= found.bases[-1]:
        log.log_end = recovery_point
        _take_ends(log, recovery_point)
    elif clean:
        log.log_end = -1
        open_last(log)
        _take_ends(log, log.log_end)
    else:
        _recover(log, recovery_point or 0, cut_from=found.bases[-1] if lost else 0)
        _make_durable(log, recovery_point or 0)
    if log.log_start > log.log_end:
        truncation.start_at(log, log.log_start, now_ms)  # what is left was deleted: no offset is given twice
    log._snapshots = [offset for offset in log._snapshots if offset <= log.log_end]


def _load_empty(log: Log, found: Found, recovery_point: int, log_start: int) -> None:
    if recovery_point > log_start and found.metadata:
        raise BadBatch(log.folder, 0, f"no segment is here, but records up to offset {recovery_point} were")
    log.log_start = log.log_end = log_start
    _take_ends(log, log_start)


def _take_ends(log: Log, durable_end: int) -> None:
    log.recovery_point = log._synced_end = durable_end
    log.durable_end = log.log_end if log._follows or log._counts else durable_end


def _make_durable(log: Log, recovery_point: int) -> None:
    """What was recovered may be in the page cache only. It was shown before the crash, so it is made durable first.

    Where the page cache counts as durable nobody waits for that; but a later sync must not pass over lost pages, so a
    tail that is written again unnoticed is. A large one isn't: whoever chose that wants to be served at once.
    """
    _take_ends(log, recovery_point)
    if log.log_end == recovery_point:
        return
    waits = not log._follows  # with `flush.messages` what counts as durable is, up to so many records
    if not waits and _tail_bytes(log, recovery_point) > UNNOTICED_BYTES:
        return
    disk = log._store.disk
    for segment in log._segments[log._segment_number(recovery_point) :]:
        found = log._position(segment, recovery_point)
        if found is not None:
            _write_again(log, segment.stem + LOG, found[0], durable=waits)
            log._store.files.forget(segment)
        if disk.exists(segment.stem + TXN_INDEX):
            _write_again(log, segment.stem + TXN_INDEX, 0, durable=True)
            segment.aborted(disk).reopen()
    if waits:
        name_topic(log)
        if disk.exists(f"{log.folder}/{PARTITION_METADATA}"):
            _write_again(log, f"{log.folder}/{PARTITION_METADATA}", 0, durable=True)
        disk.sync_folder(log.folder)
        log.durable_end = log._synced_end = log.log_end


def _tail_bytes(log: Log, recovery_point: int) -> int:
    tail = 0
    for segment in log._segments[log._segment_number(recovery_point) :]:
        found = log._position(segment, recovery_point)
        tail += 0 if found is None else segment.size - found[0]
    return tail


def _write_again(log: Log, path: str, start: int, *, durable: bool) -> None:
    disk = log._store.disk
    if not write_again(disk, path, start, durable=durable):
        log._store.report(
            f"{log.place}: no room to write {disk.size(path) - start} bytes of {path} again. If a sync failed before "
            "the last crash, a power loss may take them: free some space and restart"
        )
        if durable:
            disk.open(path).sync()


def open_last(log: ReadableLog) -> Segment:
    """Open the last segment for writing and reading. After a clean stop it ends where the checkpoint said."""
    segment = log._segments[-1]
    next_offset = _scan(log, segment, NEVER, check=False)
    if log.log_end >= 0 and next_offset != log.log_end:
        reason = f"the segment ends at offset {next_offset}, but after the last stop it was {log.log_end}"
        raise BadBatch(segment.stem + LOG, segment.size, reason)
    log.log_end = next_offset
    _become_last(log, segment)
    return segment


def reopen_last(log: Log, segment: Segment) -> None:
    """The segment was cut and is the last one now: learn its indexes and timestamps again."""
    log._sealed_unsaved = [pair for pair in log._sealed_unsaved if pair[0] is not segment]
    log._sealed_unsynced = [other for other in log._sealed_unsynced if other is not segment]
    _scan(log, segment, NEVER, check=False)
    _become_last(log, segment)


def _become_last(log: ReadableLog, segment: Segment) -> None:
    log._active = segment
    log._flush_from = segment.size
    log._size_limit = -1
    if log.config.segment_jitter_ms:
        jitter = log._store.random.random_int(0, log.config.segment_jitter_ms)
        segment.jitter_ms = min(jitter, log.config.roll_ms)
    if segment.first_timestamp is not None:
        segment.date_first(segment.first_timestamp, log.config.roll_ms)


def _recover(log: Log, recovery_point: int, cut_from: int) -> None:
    """Read and check everything from the recovery point on; cut no segment that begins below `cut_from`."""
    store = log._store
    number = first = log._segment_number(recovery_point)
    next_offset = log._segments[number].base
    found_epochs: list[tuple[int, int]] = []
    while number < len(log._segments):
        segment = log._segments[number]
        if number > first and segment.base != next_offset and not _goes_on(log, number, next_offset, recovery_point):
            store.disk.sync_folder(log.folder)
            continue
        last = number + 1 == len(log._segments)
        try:
            next_offset = _scan(log, segment, recovery_point, check=True, found_epochs=found_epochs)
        except BadBatch as bad:
            next_offset = _next_offset(log, segment)
            if next_offset < recovery_point:
                raise BadBatch(bad.path, bad.pos, f"{bad.reason}, below the recovery point {recovery_point}") from bad
            if segment.base < cut_from:
                raise BadBatch(bad.path, bad.pos, f"{bad.reason}, and the recovery point is not known") from bad
            file = log.file_of(segment)
            cut = file.size() - segment.size
            behind = _sound_behind(file, segment.size)
            store.report(f"{log.place}: cut {cut} bytes off {bad}{behind}; the log goes on at offset {next_offset}")
            file.truncate(segment.size)
            file.sync()  # or else the next power loss brings back what was cut
            _drop_behind(log, number + 1)
            store.disk.sync_folder(log.folder)
            break
        if not last:
            segment.finish_times()
            log._sealed_unsynced = [*log._sealed_unsynced, segment]
            log._sealed_unsaved = [*log._sealed_unsaved, (segment, b"")]
        number += 1
    log.log_end = next_offset
    if next_offset < recovery_point:
        raise BadBatch(
            log._segments[-1].stem + LOG,
            log._segments[-1].size,
            f"the log ends at offset {next_offset}, but records up to {recovery_point} were made durable",
        )
    last_one = log._segments[-1]  # perhaps since what was behind it went
    log._sealed_unsynced = [segment for segment in log._sealed_unsynced if segment is not last_one]
    log._sealed_unsaved = [pair for pair in log._sealed_unsaved if pair[0] is not last_one]
    _become_last(log, last_one)
    knowledge.find_epochs(log, found_epochs)
    knowledge.check_aborted(log, recovery_point)
    # A snapshot that a flush had written may be ahead of the transaction index, which is built again behind it.
    for offset in log._snapshots:
        if offset > recovery_point:
            store.disk.remove(log.snapshot_path(offset))
    log._snapshots = [offset for offset in log._snapshots if offset <= recovery_point]
    if next_offset > recovery_point or log._sealed_unsaved:
        log.touch()


def _sound_behind(file: File, pos: int) -> str:
    """What is whole behind a bad batch: a power loss leaves such things, but so does a bit that flipped.

    They go in either case: what came before them is gone, and whether they were ever durable nobody knows. Below the
    recovery point somebody does, and nothing is cut.
    """
    head = file.read(pos, HEADER_BYTES)
    size = HEADER.unpack(head)[1] + LOG_OVERHEAD if len(head) == HEADER_BYTES else 0
    count, last = 0, -1
    if HEADER_BYTES <= size <= file.size() - pos:
        with suppress(BadBatch):
            for _, fields in batches(file, pos + size, file.size(), check=True):
                count, last = count + 1, fields[0] + fields[6]
    return f", with {count} sound batches behind it, up to offset {last}" if count else ""


def _goes_on(log: Log, number: int, next_offset: int, recovery_point: int) -> bool:
    """Whether a segment may follow that doesn't begin where the one before it ends; if not, it is no more.

    Batches that were never synced can be lost without a trace at the end of a segment while the next one was written.
    What is in there wasn't acknowledged: a log with a hole would take what its producers send again for duplicates.
    """
    before, segment = log._segments[number - 1 : number + 1]
    if segment.base < next_offset:
        if segment.measure(log._store.disk):
            reason = f"the segment begins at offset {segment.base}, but the one before it ends at {next_offset}"
            raise BadBatch(segment.stem + LOG, 0, reason)
        log._store.remove_segment(log._segments.pop(number))
        return False
    if _was_compacted(log, before):
        return True
    if next_offset < recovery_point:
        reason = f"it ends at offset {next_offset}, below the recovery point {recovery_point}"
        raise BadBatch(before.stem + LOG, before.size, reason)
    log._store.report(
        f"{log.place}: offsets {next_offset} to {segment.base - 1} are missing; what is behind them goes, the log goes "
        f"on at {next_offset}"
    )
    _drop_behind(log, number)
    return False


def _was_compacted(log: Log, segment: Segment) -> bool:
    """Whether a segment above the recovery point may end before the next begins.

    Compaction stays below the recovery point that is saved, unless the log was cut since; Apache Kafka's doesn't.
    """
    clean_end = log._store.clean_end(log)
    if segment.base < clean_end:
        return True
    if not log.config.compacts:
        return False
    expected = segment.base
    for _, fields in batches(log.file_of(segment), 0, segment.size, check=False):
        if fields[0] != expected or fields[12] != fields[6] + 1:
            return True
        expected = fields[0] + fields[12]
    return False


def _drop_behind(log: Log, number: int) -> None:
    """What comes behind a cut was never acknowledged. The last one goes first: a crash in between leaves no hole."""
    for segment in reversed(log._segments[number:]):
        log._store.files.forget(segment)
        log._store.remove_segment(segment)
    del log._segments[number:]


def _scan(
    log: ReadableLog,
    segment: Segment,
    trusted: int,
    *,
    check: bool,
    found_epochs: list[tuple[int, int]] | None = None,
) -> int:
    """Go through the segment from its last index entry below offset `trusted`; the offset behind it.

    Fills in size, indexes and timestamps, and adds (leader epoch, offset) where a new epoch begins. Where BadBatch is
    raised they stand for what came before it.
    """
    disk = log._store.disk
    file = log.file_of(segment)
    end = file.size()
    start, next_offset = _trusted_indexes(disk, segment, trusted, end)
    segment.size = start
    segment.index_next = start + log.config.index_interval_bytes
    segment.first_timestamp = _first_timestamp(log, segment) if end >= HEADER_BYTES else None
    interval, index_bytes = log.config.index_interval_bytes, log.config.segment_index_bytes
    limit, index_next, newest = segment.offset_limit, segment.index_next, segment.max_timestamp
    epoch = found_epochs[-1][0] if found_epochs else -1
    count = 0
    for pos, fields in batches(file, start, end, check=check):
        base, length, leader_epoch, _, _, _, delta, _, max_timestamp, _, _, _, _ = fields
        last_offset = base + delta
        if base < next_offset or delta < 0 or last_offset > limit:
            raise BadBatch(file.path, pos, f"a batch of offsets {base} to {last_offset}, but {next_offset} comes next")
        if max_timestamp > newest:
            newest = segment.max_timestamp = max_timestamp
            segment.max_timestamp_offset = last_offset
        if pos > index_next:
            segment.add_entries(fields[0], last_offset, pos, index_bytes)
            index_next = segment.index_next = pos + interval
        if leader_epoch > epoch and found_epochs is not None:
            epoch = leader_epoch
            found_epochs.append((epoch, base))
        next_offset = last_offset + 1
        segment.size = pos + length + LOG_OVERHEAD
        count += 1
    log.batches += count
    return next_offset


def _trusted_indexes(disk: Disk, segment: Segment, trusted: int, log_bytes: int) -> tuple[int, int]:
    """Load the indexes below offset `trusted`. (position, least offset) of the batch from which to read on."""
    offsets, times = OffsetIndex(segment.base), TimeIndex(segment.base)
    segment.offsets, segment.times, segment.sealed = offsets, times, None
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
            fields = HEADER.unpack(header)
            if fields[0] + fields[6] == indexed and fields[0] > segment.base:
                times.truncate(indexed + 1)
                segment.max_timestamp, segment.max_timestamp_offset = times.last
                return position, fields[0]
    segment.offsets, segment.times = OffsetIndex(segment.base), TimeIndex(segment.base)
    return 0, segment.base


def _first_timestamp(log: ReadableLog, segment: Segment) -> int:
    return HEADER.unpack(log.file_of(segment).read(0, HEADER_BYTES))[8]


def _next_offset(log: ReadableLog, segment: Segment) -> int:
    """The offset behind the sound part of a segment whose scan stopped at `segment.size`."""
    assert segment.offsets is not None
    next_offset = segment.base
    start = segment.offsets.lookup(NEVER)
    for _, fields in batches(log.file_of(segment), start, segment.size, check=False):
        next_offset = fields[0] + fields[6] + 1
    return next_offset


def end_of_batches(log: ReadableLog, segment: Segment, offset: int) -> int:
    """The offset behind the segment's last batch that ends below `offset`; its base where none does."""
    next_offset = segment.base
    start = log.indexes(segment).lookup(offset - 1)
    for _, fields in batches(log.file_of(segment), start, segment.size, check=False):
        if fields[0] + fields[6] >= offset:
            break
        next_offset = fields[0] + fields[6] + 1
    return next_offset


def rebuild_sealed(log: ReadableLog, segment: Segment, next_base: int) -> SealedIndexes:
    """Build the indexes of a sealed segment again. Raises BadBatch where the segment itself is damaged."""
    disk, file = log._store.disk, log.file_of(segment)
    log._store.report(f"{segment.stem}: its indexes are missing or damaged; building them again")
    offsets, times = OffsetIndex(segment.base), TimeIndex(segment.base)
    next_offset = segment.base
    index_next, newest, newest_offset = log.config.index_interval_bytes, -1, segment.base
    for pos, fields in batches(file, 0, segment.measure(disk), check=False):
        last_offset = fields[0] + fields[6]
        if not segment.base <= last_offset < next_base:
            raise BadBatch(file.path, pos, f"offset {last_offset} is not of this segment")
        next_offset = last_offset + 1
        if fields[8] > newest:
            newest, newest_offset = fields[8], last_offset
        if pos > index_next:
            offsets.add(fields[0], last_offset, pos)
            times.add(newest, newest_offset)
            index_next = pos + log.config.index_interval_bytes
    if next_offset != next_base and not _may_have_gaps(log, segment) and next_base < NEVER:
        raise BadBatch(
            file.path, segment.size, f"it ends at offset {next_offset}, but the next one begins at {next_base}"
        )
    times.add(newest, newest_offset)
    contents = {OFFSET_INDEX: offsets.unsaved()[1], TIME_INDEX: times.unsaved()[1]}
    for suffix, data in contents.items():
        index_file = disk.open(segment.stem + suffix, create=True)
        index_file.truncate(0)
        index_file.append(data)
    return SealedIndexes(segment.base, memoryview(contents[OFFSET_INDEX]), memoryview(contents[TIME_INDEX]))


def tell_of_gap(log: ReadableLog, segment: Segment, next_base: int) -> None:
    """Say so where a sealed segment ends before the next one begins: a file in between is gone, or was compacted."""
    next_offset = segment.base
    start = log.indexes(segment).lookup(NEVER)
    for _, fields in batches(log.file_of(segment), start, segment.size, check=False):
        next_offset = fields[0] + fields[6] + 1
    if next_offset < next_base and not _may_have_gaps(log, segment):
        log._store.report(
            f"{log.place}: offsets {next_offset} to {next_base - 1} are missing between its segments. Unless the topic "
            f"was compacted, a file was lost: stop the broker and restore {log.folder} if you can"
        )


def _may_have_gaps(log: ReadableLog, segment: Segment) -> bool:
    """Whether the segment was compacted, or may have been: the topic's policy may have changed since."""
    return log.config.compacts or segment.base < log._store.clean_end(log)


def topic_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def name_topic(log: Log, *, new: bool = False) -> None:
    """Say in the folder, which is `new` or not, which topic's it is. Not durable yet: the group commit sees to that."""
    if log.topic_id == ZERO_UUID:
        return
    disk, path = log._store.disk, f"{log.folder}/{PARTITION_METADATA}"
    wanted = topic_metadata(log.topic_id)
    file = disk.open(path, create=True)
    if new:
        file.append(wanted)
    elif file.read(0, len(wanted) + 1) != wanted:
        file.truncate(0)
        file.append(wanted)
        log._new_names = log._new_folder = True  # the first sync is that of this file too
