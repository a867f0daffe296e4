"""The reader's side of a log: what it knows of itself, and finding batches in its segments.

Writing comes on top of it, in log.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from tidelog.config.setting import LONG_MAX
from tidelog.log import indexing, search
from tidelog.log.aborted import AbortedIndexError
from tidelog.log.commit import TOO_MANY_FILES
from tidelog.log.names import OFFSET_INDEX, TIME_INDEX
from tidelog.log.scan import BadBatch
from tidelog.log.segment import Segment
from tidelog.log.slice import SENDFILE_BYTES_MIN, Slice
from tidelog.log.stored import StoredLog, page_cache_counts
from tidelog.log.unreadable import SEARCHED, UNREADABLE, Unreadable, read_whole, readable
from tidelog.log.validate import plain_attributes
from tidelog.wire.batch import LOG_OVERHEAD
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.topic import TopicConfig
    from tidelog.env.disk import ReadableFile
    from tidelog.log.aborted import Aborted
    from tidelog.log.log import Log
    from tidelog.log.search import Found, Unwalked, Walked
    from tidelog.log.store import Store

T = TypeVar("T")

MARKS_MAX = 16
"""Ends of earlier reads whose positions are remembered, for the consumers that go on there."""


class LogListener(Protocol):
    """The replica that a log belongs to."""

    def durable_advanced(self, log: Log) -> None: ...

    def went_offline(self, log: Log) -> None: ...


class ReadableLog(StoredLog):
    """One partition, as its readers see it.

    Plain attributes are cheap to read; what begins with an underscore is for this package only.

    `high_watermark` is the replica's: retention deletes nothing at or above it (-1: the durable end counts).
    `unreserved`: after a crash the offsets of the last records might be given again (memory.py), so that nobody may be
    told them before they are durable.
    """

    __slots__ = (
        "_after_ms",
        "_epoch",
        "_flushing",
        "_full",
        "_interval",
        "_led",
        "_max_bytes",
        "_plain",
        "_requested",
        "_store",
        "_unreadable",
        "deleted",
        "flushed_ms",
        "high_watermark",
        "listener",
        "offline",
        "unreserved",
    )

    def __init__(
        self, store: Store, root: str, topic: str, partition: int, topic_id: bytes, config: TopicConfig
    ) -> None:
        super().__init__(store, root, topic, partition, topic_id, config)
        self._store = store
        self.high_watermark = -1
        self.offline: str | None = None
        self.deleted = False
        self.listener: LogListener | None = None
        self.flushed_ms = 0
        self.unreserved = False
        self._flushing = False  # its recovery point is being moved
        self._full = False  # there was no room for the last write
        self._requested = False  # the group commit knows of it
        self._led: tuple[int, int] | None = None
        self._epoch = -1
        self._unreadable: Unreadable | None = None
        self.configure(config)

    def take_over(self, found: StoredLog) -> None:
        """Go on with what its files have, as recovery found it. Nothing was done with the log yet."""
        self.ends = found.ends
        self._count_unsynced()
        self.has_aborted = found.has_aborted
        self.batches = found.batches
        self._segments, self._active, self._flush_from = found._segments, found._active, found._flush_from
        self._sealed_unsynced, self._sealed_unsaved = found._sealed_unsynced, found._sealed_unsaved
        self._snapshots = found._snapshots
        self._new_names, self._new_folder, self._dirty = found._new_names, found._new_folder, found._dirty
        self._producers, self._epochs = found._producers, found._epochs
        if self._active is not None:
            self._become_last(self._active)

    def __repr__(self) -> str:
        return f"<Log {self.place} {self.ends!r}>"

    # -- its ends, for who is in no hurry; `ends` is for the others

    @property
    def log_start(self) -> int:
        return self.ends.log_start

    @property
    def log_end(self) -> int:
        return self.ends.log_end

    @property
    def durable_end(self) -> int:
        return self.ends.durable_end

    @property
    def recovery_point(self) -> int:
        return self.ends.recovery_point

    @property
    def unsynced(self) -> bool:
        """Whether something was written for it that no sync made durable yet."""
        return self._dirty or self._flushing or self.ends.log_end > self.ends.synced_end or bool(self._sealed_unsynced)

    def configure(self, config: TopicConfig) -> None:
        """Take over new settings of the topic. They hold from the next append on."""
        self.config = config
        self._plain = plain_attributes(config)
        self._max_bytes = min(config.max_message_bytes, config.segment_size)
        self._after_ms = config.message_timestamp_after_max_ms
        self._interval = config.index_interval_bytes
        self._size_limit = -1
        if self._active is not None:
            self._active.roll_after = -2
        self._count_unsynced()

    def _count_unsynced(self) -> None:
        """How many records count as durable that aren't synced: all, with durability `os`, or `flush.messages`."""
        config = self.config
        unsynced_max = config.flush_messages if page_cache_counts(config) else 0
        self.ends.count_unsynced(unsynced_max, all_at_once=unsynced_max == LONG_MAX and self.offline is None)

    def go_offline(self, reason: str) -> None:
        """Serve nothing any more, until the next start; `reason` says what happened and where."""
        if self.offline is not None:
            return
        self.offline = reason
        self._size_limit = -1
        self._store.went_offline(self, reason)
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
        ends = self.ends
        if not ends.log_start <= offset <= ends.log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.place} has offsets {ends.log_start} to {ends.log_end}; {offset} is outside",
            )
        if offset >= end or offset == ends.log_end:
            return None
        active = self._active
        piece = None
        if active is not None and offset >= active.base and end >= ends.log_end:
            piece = self._read_indexed(active, offset, max_bytes)
        try:
            if piece is None:
                piece = self._read_found(offset, max_bytes, end, at_least_one)
            if piece is not None and (self._unreadable is not None or piece.file.suspect):
                self._look_at(piece)
        except (OSError, BadBatch) as error:
            raise self.read_failed(error, offset) from error
        return piece

    def _forget_index(self, error: OSError) -> bool:
        """Whether it is an index that can't be read: it is built again by whoever looks next."""
        for segment in self._segments:
            if segment.sealed is not None and error.filename in (
                segment.stem + OFFSET_INDEX,
                segment.stem + TIME_INDEX,
            ):
                segment.sealed = None
                return True
        return False

    def read_bytes(self, offset: int, max_bytes: int, end: int) -> bytes | None:
        """What `read` gives, read: for who looks into it here."""
        piece = self.read(offset, max_bytes, end)
        if piece is not None and not piece.file.suspect:
            try:
                return read_whole(piece.file, piece.pos, piece.count)
            except (OSError, BadBatch):
                piece.file.suspect = True
                piece = self.read(offset, max_bytes, end)  # as much as can be had
        if piece is None:
            return None
        try:
            return read_whole(piece.file, piece.pos, piece.count)
        except (OSError, BadBatch) as error:
            raise self.read_failed(error, offset) from error

    def _look_at(self, piece: Slice) -> None:
        """Promise only what can be read of a file that had bad bytes."""
        first = self._unreadable is None
        unreadable = self._know_unreadable()
        if piece.file.suspect or unreadable.concerns(piece.file.path):
            piece.count = readable(unreadable.careful(piece.file), piece.pos, piece.count)
        unreadable.forget_others()
        if not unreadable:
            self._unreadable = None
            if not first:
                piece.file.suspect = False

    def _know_unreadable(self) -> Unreadable:
        """From now on, until all of it could be read."""
        if self._unreadable is None:
            self._unreadable = Unreadable(self._store.clock)
        return self._unreadable

    def reader_of(self, segment: Segment) -> ReadableFile:
        file = self._store.files.open(segment)
        return file if self._unreadable is None else self._unreadable.careful(file)

    def read_mapped(self, offset: int, max_bytes: int, end: int) -> memoryview | None:
        """What `read` gives, mapped, in its most usual case: a small piece of the last segment, cut at `max_bytes`.

        None where it is another case, and for `read` to tell which. May raise OSError, as a view does.
        """
        segment, ends = self._active, self.ends
        if (
            segment is None
            or max_bytes >= SENDFILE_BYTES_MIN
            or not segment.base <= offset < ends.log_end <= end
            or offset < ends.log_start
            or self.offline is not None
            or self._unreadable is not None
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
            self.mark(self.ends.log_end, segment.size)
        segment.used = True
        return Slice(file, pos, count)

    def _read_found(self, offset: int, max_bytes: int, end: int, at_least_one: bool) -> Slice | None:
        return self._tried(lambda: self._read(offset, max_bytes, end, at_least_one))

    def _tried(self, look: Callable[[], T]) -> T:
        """What it gives. It looks again where an index is to be built first, and to learn which bytes are bad."""
        for _ in range(2):
            try:
                return look()
            except OSError as error:
                if error.errno not in UNREADABLE:
                    raise
                if not self._forget_index(error):
                    if self._unreadable is not None:
                        raise
                    self._know_unreadable()
        return look()

    def _read(self, offset: int, max_bytes: int, end: int, at_least_one: bool) -> Slice | None:
        if self._active is None:
            indexing.open_last(self, self.ends.log_end)
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

    def _limit(self, segment: Segment, number: int, end: int) -> int:
        """Up to which position of the segment a reader sees that may read below `end`."""
        segments = self._segments
        if number + 1 < len(segments):
            if end >= segments[number + 1].base:
                return segment.size
        elif end >= self.ends.log_end:
            self.mark(self.ends.log_end, segment.size)
            return segment.size
        found = self._position(segment, end)
        return segment.size if found is None else found[0]

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
        data = self.reader_of(segment).read(pos + 8, 4)
        return int.from_bytes(data) + LOG_OVERHEAD

    def _guard(self, *, changing: bool = False) -> _Guard:
        return _Guard(self, changing)

    def read_failed(self, error: OSError | BadBatch, offset: int = SEARCHED) -> KafkaError:
        """The error to tell for what the disk did to a reader, of `offset`; damage takes the log offline."""
        if isinstance(error, BadBatch):
            self.go_offline(f"{self.folder} is damaged: {error}")
        elif error.errno in TOO_MANY_FILES:
            self._store.files.shrink()
            self._store.report(f"{self.place}: {error}; it is read again when files may be opened")
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        elif error.errno in UNREADABLE and self.offline is None:
            return self._is_unreadable(error, offset)
        else:
            self.go_offline(f"reading {self.folder} failed: {error}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)

    def _is_unreadable(self, error: OSError, offset: int) -> KafkaError:
        """The disk doesn't give back what it has: told once, and remembered. What is elsewhere is served as before."""
        what = f"offset {offset}" if offset != SEARCHED else "what is searched"
        reason = f"{self.place}: {what} can't be read: {error}"
        if self._know_unreadable().is_news(error):
            self._store.report(
                f"{reason}. Check the disk; consumers that seek behind the bad records go on there",
                level=logging.ERROR,
            )
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    # -- searching

    def find_by_time(self, timestamp: int, end: int, walked: Walked | None = None) -> Found | Unwalked | None:
        """(timestamp, offset, leader epoch) of the first record as new as `timestamp`, if it is below `end`.

        With `walked`, a batch that would take long to walk is given back instead: ask again once it was walked.
        """
        return self._searched(lambda: search.find_by_time(self, timestamp, end, walked))

    def max_timestamp(self, walked: Walked | None = None) -> Found | Unwalked | None:
        """(timestamp, offset, leader epoch) of the newest record; None where the log has none. `walked`: the same."""
        return self._searched(lambda: search.max_timestamp(self, walked))

    def aborted(self, offset: int, found: Slice) -> list[Aborted]:
        """The aborted transactions that a reader of `found`, which began at `offset`, must skip."""
        if not self.has_aborted:
            return []
        return self._searched(lambda: search.aborted(self, offset, found))

    def _searched(self, look: Callable[[], T]) -> T:
        with self._guard():
            return self._tried(look)

    def size_bytes(self) -> int:
        """The size of all its segments."""
        with self._guard():
            return sum(segment.size_now(self._store.disk) for segment in self._segments)

    def check_invariants(self) -> None:
        self.ends.check_invariants()
        bases = [segment.base for segment in self._segments]
        assert bases == sorted(set(bases)), f"{self!r}: segments {bases}"
        assert not bases or bases[0] <= self.log_end, repr(self)


class _Guard:
    """Turns what the disk does to a reader into Kafka's error. Where files are `changing` the log goes offline, too."""

    __slots__ = ("_changing", "_log")

    def __init__(self, log: ReadableLog, changing: bool) -> None:
        self._log = log
        self._changing = changing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._changing and isinstance(error, OSError) and error.errno in UNREADABLE:
            self._log.go_offline(f"changing {self._log.folder} failed: {error}")
        if isinstance(error, OSError | BadBatch):
            raise self._log.read_failed(error) from error
        if isinstance(error, AbortedIndexError):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
