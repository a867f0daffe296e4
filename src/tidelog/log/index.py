"""Sparse indexes of a segment: where an offset lies, and which offset a time leads to. Kafka's files, entry for entry.

An offset entry (8 bytes) says at which position the batch begins whose *last* offset is the entry's; a time entry (12
bytes) says that up to this offset no batch is newer than the entry's timestamp. Both hold offsets relative to the
segment's base. The segment that is written keeps its indexes in memory and saves the new entries now and then; sealed
segments are searched in place, in a view of the file.

An index is only ever a shortcut: whatever is wrong with one, it is built again from the segment.
"""

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from sys import byteorder

OFFSET_ENTRY = Struct(">II")
TIME_ENTRY = Struct(">qI")
OFFSET_ENTRY_BYTES = OFFSET_ENTRY.size
TIME_ENTRY_BYTES = TIME_ENTRY.size

NEAR = 8
"""Entries on either side of the last find that are looked at first: readers go on where they, or others, were."""
UNKNOWN = 0xFFFFFFFF
"""The first offset of a batch whose entry came from the file, which doesn't say."""

_KEY_INT = Struct(">I")
_KEY_LONG = Struct(">q")


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


class SealedIndexes:
    """Both indexes of a segment that no longer grows, searched in the files' bytes."""

    __slots__ = ("_base", "_offset_count", "_offset_view", "_time_count", "_time_view")

    def __init__(self, base: int, offset_view: memoryview, time_view: memoryview) -> None:
        self._base = base
        self._offset_view = offset_view
        self._time_view = time_view
        self._offset_count = len(offset_view) // OFFSET_ENTRY_BYTES
        self._time_count = len(time_view) // TIME_ENTRY_BYTES

    def sound(self, log_bytes: int, next_base: int) -> bool:
        """Whether sizes, and the first and last entries, can be those of a segment of this size and range."""
        if len(self._offset_view) % OFFSET_ENTRY_BYTES or len(self._time_view) % TIME_ENTRY_BYTES:
            return False
        span = next_base - self._base
        if self._offset_count:
            first_offset, first_position = OFFSET_ENTRY.unpack_from(self._offset_view, 0)
            last_offset, last_position = OFFSET_ENTRY.unpack_from(self._offset_view, len(self._offset_view) - 8)
            if not (first_offset <= last_offset < span and 0 < first_position <= last_position < log_bytes):
                return False
        if self._time_count:
            first_stamp, _ = TIME_ENTRY.unpack_from(self._time_view, 0)
            last_stamp, last_offset = TIME_ENTRY.unpack_from(self._time_view, len(self._time_view) - 12)
            return 0 <= first_stamp <= last_stamp and last_offset < span
        return True

    @property
    def last_time(self) -> tuple[int, int]:
        """(newest timestamp, offset) of the segment; (-1, base) where no batch has one."""
        if not self._time_count:
            return -1, self._base
        stamp, offset = TIME_ENTRY.unpack_from(self._time_view, len(self._time_view) - TIME_ENTRY_BYTES)
        return stamp, self._base + offset

    def lookup(self, offset: int) -> int:
        view = self._offset_view
        slot = bisect_right(
            range(self._offset_count), offset - self._base, key=lambda n: _KEY_INT.unpack_from(view, n * 8)[0]
        )
        return _KEY_INT.unpack_from(view, slot * 8 - 4)[0] if slot else 0

    def floor(self, position: int) -> int:
        view = self._offset_view
        slot = bisect_right(range(self._offset_count), position, key=lambda n: _KEY_INT.unpack_from(view, n * 8 + 4)[0])
        return _KEY_INT.unpack_from(view, slot * 8 - 4)[0] if slot else 0

    def upper_bound(self, position: int) -> int | None:
        view = self._offset_view
        slot = bisect_left(range(self._offset_count), position, key=lambda n: _KEY_INT.unpack_from(view, n * 8 + 4)[0])
        return self._base + _KEY_INT.unpack_from(view, slot * 8)[0] if slot < self._offset_count else None

    def lookup_time(self, timestamp: int) -> int:
        view = self._time_view
        slot = bisect_right(range(self._time_count), timestamp, key=lambda n: _KEY_LONG.unpack_from(view, n * 12)[0])
        return self._base + _KEY_INT.unpack_from(view, slot * 12 - 4)[0] if slot else self._base
