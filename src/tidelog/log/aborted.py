"""The transaction index of a segment (`.txnindex`): aborted transactions, for Fetch's list of what a reader must skip.

Entries of 34 bytes in the order of their markers. The file is made when the first transaction is aborted; of a segment
in memory there is none, and the entries are all there is.
"""

from struct import Struct
from typing import NamedTuple

from tidelog.env.disk import Disk, File
from tidelog.log.producers import Completed

VERSION = 0
ENTRY = Struct(">hqqqq")


class Aborted(NamedTuple):
    """An aborted transaction: its offsets are those of its first batch and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndexError(Exception):
    """The index can't be what the log's segment says: it must be built again from the segment."""


class AbortedIndex:
    """The aborted transactions whose markers are in one segment. Without a disk they are kept in memory only."""

    __slots__ = ("_disk", "_entries", "_file", "path")

    def __init__(self, disk: Disk | None, path: str) -> None:
        self._disk = disk
        self._file: File | None = None
        self._entries: list[Aborted] | None = None
        self.path = path

    def append(self, completed: Completed) -> None:
        """Remember an aborted transaction; written, not yet durable: whoever syncs the segment syncs this file too."""
        assert completed.aborted, "a committed transaction has no place in the index"
        entries = self._read()
        assert not entries or completed.last_offset > entries[-1].last_offset, (
            "markers come in the order of their offsets"
        )
        entry = Aborted(
            completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
        )
        if self._disk is not None:
            self._write(self._disk, ENTRY.pack(VERSION, *entry), len(entries))
        entries.append(entry)

    def _write(self, disk: Disk, data: bytes, behind: int) -> None:
        if self._file is None:
            self._file = disk.open(self.path, create=True)
        try:
            self._file.append(data)
        except OSError:
            self._file.truncate(behind * ENTRY.size)  # the next entry must not stand behind half of one
            raise

    def entries(self) -> list[Aborted]:
        return list(self._read())

    def collect(self, fetch_offset: int, end_offset: int) -> tuple[list[Aborted], bool]:
        """Those that touch [fetch_offset, end_offset), and whether later segments can hold no more of them."""
        found: list[Aborted] = []
        for entry in self._read():
            if entry.last_offset >= fetch_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Forget transactions whose markers are at `offset` or later."""
        entries = self._read()
        keep = next((index for index, entry in enumerate(entries) if entry.last_offset >= offset), len(entries))
        if keep < len(entries):
            if self._disk is not None:
                self._opened(self._disk).truncate(keep * ENTRY.size)
            del entries[keep:]

    def check(self, base_offset: int) -> None:
        """Whether the index fits a segment that starts at `base_offset`; raises AbortedIndexError."""
        last = -1
        for entry in self._read():
            # A marker stands behind what it ends: zeros that a power loss left are no entry of producer 0.
            if entry.last_offset < base_offset or entry.last_offset <= max(last, entry.first_offset):
                raise AbortedIndexError(
                    f"{self.path} has a transaction begun at {entry.first_offset} and ended at offset "
                    f"{entry.last_offset}, behind {last} in a segment from {base_offset}"
                )
            last = entry.last_offset

    def reset(self) -> None:
        """Empty it, to be built again."""
        if self._disk is not None and self._disk.exists(self.path):
            self._opened(self._disk).truncate(0)
        self._entries = []

    def _opened(self, disk: Disk) -> File:
        if self._file is None:
            self._file = disk.open(self.path)
        return self._file

    def _read(self) -> list[Aborted]:
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def _load(self) -> list[Aborted]:
        if self._disk is None or not self._disk.exists(self.path):
            return []
        file = self._opened(self._disk)
        size = file.size()
        whole = size - size % ENTRY.size
        if whole != size:  # a write that the power cut short
            file.truncate(whole)
        return _decode(file.read(0, whole), self.path)


def read_entries(disk: Disk, path: str) -> list[Aborted]:
    """What the file holds, none where there is none: for whoever isn't the one who writes it."""
    if not disk.exists(path):
        return []
    data = disk.read_whole(path)
    return _decode(data[: len(data) - len(data) % ENTRY.size], path)


def _decode(data: bytes, path: str) -> list[Aborted]:
    entries: list[Aborted] = []
    for version, *fields in ENTRY.iter_unpack(data):
        if version > VERSION:
            raise AbortedIndexError(f"{path} has an entry of version {version}; {VERSION} is known")
        entries.append(Aborted(*fields))
    return entries
