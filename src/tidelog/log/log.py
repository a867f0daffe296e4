"""One partition on disk: what a broker does with a log beyond reading and writing it. Durability, deletion, truncation.

Three ends: `log_end` is what was written, `durable_end` what is on stable storage (or, with `tidelog.durability=os`,
what the operating system has), and the high watermark is the replica's to keep (ends.py). A log that is on disk is
made of what was found out about it off the loop (opening.py, recovery.py).
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING

from tidelog.log import indexing, retention
from tidelog.log.appending import WritableLog
from tidelog.log.bounds import JOURNALED_BYTES_MAX
from tidelog.log.cutting import Cut
from tidelog.log.durability import page_cache_counts
from tidelog.log.journal import JournalMark
from tidelog.log.reading import LogListener
from tidelog.log.scan import BadBatch
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.env.disk import File
    from tidelog.env.promise import Promise
    from tidelog.log.commit import Mark
    from tidelog.log.flush import FlushJob
    from tidelog.log.segment import Segment
    from tidelog.log.unsynced import ToFlush

__all__ = ["Log", "LogListener"]

_logger = logging.getLogger("tidelog.log")


class Log(WritableLog):
    """One partition. Reading is in reading.py, writing in appending.py."""

    __slots__ = ()

    def configure(self, config: TopicConfig) -> None:
        """What counted as durable in the page cache is made so at once where that no longer counts."""
        counted = page_cache_counts(self.config)
        super().configure(config)
        if counted and self.unsynced.dirty and not page_cache_counts(config):
            self._store.flush_soon(self)

    def begin(self) -> Promise[None] | None:
        """Make its folder and its first segment off the loop, where that is better; settled when it was tried."""
        if self.segments or self.offline is not None:
            return None
        return self._store.begin(self)

    def take_first(self, segment: Segment) -> None:
        """Its first segment was made."""
        assert not self.segments
        self._know_nobody()
        self.unsynced.add_folder()  # made durable with the first write
        self._store.files.adopt(segment)
        self.segments.add(segment)
        self.segments.become_active(segment)

    # -- durability

    @property
    def may_lose(self) -> bool:
        """Whether something was written for it that no sync made durable yet."""
        return bool(self.unsynced) or self.ends.log_end > self.ends.synced_end

    def synced(self, mark: Mark) -> bool:
        """What was noted when the sync began is on stable storage; False where the log was cut meanwhile."""
        if mark.generation != self.ends.generation:
            return False
        self.unsynced.synced(mark.sealed)
        if mark.segment is not None and mark.segment is self.segments.active:
            self.segments.mark(mark.end, mark.size)
        if self.ends.synced(mark.end) and self.listener is not None:
            self.listener.durable_advanced(self)
        return True

    def journaled(self, mark: JournalMark) -> bool:
        """What was noted is in the journal; False where the log was cut meanwhile."""
        if mark.generation != self.ends.generation:
            return False
        if mark.segment is self.segments.active:
            self.segments.mark(mark.end, mark.size)
        if self.ends.journaled(mark.end) and self.listener is not None:
            self.listener.durable_advanced(self)
        return True

    def journal_mark(self) -> JournalMark | None:
        """What a commit of it would write to the journal; None where its files are to be synced instead.

        That is so of what is large, and behind a segment that isn't synced yet: what is durable of a log in a later
        segment never has a hole before it.
        """
        ends, segment = self.ends, self.segments.active
        start = ends.stable_end  # more may count as durable, where the page cache did until now
        if segment is None or ends.unsynced_max or self.unsynced.has_sealed or not segment.base <= start < ends.log_end:
            return None
        try:
            found = self.segments.position(segment, start)
        except (OSError, BadBatch):
            return None  # the sync tells what is wrong
        if found is None or segment.size - found[0] > JOURNALED_BYTES_MAX:
            return None
        return JournalMark(self, ends.generation, segment, found[0], segment.size, start, ends.log_end)

    def sync_not_tried(self) -> None:
        """Too many files were open."""
        self.unsynced.sync_not_tried()
        self._store.files.shrink()

    def begin_flush(self) -> ToFlush:
        """What is to be saved beyond the segment that is written. What is written from now on waits for the next."""
        if self.segments.active is not None:
            self.segments.active.begin_flush()
        self.ends.begin_flush()
        return self.unsynced.begin_flush()

    def flush_postponed(self, reason: Exception) -> None:
        """Its recovery point stays where it is for now."""
        if not self._full:  # that was told
            self._store.report(f"{self.place}: its recovery point stays at {self.ends.recovery_point}: {reason}")

    def flushed(self, job: FlushJob) -> None:
        """A start after a crash has nothing to read below the job's end."""
        self.unsynced.flushed(job.sealed)
        for segment in job.sealed:
            segment.flushed()
        self.snapshots.written(job.snapshots, job.stale)
        if self.ends.flushed(job.end) and self.listener is not None:
            self.listener.durable_advanced(self)

    # -- the start

    def delete_before(self, offset: int) -> int:
        """Records below `offset` are gone for readers; it may be inside of a batch. The log's start now.

        Whole segments go with the next look of retention. Where the new start can't be written down, the old one holds
        again: `LogStarts.saved` tells. OFFSET_OUT_OF_RANGE above the high watermark.
        """
        limit = self.ends.durable_end if self.high_watermark < 0 else self.high_watermark
        if offset > limit:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.place}: can't delete before {offset}, the high watermark is {limit}",
            )
        if offset > self.log_start:
            before = self.log_start
            self.ends.move_start(offset)
            self._store.starts.move(self, before)
            self._start_moved()
        return self.log_start

    def _start_moved(self) -> None:
        if self.listener is not None:
            self.listener.start_moved(self)

    def start_saved(self) -> None:
        """Its start is durable: what was known of leaders before it goes."""
        if self._epochs is not None:
            self._epochs.truncate_from_start(self.log_start)

    def start_failed(self, before: int) -> None:
        """Its start couldn't be made durable: it is `before` again, as far as the segments still reach back."""
        self.ends.move_start(max(before, self.segments.oldest))

    def apply_retention(self, now_ms: int) -> None:
        """Have the segments go that age, size or `delete_before` let go: soon, and one step after the other."""
        start = self.retained_from(now_ms)
        if self.segments and start > self.segments.oldest:
            self._store.upkeep.deletion.begin(self, start, now_ms)

    def retained_from(self, now_ms: int) -> int:
        """The first offset of the first segment that stays; one is begun where none does, to keep the next offset.

        KafkaError where the disk doesn't give back what it takes to know: nothing goes then, until the next look.
        """
        if self.offline is not None or not self.segments:
            return 0
        start = self._store.starts.settled(self)
        count = self._searched(lambda: retention.look(self, start, now_ms))
        with self._guard(changing=True):
            if count == len(self.segments):
                self.roll(now_ms)
            return self.segments[count].base

    def delete_segments(self, start: int) -> None:
        """Those that end at `start` or before go; a start after a crash doesn't need them any more (deletion.py)."""
        with self._guard(changing=True):
            if start > self.log_start:
                self.ends.move_start(start)
                self.epochs.truncate_from_start(start)
                self._start_moved()
            self.forget_segments([segment for segment, behind in pairwise(self.segments) if behind.base <= start])
            self._store.starts.moved(self)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were idle for producer.id.expiration.ms; nothing where none were loaded."""
        if self._producers is not None:
            self._producers.expire(now_ms)

    # -- segments go, or others come in their place

    def forget_segments(self, going: list[Segment]) -> None:
        """These segments, at either end of the log, are no longer part of it; their files go after a while."""
        bases = {segment.base for segment in going}
        _logger.debug("%s: %d segments go", self.place, len(bases))
        self.segments.drop(bases)
        self.unsynced.forget(bases)
        for segment in going:
            self._store.files.forget(segment)
            self._store.remove_segment(segment, self.config.file_delete_delay_ms)
        needed, oldest = self.restart_snapshot(), self.segments.oldest
        stale = [known for known in self.snapshots.older() if (known in bases or known < oldest) and known != needed]
        self.snapshots.forget(stale)
        for offset in stale:
            self._store.remove_soon(self.snapshot_path(offset))

    def replace_segments(self, going: list[Segment], new: Segment) -> list[str]:
        """Sealed segments that follow each other became one; the paths of snapshots that nobody needs any more."""
        self.segments.replace(going, new)
        for segment in going:
            self._store.files.forget(segment)
        bases = {segment.base for segment in going[1:]}
        needed = self.restart_snapshot()
        stale = [known for known in self.snapshots.older() if known in bases and known != needed]
        self.snapshots.forget(stale)
        return [self.snapshot_path(offset) for offset in stale]

    def restart_snapshot(self) -> int:
        """The offset of the producer snapshot that a start after a crash would begin with; -1: there is none."""
        return self.snapshots.newest_up_to(self._store.saved_recovery_point(self))

    # -- truncation: a follower drops what its new leader doesn't have, or starts anew

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at `offset` and above, here and now, syncs and all; whether that was anything."""
        end = self.ends.log_end if self.segments else -1
        if self.segments and self.segments.oldest <= offset < end:
            with self._guard(changing=True):
                self._store.journals.settle_now(self)
        cut = self.begin_cut(offset)
        if cut is not None:
            with self._guard(changing=True):
                self._store.cuts.save()
            file = self.end_cut(cut)
            with self._guard(changing=True):
                file.sync()
        return offset < end

    def begin_cut(self, offset: int) -> Cut | None:
        """The first half: nothing counts any more that was known from `offset` on. In the same turn of the loop comes
        `Cuts.save`, then `end_cut`. None: there was nothing, or all went, and it is done (cutting.py)."""
        assert offset >= 0, f"truncating to {offset}"
        with self._guard(changing=True):
            segments = self.segments
            if offset >= self.ends.log_end or not segments:
                self.epochs.truncate_from_end(self.ends.log_end)
                return None
            if offset < segments.oldest:
                self._start_at(offset, self._store.clock.now_ms())
                return None
            number = segments.number(offset)
            segment = segments[number]
            segments.look(segment, number)
            found = segments.position(segment, offset)
            position = segment.size if found is None else found[0]
            rest_end = indexing.end_of_batches(segments, segment, offset)
            self._fall_back(offset, rest_end)
            return Cut(self, offset, rest_end, number, segment, position)

    def end_cut(self, cut: Cut) -> File:
        """The second half. The file is to be synced before anything is written."""
        with self._guard(changing=True):
            _, offset, rest_end, number, segment, position = cut
            segments, disk = self.segments, self._store.disk
            going = segments[:number:-1]  # the last one first: a crash in between leaves no hole
            removed = self.snapshots.cut(disk, self, offset)
            if going:
                self.forget_segments(going)
            if going or removed:
                disk.sync_folder(self.folder)  # they must not come back behind the cut, or beside what is new
            self.unsynced.unseal(segment)
            file = segments.cut(segment, position)
            segment.aborted(disk).truncate_to(offset)
            self.epochs.truncate_from_end(offset)
            self.ends.cut(offset)
            if rest_end < offset:
                file.sync()
                self._go_on_behind_hole(segment, offset)
            self.touch()
            return file

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything; the next record gets `offset`."""
        with self._guard(changing=True):
            self._start_at(offset, now_ms)

    def _go_on_behind_hole(self, segment: Segment, offset: int) -> None:
        """Compaction took what was right before `offset`: an empty segment tells where the log goes on.

        Recovery takes it for a hole that compaction made: the one before it begins below the end of what is compacted.
        One that kept nothing would begin just there: it goes.
        """
        now_ms = self._store.clock.now_ms()
        if segment.size:
            self.roll_at_end(now_ms)
            return
        self.forget_segments([segment])
        self._begin_segment(offset, now_ms)
        self._store.disk.sync_folder(self.folder)  # a start that is saved must not be behind all that is there
        if len(self.segments) == 1:
            self.ends.move_start(offset)
            self._store.starts.moved(self)

    def _start_at(self, offset: int, now_ms: int) -> None:
        """All segments go, with what was known of their producers; an empty one keeps the place."""
        self._store.journals.settle_now(self)
        self._fall_back(0, 0)  # nothing of it stays, also where it goes on behind its end: a crash finds no segment
        self._store.cuts.save()
        self.snapshots.cut(self._store.disk, self, -1)
        self.epochs.clear()
        self.ends.start_at(offset)
        self.forget_segments(self.segments[::-1])
        self._make_folder()
        self._store.disk.sync_folder(self.folder)
        self._begin_segment(offset, now_ms)
        self._store.starts.moved(self)
        self.touch()

    def _fall_back(self, offset: int, rest_end: int) -> None:
        """Nothing that was known of offsets from `offset` on holds any longer; the batches before it end at `rest_end`.

        The recovery point goes first, durably (`Cuts.save`): a crash right after the cut must not find records missing
        below it.
        """
        epochs = self.epochs  # loaded before the batches go that it may be built from
        assert epochs is not None
        fell = self.ends.fall_back(offset, rest_end)
        self._store.cuts.note(self, offset, rest_end, fell=fell)
        self.segments.forget_positions()
        self._forget_producers()

    # -- a cut that isn't durable yet

    def close_to_batches(self) -> None:
        """It was cut, and that isn't durable yet: nothing is written behind it until then."""
        self.cut_unsynced = True
        self.segments.recheck()

    def open_to_batches(self) -> None:
        self.cut_unsynced = False

    def close(self) -> None:
        """Let go of its files. What wasn't flushed stays so: `Store.stop` flushes first."""
        self.segments.close()
        self.offline = self.offline or "the log is closed"
