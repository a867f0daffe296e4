"""The segments of a log: which there are, which one is written, and where batches lie in them.

Recovery has such an object of its own, off the loop; a log that is served has another, made of what that found. What
it needs beyond its own files is around it: the store, or, while a log is opened, nothing that the loop has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, overload

from tidelog.log import indexing
from tidelog.log.names import OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from tidelog.log.scan import BadBatch, locate
from tidelog.log.segment import NEVER, Segment
from tidelog.log.slice import Slice
from tidelog.log.unreadable import Unreadable
from tidelog.wire.batch import LOG_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tidelog.config.topic import TopicConfig
    from tidelog.env.clock import Clock
    from tidelog.env.disk import Disk, File, ReadableFile
    from tidelog.log.files import OpenFiles
    from tidelog.log.folder import PartitionFolder
    from tidelog.log.index import OffsetIndex, SealedIndexes
    from tidelog.log.index_files import IndexFiles
    from tidelog.log.producers import Completed

MARKS_MAX = 16
"""Ends of earlier reads whose positions are remembered, for the consumers that go on there."""


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

    def clean_end(self, folder: PartitionFolder) -> int:
        """How far the log was compacted."""
        ...

    def draw_jitter_ms(self, config: TopicConfig) -> int:
        """By how much a segment rolls earlier than others."""
        ...


class Segments(Sequence[Segment]):
    """Rising by their base offsets; all but the last are sealed.

    `active` is the one that is written, with its indexes in memory; None before the first, and before the last one was
    opened. `has_aborted`: some transaction in here was aborted, so readers may have to be told. `unreadable` is what
    the disk didn't give back; None: it gave all.
    """

    __slots__ = ("_list", "_marks", "active", "around", "folder", "has_aborted", "unreadable")

    def __init__(
        self,
        around: Surroundings,
        folder: PartitionFolder,
        found: Iterable[Segment] = (),
        *,
        active: Segment | None = None,
        has_aborted: bool = False,
    ) -> None:
        self.around = around
        self.folder = folder
        self.active: Segment | None = None
        self.has_aborted = has_aborted
        self.unreadable: Unreadable | None = None
        self._list = list(found)
        self._marks: dict[int, int] | None = None
        if active is not None:
            self.become_active(active)

    # -- which there are

    def __len__(self) -> int:
        return len(self._list)

    def __bool__(self) -> bool:
        return bool(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    @overload
    def __getitem__(self, index: int) -> Segment: ...

    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...

    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._list[index]

    @property
    def oldest(self) -> int:
        """The base of the first one."""
        return self._list[0].base if self._list else 0

    def number(self, offset: int) -> int:
        """Which one it is in whose range `offset` falls."""
        segments = self._list
        if offset >= segments[-1].base:
            return len(segments) - 1
        return max(0, bisect_right(segments, offset, key=lambda segment: segment.base) - 1)

    def from_offset(self, offset: int) -> list[Segment]:
        """The one in whose range `offset` falls, and those behind it."""
        return self._list[self.number(offset) :]

    # -- the one that is written

    def become_active(self, segment: Segment) -> None:
        """The segment, which is the last one and was just read, is the one that is written."""
        assert segment is self._list[-1]
        self.active = segment
        segment.jitter_ms = self.around.draw_jitter_ms(self.folder.config)
        segment.become_active(self.folder.config)

    def begin(self, base: int, now_ms: int, *, new: bool = False) -> Segment:
        """A new one behind the others. `new`: the folder is, too, so that nothing can have been left in it."""
        disk = self.around.disk
        segment = Segment(self.folder.folder, base, now_ms)
        segment.begin(self.folder.config)
        file = self.around.files.open(segment, create=True)
        if not new and file.size():  # left behind by a segment that was truncated away
            file.truncate(0)
        if not new and disk.exists(segment.stem + TXN_INDEX):
            disk.remove(segment.stem + TXN_INDEX)
        segment.jitter_ms = self.around.draw_jitter_ms(self.folder.config)
        self.add(segment)
        return segment

    def add(self, segment: Segment) -> None:
        """A new one, which is empty, goes on behind the others."""
        assert not self._list or segment.base > self._list[-1].base, f"{segment.base} behind {self._list[-1].base}"
        self._list.append(segment)
        self.active = segment
        self._marks = None

    def open_last(self, log_end: int | None) -> int:
        """Open the last one for writing and reading; where it ends: at `log_end`, where that is known."""
        segment = self._list[-1]
        next_offset = indexing.scan(self, segment, NEVER, check=False).next_offset
        if log_end is not None and next_offset != log_end:
            reason = f"the segment ends at offset {next_offset}, but after the last stop it was {log_end}"
            raise BadBatch(segment.path, segment.size, reason)
        self.become_active(segment)
        return next_offset

    def configure(self) -> None:
        """The settings of the topic changed: the next batch looks at the rules of rolling."""
        if self.active is not None:
            self.active.configure(self.folder.config)

    def recheck(self) -> None:
        """The next batch looks at the rules of rolling."""
        if self.active is not None:
            self.active.size_limit = -1

    # -- those that go

    def drop(self, bases: Collection[int]) -> None:
        """These, at either end, are no longer part of the log."""
        self._list = [segment for segment in self._list if segment.base not in bases]
        if self.active is not None and self.active.base in bases:
            self.active = None
            self._marks = None

    def replace(self, going: list[Segment], new: Segment) -> None:
        """Sealed ones that follow each other became one."""
        first = self._list.index(going[0])
        assert self._list[first : first + len(going)] == going
        self._list = [*self._list[:first], new, *self._list[first + len(going) :]]

    def cut(self, segment: Segment, position: int) -> File:
        """What is behind `position` of the segment, the last one now, goes; the rest is learnt again.

        Its file is to be synced, or else the next power loss brings back what was cut.
        """
        assert segment is self._list[-1]
        self.forget_positions()
        file = self.file_of(segment)
        file.truncate(position)
        indexing.scan(self, segment, NEVER, check=False)
        self.become_active(segment)
        return file

    def close(self) -> None:
        """Let go of its files."""
        for segment in self._list:
            self.around.files.forget(segment)
        self.active = None
        self._list = []

    # -- where batches lie

    def file_of(self, segment: Segment) -> File:
        return self.around.files.open(segment)

    def reader_of(self, segment: Segment) -> ReadableFile:
        """Its file, for who only looks into it."""
        file = self.around.files.open(segment)
        return file if self.unreadable is None else self.unreadable.careful(file)

    def mark(self, offset: int, position: int) -> None:
        """Remember that the batch from `offset` on begins, or will begin, at `position` of the last segment."""
        marks = self._marks
        if marks is None:
            marks = self._marks = {}
        elif len(marks) >= MARKS_MAX and offset not in marks:
            marks.clear()
        marks[offset] = position

    def forget_positions(self) -> None:
        """What was known of positions, and of bytes that can't be read, no longer holds: files are cut."""
        self._marks = None
        self.unreadable = None

    def position(self, segment: Segment, offset: int) -> tuple[int, int] | None:
        """(position, size or 0 if not looked at) of the batch with `offset`, or of the next one; None: not in here."""
        if self._marks is not None and segment is self.active:
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
                self.around.report(f"{path} has a wrong entry, which is passed over: no batch begins at byte {start}")
            before = index.floor(start - 1)
            start = before if before < start else 0

    def indexes(self, segment: Segment) -> OffsetIndex | SealedIndexes:
        return segment.offsets if segment.offsets is not None else self.sealed(segment)

    def sealed(self, segment: Segment) -> SealedIndexes:
        """The indexes of a sealed segment; built again where they are missing or damaged."""
        found = segment.sealed
        if found is None:
            number = self._list.index(segment)
            next_base = self._list[number + 1].base if number + 1 < len(self._list) else NEVER
            found = segment.read_sealed(self.around.disk, next_base)
            segment.indexed = found is not None and (segment.indexed or indexing.fits(self, segment, found))
            if found is None or not segment.indexed:
                found = indexing.rebuild_sealed(self, segment, next_base)
            segment.sealed = found
            self.around.files.hold_indexes(segment)
        return found

    def look(self, segment: Segment, number: int) -> int:
        """Learn size and newest timestamp of a segment that was only found so far; its size."""
        if segment.size < 0:
            if number == len(self._list) - 1:
                self.open_last(None)
            else:
                try:
                    segment.measure(self.around.disk)
                    segment.max_timestamp, segment.max_timestamp_offset = self.sealed(segment).last_time
                except OSError:
                    segment.size = -1  # its newest timestamp isn't known
                    raise
                indexing.tell_of_gap(self, segment, self._list[number + 1].base)
        return segment.size

    # -- reading

    def read_active(self, offset: int, max_bytes: int, log_end: int) -> Slice | None:
        """The usual read, in the last segment, where memory knows the place: no look at the file. None: look."""
        segment = self.active
        if segment is None or offset < segment.base:
            return None
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
            self.mark(log_end, segment.size)
        segment.used = True
        return Slice(file, pos, count)

    def read(self, offset: int, max_bytes: int, end: int, log_end: int, *, at_least_one: bool) -> Slice | None:
        """As `ReadableLog.read` promises. Raises OSError and BadBatch."""
        if self.active is None:
            self.open_last(log_end)
        number = self.number(offset)
        while number < len(self._list):
            segment = self._list[number]
            self.look(segment, number)
            found = self.position(segment, offset)
            if found is not None:
                pos, first = found
                count = self._limit(segment, number, end, log_end) - pos
                if count <= 0:
                    return None
                if count > max_bytes:
                    if not first:
                        first = self._batch_size(segment, pos, max_bytes)
                    if first > max_bytes and not at_least_one:
                        return None
                    count = min(count, max(first, max_bytes))
                return Slice(self.file_of(segment), pos, count)
            number += 1
        return None

    def _limit(self, segment: Segment, number: int, end: int, log_end: int) -> int:
        """Up to which position of the segment a reader sees that may read below `end`."""
        segments = self._list
        if number + 1 < len(segments):
            if end >= segments[number + 1].base:
                return segment.size
        elif end >= log_end:
            self.mark(log_end, segment.size)
            return segment.size
        found = self.position(segment, end)
        return segment.size if found is None else found[0]

    def _batch_size(self, segment: Segment, pos: int, max_bytes: int) -> int:
        """The size of the batch at `pos`, or a bound on it that is within `max_bytes`: it needn't be looked at then."""
        if segment.offsets is not None and 0 < (bound := segment.offsets.after(pos) - pos) <= max_bytes:
            return bound
        data = self.reader_of(segment).read(pos + 8, 4)
        return int.from_bytes(data) + LOG_OVERHEAD

    # -- what can't be read, and what was aborted

    def know_unreadable(self) -> Unreadable:
        """From now on, until all of it could be read."""
        if self.unreadable is None:
            self.unreadable = Unreadable(self.around.clock)
        return self.unreadable

    def all_was_read(self) -> None:
        self.unreadable = None

    def forget_index(self, error: OSError) -> bool:
        """Whether it is an index that can't be read: it is built again by whoever looks next."""
        for segment in self._list:
            if segment.sealed is not None and error.filename in (
                segment.stem + OFFSET_INDEX,
                segment.stem + TIME_INDEX,
            ):
                segment.sealed = None
                return True
        return False

    def note_aborted(self, segment: Segment, completed: Completed) -> None:
        """The transaction was aborted, by a marker that the segment has or is about to have.

        Raises OSError and AbortedIndexError, and nothing is noted then.
        """
        segment.aborted(self.around.disk).append(completed)
        self.has_aborted = True

    def check_invariants(self, log_end: int) -> None:
        bases = [segment.base for segment in self._list]
        assert bases == sorted(set(bases)), f"{self.folder.place}: segments {bases}"
        assert not bases or bases[0] <= log_end, f"{self.folder.place}: segments {bases}, and it ends at {log_end}"
        assert self.active is None or self.active is self._list[-1], f"{self.folder.place}: another one is written"
