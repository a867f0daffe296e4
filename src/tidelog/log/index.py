"""Sparse indexes of a segment: where an offset lies, and which offset a time leads to. Kafka's files, entry for entry.

An offset entry (8 bytes) says at which position the batch begins whose *last* offset is the entry's; a time entry (12
bytes) says that up to this offset no batch is newer than the entry's timestamp. Both hold offsets relative to the
segment's base. The segment that is written keeps its indexes in memory and saves the new entries now and then; sealed
segments are searched in their files.

An index is only ever a shortcut: whatever is wrong with one, it is built again from the segment.
"""

import errno
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from struct import Struct
from sys import byteorder

from tidelog.env.disk import File

OFFSET_ENTRY = Struct(">II")
TIME_ENTRY = Struct(">qI")
_int_at = Struct(">I").unpack_from
OFFSET_ENTRY_BYTES = OFFSET_ENTRY.size
TIME_ENTRY_BYTES = TIME_ENTRY.size

NEAR = 8
"""Entries on either side of the last find that are looked at first: readers go on where they, or others, were."""
ALL_MAX = 4096
EACH = 16
"""An index of more than `ALL_MAX` entries is checked at each so many of them."""
BLOCK_ENTRIES = 512
"""Of a sealed index that are kept where the last one was found: readers go on there."""
UNKNOWN = 0xFFFFFFFF
"""The first offset of a batch whose entry came from the file, which doesn't say."""


