"""One partition on disk: append, roll, delete, truncate. Where the way of a message ends.

Three ends: `log_end` is what was written, `durable_end` what is on stable storage (or, with `tidelog.durability=os`,
what the operating system has), and the high watermark is the replica's to keep. `recovery_point` is the offset below
which everything, indexes and producer snapshot included, was made durable, so that a start after a crash reads from
there on only.

Nothing is on disk, and next to nothing in memory, before the first write (beginning.py). A log that is on disk is made
of what was found out about it off the loop (opening.py).
"""

from __future__ import annotations

import logging
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING

from tidelog.log import indexing, knowledge, recovery, retention, truncation, windows
from tidelog.log.aborted import AbortedIndexError
from tidelog.log.commit import TOO_MANY_FILES
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.names import LOG
from tidelog.log.producer_snapshot import encode_snapshot
from tidelog.log.reading import LogListener, ReadableLog
from tidelog.log.rewriting import FULL_DISK
from tidelog.log.scan import BadBatch, HeaderFields
from tidelog.log.segment import Segment
from tidelog.log.stored import page_cache_counts
from tidelog.log.validate import RECORDS_MAX, Admitted, Unlooked, admit, begin, too_large_for_segment
from tidelog.wire.batch import (
    APPEND_TIME_FLAG,
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    read_header,
    stamp_append_time,
)
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.env.promise import Promise
    from tidelog.log.producers import Producers
    from tidelog.log.stored import StoredLog

FLUSH_BYTES = 64 * 1024 * 1024
"""The recovery point is moved on when this much was written behind it: what a start after a crash reads at most."""

__all__ = ["Log", "LogListener"]

_logger = logging.getLogger("tidelog.log")
_unpack = HEADER.unpack_from
_NO_HEADER: HeaderFields = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)  # of magic 0, which isn't plainly fine
_patch = Struct(">qii").pack_into  # base offset, length, leader epoch: what the broker sets, outside of the checksum


