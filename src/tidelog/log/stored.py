"""A log as its files have it: its ends, its segments, and where batches lie in them.

Recovery builds one, off the loop, out of what it finds in a folder (recovery.py); a log that is served is made of it
and goes on with it (reading.py, log.py). What it needs beyond its own files is around it: the store, or, while it is
being opened, nothing that the loop has.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Protocol

from tidelog.config.setting import LONG_MAX
from tidelog.log import indexing
from tidelog.log.ends import Ends
from tidelog.log.names import OFFSET_INDEX, SNAPSHOT, TXN_INDEX, partition_folder, segment_stem
from tidelog.log.scan import BadBatch, locate
from tidelog.log.segment import NEVER, Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.env.clock import Clock
    from tidelog.env.disk import Disk, File, ReadableFile
    from tidelog.log.epochs import LeaderEpochs
    from tidelog.log.files import OpenFiles
    from tidelog.log.index import OffsetIndex, SealedIndexes
    from tidelog.log.index_files import IndexFiles
    from tidelog.log.producers import Producers


class Surroundings(Protocol):
    """What is around a log."""

    disk: Disk
    clock: Clock
    files: OpenFiles
    index_files: IndexFiles
    producer_expiration_ms: int

    def report(self, message: str) -> None:
        """Tell the operator."""
        ...

    def clean_end(self, log: StoredLog) -> int:
        """How far the log was compacted."""
        ...


class StoredLog:
    """What is known of one partition's files. What begins with an underscore is for this package only.

    `batches` counts those since the last flush, which a start after a crash would have to read again.
    """

    __slots__ = (
        "_active",
        "_around",
        "_dirty",
        "_epochs",
        "_flush_from",
        "_marks",
        "_new_folder",
        "_new_names",
        "_producers",
        "_sealed_unsaved",
        "_sealed_unsynced",
        "_segments",
        "_size_limit",
        "_snapshots",
        "batches",
        "config",
        "ends",
        "has_aborted",
        "partition",
        "root",
        "topic",
        "topic_id",
    )

    def __init__(
        self, around: Surroundings, root: str, topic: str, partition: int, topic_id: bytes, config: TopicConfig
    ) -> None:
        self._around = around
        self.root = root
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.ends = Ends()
        self.has_aborted = False  # some transaction in here was aborted, so readers may have to be told
        self.batches: int = 0
        self._segments: list[Segment] = []
        self._active: Segment | None = None
        self._size_limit = -1
        self._flush_from = 0
        self._dirty = False  # something was written since the last flush
        self._sealed_unsynced: Sequence[Segment] = ()
        self._sealed_unsaved: Sequence[tuple[Segment, bytes]] = ()  # with the snapshot at the next segment's base
        self._snapshots: Sequence[int] = ()
        self._new_names = False
        self._new_folder = False
        self._marks: dict[int, int] | None = None
        self._producers: Producers | None = None
        self._epochs: LeaderEpochs | None = None

    @property
    def place(self) -> str:
        """Its name in messages, and of its folder."""
        return partition_folder(self.topic, self.partition)

    @property
    def folder(self) -> str:
        return f"{self.root}/{partition_folder(self.topic, self.partition)}"

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    def snapshot_path(self, offset: int) -> str:
        return f"{self.folder}/{segment_stem(offset)}{SNAPSHOT}"

    # -- where batches lie

    def file_of(self, segment: Segment) -> File:
        return self._around.files.open(segment)

    def reader_of(self, segment: Segment) -> ReadableFile:
        """Its file, for who only looks into it."""
        return self._around.files.open(segment)

    def _segment_number(self, offset: int) -> int:
        """The segment in whose range `offset` falls."""
        segments = self._segments
        if offset >= segments[-1].base:
            return len(segments) - 1
        return max(0, bisect_right(segments, offset, key=lambda segment: segment.base) - 1)

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
        return self._locate(segment, self.indexes(segment), offset)

    def _locate(self, segment: Segment, index: OffsetIndex | SealedIndexes, offset: int) -> tuple[int, int] | None:
        """From where the index says. A wrong entry of it leads to no batch, or to one behind the offset: then from the
        entry before it. Behind a gap, which compaction leaves, that comes to the same batch."""
        file, start = self.reader_of(segment), index.lookup(offset)
        while True:
            try:
                found = locate(file, start, segment.size, offset)
                if found is None or not start or found[0] > start or found[2] <= offset:
                    return found and found[:2]
            except BadBatch as bad:
                if not start or bad.pos != start:
                    raise
                path = f"{segment.stem}{OFFSET_INDEX}"
                self._around.report(f"{path} has a wrong entry, which is passed over: no batch begins at byte {start}")
            before = index.floor(start - 1)
            start = before if before < start else 0

    def indexes(self, segment: Segment) -> OffsetIndex | SealedIndexes:
        return segment.offsets if segment.offsets is not None else self.sealed(segment)

    def sealed(self, segment: Segment) -> SealedIndexes:
        """The indexes of a sealed segment; built again where they are missing or damaged."""
        found = segment.sealed
        if found is None:
            number = self._segments.index(segment)
            next_base = self._segments[number + 1].base if number + 1 < len(self._segments) else NEVER
            found = segment.read_sealed(self._around.disk, next_base)
            segment.indexed = found is not None and (segment.indexed or indexing.fits(self, segment, found))
            if found is None or not segment.indexed:
                found = indexing.rebuild_sealed(self, segment, next_base)
            segment.sealed = found
            self._around.files.hold_indexes(segment)
        return found

    def look(self, segment: Segment, number: int) -> int:
        """Learn size and newest timestamp of a segment that was only found so far; its size."""
        if segment.size < 0:
            if number == len(self._segments) - 1:
                indexing.open_last(self, self.ends.log_end)
            else:
                try:
                    segment.measure(self._around.disk)
                    segment.max_timestamp, segment.max_timestamp_offset = self.sealed(segment).last_time
                except OSError:
                    segment.size = -1  # its newest timestamp isn't known
                    raise
                indexing.tell_of_gap(self, segment, self._segments[number + 1].base)
        return segment.size

    # -- the segment that is written

    def _become_last(self, segment: Segment) -> None:
        """The segment, which was just read, is the one that is written."""
        self._active = segment
        self._flush_from = segment.size
        self._size_limit = -1
        if segment.first_timestamp is not None:
            segment.date_first(segment.first_timestamp, self.config.roll_ms)

    def _begin_segment(self, base: int, now_ms: int) -> Segment:
        """A new one behind the others."""
        disk = self._around.disk
        segment = Segment(self.folder, base, now_ms)
        segment.begin(self.config.index_interval_bytes)
        file = self._around.files.open(segment, create=True)
        if file.size():  # left behind by a segment that was truncated away
            file.truncate(0)
        if disk.exists(segment.stem + TXN_INDEX):
            disk.remove(segment.stem + TXN_INDEX)
        self._segments.append(segment)
        self._active = segment
        self._new_names = True
        self._marks = None
        self._flush_from = 0
        self._size_limit = -1
        return segment


def page_cache_counts(config: TopicConfig) -> bool:
    """Whether what was written counts as durable, be it up to so many records (`flush.messages`)."""
    return config.tidelog_durability == "os"


def counts_messages(config: TopicConfig) -> bool:
    """Whether what was written counts as durable up to so many records."""
    return page_cache_counts(config) and config.flush_messages < LONG_MAX
