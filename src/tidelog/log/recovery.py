"""Opening a log that is on disk: what to trust, what to read again, where to cut.

After a clean stop the checkpoints are trusted. After any other end, everything from the recovery point on is read and
checked: at or above it the log is cut at the first bad batch, since a crash may have torn it; below it a bad batch is
corruption, which is reported and never cut. Indexes are built again from the recovery point on, or from the segment's
start where they can't be right. Leaders and producers are read too: whoever uses the log finds all of it in memory.

It takes long, and it syncs: all of it happens off the loop (opening.py). What comes of it is a value, `Recovered`, of
which a log is made on the loop.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.log import indexing, producer_state
from tidelog.log.bounds import LOST_BYTES, UNNOTICED_BYTES
from tidelog.log.checkpoints import LOG_START
from tidelog.log.durability import counts_messages, page_cache_counts
from tidelog.log.ends import Ends
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.journal_replay import additions, row_to_the_end
from tidelog.log.leftovers import tidy
from tidelog.log.names import METADATA_TOPIC, partition_folder
from tidelog.log.rewriting import write_again
from tidelog.log.scan import BadBatch, HeaderFields, batches, read_fields
from tidelog.log.segment import NEVER, Segment
from tidelog.log.segments import Segments, Surroundings
from tidelog.log.snapshots import Snapshots
from tidelog.log.unsynced import Unsynced
from tidelog.wire.batch import HEADER_BYTES

if TYPE_CHECKING:
    from tidelog.env.disk import File
    from tidelog.log.folder import PartitionFolder
    from tidelog.log.journal_blocks import Entry
    from tidelog.log.producers import Producers
    from tidelog.wire.topic_partition import TopicPartition


class LogFolder(NamedTuple):
    """A partition's folder, and what the checkpoints of its data folder say of it.

    `clean`: after a clean stop. `lost`: no recovery point of the log is known. `durable`: something in the folder may
    have been made durable once. `journal`: what the journal of the data folder knows of the partition, be it this
    topic's or that of an earlier one; `journal_lasts`: durably, and until the log is durable without it.
    """

    root: str
    topic: str
    partition: int
    clean: bool
    lost: bool
    recovery_point: int | None
    log_start: int
    clean_end: int
    durable: bool
    journal: tuple[Entry, ...] = ()
    journal_lasts: bool = False

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def path(self) -> str:
        return f"{self.root}/{partition_folder(self.topic, self.partition)}"


@dataclass(frozen=True, slots=True)
class Recovered:
    """A log as its files have it: whoever makes a log of it owns the parts. `start_moved`: its start is to be saved."""

    ends: Ends
    segments: tuple[Segment, ...]
    active: Segment | None
    has_aborted: bool
    snapshots: Snapshots
    unsynced: Unsynced
    epochs: LeaderEpochs | None
    producers: Producers | None
    start_moved: bool


class RecoverySurroundings(Surroundings, Protocol):
    """What is around a log that is recovered."""

    def note_cut(self, place: str, offset: int, size: int, records: int = 0) -> None:
        """So much went off the end of the log, from `offset` on."""
        ...

    def note_restored(self, records: int) -> None:
        """So many came back from the journal, behind that."""
        ...

    def remove_segment(self, segment: Segment, delay_ms: int = 0) -> None:
        """Its names are free at once; its files go later."""
        ...


def recover(around: RecoverySurroundings, folder: PartitionFolder, log_folder: LogFolder) -> Recovered:
    """Find out what the folder of the log holds. Raises OSError, and BadBatch for damage below the recovery point.

    Where the recovery points are lost, all is read, and only the last segment is ever cut.
    """
    return Recovery(around, folder, log_folder).run()


class Recovery:
    """One of them: what is known so far. `epochs` are None until they were found in the batches."""

    def __init__(self, around: RecoverySurroundings, folder: PartitionFolder, log_folder: LogFolder) -> None:
        self._around = around
        self._folder = folder
        self._log_folder = log_folder
        self._now_ms = around.clock.now_ms()
        found = tidy(around.disk, folder.folder)
        self._found = found
        self._segments = Segments(
            around,
            folder,
            [Segment(folder.folder, base, self._now_ms) for base in found.bases],
            has_aborted=found.aborted,
        )
        self._snapshots = Snapshots(found.snapshots)
        if log_folder.clean and log_folder.topic == METADATA_TOPIC and self._was_written_since():
            self._log_folder = log_folder = log_folder._replace(clean=False)
        in_doubt = not log_folder.clean  # whether the names were made durable, nobody knows any more
        self._unsynced = Unsynced(names=in_doubt, folder=in_doubt)
        self._epochs: LeaderEpochs | None = None
        self._batches = 0
        self._journal = [entry for entry in log_folder.journal if entry.topic_id == folder.topic_id]

    def _was_written_since(self) -> bool:
        """Whether the log goes on behind where it ended at the last clean stop: a controller of Apache Kafka's writes
        the metadata log, and knows nothing of checkpoints, nor of the mark of a clean stop."""
        clean_end = self._log_folder.recovery_point
        if not self._segments or clean_end is None:
            return False
        try:
            return indexing.scan(self._segments, self._segments[-1], NEVER, check=False).next_offset > clean_end
        except BadBatch:
            return True

    def run(self) -> Recovered:
        if not self._segments and self._journal:
            self._begin_anew(self._journal[0])
        if not self._segments:
            ends, producers, start_moved = self._empty(), None, False
        else:
            ends = self._find_ends()
            start_moved = ends.log_start > ends.log_end
            if start_moved:
                self._check_start(ends)
                self._start_over(ends.log_start)  # what is left was deleted: no offset is given twice
                ends = Ends(ends.log_start)
            self._snapshots.forget([offset for offset in self._snapshots if offset > ends.log_end])
            if self._epochs is None:
                self._epochs = producer_state.load_epochs(self._segments, ends.recovery_point)
                self._epochs.truncate_from_start(ends.log_start)
            producers = producer_state.load_producers(self._segments, self._snapshots, self._unsynced, ends)
            ends.found_batches(self._batches)
        if self._folder.name_topic(self._around.disk):
            self._unsynced.add_folder()  # the first sync is that of this file too
        for segment in self._segments:
            self._around.files.forget(segment)
        return Recovered(
            ends,
            tuple(self._segments),
            self._segments.active,
            self._segments.has_aborted,
            self._snapshots,
            self._unsynced,
            self._epochs,
            producers,
            start_moved,
        )

    def _empty(self) -> Ends:
        recovery_point, log_start = self._log_folder.recovery_point or 0, self._log_folder.log_start
        if recovery_point > log_start and self._found.metadata:
            raise BadBatch(
                self._folder.folder, 0, f"no segment is here, but records up to offset {recovery_point} were"
            )
        return Ends(log_start)

    def _find_ends(self) -> Ends:
        log_folder = self._log_folder
        recovery_point, log_start = log_folder.recovery_point, max(log_folder.log_start, self._segments.oldest)
        if log_folder.clean:
            trusted = recovery_point is not None and recovery_point >= self._segments[-1].base
            log_end = self._segments.open_last(recovery_point if trusted else None)
            return self._ends(log_start, log_end, log_end)
        ends = self._read_all(log_start, recovery_point or 0)
        self._make_durable(ends)
        return ends

    def _ends(self, log_start: int, log_end: int, recovery_point: int) -> Ends:
        return Ends.found(
            log_start=log_start,
            log_end=log_end,
            durable_end=log_end if page_cache_counts(self._folder.config) else recovery_point,
            recovery_point=recovery_point,
            synced_end=recovery_point,
        )

    def _check_start(self, ends: Ends) -> None:
        """A start above the end: deleted records may be lost where the page cache counts as durable, and only there."""
        last, log_folder = self._segments[-1], self._log_folder
        reason = f"the log ends at offset {ends.log_end}, but {LOG_START} says that it begins at {ends.log_start}"
        if log_folder.clean or log_folder.lost or not page_cache_counts(self._folder.config):
            raise BadBatch(last.path, last.size, f"{reason}: if that is wrong, correct its line there, and restart")
        self._around.report(
            f"{self._folder.place}: {reason}; what was deleted and is still there goes, the log is empty"
        )

    def _start_over(self, offset: int) -> None:
        """All segments go, an empty one keeps the place. The recovery point is below it: nothing falls."""
        self._drop(self._segments[:], self._folder.config.file_delete_delay_ms)
        self._epochs = LeaderEpochs()
        self._epochs.save_again()
        self._around.disk.sync_folder(self._folder.folder)
        self._segments.begin(offset, self._now_ms)
        self._unsynced.wrote()  # its names are in doubt anyway: a log that was stopped cleanly never comes here

    # -- what was recovered becomes durable

    def _make_durable(self, ends: Ends) -> None:
        """What was recovered may be in the page cache only. It was shown before the crash, so it is made durable first.

        Where the page cache counts as durable nobody needs that; but a later sync must not pass over lost pages, so a
        tail that is written again unnoticed is. A large one isn't: whoever chose that wants to be served at once. With
        `flush.messages` what counts as durable is, up to so many records.

        Where the recovery point is lost, what is further back than a flush can be was durable long ago. Transaction
        indexes need nothing: what they say of what is below the recovery point was flushed, the rest is built again.
        """
        segments, lost, recovery_point = self._segments, self._log_folder.lost, ends.recovery_point
        if ends.log_end == recovery_point:
            # Whoever was killed in the middle of a truncation left a cut that the platter doesn't know of.
            segments.file_of(segments[-1]).sync()
            return
        if self._log_folder.journal_lasts and self._leave_to_journal(ends):
            return
        doubtful = self._doubtful_from() if lost else recovery_point
        config = self._folder.config
        waits = not page_cache_counts(config) or counts_messages(config) or self._journal
        if not waits and self._tail_bytes(doubtful) > UNNOTICED_BYTES:
            return
        disk, folder = self._around.disk, self._folder.folder
        for segment in segments.from_offset(recovery_point):
            found = segments.position(segment, recovery_point)
            if found is None or (segment.base < doubtful and lost):  # one that was cut to nothing must stay so
                segments.file_of(segment).sync()
            else:
                self._write_again(segment.path, found[0])
                self._around.files.forget(segment)
        if lost or not recovery_point:  # else it was durable before the first flush was
            self._folder.name_topic_again(disk, durably=True)
        disk.sync_folder(folder)
        ends.synced(ends.log_end)

    def _leave_to_journal(self, ends: Ends) -> bool:
        """Whether the journal has, byte for byte, all that may not be durable in the segments: then nobody waits for
        syncs, and the next flush does them.

        A failed sync may have left pages in memory only (rewriting.py). They are dirty again, in place: where the power
        tears them, the journal has what was there.
        """
        last, disk = self._segments[-1], self._around.disk
        row = row_to_the_end(self._journal, last.base, ends.log_end)
        found = self._segments.position(last, row[0].start) if row else None
        if found is None or (self._log_folder.lost and len(self._segments) > 1):
            return False
        kept = b"".join(map(self._read_journal, row))
        if kept != self._segments.file_of(last).read(found[0], last.size - found[0]):
            return False
        try:
            disk.write_at(last.path, found[0], kept)
            self._folder.name_topic_again(disk, durably=False)
        except OSError:
            return False  # with a copy first it may work, or else that tells what is wrong
        ends.journaled(ends.log_end)
        return True

    def _doubtful_from(self) -> int:
        """Where the last `LOST_BYTES` begin, or the log."""
        size = 0
        for segment in reversed(self._segments[:]):
            size += segment.size
            if size > LOST_BYTES:
                return segment.base
        return 0

    def _tail_bytes(self, offset: int) -> int:
        tail = 0
        for segment in self._segments.from_offset(offset):
            found = self._segments.position(segment, offset)
            tail += 0 if found is None else segment.size - found[0]
        return tail

    def _write_again(self, path: str, start: int) -> None:
        disk = self._around.disk
        if not write_again(disk, path, start):
            self._around.report(
                f"{self._folder.place}: no room to write {disk.size(path) - start} bytes of {path} again. If a sync "
                "failed before the last crash, a power loss may take them: free some space and restart"
            )
            disk.open(path).sync()

    # -- what is above the recovery point

    def _read_all(self, log_start: int, recovery_point: int) -> Ends:
        """Read and check everything from the recovery point on. Where that is lost, no segment but the last is cut."""
        segments, lost = self._segments, self._log_folder.lost
        found_epochs: list[tuple[int, int]] = []
        next_offset = self._read_segments(recovery_point, found_epochs)
        if next_offset < recovery_point:
            raise BadBatch(
                segments[-1].path,
                segments[-1].size,
                f"the log ends at offset {next_offset}, but records up to {recovery_point} were made durable",
            )
        segments_end = next_offset
        if self._journal and self._add_journaled(next_offset):
            self._unsynced.forget(self._unsynced.bases)
            self._batches = 0
            found_epochs.clear()
            next_offset = self._read_segments(recovery_point, found_epochs)
        self._unsynced.unseal(segments[-1])  # perhaps since what was behind it went
        segments.become_active(segments[-1])
        ends = self._ends(log_start, next_offset, recovery_point)
        self._epochs = producer_state.find_epochs(segments, ends, segments_end, found_epochs)
        trusted = producer_state.first_snapshot(segments, self._snapshots, next_offset) if lost else recovery_point
        producer_state.check_aborted(segments, self._snapshots, trusted)
        # A snapshot that a flush had written may be ahead of the transaction index, which is built again behind it; but
        # not one from where on all batches are there.
        self._snapshots.cut(self._around.disk, self._folder, max(trusted, segments.oldest))
        if next_offset > recovery_point or self._unsynced.bases:
            self._unsynced.wrote()
        return ends

    def _read_segments(self, recovery_point: int, found_epochs: list[tuple[int, int]]) -> int:
        """The offset behind the last one that is sound. What comes behind a cut goes."""
        segments, lost = self._segments, self._log_folder.lost
        number = segments.number(recovery_point)
        next_offset = segments[number].base
        while number < len(segments):
            segment = segments[number]
            if segment.base != next_offset and not self._goes_on(number, next_offset, recovery_point):
                self._around.disk.sync_folder(self._folder.folder)
                continue
            last = number + 1 == len(segments)
            try:
                next_offset, read = indexing.scan(
                    segments, segment, recovery_point, check=True, found_epochs=found_epochs
                )
                self._batches += read
            except BadBatch as bad:
                next_offset = indexing.next_offset_of(segments, segment)
                if next_offset < recovery_point:
                    reason = f"{bad.reason}, below the recovery point {recovery_point}"
                    raise BadBatch(bad.path, bad.pos, reason) from bad
                if lost and not last:
                    raise BadBatch(bad.path, bad.pos, f"{bad.reason}, and the recovery point is not known") from bad
                self._cut(segment, number, next_offset, bad)
                break
            if not last:
                segment.finish_times()
                self._unsynced.seal(segment, b"")
            number += 1
        return next_offset

    # -- what the journal has

    def _begin_anew(self, first: Entry) -> None:
        """The names of all its segments are lost, and the journal has the records."""
        if first.start != first.segment_base or (self._log_folder.recovery_point or 0) > first.segment_base:
            reason = f"no segment is here, and the journal has nothing before offset {first.start}"
            raise BadBatch(self._folder.folder, 0, reason)
        self._segments.begin(first.segment_base, self._now_ms)

    def _add_journaled(self, next_offset: int) -> bool:
        """Write what the journal has behind the end of the segments; whether it has anything."""
        added = additions(
            self._journal, self._read_journal, self._segments[-1].base, next_offset, self._last_batch(next_offset)
        )
        for addition in added:
            last = self._segments[-1]
            if addition.segment_base == addition.start > last.base:
                last = self._segments.begin(addition.segment_base, self._now_ms)
            self._segments.file_of(last).append(addition.data)
        if added:
            self._around.report(
                f"{self._folder.place}: offsets {next_offset} to {added[-1].end - 1} came back from the journal"
            )
            self._around.note_restored(added[-1].end - next_offset)
        return bool(added)

    def _read_journal(self, entry: Entry) -> bytes:
        return self._around.disk.open_fixed(entry.path).read(entry.position, entry.size)

    def _last_batch(self, next_offset: int) -> HeaderFields | None:
        """The one right before this offset, where there is one."""
        segments, found = self._segments, None
        for number in reversed(range(len(segments))):
            segment = segments[number]
            if segments.look(segment, number):
                start = segments.indexes(segment).lookup(next_offset)
                for _, fields in batches(segments.file_of(segment), start, segment.size, check=False):
                    found = fields
                break
        return found

    def _cut(self, segment: Segment, number: int, next_offset: int, bad: BadBatch) -> None:
        file, place = self._segments.file_of(segment), self._folder.place
        cut = file.size() - segment.size
        sound, records, last_offset = _sound_behind(file, segment.size)
        behind = f", with {sound} sound batches behind it, up to offset {last_offset}" if sound else ""
        self._around.report(f"{place}: cut {cut} bytes off {bad}{behind}; the log goes on at offset {next_offset}")
        self._around.note_cut(place, next_offset, cut, records)
        file.truncate(segment.size)
        file.sync()  # or else the next power loss brings back what was cut
        self._drop_behind(number + 1, next_offset)
        self._around.disk.sync_folder(self._folder.folder)

    def _goes_on(self, number: int, next_offset: int, recovery_point: int) -> bool:
        """Whether a segment may follow that doesn't begin where the one before it ends; if not, it is no more.

        Batches that were never synced can be lost without a trace at the end of a segment while the next one was
        written. What is in there wasn't acknowledged: a log with a hole would take what its producers send again for
        duplicates.
        """
        before, segment = self._segments[number - 1 : number + 1]
        if segment.base < next_offset:
            if segment.measure(self._around.disk):
                reason = f"the segment begins at offset {segment.base}, but the one before it ends at {next_offset}"
                raise BadBatch(segment.path, 0, reason)
            self._drop([segment])
            return False
        lost = self._log_folder.lost
        if self._was_compacted(before) or (lost and self._folder.config.compacts):
            return True
        missing = f"offsets {next_offset} to {segment.base - 1} are missing"
        if lost:  # perhaps a file was
            reason = f"{missing} behind it, and the recovery point is not known"
            raise BadBatch(before.path, before.size, reason)
        if next_offset < recovery_point:
            reason = f"it ends at offset {next_offset}, below the recovery point {recovery_point}"
            raise BadBatch(before.path, before.size, reason)
        self._around.report(
            f"{self._folder.place}: {missing}; what is behind them goes, the log goes on at {next_offset}"
        )
        self._drop_behind(number, next_offset)
        return False

    def _was_compacted(self, segment: Segment) -> bool:
        """Whether a segment above the recovery point may end before the next begins.

        Compaction stays below the recovery point that is saved, unless the log was cut since; Apache Kafka's doesn't.
        """
        if segment.base < self._log_folder.clean_end:
            return True
        if not self._folder.config.compacts:
            return False
        expected = segment.base
        for _, fields in batches(self._segments.file_of(segment), 0, segment.size, check=False):
            if fields.base_offset != expected or fields.record_count != fields.last_offset_delta + 1:
                return True
            expected = fields.base_offset + fields.record_count
        return False

    def _drop_behind(self, number: int, cut_at: int) -> None:
        """What comes behind a cut at this offset was never acknowledged."""
        going = self._segments[number:]
        for segment in going:
            self._around.note_cut(self._folder.place, cut_at, segment.size_now(self._around.disk))
        self._drop(going)

    def _drop(self, going: list[Segment], delay_ms: int = 0) -> None:
        """The last one goes first: a crash in between leaves no hole."""
        for segment in reversed(going):
            self._around.remove_segment(segment, delay_ms)
        bases = {segment.base for segment in going}
        self._segments.drop(bases)
        self._unsynced.forget(bases)


def _sound_behind(file: File, pos: int) -> tuple[int, int, int]:
    """What is whole behind a bad batch: how many batches, records, and the last offset.

    A power loss leaves such things, but so does a bit that flipped.

    They go in either case: what came before them is gone, and whether they were ever durable nobody knows. Below the
    recovery point somebody does, and nothing is cut.
    """
    head = file.read(pos, HEADER_BYTES)
    size = read_fields(head).size if len(head) == HEADER_BYTES else 0
    count, records, last = 0, 0, -1
    if size >= HEADER_BYTES:
        with suppress(BadBatch):
            for _, fields in batches(file, pos + size, file.size(), check=True):
                count, records, last = count + 1, records + fields.record_count, fields.last_offset
    return count, records, last
