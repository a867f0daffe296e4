"""The new segment: written under names that end in `.cleaned`, with its indexes, and durable before anyone is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.aborted import ENTRY, VERSION
from tidelog.log.compaction.task import Replacement
from tidelog.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from tidelog.log.names import CLEANED, LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, segment_stem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.env.disk import Disk
    from tidelog.log.aborted import Aborted
    from tidelog.log.compaction.task import Task

WRITE_BYTES = 1 << 20
"""So much is written and synced at a time: one sync of a whole gigabyte would hold up those of the broker."""


def cleaned_path(folder: str, base: int, token: str, suffix: str) -> str:
    """Kafka takes such a name for that of a cleaning that came to no end, too, and removes the file."""
    return f"{folder}/{segment_stem(base)}.{token}{suffix}{CLEANED}"


class Target:
    """A segment that takes the place of those that begin at `bases`."""

    def __init__(self, disk: Disk, task: Task, bases: list[int], took: Callable[[int], None]) -> None:
        self._disk = disk
        self._task = task
        self._bases = bases
        self._took = took
        self._file = disk.open(self._path(LOG), create=True)
        self._file.truncate(0)
        self._parts: list[bytes | bytearray] = []
        self._waiting = 0  # bytes in parts
        self._offsets = OffsetIndex(bases[0])
        self._times = TimeIndex(bases[0])
        self._index_next = task.index_interval_bytes
        self._entries_max = min(task.index_bytes // OFFSET_ENTRY_BYTES, task.index_bytes // TIME_ENTRY_BYTES - 1)
        self._aborted: list[Aborted] = []
        self._newest, self._newest_offset = -1, bases[0]
        self.size = 0

    def _path(self, suffix: str) -> str:
        return cleaned_path(self._task.folder, self._bases[0], self._task.token, suffix)

    def write(self, batch: bytes | bytearray, first_offset: int, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self._newest:
            self._newest, self._newest_offset = max_timestamp, last_offset
        if self.size > self._index_next and len(self._offsets) < self._entries_max:
            self._offsets.add(first_offset, last_offset, self.size)
            self._times.add(self._newest, self._newest_offset)
            self._index_next = self.size + self._task.index_interval_bytes
        self._parts.append(batch)
        self.size += len(batch)
        self._waiting += len(batch)
        if self._waiting >= WRITE_BYTES:
            self._flush()

    def aborted(self, entry: Aborted) -> None:
        """The marker of this transaction was written."""
        self._aborted.append(entry)

    def _flush(self) -> None:
        self._file.append(b"".join(self._parts))
        self._took(self._waiting)
        self._parts, self._waiting = [], 0
        self._file.sync()

    def finish(self) -> Replacement:
        self._flush()
        self._times.add(self._newest, self._newest_offset)
        contents = {OFFSET_INDEX: self._offsets.unsaved()[1], TIME_INDEX: self._times.unsaved()[1]}
        indexed = [f"{self._task.folder}/{segment_stem(base)}{TXN_INDEX}" for base in self._bases]
        if self._aborted or any(map(self._disk.exists, indexed)):  # an empty one takes the old one's place
            contents[TXN_INDEX] = b"".join([ENTRY.pack(VERSION, *entry) for entry in self._aborted])
        for suffix, data in contents.items():
            file = self._disk.open(self._path(suffix), create=True)
            file.truncate(0)
            if data:
                file.append(data)
            file.sync()
        self._disk.sync_folder(self._task.folder)
        return Replacement(
            bases=self._bases,
            size=self.size,
            max_timestamp=self._newest,
            max_timestamp_offset=self._newest_offset,
            suffixes=[LOG, *contents],
        )