class Log(ReadableLog):
    """One partition: the reader's side is in reading.py, here is what writes it and changes it."""

    __slots__ = ()

    # -- what is known of leaders and producers, loaded when first needed

    @property
    def epochs(self) -> LeaderEpochs:
        epochs = self._epochs
        if epochs is None:
            with self._guard():
                epochs = self._epochs = knowledge.load_epochs(self) if self._segments else LeaderEpochs()
            epochs.truncate_from_start(self.log_start)
        if self._led is not None:
            led, self._led = self._led, None
            epochs.assign(*led)
        return epochs

    @property
    def producers(self) -> Producers:
        producers = self._producers
        if producers is None:
            with self._guard():
                producers = self._producers = knowledge.load_producers(self)
        return producers

    def read_windows(self) -> Promise[None]:
        """Learn, off the loop, what of its producers' last batches a snapshot didn't tell."""
        return self._store.windows.read(self)

    def ranges_before(self, offset: int) -> list[windows.Range]:
        """Where the batches before `offset` lie, as far back as windows are looked for."""
        with self._guard():
            return windows.ranges_before(self, offset)

    def lead(self, leader_epoch: int) -> None:
        """This broker leads in a new epoch: what it writes begins at the log's end."""
        if self._led is not None or self._epochs is not None:
            self.epochs.assign(leader_epoch, self.log_end)
        else:
            self._led = leader_epoch, self.log_end

    def _enter_epoch(self, leader_epoch: int, base: int) -> None:
        if leader_epoch >= 0:
            self.epochs.assign(leader_epoch, base)
        self._epoch = leader_epoch

    # -- writing

    def append(
        self,
        buffer: memoryview,
        start: int,
        end: int,
        leader_epoch: int,
        now_ms: int,
        *,
        internal: bool = False,
        admitted: bool = False,
    ) -> tuple[int, int, int]:
        """Append the one batch in [start, end) of a writable buffer, patched in place.

        Returns (base offset, next offset, time of the append or -1). A duplicate of one of its producer's last five
        batches gives the offsets of the original and writes nothing. Raises KafkaError with Kafka's code; a failed
        write takes the log offline. `internal`: the broker itself writes it, control records perhaps. `admitted`: it
        was looked into by what `admit` gave; without that, Lengthy is raised where the look takes too long.
        """
        size = end - start
        append_time = -1
        fields: HeaderFields = _unpack(buffer, start) if size >= HEADER_BYTES else _NO_HEADER
        zero, length, _, magic, crc, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, count = fields
        if not (
            attributes in self._plain
            and magic == MAGIC
            and length == size - LOG_OVERHEAD
            and not zero  # base offset
            and 0 <= delta == count - 1 < RECORDS_MAX
            and size <= self._max_bytes
            and max_timestamp - now_ms <= self._after_ms
            and (producer_id < 0 or sequence >= 0)
            and crc32c(buffer[start + ATTRIBUTES_AT : end]) == crc
        ):
            buffer, start, end, header = self._unusual(buffer, start, end, now_ms, internal, admitted)
            _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _, _ = header
            size = end - start
            if attributes & APPEND_TIME_FLAG:
                append_time = now_ms
        producers = None
        if producer_id >= 0 and not attributes & CONTROL_FLAG:
            producers = self._producers
            if producers is None:
                producers = self.producers
            appended = producers.check(producer_id, epoch, sequence, delta, attributes)
            if appended is not None:
                return appended.first_offset, appended.last_offset + 1, appended.timestamp
        ends = self.ends
        base = ends.log_end
        last = base + delta
        segment = self._active
        if (
            segment is None
            or (position := segment.size) + size > self._size_limit
            or max_timestamp > segment.roll_after
            or last > segment.offset_limit
        ):
            segment = self._make_room(size, last, max_timestamp, now_ms)
            position = segment.size
        _patch(buffer, start, base, length, leader_epoch)
        file = segment.file
        try:
            if leader_epoch != self._epoch:
                self._enter_epoch(leader_epoch, base)  # before the write: it may have to read the disk, and fail
            if file is None:
                file = self._store.files.open(segment)
            if producers is None and producer_id >= 0:  # a marker
                self._note_aborted(segment, buffer[start:end], read_header(buffer[start:end]))
            file.append(buffer[start:end])
        except OSError as error:
            raise self._write_failed(segment, error) from error
        segment.used = True
        if max_timestamp > segment.max_timestamp:
            segment.max_timestamp = max_timestamp
            segment.max_timestamp_offset = last
        if position > segment.index_next:
            segment.add_entries(base, last, position, self.config.segment_index_bytes)
            segment.index_next = position + self._interval
        segment.size = position + size
        next_offset = last + 1
        if ends.wrote(next_offset):
            self._store.commit.request(self)
        self.batches += 1
        if producers is not None:
            producers.record(producer_id, epoch, sequence, base, last, max_timestamp, attributes)
        elif producer_id >= 0:
            self.producers.replay(buffer[start:end], read_header(buffer[start:end]))
        if self._full:
            self.has_room()
        return base, next_offset, append_time

    def _unusual(
        self, buffer: memoryview, start: int, end: int, now_ms: int, internal: bool, admitted: bool
    ) -> Admitted:
        """A batch that isn't plainly fine, or has to be changed."""
        if not admitted:
            return self._store.looks.at_once(
                lambda budget: admit(
                    self.place, self.config, buffer, start, end, now_ms, internal=internal, budget=budget
                )
            )
        if read_header(buffer, start).attributes & APPEND_TIME_FLAG:  # the look took its time
            stamp_append_time(buffer, start, end, now_ms)
        return Admitted(buffer, start, end, read_header(buffer, start))

    def admit(self, buffer: memoryview, now_ms: int) -> Admitted | Unlooked | None:
        """Look into the batch that fills `buffer`, ahead of `append`, where the topic wants that; else None.

        Unlooked: it takes long, and is done aside (`log/looks.py`). Raises KafkaError where it is refused.
        """
        if len(buffer) >= HEADER_BYTES:
            fields: HeaderFields = _unpack(buffer)
            if fields[5] in self._plain and fields[8] - now_ms <= self._after_ms:
                return None
        return self._store.looks.at_once(lambda budget: begin(self.place, self.config, buffer, now_ms, budget))

    def append_records(self, buffer: memoryview, start: int, end: int, now_ms: int) -> tuple[int, int]:
        """Append batches that have their offsets and leader epochs already: a follower's, the metadata log's.

        Returns (first base offset, next offset). Each must be whole and sound and begin at the log's end or above; what
        comes before the first that isn't was appended all the same.
        """
        first, pos = -1, start
        while pos < end:
            if end - pos < HEADER_BYTES:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.place}: {end - pos} bytes are no record batch")
            header = read_header(buffer, pos)
            stop = header.end
            if header.magic != MAGIC or header.size < HEADER_BYTES or stop > end:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.place}: no whole record batch of magic 2")
            if crc32c(buffer[pos + ATTRIBUTES_AT : stop]) != header.crc or header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"{self.place}: the batch at {header.base_offset} is damaged"
                )
            if header.base_offset < self.log_end:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.place}: a batch of offset {header.base_offset}, but the log goes on at {self.log_end}",
                )
            self._append_given(buffer[pos:stop], header, now_ms)
            first = header.base_offset if first < 0 else first
            pos = stop
        return first, self.log_end

    def _append_given(self, data: memoryview, header: BatchHeader, now_ms: int) -> None:
        segment = self._make_room(len(data), header.last_offset, header.max_timestamp, now_ms)
        position = segment.size
        try:
            if header.leader_epoch != self._epoch:
                self._enter_epoch(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0 and header.attributes & CONTROL_FLAG:
                self._note_aborted(segment, data, header._replace(pos=0))
            self._store.files.open(segment).append(data)
        except OSError as error:
            raise self._write_failed(segment, error) from error
        segment.note(header.last_offset, header.max_timestamp)
        if position > segment.index_next:
            segment.add_entries(header.base_offset, header.last_offset, position, self.config.segment_index_bytes)
            segment.index_next = position + self._interval
        segment.size = position + len(data)
        if self.ends.wrote(header.next_offset):
            self._store.commit.request(self)
        self.batches += 1
        if header.producer_id >= 0:
            self.producers.replay(data, header._replace(pos=0))
        if self._full:
            self.has_room()

    def _note_aborted(self, segment: Segment, data: memoryview, header: BatchHeader) -> None:
        """Before a marker is written: the transaction that it aborts, if it does, goes to the segment's index.

        First, since it may fail: a marker without its entry would show readers what was aborted.
        """
        completed = self.producers.completed_by(data, header)
        if completed is not None and completed.aborted:
            try:
                segment.aborted(self._store.disk).append(completed)
            except AbortedIndexError as error:
                self.go_offline(f"{self.folder} is damaged: {error}")
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline) from error
            self.has_aborted = True
            self._new_names = True

    def _make_room(self, size: int, last: int, max_timestamp: int, now_ms: int) -> Segment:
        """The segment that takes a batch of this size: rolled if need be, made if there is none yet.

        Every append comes here that isn't plainly fine: the first ones after a start, a roll or a flush too.
        """
        if self.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)
        config = self.config
        if size > config.segment_size:
            raise too_large_for_segment(self.place, size, config)
        try:
            segment = self._active or self._wake(now_ms)
            if segment.size and (
                segment.size + size > config.segment_size
                or segment.waited_ms(max_timestamp, now_ms) > config.roll_ms - segment.jitter_ms
                or segment.index_full(config.segment_index_bytes)
                or last > segment.offset_limit
            ):
                segment = self._roll(now_ms)
        except OSError as error:
            raise self._write_failed(None, error) from error
        except BadBatch as error:
            raise self.read_failed(error) from error
        if segment.size == 0:
            segment.date_first(max_timestamp, config.roll_ms)
        if not self._dirty:
            self._dirty = True
            self._flush_from = segment.size
            self._store.wrote(self)
        elif segment.size + size > self._flush_from + FLUSH_BYTES:
            self._flush_from = segment.size
            self._store.flush_soon(self)
        self._size_limit = min(config.segment_size, self._flush_from + FLUSH_BYTES)
        return segment

    def touch(self) -> None:
        """Its files changed without an append: the next flush makes that durable."""
        if not self._dirty:
            self._dirty = True
            self._store.wrote(self)

    def _wake(self, now_ms: int) -> Segment:
        """The last segment, opened; the first one, made."""
        if self._segments:
            indexing.open_last(self, self.ends.log_end)
            return self._segments[-1]
        self._store.check_not_begun(self)
        self._know_nobody()
        self._make_folder()
        return self._begin_segment(self.log_end, now_ms)

    def _know_nobody(self) -> None:
        """Nothing was written yet: later that would have to be found by reading all of it."""
        self._producers = self.producers
        self._epochs = self.epochs

    def configure(self, config: TopicConfig) -> None:
        """What counted as durable in the page cache is made so at once where that no longer counts."""
        counted = page_cache_counts(self.config)
        super().configure(config)
        if counted and self._dirty and not page_cache_counts(config):
            self._store.flush_soon(self)

    def begin(self) -> Promise[None] | None:
        """Make its folder and its first segment off the loop, where that is better; settled when it was tried."""
        if self._segments or self.offline is not None:
            return None
        return self._store.begin(self)

    def take_first(self, begun: StoredLog) -> None:
        """Its first segment was made."""
        assert not self._segments
        segment = begun.segments[0]
        self._know_nobody()
        self._segments = begun.segments
        self._new_folder = self._new_names = True  # made durable with the first write
        self._store.files.adopt(segment)
        self._become_last(segment)

    def _make_folder(self) -> None:
        disk, folder = self._store.disk, self.folder
        new = not disk.exists(folder)
        if new:
            self._store.claim(self)
            disk.make_folders(folder)
        self._store.made_folder(self)
        self._new_folder = True  # its name, and whose it is, are made durable with the first write
        recovery.name_topic(self, new=new)

    def _begin_segment(self, base: int, now_ms: int) -> Segment:
        segment = super()._begin_segment(base, now_ms)
        segment.jitter_ms = self._draw_jitter()
        return segment

    def _become_last(self, segment: Segment) -> None:
        segment.jitter_ms = self._draw_jitter()
        super()._become_last(segment)

    def _draw_jitter(self) -> int:
        config = self.config
        jitter = self._store.random.random_int(0, config.segment_jitter_ms) if config.segment_jitter_ms else 0
        return min(jitter, config.roll_ms)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the last one is empty."""
        if self._segments and self.offline is None:
            segment = self._active or self._wake(now_ms)
            if segment.size:
                self._roll(now_ms)

    def written_ms(self, segment: Segment) -> int:
        """When something was last written to the segment."""
        return self._store.disk.modified_ms(segment.stem + LOG)

    def roll_at_end(self, now_ms: int) -> None:
        """Begin a segment at the log's end, where the last one's batches end before that."""
        if self._active is not None and self._active.base < self.log_end:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> Segment:
        old = self._active
        assert old is not None
        snapshot = encode_snapshot(self.producers.items())
        self._store.rolls(self)
        segment = self._begin_segment(self.log_end, now_ms)
        old.finish_times()
        _logger.debug("%s: segment %d is full, the next begins at offset %d", self.place, old.base, segment.base)
        self._sealed_unsynced = [*self._sealed_unsynced, old]
        self._sealed_unsaved = [*self._sealed_unsaved, (old, snapshot)]
        self._store.flush_soon(self)
        return segment

    def _write_failed(self, segment: Segment | None, error: OSError) -> KafkaError:
        """A write failed. On a full disk its torn rest is cut off and the log stays; else the log goes offline."""
        reason = f"writing to {self.folder} failed: {error}"
        if error.errno in TOO_MANY_FILES:  # nothing could be opened, so nothing was written
            self._store.files.shrink()
            self._store.report(f"{self.place}: {reason}; the log goes on when files may be opened again")
        elif error.errno not in FULL_DISK:
            self.go_offline(reason)
        else:
            try:
                if segment is not None:
                    self._store.files.open(segment).truncate(segment.size)
                    if segment.has_aborted:
                        segment.aborted(self._store.disk).truncate_to(self.log_end)
            except OSError as second:
                self.go_offline(f"{reason}; cutting off the torn write failed too: {second}")
            else:
                if not self._full:  # one line, however many clients try again
                    message = f"{self.place}: {reason}; free some space, the log goes on then"
                    self._store.report(message, level=logging.ERROR)
                self._full = True
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def has_room(self) -> None:
        """Something was written after there had been no room for it."""
        self._full = False
        self._store.report(f"{self.place}: there is room again, the log goes on", level=logging.INFO)

    # -- durability

    def became_durable(self, end: int) -> None:
        """Everything below `end` is on stable storage: told by the group commit."""
        if self.ends.synced(end) and self.listener is not None:
            self.listener.durable_advanced(self)

    def flushed(self, end: int) -> None:
        """A start after a crash has nothing to read below `end`: told by the flush."""
        if self.ends.flushed(end) and self.listener is not None:
            self.listener.durable_advanced(self)

    def delete_before(self, offset: int) -> int:
        """Records below `offset` are gone for readers; it may be inside of a batch. The log's start now.

        Whole segments go with the next look of retention. Where the new start can't be written down, the old one holds
        again: `LogStarts.saved` tells. OFFSET_OUT_OF_RANGE above the high watermark.
        """
        limit = self.durable_end if self.high_watermark < 0 else self.high_watermark
        if offset > limit:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.place}: can't delete before {offset}, the high watermark is {limit}",
            )
        if offset > self.log_start:
            before = self.log_start
            self.ends.move_start(offset)
            self._store.starts.move(self, before)
        return self.log_start

    def start_saved(self) -> None:
        """Its start is durable: what was known of leaders before it goes."""
        if self._epochs is not None:
            self._epochs.truncate_from_start(self.log_start)

    def start_failed(self, before: int) -> None:
        """Its start couldn't be made durable: it is `before` again, as far as the segments still reach back."""
        self.ends.move_start(max(before, self._oldest()))

    def apply_retention(self, now_ms: int) -> None:
        """Have the segments go that age, size or `delete_before` let go: soon, and one step after the other."""
        start = self.retained_from(now_ms)
        if self._segments and start > self._segments[0].base:
            self._store.upkeep.deletion.begin(self, start, now_ms)

    def retained_from(self, now_ms: int) -> int:
        """The first offset of the first segment that stays; one is begun where none does, to keep the next offset.

        KafkaError where the disk doesn't give back what it takes to know: nothing goes then, until the next look.
        """
        if self.offline is not None or not self._segments:
            return 0
        count = self._searched(lambda: retention.look(self, now_ms))
        with self._guard(changing=True):
            if count == len(self._segments):
                self.roll(now_ms)
            return self._segments[count].base

    def delete_segments(self, start: int) -> None:
        """Those that end at `start` or before go; a start after a crash doesn't need them any more (deletion.py)."""
        with self._guard(changing=True):
            if start > self.log_start:
                self.ends.move_start(start)
                self.epochs.truncate_from_start(start)
            self.forget_segments([segment for segment, behind in pairwise(self._segments) if behind.base <= start])
            self._store.starts.moved(self)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were idle for producer.id.expiration.ms; nothing where none were loaded."""
        if self._producers is not None:
            self._producers.expire(now_ms)

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at `offset` and above; whether that was anything."""
        with self._guard(changing=True):
            return truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything; the next record gets `offset`."""
        with self._guard(changing=True):
            truncation.start_at(self, offset, now_ms)

    def forget_segments(self, going: list[Segment]) -> None:
        """These segments, at either end of the log, are no longer part of it; their files go after a while."""
        bases = {segment.base for segment in going}
        _logger.debug("%s: %d segments go", self.place, len(bases))
        self._segments = [segment for segment in self._segments if segment.base not in bases]
        self._sealed_unsynced = [segment for segment in self._sealed_unsynced if segment.base not in bases]
        self._sealed_unsaved = [pair for pair in self._sealed_unsaved if pair[0].base not in bases]
        if self._active is not None and self._active.base in bases:
            self._active = None
            self._marks = None
        for segment in going:
            self._store.files.forget(segment)
            self._store.remove_segment(segment, self.config.file_delete_delay_ms)
        needed = self.restart_snapshot()
        going_too = [known for known in self._snapshots[:-1] if known in bases or known < self._oldest()]
        going_too = [known for known in going_too if known != needed]
        self._snapshots = [known for known in self._snapshots if known not in going_too]
        for offset in going_too:
            self._store.remove_soon(self.snapshot_path(offset))

    def replace_segments(self, going: list[Segment], new: Segment) -> list[str]:
        """Sealed segments that follow each other became one; the paths of snapshots that nobody needs any more."""
        first = self._segments.index(going[0])
        self._segments = [*self._segments[:first], new, *self._segments[first + len(going) :]]
        for segment in going:
            self._store.files.forget(segment)
        bases = {segment.base for segment in going[1:]}
        needed = self.restart_snapshot()
        stale = [known for known in self._snapshots[:-1] if known in bases and known != needed]
        self._snapshots = [known for known in self._snapshots if known not in stale]
        return [self.snapshot_path(offset) for offset in stale]

    def restart_snapshot(self) -> int:
        """The offset of the producer snapshot that a start after a crash would begin with; -1: there is none."""
        point = self._store.saved_recovery_point(self)
        return max((known for known in self._snapshots if known <= point), default=-1)

    def _oldest(self) -> int:
        return self._segments[0].base if self._segments else 0

    def close(self) -> None:
        """Let go of its files. What wasn't flushed stays so: `Store.stop` flushes first."""
        for segment in self._segments:
            self._store.files.forget(segment)
        self._active = None
        self._segments = []
        self.offline = self.offline or "the log is closed"
        self._size_limit = -1
