"""The reader's side of a log: what it knows of itself, and finding batches in its segments.

Writing comes on top of it, in log.py.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Protocol, cast

from tidelog.config.setting import LONG_MAX
from tidelog.log import recovery, search
from tidelog.log.aborted import AbortedIndexError
from tidelog.log.commit import TOO_MANY_FILES
from tidelog.log.names import SNAPSHOT, partition_folder, segment_stem
from tidelog.log.scan import BadBatch, locate
from tidelog.log.segment import NEVER, Segment
from tidelog.log.slice import SENDFILE_BYTES_MIN, Slice
from tidelog.log.validate import plain_attributes
from tidelog.wire.batch import LOG_OVERHEAD
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.env.disk import File
    from tidelog.log.aborted import Aborted
    from tidelog.log.epochs import LeaderEpochs
    from tidelog.log.index import OffsetIndex, SealedIndexes
    from tidelog.log.log import Log
    from tidelog.log.producers import Producers
    from tidelog.log.search import Found, Unwalked, Walked
    from tidelog.log.store import Store

MARKS_MAX = 16
"""Ends of earlier reads whose positions are remembered, for the consumers that go on there."""


class LogListener(Protocol):
    """The replica that a log belongs to."""

    def durable_advanced(self, log: Log) -> None: ...

    def went_offline(self, log: Log) -> None: ...


class ReadableLog:
    """One partition, as its readers see it.

    Plain attributes are cheap to read; what begins with an underscore is for this package only.

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
        self.batches: int = 0
        self._segments: list[Segment] = []
        self._active: Segment | None = None
        self._size_limit = -1
        self._flush_from = 0
        self._dirty = False  # something was written since the last flush
        self._flushing = False  # its recovery point is being moved
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

    @property
    def unsynced(self) -> bool:
        """Whether something was written for it that no sync made durable yet."""
        return self._dirty or self._flushing or self.log_end > self._synced_end or bool(self._sealed_unsynced)

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

    def go_offline(self, reason: str) -> None:
        """Serve nothing any more, until the next start; `reason` says what happened and where."""
        if self.offline is not None:
            return
        self.offline = reason
        self._size_limit = -1
        self._store.report(f"{self.place} went offline: {reason}")
        if self.listener is not None:
            self.listener.went_offline(cast("Log", self))

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
        active = self._active
        if active is not None and offset >= active.base and end >= self.log_end:
            piece = self._read_indexed(active, offset, max_bytes)
            if piece is not None:
                return piece
        try:
            return self._read(offset, max_bytes, end, at_least_one)
        except (OSError, BadBatch) as error:
            raise self.read_failed(error) from error

    def read_mapped(self, offset: int, max_bytes: int, end: int) -> memoryview | None:
        """What `read` gives, mapped, in its most usual case: a small piece of the last segment, cut at `max_bytes`.

        None where it is another case, and for `read` to tell which. May raise OSError and ValueError, as a view does.
        """
        segment = self._active
        if (
            segment is None
            or max_bytes >= SENDFILE_BYTES_MIN
            or not segment.base <= offset < self.log_end <= end
            or offset < self.log_start
            or self.offline is not None
        ):
            return None
        index, file = segment.offsets, segment.file
        if index is None or file is None:
            return None
        pos, bound = index.find(offset)
        if pos < 0 or not 0 < bound <= max_bytes or pos + max_bytes > segment.size:
            return None
        segment.used = True
        return file.view(pos, max_bytes)

    def _read_indexed(self, segment: Segment, offset: int, max_bytes: int) -> Slice | None:
        """The usual read, in the last segment, where memory knows the place: no look at the file. None: look."""
        index, file = segment.offsets, segment.file
        if index is None or file is None:
            return None
        pos = -1 if self._marks is None else self._marks.get(offset, -1)
        if 0 <= pos < segment.size:
            bound = index.after(pos) - pos
        else:
            pos, bound = index.find(offset)
            if pos < 0:
                return None
        count = segment.size - pos
        if count > max_bytes:
            if not 0 < bound <= max_bytes:
                return None
            count = max_bytes
        else:
            self.mark(self.log_end, segment.size)
        segment.used = True
        return Slice(file, pos, count)

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
                recovery.tell_of_gap(self, segment, self._segments[number + 1].base)
        return segment.size

    def _guard(self) -> _Guard:
        return _Guard(self)

    def read_failed(self, error: OSError | BadBatch) -> KafkaError:
        """Take the log offline for what the disk did to a reader; the error to tell."""
        if isinstance(error, BadBatch):
            self.go_offline(f"{self.folder} is damaged: {error}")
        elif error.errno in TOO_MANY_FILES:
            self._store.files.shrink()
            self._store.report(f"{self.place}: {error}; it is read again when files may be opened")
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        else:
            self.go_offline(f"reading {self.folder} failed: {error}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)

    # -- searching

    def find_by_time(self, timestamp: int, end: int, walked: Walked | None = None) -> Found | Unwalked | None:
        """(timestamp, offset, leader epoch) of the first record as new as `timestamp`, if it is below `end`.

        With `walked`, a batch that would take long to walk is given back instead: ask again once it was walked.
        """
        with self._guard():
            return search.find_by_time(self, timestamp, end, walked)

    def max_timestamp(self, walked: Walked | None = None) -> Found | Unwalked | None:
        """(timestamp, offset, leader epoch) of the newest record; None where the log has none. `walked`: the same."""
        with self._guard():
            return search.max_timestamp(self, walked)

    def aborted(self, offset: int, found: Slice) -> list[Aborted]:
        """The aborted transactions that a reader of `found`, which began at `offset`, must skip."""
        if not self.has_aborted:
            return []
        with self._guard():
            return search.aborted(self, offset, found)

    def size_bytes(self) -> int:
        """The size of all its segments."""
        with self._guard():
            return sum(segment.size_now(self._store.disk) for segment in self._segments)

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    def snapshot_path(self, offset: int) -> str:
        return f"{self.folder}/{segment_stem(offset)}{SNAPSHOT}"

    def file_of(self, segment: Segment) -> File:
        return self._store.files.open(segment)

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

    def __init__(self, log: ReadableLog) -> None:
        self._log = log

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | BadBatch):
            raise self._log.read_failed(error) from error
        if isinstance(error, AbortedIndexError):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
