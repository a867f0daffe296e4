"""How many segment files are open at once: bounded, the least used closed first.

A file counts as used when its segment's `used` was set since the last look (one attribute, which the hot path can
afford where moving an entry of a list would cost more). Closing means dropping the reference: a slice that is being
sent keeps its file open.
"""

from tidelog.env.disk import Disk, File
from tidelog.log.names import LOG
from tidelog.log.segment import Segment

SEALED_INDEXES_MAX = 128
"""Sealed segments whose indexes are held at once; most consumers read at the end, where none is needed."""

LEAST = 16


class OpenFiles:
    """The open files of all logs of a store."""

    __slots__ = ("_indexed", "_open", "disk", "limit")

    def __init__(self, disk: Disk, limit: int) -> None:
        self.disk = disk
        self.limit = limit
        self._open: dict[Segment, None] = {}
        self._indexed: dict[Segment, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, segment: Segment, *, create: bool = False) -> File:
        """The segment's file, opened if it isn't."""
        segment.used = True
        file = segment.file
        if file is None:
            file = segment.file = self.disk.open(segment.stem + LOG, create=create)
            self._open[segment] = None
            if len(self._open) > self.limit:
                self._evict()
        return file

    def adopt(self, segment: Segment) -> None:
        """The segment brings its open file with it."""
        segment.used = True
        self._open[segment] = None
        if len(self._open) > self.limit:
            self._evict()

    def hold_indexes(self, segment: Segment) -> None:
        """The segment just loaded its sealed indexes; those loaded longest ago go if there are too many."""
        self._indexed[segment] = None
        if len(self._indexed) > SEALED_INDEXES_MAX:
            oldest = next(iter(self._indexed))
            del self._indexed[oldest]
            oldest.sealed = None

    def forget(self, segment: Segment) -> None:
        """The segment goes, or its log is closed."""
        segment.file = None
        segment.sealed = None
        self._open.pop(segment, None)
        self._indexed.pop(segment, None)

    def shrink(self) -> None:
        """The process may open no more files: close half of these, and keep no more than the rest from now on."""
        self.limit = max(LEAST, len(self._open) // 2)
        for segment in self._open:
            segment.used = False
        self._evict()

    def _evict(self) -> None:
        while len(self._open) > self.limit:
            segment = next(iter(self._open))
            del self._open[segment]
            if segment.used:
                segment.used = False
                self._open[segment] = None
            else:
                segment.file = None
