"""One segment: a file of batches, and what is known of it without reading it.

The last segment of a log is written and has its indexes in memory; the others are sealed. A segment whose `size` is -1
was found on disk and not looked at yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.aborted import AbortedIndex
from tidelog.log.bounds import OFFSET_SPAN_MAX
from tidelog.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, IndexFile, OffsetIndex, SealedIndexes, TimeIndex
from tidelog.log.names import DELETED, LOG, OFFSET_INDEX, SEGMENT_FILES, TIME_INDEX, TXN_INDEX, segment_stem
from tidelog.log.unreadable import UNREADABLE

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.env.disk import Disk, File

NEVER = 2**63 - 1


class Segment:
    """`roll_after` is the newest timestamp that a batch may bring without a look at the rules of rolling; `size_limit`
    and `offset_limit` are how far it may come. `flush_from` is where the last flush of it began.

    `learnt` counts how often it was read anew, as after a cut. `indexed`: its index files were compared with its
    batches since the start, or built from them and put in place.
    """

    __slots__ = (
        "_aborted",
        "base",
        "created_ms",
        "file",
        "first_timestamp",
        "flush_from",
        "index_bytes_max",
        "index_interval",
        "index_next",
        "indexed",
        "jitter_ms",
        "learnt",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_limit",
        "offsets",
        "roll_after",
        "sealed",
        "size",
        "size_limit",
        "stem",
        "times",
        "used",
    )

    def __init__(self, folder: str, base: int, created_ms: int) -> None:
        self.base = base
        self.stem = f"{folder}/{segment_stem(base)}"
        self.size = -1
        self.file: File | None = None
        self.used = False
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.sealed: SealedIndexes | None = None
        self.max_timestamp = -1
        self.max_timestamp_offset = base
        self.first_timestamp: int | None = None
        self.created_ms = created_ms
        self.jitter_ms = 0
        self.roll_after = -2
        self.size_limit = -1
        self.offset_limit = base + OFFSET_SPAN_MAX
        self.flush_from = 0
        self.index_next = self.index_interval = self.index_bytes_max = 0
        self.learnt = 0
        self.indexed = False
        self._aborted: AbortedIndex | None = None

    # -- the segment that is written

    @property
    def path(self) -> str:
        return self.stem + LOG

    def begin(self, config: TopicConfig) -> None:
        """Nothing is in it yet."""
        self.size = 0
        self.offsets = OffsetIndex(self.base)
        self.times = TimeIndex(self.base)
        self.configure(config)
        self.index_next = self.index_interval

    def become_active(self, config: TopicConfig) -> None:
        """It was read, and is written from now on."""
        self.configure(config)
        self.flush_from = self.size

    def configure(self, config: TopicConfig) -> None:
        """The next batch looks at the rules of rolling."""
        self.index_interval = config.index_interval_bytes
        self.index_bytes_max = config.segment_index_bytes
        self.size_limit = -1
        if self.first_timestamp is not None:
            self.date_first(self.first_timestamp, config.roll_ms)

    def limit(self, segment_size: int, flush_bytes: int) -> None:
        """It may grow to this size, and by so much since the last flush, without a look at the rules of rolling."""
        self.size_limit = min(segment_size, self.flush_from + flush_bytes)

    def begin_flush(self) -> None:
        """What is in it now is flushed; the next batch begins to count what isn't."""
        self.flush_from = self.size
        self.size_limit = -1

    def flushed(self) -> None:
        """It is sealed, and its indexes are in their files: they are read from there."""
        self.offsets = self.times = None

    def date_first(self, timestamp: int, segment_ms: int) -> None:
        """The first batch was written: its timestamp is what the age of the segment counts from."""
        self.first_timestamp = timestamp
        self.roll_after = timestamp + segment_ms - self.jitter_ms if timestamp >= 0 else -2

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """How old the segment is when a batch of this timestamp comes, as Kafka measures it."""
        first = self.first_timestamp
        return max_timestamp - first if first is not None and first >= 0 else now_ms - self.created_ms

    def takes(self, size: int, batches: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether so much more may be written to it, at once, without a look at the rules of rolling."""
        assert self.offsets is not None
        return (
            self.size + size <= self.size_limit
            and max_timestamp <= self.roll_after
            and last_offset <= self.offset_limit
            and (len(self.offsets.positions) + batches + 2) * TIME_ENTRY_BYTES <= self.index_bytes_max
        )

    @property
    def room(self) -> tuple[int, int, int, int]:
        """How much `takes` lets be written at once: bytes, batches, the newest timestamp and the last offset."""
        assert self.offsets is not None
        batches = self.index_bytes_max // TIME_ENTRY_BYTES - 2 - len(self.offsets.positions)
        return self.size_limit - self.size, batches, self.roll_after, self.offset_limit

    def took(self, first_offset: int, last_offset: int, size: int, max_timestamp: int) -> None:
        """A batch was written to its end: all that an append changes of a segment."""
        self.used = True
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        position = self.size
        if position > self.index_next:
            self.add_entries(first_offset, last_offset, position, self.index_bytes_max)
            self.index_next = position + self.index_interval
        self.size = position + size

    def add_entries(self, first_offset: int, last_offset: int, position: int, index_bytes_max: int) -> None:
        """Index the batch at `position`. A full index makes the next batch look at the rules of rolling."""
        offsets, times, base = self.offsets, self.times, self.base
        assert offsets is not None
        assert times is not None
        offsets.firsts.append(first_offset - base)
        offsets.offsets.append(last_offset - base)
        offsets.positions.append(position)
        stamps = times.stamps
        timestamp = self.max_timestamp
        if timestamp > (stamps[-1] if stamps else -1):
            stamps.append(timestamp)
            times.offsets.append(self.max_timestamp_offset - base)
        if (len(offsets.positions) + 2) * TIME_ENTRY_BYTES > index_bytes_max and self.index_full(index_bytes_max):
            self.roll_after = -2

    def index_full(self, index_bytes_max: int) -> bool:
        """One time entry is kept free for the segment's end."""
        assert self.offsets is not None
        assert self.times is not None
        return (
            len(self.offsets) >= index_bytes_max // OFFSET_ENTRY_BYTES
            or len(self.times) >= index_bytes_max // TIME_ENTRY_BYTES - 1
        )

    def finish_times(self) -> None:
        """The newest timestamp becomes the last time entry, as in every segment that was closed."""
        if self.times is not None and self.max_timestamp >= 0:
            self.times.add(self.max_timestamp, self.max_timestamp_offset)

    # -- any segment

    def measure(self, disk: Disk) -> int:
        """Its size in bytes; asks the disk once."""
        if self.size < 0:
            self.size = disk.size(self.stem + LOG)
        return self.size

    def size_now(self, disk: Disk) -> int:
        """Its size in bytes, without a look at anything else of it."""
        return self.size if self.size >= 0 else disk.size(self.stem + LOG)

    def set_aside(self, disk: Disk) -> list[str]:
        """Rename its files, so that their names are free; their paths now."""
        renamed: list[str] = []
        for suffix in SEGMENT_FILES:
            path = self.stem + suffix
            if disk.exists(path):
                disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        return renamed

    def stay_in_memory(self) -> None:
        """Nothing of it is ever on a disk."""
        self._aborted = AbortedIndex(None, self.stem + TXN_INDEX)

    def aborted(self, disk: Disk) -> AbortedIndex:
        if self._aborted is None:
            self._aborted = AbortedIndex(disk, self.stem + TXN_INDEX)
        return self._aborted

    @property
    def has_aborted(self) -> bool:
        """Whether its transaction index was looked at or written since the start."""
        return self._aborted is not None

    def read_sealed(self, disk: Disk, next_base: int) -> SealedIndexes | None:
        """Its index files, for searching; None where they are missing or can't be right."""
        try:
            files = [IndexFile(disk.open(self.stem + suffix)) for suffix in (OFFSET_INDEX, TIME_INDEX)]
            sealed = SealedIndexes(self.base, *files)
            return sealed if sealed.sound(self.measure(disk), next_base) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in UNREADABLE:
                return None
            raise
