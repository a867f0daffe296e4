"""One partition on disk: append, read, roll. Where the way of a message ends, and a fetch begins.

Three ends: `log_end` is what was written, `durable_end` what is on stable storage (or, with `tidelog.durability=os`,
what the operating system has), and the high watermark is the replica's to keep. `recovery_point` is the offset below
which everything, indexes and producer snapshot included, was made durable, so that a start after a crash reads from
there on only.

Nothing is on disk, and next to nothing in memory, before the first write. A log that was found after a clean stop is
not looked into before its first use.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from tidelog.config.setting import LONG_MAX
from tidelog.log import recovery, retention, search, truncation
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.names import SNAPSHOT, TXN_INDEX, partition_folder, segment_stem
from tidelog.log.producer_snapshot import encode_snapshot
from tidelog.log.scan import BadBatch, HeaderFields, locate
from tidelog.log.segment import NEVER, Segment
from tidelog.log.slice import Slice
from tidelog.log.validate import admit, plain_attributes, too_large_for_segment
from tidelog.wire.batch import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    read_header,
)
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.env.disk import File
    from tidelog.log.aborted import Aborted
    from tidelog.log.index import OffsetIndex, SealedIndexes
    from tidelog.log.producers import Producers
    from tidelog.log.store import Store

FLUSH_BYTES = 64 * 1024 * 1024
"""The recovery point is moved on when this much was written behind it: what a start after a crash reads at most."""
MARKS_MAX = 16
"""Ends of earlier reads whose positions are remembered, for the consumers that go on there."""

_unpack = HEADER.unpack_from
_patch = Struct(">qii").pack_into  # base offset, length, leader epoch: what the broker sets, outside of the checksum
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class LogListener(Protocol):
    """The replica that a log belongs to."""

    def durable_advanced(self, log: Log) -> None: ...

    def went_offline(self, log: Log) -> None: ...


class Log:
    """One partition. Plain attributes are cheap to read; what begins with an underscore is for this package only.

    `high_watermark` is the replica's: retention deletes nothing at or above it (-1: the durable end counts). `batches`
    counts those since the last flush, which a start after a crash would have to read again.
    """

    __slots__ = (
        "_active",
        "_after_ms",
        "_counts",
        "_dirty",
        "_epoch",
        "_epochs",
        "_flush_from",
        "_flushing",
        "_follows",
        "_generation",
        "_interval",
        "_led",
        "_marks",
        "_max_bytes",
        "_new_folder",
        "_new_names",
        "_plain",
        "_producers",
        "_requested",
        "_sealed_unsaved",
        "_sealed_unsynced",
        "_segments",
        "_size_limit",
        "_snapshots",
        "_store",
        "_synced_end",
        "batches",
        "config",
        "deleted",
        "durable_end",
        "flushed_ms",
        "has_aborted",
        "high_watermark",
        "listener",
        "log_end",
        "log_start",
        "offline",
        "partition",
        "recovery_point",
        "root",
        "topic",
        "topic_id",
    )

    def __init__(
        self, store: Store, root: str, topic: str, partition: int, topic_id: bytes, config: TopicConfig
    ) -> None:
        self._store = store
        self.root = root
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.log_start = self.log_end = self.durable_end = self.recovery_point = 0
        self.high_watermark = -1
        self.offline: str | None = None
        self.deleted = False
        self.listener: LogListener | None = None
        self.flushed_ms = 0
        self.has_aborted = False  # some transaction in here was aborted, so readers may have to be told
        self.batches = 0
        self._segments: list[Segment] = []
        self._active: Segment | None = None
        self._size_limit = -1
        self._flush_from = 0
        self._dirty = False  # something was written since the last flush
        self._flushing = False
        self._requested = False  # the group commit knows of it
        self._synced_end = 0
        self._sealed_unsynced: Sequence[Segment] = ()
        self._sealed_unsaved: Sequence[tuple[Segment, bytes]] = ()  # with the snapshot at the next segment's base
        self._snapshots: Sequence[int] = ()
        self._new_names = False
        self._new_folder = False
        self._generation = 0  # counts truncations: what was begun before one must not count afterwards
        self._marks: dict[int, int] | None = None
        self._producers: Producers | None = None
        self._epochs: LeaderEpochs | None = None
        self._led: tuple[int, int] | None = None
        self._epoch = -1
        self.configure(config)

    def __repr__(self) -> str:
        return f"<Log {self.place} [{self.log_start}, {self.log_end}) durable to {self.durable_end}>"

    @property
    def place(self) -> str:
        """Its name in messages, and of its folder."""
        return partition_folder(self.topic, self.partition)

    @property
    def folder(self) -> str:
        return f"{self.root}/{partition_folder(self.topic, self.partition)}"

    def configure(self, config: TopicConfig) -> None:
        """Take over new settings of the topic. They hold from the next append on."""
        self.config = config
        self._plain = plain_attributes(config)
        self._max_bytes = min(config.max_message_bytes, config.segment_size)
        self._after_ms = config.message_timestamp_after_max_ms
        self._interval = config.index_interval_bytes
        by_os = config.tidelog_durability == "os"
        self._counts = by_os and config.flush_messages < LONG_MAX
        self._follows = by_os and not self._counts
        self._size_limit = -1
        if self._active is not None:
            self._active.roll_after = -2
        if self._follows and self.offline is None:
            self.durable_end = self.log_end

    # -- what is known of leaders and producers, loaded when first needed

    @property
    def epochs(self) -> LeaderEpochs:
        epochs = self._epochs
        if epochs is None:
            epochs = self._epochs = recovery.load_epochs(self) if self._segments else LeaderEpochs()
        if self._led is not None:
            led, self._led = self._led, None
            epochs.assign(*led)
        return epochs

    @property
    def producers(self) -> Producers:
        producers = self._producers
        if producers is None:
            producers = self._producers = recovery.load_producers(self)
        return producers

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
        self, buffer: memoryview, start: int, end: int, leader_epoch: int, now_ms: int, *, internal: bool = False
    ) -> tuple[int, int, int]:
        """Append the one batch in [start, end) of a writable buffer, patched in place.

        Returns (base offset, next offset, time of the append or -1). A duplicate of one of its producer's last five
        batches gives the offsets of the original and writes nothing. Raises KafkaError with Kafka's code; a failed
        write takes the log offline. `internal`: the broker itself writes it, control records perhaps.
        """
        size = end - start
        append_time = -1
        header: HeaderFields
        if (
            size >= HEADER_BYTES
            and (header := _unpack(buffer, start))[5] in self._plain  # attributes
            and header[3] == MAGIC
            and header[1] == size - LOG_OVERHEAD
            and not header[0]  # base offset
            and 0 <= header[6] == header[12] - 1  # last offset delta, count
            and size <= self._max_bytes
            and header[8] - now_ms <= self._after_ms  # max timestamp
            and (header[9] < 0 or header[11] >= 0)  # producer id, base sequence
            and crc32c(buffer[start + ATTRIBUTES_AT : end]) == header[4]
        ):
            _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        else:
            buffer, start, end, admitted = admit(self.place, self.config, buffer, start, end, now_ms, internal=internal)
            _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _, _ = admitted
            size = end - start
            if self.config.message_timestamp_type != "CreateTime":
                append_time = now_ms
        producers = None
        if producer_id >= 0 and not attributes & CONTROL_FLAG:
            producers = self._producers
            if producers is None:
                producers = self.producers
            appended = producers.check(producer_id, epoch, sequence, delta, attributes)
            if appended is not None:
                return appended.first_offset, appended.last_offset + 1, appended.timestamp
        base = self.log_end
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
            if file is None:
                file = self._store.files.open(segment)
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
        self.log_end = next_offset = last + 1
        self.batches += 1
        if leader_epoch != self._epoch:
            self._enter_epoch(leader_epoch, base)
        if producers is not None:
            producers.record(producer_id, epoch, sequence, base, last, max_timestamp, attributes)
        elif producer_id >= 0:
            self._replay(segment, buffer[start:end], read_header(buffer[start:end]))
        if self._follows:
            self.durable_end = next_offset
        elif self._counts:
            self._count_flush()
        return base, next_offset, append_time

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
            self._store.files.open(segment).append(data)
        except OSError as error:
            raise self._write_failed(segment, error) from error
        segment.note(header.last_offset, header.max_timestamp)
        if position > segment.index_next:
            segment.add_entries(header.base_offset, header.last_offset, position, self.config.segment_index_bytes)
            segment.index_next = position + self._interval
        segment.size = position + len(data)
        self.log_end = header.next_offset
        self.batches += 1
        if header.leader_epoch != self._epoch:
            self._enter_epoch(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self._replay(segment, data, header._replace(pos=0))
        if self._follows:
            self.durable_end = self.log_end
        elif self._counts:
            self._count_flush()

    def _replay(self, segment: Segment, data: memoryview, header: BatchHeader) -> None:
        """What a follower's batch, or a marker, means for its producer."""
        completed = self.producers.replay(data, header)
        if completed is not None and completed.aborted:
            self.has_aborted = True
            segment.aborted(self._store.disk).append(completed)
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
                or segment.waited_ms(max_timestamp, now_ms) > config.segment_ms - segment.jitter_ms
                or segment.index_full(config.segment_index_bytes)
                or last > segment.offset_limit
            ):
                segment = self._roll(now_ms)
        except OSError as error:
            raise self._write_failed(None, error) from error
        if segment.size == 0:
            segment.date_first(max_timestamp, config.segment_ms)
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
            return recovery.open_last(self)
        self._make_folder()
        return self._begin_segment(self.log_end, now_ms)

    def _make_folder(self) -> None:
        disk, folder = self._store.disk, self.folder
        new = not disk.exists(folder)
        if new:
            self._store.claim(self)
            disk.make_folders(folder)
            self._new_folder = True
        recovery.name_topic(self, new=new)

    def _begin_segment(self, base: int, now_ms: int) -> Segment:
        config = self.config
        jitter = self._store.random.random_int(0, config.segment_jitter_ms) if config.segment_jitter_ms else 0
        segment = Segment(self.folder, base, now_ms)
        segment.begin(config.index_interval_bytes, min(jitter, config.segment_ms))
        file = self._store.files.open(segment, create=True)
        if file.size():  # left behind by a segment that was truncated away
            file.truncate(0)
        if self._store.disk.exists(segment.stem + TXN_INDEX):
            self._store.disk.remove(segment.stem + TXN_INDEX)
        self._segments.append(segment)
        self._active = segment
        self._new_names = True
        self._marks = None
        self._flush_from = 0
        self._size_limit = -1
        return segment

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the last one is empty."""
        if self._segments and self.offline is None:
            segment = self._active or self._wake(now_ms)
            if segment.size:
                self._roll(now_ms)

    def _roll(self, now_ms: int) -> Segment:
        old = self._active
        assert old is not None
        snapshot = encode_snapshot(self.producers.items())
        segment = self._begin_segment(self.log_end, now_ms)
        old.finish_times()
        self._sealed_unsynced = [*self._sealed_unsynced, old]
        self._sealed_unsaved = [*self._sealed_unsaved, (old, snapshot)]
        self._store.flush_soon(self)
        return segment

    def _write_failed(self, segment: Segment | None, error: OSError) -> KafkaError:
        """A write failed. On a full disk its torn rest is cut off and the log stays; else the log goes offline."""
        reason = f"writing to {self.folder} failed: {error}"
        if segment is not None and error.errno in _FULL_DISK:
            try:
                self._store.files.open(segment).truncate(segment.size)
            except OSError as second:
                self.go_offline(f"{reason}; cutting off the torn write failed too: {second}")
            else:
                self._store.report(f"{self.place}: {reason}; free some space, the log goes on then")
                return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        elif error.errno not in _FULL_DISK:
            self.go_offline(reason)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def go_offline(self, reason: str) -> None:
        """Serve nothing any more, until the next start; `reason` says what happened and where."""
        if self.offline is not None:
            return
        self.offline = reason
        self._size_limit = -1
        self._store.report(f"{self.place} went offline: {reason}")
        if self.listener is not None:
            self.listener.went_offline(self)

    # -- durability

    def became_durable(self, end: int) -> None:
        """Everything below `end` is on stable storage: told by the group commit and the flush."""
        if end > self._synced_end:
            self._synced_end = end
        if self._counts and self.log_end - self._synced_end < self.config.flush_messages:
            end = self.log_end
        if end > self.durable_end:
            self.durable_end = end
            if self.listener is not None:
                self.listener.durable_advanced(self)

    def _count_flush(self) -> None:
        """`flush.messages` with durability `os`: records count as durable until so many were not flushed."""
        if self.log_end - self._synced_end < self.config.flush_messages:
            self.durable_end = self.log_end
        else:
            self._store.commit.request(self)

    # -- reading

    def read(self, offset: int, max_bytes: int, end: int, *, at_least_one: bool = True) -> Slice | None:
        """Batches from the one that holds `offset`, below `end`: at most `max_bytes`, the last one perhaps cut.

        The first batch comes whole even if it is larger, unless `at_least_one` is False: then None. None too where
        nothing is to be read yet. OFFSET_OUT_OF_RANGE outside of the log.
        """
        if self.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)
        if not self.log_start <= offset <= self.log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.place} has offsets {self.log_start} to {self.log_end}; {offset} is outside",
            )
        if offset >= end or offset == self.log_end:
            return None
        try:
            return self._read(offset, max_bytes, end, at_least_one)
        except (OSError, BadBatch) as error:
            raise self.read_failed(error) from error

    def _read(self, offset: int, max_bytes: int, end: int, at_least_one: bool) -> Slice | None:
        if self._active is None:
            recovery.open_last(self)
        number = self._segment_number(offset)
        while number < len(self._segments):
            segment = self._segments[number]
            self.look(segment, number)
            found = self._position(segment, offset)
            if found is not None:
                limit = self._limit(segment, number, end)
                pos, first = found
                count = limit - pos
                if count <= 0:
                    return None
                if count > max_bytes:
                    if not first:
                        first = self._batch_size(segment, pos, max_bytes)
                    if first > max_bytes and not at_least_one:
                        return None
                    count = min(count, max(first, max_bytes))
                return Slice(self._store.files.open(segment), pos, count)
            number += 1
        return None

    def _segment_number(self, offset: int) -> int:
        """The segment in whose range `offset` falls."""
        segments = self._segments
        if offset >= segments[-1].base:
            return len(segments) - 1
        return max(0, bisect_right(segments, offset, key=lambda segment: segment.base) - 1)

    def _limit(self, segment: Segment, number: int, end: int) -> int:
        """Up to which position of the segment a reader sees that may read below `end`."""
        segments = self._segments
        if number + 1 < len(segments):
            if end >= segments[number + 1].base:
                return segment.size
        elif end >= self.log_end:
            self.mark(self.log_end, segment.size)
            return segment.size
        found = self._position(segment, end)
        return segment.size if found is None else found[0]

    def _position(self, segment: Segment, offset: int) -> tuple[int, int] | None:
        """(position, size or 0 if not looked at) of the batch with `offset`, or of the next one; None: not in here."""
        if self._marks is not None and segment is self._active:
            pos = self._marks.get(offset)
            if pos is not None and pos < segment.size:
                segment.used = True
                return pos, 0
        if segment.offsets is not None:
            pos = segment.offsets.exact(offset)
            if pos >= 0:
                return pos, 0
        return locate(self._store.files.open(segment), self.indexes(segment).lookup(offset), segment.size, offset)

    def indexes(self, segment: Segment) -> OffsetIndex | SealedIndexes:
        return segment.offsets if segment.offsets is not None else self.sealed(segment)

    def mark(self, offset: int, position: int) -> None:
        """Remember that the batch from `offset` on begins, or will begin, at `position` of the last segment."""
        marks = self._marks
        if marks is None:
            marks = self._marks = {}
        elif len(marks) >= MARKS_MAX and offset not in marks:
            marks.clear()
        marks[offset] = position

    def _batch_size(self, segment: Segment, pos: int, max_bytes: int) -> int:
        """The size of the batch at `pos`, or a bound on it that is within `max_bytes`: it needn't be looked at then."""
        if segment.offsets is not None and 0 < (bound := segment.offsets.after(pos) - pos) <= max_bytes:
            return bound
        data = self._store.files.open(segment).read(pos + 8, 4)
        return int.from_bytes(data) + LOG_OVERHEAD

    def sealed(self, segment: Segment) -> SealedIndexes:
        """The indexes of a sealed segment; built again where they are missing or damaged."""
        found = segment.sealed
        if found is None:
            number = self._segments.index(segment)
            next_base = self._segments[number + 1].base if number + 1 < len(self._segments) else NEVER
            disk = self._store.disk
            found = segment.read_sealed(disk, next_base) or recovery.rebuild_sealed(self, segment, next_base)
            segment.sealed = found
            self._store.files.hold_indexes(segment)
        return found

    def look(self, segment: Segment, number: int) -> int:
        """Learn size and newest timestamp of a segment that was only found so far; its size."""
        if segment.size < 0:
            if number == len(self._segments) - 1:
                recovery.open_last(self)
            else:
                segment.measure(self._store.disk)
                segment.max_timestamp, segment.max_timestamp_offset = self.sealed(segment).last_time
        return segment.size

    def _guard(self) -> _Guard:
        return _Guard(self)

    def read_failed(self, error: OSError | BadBatch) -> KafkaError:
        """Take the log offline for what the disk did to a reader; the error to tell."""
        if isinstance(error, BadBatch):
            self.go_offline(f"{self.folder} is damaged: {error}")
        else:
            self.go_offline(f"reading {self.folder} failed: {error}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)

    # -- searching, deleting, truncating

    def find_by_time(self, timestamp: int, end: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record as new as `timestamp`, if it is below `end`."""
        with self._guard():
            return search.find_by_time(self, timestamp, end)

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the newest record; None where the log has none."""
        with self._guard():
            return search.max_timestamp(self)

    def aborted(self, offset: int, found: Slice) -> list[Aborted]:
        """The aborted transactions that a reader of `found`, which began at `offset`, must skip."""
        if not self.has_aborted:
            return []
        with self._guard():
            return search.aborted(self, offset, found)

    def delete_before(self, offset: int) -> int:
        """Records below `offset` are gone for readers; it may be inside of a batch. The log's start now.

        Whole segments go with the next look of retention. OFFSET_OUT_OF_RANGE above the high watermark.
        """
        limit = self.durable_end if self.high_watermark < 0 else self.high_watermark
        if offset > limit:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.place}: can't delete before {offset}, the high watermark is {limit}",
            )
        if offset > self.log_start:
            self.log_start = offset
            if self._epochs is not None or self._segments:
                self.epochs.truncate_from_start(offset)
            self._store.start_moved(self)
        return self.log_start

    def apply_retention(self, now_ms: int) -> int:
        """Delete the segments that age, size or `delete_before` let go; how many."""
        if self.offline is not None or not self._segments:
            return 0
        with self._guard():
            return retention.apply(self, now_ms)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were idle for producer.id.expiration.ms; nothing where none were loaded."""
        if self._producers is not None:
            self._producers.expire(now_ms)

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at `offset` and above; whether that was anything."""
        with self._guard():
            return truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything; the next record gets `offset`."""
        with self._guard():
            truncation.start_at(self, offset, now_ms)

    def forget_segments(self, going: list[Segment]) -> None:
        """These segments, at either end of the log, are no longer part of it; their files go after a while."""
        bases = {segment.base for segment in going}
        self._segments = [segment for segment in self._segments if segment.base not in bases]
        self._sealed_unsynced = [segment for segment in self._sealed_unsynced if segment.base not in bases]
        self._sealed_unsaved = [pair for pair in self._sealed_unsaved if pair[0].base not in bases]
        if self._active is not None and self._active.base in bases:
            self._active = None
            self._marks = None
        for segment in going:
            self._store.files.forget(segment)
            self._store.remove_segment(segment, self.config.file_delete_delay_ms)
        going_too = [known for known in self._snapshots[:-1] if known in bases or known < self._oldest()]
        self._snapshots = [known for known in self._snapshots if known not in going_too]
        for offset in going_too:
            self._store.remove_soon(self.snapshot_path(offset))

    def _oldest(self) -> int:
        return self._segments[0].base if self._segments else 0

    def size_bytes(self) -> int:
        """The size of all its segments."""
        with self._guard():
            return sum(segment.measure(self._store.disk) for segment in self._segments)

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    def snapshot_path(self, offset: int) -> str:
        return f"{self.folder}/{segment_stem(offset)}{SNAPSHOT}"

    def file_of(self, segment: Segment) -> File:
        return self._store.files.open(segment)

    def close(self) -> None:
        """Let go of its files. What wasn't flushed stays so: `Store.stop` flushes first."""
        for segment in self._segments:
            self._store.files.forget(segment)
        self._active = None
        self._segments = []
        self.offline = self.offline or "the log is closed"
        self._size_limit = -1

    def check_invariants(self) -> None:
        assert self.recovery_point <= self.log_end, f"{self!r}: recovery point {self.recovery_point}"
        assert self.durable_end <= self.log_end, repr(self)
        assert self.log_start <= self.log_end, repr(self)
        bases = [segment.base for segment in self._segments]
        assert bases == sorted(set(bases)), f"{self!r}: segments {bases}"
        assert not bases or bases[0] <= self.log_end, repr(self)


class _Guard:
    """Turns what the disk does to a reader into Kafka's error, and takes the log offline."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | BadBatch):
            raise self._log.read_failed(error) from error
