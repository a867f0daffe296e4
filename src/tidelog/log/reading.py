"""The reader's side of a log: what it knows of itself, and finding batches in its segments.

Writing comes on top of it, in log.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from tidelog.config.setting import LONG_MAX
from tidelog.log import search
from tidelog.log.aborted import AbortedIndexError
from tidelog.log.commit import TOO_MANY_FILES
from tidelog.log.durability import page_cache_counts
from tidelog.log.ends import Ends
from tidelog.log.folder import PartitionFolder
from tidelog.log.scan import BadBatch
from tidelog.log.segments import Segments
from tidelog.log.slice import SENDFILE_BYTES_MIN
from tidelog.log.snapshots import Snapshots
from tidelog.log.unreadable import SEARCHED, UNREADABLE, read_whole, readable
from tidelog.log.unsynced import Unsynced
from tidelog.log.validate import plain_attributes
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.topic import TopicConfig
    from tidelog.log.aborted import Aborted
    from tidelog.log.epochs import LeaderEpochs
    from tidelog.log.log import Log
    from tidelog.log.producers import Producers
    from tidelog.log.recovery import Recovered
    from tidelog.log.search import Found, Unwalked, Walked
    from tidelog.log.slice import Slice
    from tidelog.log.store import Store

T = TypeVar("T")


class LogListener(Protocol):
    """The replica that a log belongs to."""

    def durable_advanced(self, log: Log) -> None: ...

    def start_moved(self, log: Log) -> None: ...

    def went_offline(self, log: Log) -> None: ...


class ReadableLog(PartitionFolder):
    """One partition, as its readers see it. Its state has owners: whoever reads it asks them, and they alone write it.

    `ends` are where it begins and ends, `segments` its files, `snapshots` the producers' that are in its folder, and
    `unsynced` what isn't durable yet. All of them are plain attributes, which are cheap to read.

    `high_watermark` is the replica's: retention deletes nothing at or above it (-1: the durable end counts).
    `unreserved`: after a crash the offsets of the last records might be given again (memory.py), so that nobody may be
    told them before they are durable. `cut_unsynced`: it was cut, and takes no batch until that is durable.
    """

    __slots__ = (
        "_after_ms",
        "_epoch",
        "_epochs",
        "_full",
        "_led",
        "_max_bytes",
        "_plain",
        "_producers",
        "_store",
        "cut_unsynced",
        "deleted",
        "ends",
        "high_watermark",
        "listener",
        "offline",
        "segments",
        "snapshots",
        "unreserved",
        "unsynced",
    )

    def __init__(
        self,
        store: Store,
        root: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        found: Recovered | None = None,
    ) -> None:
        """`found`: what recovery found on disk; None: nothing is there."""
        super().__init__(root, topic, partition, topic_id, config)
        self._store = store
        self.high_watermark = -1
        self.offline: str | None = None
        self.deleted = False
        self.listener: LogListener | None = None
        self.unreserved = self.cut_unsynced = False
        self._full = False  # there was no room for the last write
        self._led: tuple[int, int] | None = None
        self._epoch = -1
        self._producers: Producers | None = None
        self._epochs: LeaderEpochs | None = None
        if found is None:
            self.ends, self.unsynced, self.snapshots = Ends(), Unsynced(), Snapshots()
            self.segments = Segments(store, self)
        else:
            self.ends, self.unsynced, self.snapshots = found.ends, found.unsynced, found.snapshots
            self._producers, self._epochs = found.producers, found.epochs
            self.segments = Segments(store, self, found.segments, active=found.active, has_aborted=found.has_aborted)
        self.configure(config)

    @property
    def _log(self) -> Log:
        """Itself: there are no others."""
        return cast("Log", self)

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

    def configure(self, config: TopicConfig) -> None:
        """Take over new settings of the topic. They hold from the next append on."""
        self.config = config
        self._plain = plain_attributes(config)
        self._max_bytes = min(config.max_message_bytes, config.segment_size)
        self._after_ms = config.message_timestamp_after_max_ms
        self.segments.configure()
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
        self.segments.recheck()
        self._store.went_offline(self, reason)
        if self.listener is not None:
            self.listener.went_offline(self._log)

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
        segments = self.segments
        piece = segments.read_active(offset, max_bytes, ends.log_end) if end >= ends.log_end else None
        try:
            if piece is None:
                piece = self._read_found(offset, max_bytes, end, at_least_one)
            if piece is not None and (segments.unreadable is not None or piece.file.suspect):
                self._look_at(piece)
        except (OSError, BadBatch) as error:
            raise self.read_failed(error, offset) from error
        return piece

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
        segments = self.segments
        first = segments.unreadable is None
        unreadable = segments.know_unreadable()
        if piece.file.suspect or unreadable.concerns(piece.file.path):
            piece.count = readable(unreadable.careful(piece.file), piece.pos, piece.count)
        unreadable.forget_others()
        if not unreadable:
            segments.all_was_read()
            if not first:
                piece.file.suspect = False

    def read_mapped(self, offset: int, max_bytes: int, end: int) -> memoryview | None:
        """What `read` gives, mapped, in its most usual case: a small piece of the last segment, cut at `max_bytes`.

        None where it is another case, and for `read` to tell which. May raise OSError, as a view does.
        """
        segments, ends = self.segments, self.ends
        segment = segments.active
        if (
            segment is None
            or max_bytes >= SENDFILE_BYTES_MIN
            or not segment.base <= offset < ends.log_end <= end
            or offset < ends.log_start
            or self.offline is not None
            or segments.unreadable is not None
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

    def _read_found(self, offset: int, max_bytes: int, end: int, at_least_one: bool) -> Slice | None:
        return self._tried(
            lambda: self.segments.read(offset, max_bytes, end, self.ends.log_end, at_least_one=at_least_one)
        )

    def _tried(self, look: Callable[[], T]) -> T:
        """What it gives. It looks again where an index is to be built first, and to learn which bytes are bad."""
        for _ in range(2):
            try:
                return look()
            except OSError as error:
                if error.errno not in UNREADABLE:
                    raise
                if not self.segments.forget_index(error):
                    if self.segments.unreadable is not None:
                        raise
                    self.segments.know_unreadable()
        return look()

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
        if self.segments.know_unreadable().is_news(error):
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
        return self._searched(lambda: search.find_by_time(self.segments, self.ends.log_start, timestamp, end, walked))

    def max_timestamp(self, walked: Walked | None = None) -> Found | Unwalked | None:
        """(timestamp, offset, leader epoch) of the newest record; None where the log has none. `walked`: the same."""
        return self._searched(lambda: search.max_timestamp(self.segments, walked))

    def aborted(self, offset: int, found: Slice) -> list[Aborted]:
        """The aborted transactions that a reader of `found`, which began at `offset`, must skip."""
        if not self.segments.has_aborted:
            return []
        return self._searched(lambda: search.aborted(self.segments, self.ends.log_end, offset, found))

    def _searched(self, look: Callable[[], T]) -> T:
        with self._guard():
            return self._tried(look)

    def size_bytes(self) -> int:
        """The size of all its segments."""
        with self._guard():
            return sum(segment.size_now(self._store.disk) for segment in self.segments)

    def check_invariants(self) -> None:
        self.ends.check_invariants()
        self.segments.check_invariants(self.ends.log_end)
        self.unsynced.check_invariants()


class _Guard:
    """Turns what the disk does to a reader into Kafka's error. Where files are `changing` the log goes offline, too."""

    __slots__ = ("_changing", "_log")

    def __init__(self, log: ReadableLog, changing: bool) -> None:
        self._log = log
        self._changing = changing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._changing and isinstance(error, OSError):  # whatever it was, half of it is done
            self._log.go_offline(f"changing {self._log.folder} failed: {error}")
        if isinstance(error, OSError | BadBatch):
            raise self._log.read_failed(error) from error
        if isinstance(error, AbortedIndexError):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