class OffsetIndex:
    """The offset index of the segment that is written.

    Beside what the file has, it knows the first offset of each batch that it indexes: a reader who asks for such a
    batch is told its place without a look at the file.
    """

    __slots__ = ("_found", "base", "firsts", "offsets", "positions", "saved")

    def __init__(self, base: int) -> None:
        self.base = base
        self._found = NEAR  # where the last find was, or as near to the beginning as `NEAR` allows
        self.firsts = array("I")
        self.offsets = array("I")
        self.positions = array("I")
        self.saved = 0  # entries that the file has

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, first_offset: int, last_offset: int, position: int) -> None:
        self.firsts.append(first_offset - self.base)
        self.offsets.append(last_offset - self.base)
        self.positions.append(position)

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`, and near it."""
        slot = bisect_right(self.offsets, offset - self.base)
        return self.positions[slot - 1] if slot else 0

    def exact(self, offset: int) -> int:
        """The position of the batch that holds `offset`, where that batch is indexed; -1 where it may not be."""
        offset -= self.base
        slot = bisect_left(self.offsets, offset)
        return self.positions[slot] if slot < len(self.firsts) and self.firsts[slot] <= offset else -1

    def find(self, offset: int) -> tuple[int, int]:
        """As `exact`, and how far it is from there to the next indexed position (0 or less where none is)."""
        offset -= self.base
        offsets, positions = self.offsets, self.positions
        known = len(positions)
        slot = self._found
        if slot + NEAR < known:
            slot = bisect_left(offsets, offset, slot - NEAR, slot + NEAR)
            if not self.firsts[slot] <= offset <= offsets[slot]:  # else it can't be any other
                slot = bisect_left(offsets, offset)
        else:
            slot = bisect_left(offsets, offset)
        if slot >= known or self.firsts[slot] > offset:
            return -1, 0
        if slot > NEAR:
            self._found = slot
        pos = positions[slot]
        slot += 1
        return pos, positions[slot] - pos if slot < known else 0

    def after(self, position: int) -> int:
        """The next indexed position beyond `position`; -1 where none is."""
        slot = bisect_right(self.positions, position)
        return self.positions[slot] if slot < len(self.positions) else -1

    def floor(self, position: int) -> int:
        """The last indexed position up to `position`; 0, where the segment begins, if none is."""
        slot = bisect_right(self.positions, max(0, position))
        return self.positions[slot - 1] if slot else 0

    def upper_bound(self, position: int) -> int | None:
        """The last offset of the first indexed batch that begins at `position` or later."""
        slot = bisect_left(self.positions, position)
        return self.base + self.offsets[slot] if slot < len(self.positions) else None

    def truncate(self, offset: int) -> None:
        """Forget the entries at `offset` and above."""
        keep = bisect_left(self.offsets, max(0, offset - self.base))
        del self.firsts[keep:], self.offsets[keep:], self.positions[keep:]
        self.saved = min(self.saved, keep)

    def unsaved(self) -> tuple[int, bytes]:
        """(where in the file, the bytes) of the entries that it lacks."""
        first = self.saved
        offsets = self.offsets[first:]
        entries = array("I", bytes(len(offsets) * OFFSET_ENTRY_BYTES))
        entries[::2], entries[1::2] = offsets, self.positions[first:]
        if byteorder == "little":
            entries.byteswap()
        return first * OFFSET_ENTRY_BYTES, entries.tobytes()

    def load(self, data: bytes, log_bytes: int) -> bool:
        """Take over the file's entries. False where it is damaged: entries that don't rise, half an entry.

        Zeros at the end are no damage: Kafka reserves room for entries, and leaves it behind when killed. Nor are
        entries beyond the segment's end: its tail may have been lost, or cut.
        """
        self.firsts, self.offsets, self.positions, self.saved = array("I"), array("I"), array("I"), 0
        sound = len(data) % OFFSET_ENTRY_BYTES == 0
        last_offset, last_position = -1, 0
        for offset, position in OFFSET_ENTRY.iter_unpack(data[: len(data) - len(data) % OFFSET_ENTRY_BYTES]):
            if position >= log_bytes:
                break
            if offset <= last_offset or position <= last_position:
                sound = sound and not offset and not position
                break
            self.offsets.append(offset)
            self.positions.append(position)
            last_offset, last_position = offset, position
        self.saved = len(self.offsets)
        self.firsts = array("I", [UNKNOWN]) * self.saved
        return sound


class TimeIndex:
    """The time index of the segment that is written. Timestamps and offsets both rise."""

    __slots__ = ("base", "offsets", "saved", "stamps")

    def __init__(self, base: int) -> None:
        self.base = base
        self.stamps = array("q")
        self.offsets = array("I")
        self.saved = 0

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base) where there is none."""
        if not self.stamps:
            return -1, self.base
        return self.stamps[-1], self.base + self.offsets[-1]

    def add(self, timestamp: int, offset: int) -> None:
        """Nothing where the timestamp is no newer than the last entry's."""
        if timestamp > (self.stamps[-1] if self.stamps else -1):
            self.stamps.append(timestamp)
            self.offsets.append(offset - self.base)

    def lookup(self, timestamp: int) -> int:
        """An offset before which nothing is as new as `timestamp`."""
        slot = bisect_right(self.stamps, timestamp)
        return self.base + self.offsets[slot - 1] if slot else self.base

    def truncate(self, offset: int) -> None:
        keep = bisect_left(self.offsets, max(0, offset - self.base))
        del self.offsets[keep:], self.stamps[keep:]
        self.saved = min(self.saved, keep)

    def unsaved(self) -> tuple[int, bytes]:
        """(where in the file, the bytes) of the entries that it lacks."""
        first = self.saved
        pack = TIME_ENTRY.pack
        entries = zip(self.stamps[first:], self.offsets[first:], strict=True)
        return first * TIME_ENTRY_BYTES, b"".join([pack(stamp, offset) for stamp, offset in entries])

    def load(self, data: bytes) -> bool:
        """Take over the file's entries; False where it is damaged. Zeros at the end are no damage."""
        self.stamps, self.offsets, self.saved = array("q"), array("I"), 0
        sound = len(data) % TIME_ENTRY_BYTES == 0
        last_stamp, last_offset = -1, -1
        for stamp, offset in TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % TIME_ENTRY_BYTES]):
            if stamp <= last_stamp or offset <= last_offset:
                sound = sound and not stamp and not offset
                break
            self.stamps.append(stamp)
            self.offsets.append(offset)
            last_stamp, last_offset = stamp, offset
        self.saved = len(self.stamps)
        return sound


def _some(count: int) -> Iterator[int]:
    """Numbers of entries to look at: all of a few, else the last one and a few of each sector of 512 bytes."""
    last = count - 1
    return chain(range(0, last, 1 if count <= ALL_MAX else EACH), (last,) if count else ())


class IndexFile:
    """An index on disk, searched where it lies: 128 of them in memory would be too much.

    Read, not mapped: a disk that fails answers a read with an error, a mapping with the end of the process.
    """

    __slots__ = ("_file", "size")

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = file.size()

    def int_at(self, pos: int) -> int:
        return int.from_bytes(self.read(pos, 4))

    def long_at(self, pos: int) -> int:
        return int.from_bytes(self.read(pos, 8), signed=True)

    def read(self, pos: int, count: int) -> bytes:
        data = self._file.read(pos, count)
        if len(data) < count:
            raise OSError(errno.EIO, f"it had {self.size} bytes and ends at {pos + len(data)} now", self._file.path)
        return data


class BuiltIndex:
    """An index that was just built again, while its file isn't there yet."""

    __slots__ = ("_data", "size")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def int_at(self, pos: int) -> int:
        return int.from_bytes(self._data[pos : pos + 4])

    def long_at(self, pos: int) -> int:
        return int.from_bytes(self._data[pos : pos + 8], signed=True)

    def read(self, pos: int, count: int) -> bytes:
        return self._data[pos : pos + count]


class SealedIndexes:
    """Both indexes of a segment that no longer grows."""

    __slots__ = ("_base", "_near", "_offset_count", "_offsets", "_time_count", "_times")

    def __init__(self, base: int, offsets: IndexFile | BuiltIndex, times: IndexFile | BuiltIndex) -> None:
        self._base = base
        self._offsets = offsets
        self._times = times
        self._offset_count = offsets.size // OFFSET_ENTRY_BYTES
        self._time_count = times.size // TIME_ENTRY_BYTES
        self._near = 0, 0, b""  # entries around the last find, and which offsets are found among them

    def sound(self, log_bytes: int, next_base: int) -> bool:
        """Whether sizes and entries can be those of a segment of this size and range: both values of entries rise.

        Of many entries some in each sector are looked at, which is what a power loss leaves as zeros.
        """
        offsets, times = self._offsets, self._times
        if offsets.size % OFFSET_ENTRY_BYTES or times.size % TIME_ENTRY_BYTES:
            return False
        span = next_base - self._base
        offset, position = -1, 0
        data = offsets.read(0, offsets.size)
        for n in _some(self._offset_count):
            before = offset, position
            offset, position = OFFSET_ENTRY.unpack_from(data, n * OFFSET_ENTRY_BYTES)
            if not (before[0] < offset < span and before[1] < position < log_bytes):
                return False
        stamp, offset = -1, -1
        data = times.read(0, times.size)
        for n in _some(self._time_count):
            before = stamp, offset
            stamp, offset = TIME_ENTRY.unpack_from(data, n * TIME_ENTRY_BYTES)
            if not (before[0] < stamp and before[1] < offset < span):
                return False
        return True

    def entries(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(last offset, position) of each indexed batch, and (timestamp, offset) of each entry in time: for checks."""
        offsets, times = self._offsets, self._times
        return (
            [(self._base + o, position) for o, position in OFFSET_ENTRY.iter_unpack(offsets.read(0, offsets.size))],
            [(stamp, self._base + o) for stamp, o in TIME_ENTRY.iter_unpack(times.read(0, times.size))],
        )

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch that is indexed; the segment's base where none is."""
        offsets = self._offsets
        return self._base + offsets.int_at(offsets.size - OFFSET_ENTRY_BYTES) if self._offset_count else self._base

    @property
    def last_time(self) -> tuple[int, int]:
        """(newest timestamp, offset) of the segment; (-1, base) where no batch has one."""
        if not self._time_count:
            return -1, self._base
        last = self._times.size - TIME_ENTRY_BYTES
        return self._times.long_at(last), self._base + self._times.int_at(last + 8)

    def lookup(self, offset: int) -> int:
        wanted = offset - self._base
        first, last, entries = self._near
        if not first <= wanted < last:
            int_at = self._offsets.int_at
            slot = bisect_right(range(self._offset_count), wanted, key=lambda n: int_at(n * 8))
            if not slot:
                return 0
            start = (slot - 1) // BLOCK_ENTRIES * BLOCK_ENTRIES
            entries = self._offsets.read(start * 8, min(BLOCK_ENTRIES, self._offset_count - start) * 8)
            first, last = _int_at(entries, 0)[0], _int_at(entries, len(entries) - 8)[0]
            self._near = first, last, entries
            return _int_at(entries, (slot - start) * 8 - 4)[0]
        slot = bisect_right(range(len(entries) // 8), wanted, key=lambda n: _int_at(entries, n * 8)[0])
        return _int_at(entries, slot * 8 - 4)[0]

    def floor(self, position: int) -> int:
        int_at = self._offsets.int_at
        slot = bisect_right(range(self._offset_count), position, key=lambda n: int_at(n * 8 + 4))
        return int_at(slot * 8 - 4) if slot else 0

    def upper_bound(self, position: int) -> int | None:
        int_at = self._offsets.int_at
        slot = bisect_left(range(self._offset_count), position, key=lambda n: int_at(n * 8 + 4))
        return self._base + int_at(slot * 8) if slot < self._offset_count else None

    def lookup_time(self, timestamp: int) -> int:
        times = self._times
        slot = bisect_right(range(self._time_count), timestamp, key=lambda n: times.long_at(n * 12))
        return self._base + times.int_at(slot * 12 - 4) if slot else self._base
