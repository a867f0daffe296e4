"""Opening a log that is on disk: what to trust, what to read again, where to cut.

After a clean stop the checkpoints are trusted. After any other end, everything from the recovery point on is read and
checked: at or above it the log is cut at the first bad batch, since a crash may have torn it; below it a bad batch is
corruption, which is reported and never cut. Indexes are built again from the recovery point on, or from the segment's
start where they can't be right. Leaders and producers are read too: whoever uses the log finds all of it in memory.

It takes long, and it syncs: all of it happens off the loop, on an object that nobody else knows (opening.py).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.log import indexing, knowledge
from tidelog.log.checkpoints import LOG_START, PARTITION_METADATA, partition_metadata
from tidelog.log.ends import Ends
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.leftovers import Found, tidy
from tidelog.log.names import LOG, TXN_INDEX
from tidelog.log.rewriting import write_again
from tidelog.log.scan import BadBatch, batches
from tidelog.log.segment import Segment
from tidelog.log.stored import counts_messages, page_cache_counts
from tidelog.wire.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.env.disk import File
    from tidelog.log.opening import Opening, Place
    from tidelog.log.stored import StoredLog

UNNOTICED_BYTES = 4 * 1024 * 1024
"""Up to so much of a tail is written again in the time that a start takes anyway."""

LOST_BYTES = 128 * 1024 * 1024
"""Written since the recovery point at most, with room to spare: a flush moves that after 64 MB, and at each roll."""


def load(opening: Opening, log: StoredLog, place: Place) -> None:
    """Find out what the folder of the log holds. Raises OSError, and BadBatch for damage below the recovery point.

    Where the recovery points are lost, all is read, and only the last segment is ever cut.
    """
    found = tidy(opening.disk, log.folder)
    now_ms = opening.clock.now_ms()
    log._segments = [Segment(log.folder, base, now_ms) for base in found.bases]
    log._snapshots = found.snapshots
    log.has_aborted = found.aborted
    if not place.clean:
        log._new_names = log._new_folder = True  # whether the names were made durable, nobody knows any more
    if not log._segments:
        _load_empty(log, found, place.recovery_point or 0, place.log_start)
        return
    _find_end(opening, log, place, found)
    if log.ends.log_start > log.ends.log_end:
        _check_start(log, place)
        _start_over(opening, log, log.ends.log_start, now_ms)  # what is left was deleted: no offset is given twice
    log._snapshots = [offset for offset in log._snapshots if offset <= log.ends.log_end]
    if log._epochs is None:
        log._epochs = knowledge.load_epochs(log)
        log._epochs.truncate_from_start(log.ends.log_start)
    log._producers = knowledge.load_producers(log)


def _find_end(opening: Opening, log: StoredLog, place: Place, found: Found) -> None:
    recovery_point = place.recovery_point
    log_start = max(place.log_start, found.bases[0])
    if place.clean:
        trusted = recovery_point is not None and recovery_point >= found.bases[-1]
        log_end = indexing.open_last(log, recovery_point if trusted else None)
        log.ends = _ends(log, log_start, log_end, log_end)
    else:
        _recover(opening, log, log_start, recovery_point or 0, lost=place.lost)
        _make_durable(log, recovery_point or 0, lost=place.lost)


def _check_start(log: StoredLog, place: Place) -> None:
    """A start above the end: deleted records may be lost where the page cache counts as durable, and only there."""
    last = log._segments[-1]
    reason = f"the log ends at offset {log.ends.log_end}, but {LOG_START} says that it begins at {log.ends.log_start}"
    if place.clean or place.lost or not page_cache_counts(log.config):
        raise BadBatch(last.stem + LOG, last.size, f"{reason}: if that is wrong, correct its line there, and restart")
    log._around.report(f"{log.place}: {reason}; what was deleted and is still there goes, the log is empty")


def _load_empty(log: StoredLog, found: Found, recovery_point: int, log_start: int) -> None:
    if recovery_point > log_start and found.metadata:
        raise BadBatch(log.folder, 0, f"no segment is here, but records up to offset {recovery_point} were")
    log.ends = Ends(log_start)


def _ends(log: StoredLog, log_start: int, log_end: int, recovery_point: int) -> Ends:
    return Ends.found(
        log_start=log_start,
        log_end=log_end,
        durable_end=log_end if page_cache_counts(log.config) else recovery_point,
        recovery_point=recovery_point,
        synced_end=recovery_point,
    )


def _make_durable(log: StoredLog, recovery_point: int, *, lost: bool) -> None:
    """What was recovered may be in the page cache only. It was shown before the crash, so it is made durable first.

    Where the page cache counts as durable nobody needs that; but a later sync must not pass over lost pages, so a tail
    that is written again unnoticed is. A large one isn't: whoever chose that wants to be served at once. With
    `flush.messages` what counts as durable is, up to so many records.

    Where the recovery point is `lost`, what is further back than a flush can be was durable long ago.
    """
    if log.ends.log_end == recovery_point:
        # Whoever was killed in the middle of a truncation left a cut that the platter doesn't know of.
        log.file_of(log._segments[-1]).sync()
        return
    doubtful = _doubtful_from(log) if lost else recovery_point
    waits = not page_cache_counts(log.config) or counts_messages(log.config)
    if not waits and _tail_bytes(log, doubtful) > UNNOTICED_BYTES:
        return
    disk = log._around.disk
    for segment in log._segments[log._segment_number(recovery_point) :]:
        found = log._position(segment, recovery_point)
        if segment.base < doubtful and lost:
            log.file_of(segment).sync()
        elif found is not None:
            _write_again(log, segment.stem + LOG, found[0])
            log._around.files.forget(segment)
        if disk.exists(segment.stem + TXN_INDEX):
            _write_again(log, segment.stem + TXN_INDEX, 0)
            segment.aborted(disk).reopen()
    name_topic(log)
    if disk.exists(f"{log.folder}/{PARTITION_METADATA}"):
        _write_again(log, f"{log.folder}/{PARTITION_METADATA}", 0)
    disk.sync_folder(log.folder)
    log.ends.synced(log.ends.log_end)


def _doubtful_from(log: StoredLog) -> int:
    """Where the last `LOST_BYTES` begin, or the log."""
    size = 0
    for segment in reversed(log._segments):
        size += segment.size
        if size > LOST_BYTES:
            return segment.base
    return 0


def _tail_bytes(log: StoredLog, recovery_point: int) -> int:
    tail = 0
    for segment in log._segments[log._segment_number(recovery_point) :]:
        found = log._position(segment, recovery_point)
        tail += 0 if found is None else segment.size - found[0]
    return tail


def _write_again(log: StoredLog, path: str, start: int) -> None:
    disk = log._around.disk
    if not write_again(disk, path, start):
        log._around.report(
            f"{log.place}: no room to write {disk.size(path) - start} bytes of {path} again. If a sync failed before "
            "the last crash, a power loss may take them: free some space and restart"
        )
        disk.open(path).sync()


def _recover(opening: Opening, log: StoredLog, log_start: int, recovery_point: int, *, lost: bool) -> None:
    """Read and check everything from the recovery point on. Where that is `lost`, no segment but the last is cut."""
    number = first = log._segment_number(recovery_point)
    next_offset = log._segments[number].base
    found_epochs: list[tuple[int, int]] = []
    while number < len(log._segments):
        segment = log._segments[number]
        if (
            number > first
            and segment.base != next_offset
            and not _goes_on(opening, log, number, next_offset, recovery_point, lost=lost)
        ):
            opening.disk.sync_folder(log.folder)
            continue
        last = number + 1 == len(log._segments)
        try:
            next_offset = indexing.scan(log, segment, recovery_point, check=True, found_epochs=found_epochs)
        except BadBatch as bad:
            next_offset = indexing.next_offset_of(log, segment)
            if next_offset < recovery_point:
                raise BadBatch(bad.path, bad.pos, f"{bad.reason}, below the recovery point {recovery_point}") from bad
            if lost and not last:
                raise BadBatch(bad.path, bad.pos, f"{bad.reason}, and the recovery point is not known") from bad
            file = log.file_of(segment)
            cut = file.size() - segment.size
            sound, records, last_offset = _sound_behind(file, segment.size)
            behind = f", with {sound} sound batches behind it, up to offset {last_offset}" if sound else ""
            opening.report(f"{log.place}: cut {cut} bytes off {bad}{behind}; the log goes on at offset {next_offset}")
            opening.note_cut(log, next_offset, cut, records)
            file.truncate(segment.size)
            file.sync()  # or else the next power loss brings back what was cut
            _drop_behind(opening, log, number + 1, next_offset)
            opening.disk.sync_folder(log.folder)
            break
        if not last:
            segment.finish_times()
            log._sealed_unsynced = [*log._sealed_unsynced, segment]
            log._sealed_unsaved = [*log._sealed_unsaved, (segment, b"")]
        number += 1
    log.ends = _ends(log, log_start, next_offset, recovery_point)
    if next_offset < recovery_point:
        raise BadBatch(
            log._segments[-1].stem + LOG,
            log._segments[-1].size,
            f"the log ends at offset {next_offset}, but records up to {recovery_point} were made durable",
        )
    last_one = log._segments[-1]  # perhaps since what was behind it went
    log._sealed_unsynced = [segment for segment in log._sealed_unsynced if segment is not last_one]
    log._sealed_unsaved = [pair for pair in log._sealed_unsaved if pair[0] is not last_one]
    log._become_last(last_one)
    knowledge.find_epochs(log, found_epochs)
    trusted = knowledge.first_snapshot(log) if lost else recovery_point
    knowledge.check_aborted(log, trusted)
    # A snapshot that a flush had written may be ahead of the transaction index, which is built again behind it; but not
    # one from where on all batches are there.
    trusted = max(trusted, log._segments[0].base)
    for offset in log._snapshots:
        if offset > trusted:
            opening.disk.remove(log.snapshot_path(offset))
    log._snapshots = [offset for offset in log._snapshots if offset <= trusted]
    if next_offset > recovery_point or log._sealed_unsaved:
        log._dirty = True


def _sound_behind(file: File, pos: int) -> tuple[int, int, int]:
    """What is whole behind a bad batch: how many batches, records, and the last offset.

    A power loss leaves such things, but so does a bit that flipped.

    They go in either case: what came before them is gone, and whether they were ever durable nobody knows. Below the
    recovery point somebody does, and nothing is cut.
    """
    head = file.read(pos, HEADER_BYTES)
    size = HEADER.unpack(head)[1] + LOG_OVERHEAD if len(head) == HEADER_BYTES else 0
    count, records, last = 0, 0, -1
    if HEADER_BYTES <= size <= file.size() - pos:
        with suppress(BadBatch):
            for _, fields in batches(file, pos + size, file.size(), check=True):
                count, records, last = count + 1, records + fields[12], fields[0] + fields[6]
    return count, records, last


def _goes_on(
    opening: Opening, log: StoredLog, number: int, next_offset: int, recovery_point: int, *, lost: bool
) -> bool:
    """Whether a segment may follow that doesn't begin where the one before it ends; if not, it is no more.

    Batches that were never synced can be lost without a trace at the end of a segment while the next one was written.
    What is in there wasn't acknowledged: a log with a hole would take what its producers send again for duplicates.
    """
    before, segment = log._segments[number - 1 : number + 1]
    if segment.base < next_offset:
        if segment.measure(log._around.disk):
            reason = f"the segment begins at offset {segment.base}, but the one before it ends at {next_offset}"
            raise BadBatch(segment.stem + LOG, 0, reason)
        opening.remove_segment(log._segments.pop(number))
        return False
    if _was_compacted(log, before) or (lost and log.config.compacts):
        return True
    if lost:  # perhaps a file was
        reason = (
            f"offsets {next_offset} to {segment.base - 1} are missing behind it, and the recovery point is not known"
        )
        raise BadBatch(before.stem + LOG, before.size, reason)
    if next_offset < recovery_point:
        reason = f"it ends at offset {next_offset}, below the recovery point {recovery_point}"
        raise BadBatch(before.stem + LOG, before.size, reason)
    log._around.report(
        f"{log.place}: offsets {next_offset} to {segment.base - 1} are missing; what is behind them goes, the log goes "
        f"on at {next_offset}"
    )
    _drop_behind(opening, log, number, next_offset)
    return False


def _was_compacted(log: StoredLog, segment: Segment) -> bool:
    """Whether a segment above the recovery point may end before the next begins.

    Compaction stays below the recovery point that is saved, unless the log was cut since; Apache Kafka's doesn't.
    """
    clean_end = log._around.clean_end(log)
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


def _drop_behind(opening: Opening, log: StoredLog, number: int, cut_at: int) -> None:
    """What comes behind a cut at this offset was never acknowledged.

    The last one goes first: a crash in between leaves no hole.
    """
    for segment in reversed(log._segments[number:]):
        opening.note_cut(log, cut_at, segment.size_now(opening.disk))
        log._around.files.forget(segment)
        opening.remove_segment(segment)
    del log._segments[number:]


def _start_over(opening: Opening, log: StoredLog, offset: int, now_ms: int) -> None:
    """All segments go, an empty one keeps the place. The recovery point is below it: nothing falls."""
    for segment in reversed(log._segments):
        opening.remove_segment(segment, log.config.file_delete_delay_ms)
    log._segments = []
    log._sealed_unsynced = log._sealed_unsaved = ()
    log._epochs = LeaderEpochs()
    log._epochs.dirty = True
    opening.disk.sync_folder(log.folder)
    log._begin_segment(offset, now_ms)
    log.ends.start_at(offset)
    log._dirty = opening.start_moved = True


def name_topic(log: StoredLog, *, new: bool = False) -> None:
    """Say in the folder, which is `new` or not, which topic's it is. Not durable yet: the group commit sees to that."""
    if log.topic_id == ZERO_UUID:
        return
    disk, path = log._around.disk, f"{log.folder}/{PARTITION_METADATA}"
    wanted = partition_metadata(log.topic_id)
    file = disk.open(path, create=True)
    if new:
        file.append(wanted)
    elif file.read(0, len(wanted) + 1) != wanted:
        file.truncate(0)
        file.append(wanted)
        log._new_names = log._new_folder = True  # the first sync is that of this file too
