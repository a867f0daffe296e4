"""What of a log's files the disk doesn't give back, so that whoever asks is told so: not sent half an answer.

A fetch is promised its bytes before they are read: its header leaves, then the kernel sends them from the file. Where
they can't be read (a bad sector, a file that somebody made shorter) the connection can only be closed. From then on
the file is suspect (`env.disk.File`): what is promised of it is read first, in pieces, and where the first batch can't
be read the client is told KAFKA_STORAGE_ERROR. It stays with that partition, which goes on being written and read
elsewhere, and the disk is asked again now and then: what it didn't give once it may give later.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tidelog.log.bounds import CHECKED_BYTES, PAGE_BYTES, PIECE_BYTES
from tidelog.log.scan import BadBatch
from tidelog.wire.batch import LOG_OVERHEAD

if TYPE_CHECKING:
    from tidelog.env.clock import Clock
    from tidelog.env.disk import ReadableFile

UNREADABLE = frozenset((errno.EIO, errno.ENODATA, errno.EREMOTEIO, errno.EBADMSG, errno.EUCLEAN, errno.EFAULT))
"""What the disk says of bytes that it can't give back."""
AGAIN_MS = 10_000
"""How long the disk isn't asked again for the same bytes: a bad sector may hold the loop for seconds."""
SEARCHED = -1
"""Stands for an offset where something was looked for, such as a time."""
RANGES_MAX = 256
"""Of a file, that are remembered."""


class UnreadableBytes(OSError):
    """The bytes [start, stop) of a file: not all of them can be read."""

    def __init__(self, errno: int | None, reason: str, path: str, start: int, stop: int) -> None:
        super().__init__(errno, reason, path)
        self.path = path
        self.start = start
        self.stop = stop


class _Failure:
    __slots__ = ("at_ms", "errno", "reason", "told")

    def __init__(self, error: OSError, at_ms: int, told: bool) -> None:
        self.errno = error.errno
        self.reason = error.strerror or str(error)
        self.at_ms = at_ms
        self.told = told


class Unreadable:
    """What was asked for in vain: ranges of bytes, by file.

    Who asks for all of a range, and perhaps for more, is told what came of it, and for a while the disk isn't asked.
    Who asks for a part of it asks the disk: that part may be good. If it isn't, it is the range to remember.
    """

    __slots__ = ("_clock", "_files", "_others")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[str, dict[tuple[int, int], _Failure]] = {}
        self._others: set[str | None] = set()  # files with which something else went wrong

    def __len__(self) -> int:
        return sum(map(len, self._files.values())) + len(self._others)

    def concerns(self, path: str) -> bool:
        """Whether some of this file's bytes are among it."""
        return path in self._files

    def careful(self, file: ReadableFile) -> ReadableFile:
        """The file, read with this in mind. Raises UnreadableBytes."""
        return _CarefulFile(file, self)

    def check(self, path: str, start: int, stop: int) -> None:
        """Raise UnreadableBytes where that was found out a short time ago."""
        known = self._files.get(path)
        if known is not None:
            since = self._now_ms() - AGAIN_MS
            for asked in _within(known, start, stop):
                failure = known[asked]
                if failure.at_ms > since:
                    raise UnreadableBytes(failure.errno, failure.reason, path, *asked)

    def failed(self, error: OSError, path: str, start: int, stop: int) -> UnreadableBytes:
        """Remember; what to raise."""
        known = self._files.setdefault(path, {})
        now_ms = self._now_ms()
        within = _within(known, start, stop)
        for asked in within:  # one of them, at least
            known[asked].at_ms = now_ms
        if not within:
            wider = [asked for asked in known if asked[0] <= start and stop <= asked[1]]
            told = [known.pop(asked).told for asked in wider]
            if len(known) >= RANGES_MAX:
                del known[next(iter(known))]
            known[start, stop] = _Failure(error, now_ms, any(told))
        return UnreadableBytes(error.errno, error.strerror or str(error), path, start, stop)

    def was_read(self, path: str, start: int, stop: int) -> None:
        """So it is told anew if it fails again."""
        known = self._files.get(path)
        if known is not None:
            for asked in _within(known, start, stop):
                del known[asked]
            if not known:
                del self._files[path]

    def forget_others(self) -> None:
        """Something was read: what else goes wrong is told anew."""
        self._others.clear()

    def is_news(self, error: OSError) -> bool:
        """Whether nobody was told of it yet; from now on somebody was."""
        if not isinstance(error, UnreadableBytes):
            told = error.filename in self._others
            self._others.add(error.filename)
            return not told
        known = self._files.get(error.path, {})
        within = _within(known, error.start, error.stop)
        if not within:  # it was found elsewhere
            self.failed(error, error.path, error.start, error.stop)
            known = self._files[error.path]
            within = _within(known, error.start, error.stop)
        news = not all(known[asked].told for asked in within)
        for asked in within:
            known[asked].told = True
        return news

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)


def _within(known: dict[tuple[int, int], _Failure], start: int, stop: int) -> list[tuple[int, int]]:
    return [asked for asked in known if start <= asked[0] and asked[1] <= stop]


class _CarefulFile:
    """A file of which some bytes can't be read."""

    __slots__ = ("_file", "_unreadable", "path")

    def __init__(self, file: ReadableFile, unreadable: Unreadable) -> None:
        self.path = file.path
        self._file = file
        self._unreadable = unreadable

    def size(self) -> int:
        return self._file.size()

    def read(self, pos: int, count: int) -> bytes:
        self._unreadable.check(self.path, pos, pos + count)
        try:
            data = self._file.read(pos, count)
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            raise self._unreadable.failed(error, self.path, pos, pos + count) from error
        self._unreadable.was_read(self.path, pos, pos + count)
        return data


def readable(file: ReadableFile, pos: int, count: int) -> int:
    """How many of the bytes [pos, pos + count) can be read, from the first on: all of the first batch, at least.

    OSError or BadBatch where that isn't so.
    """
    first = int.from_bytes(read_whole(file, pos + 8, 4)) + LOG_OVERHEAD
    count = min(count, max(first, CHECKED_BYTES))
    got = 0
    while got < count:
        size = min(PIECE_BYTES, count - got)
        try:
            read_whole(file, pos + got, size)
        except OSError:
            return _pages(file, pos, got, min(first, count), count)
        got += size
    return count


def _pages(file: ReadableFile, pos: int, got: int, needed: int, count: int) -> int:
    """`readable`, page by page, where some of the next piece can't be read. Raises where it isn't what is `needed`."""
    while got < count:
        size = PAGE_BYTES - (pos + got) % PAGE_BYTES
        size = min(size, (needed if got < needed else count) - got)
        try:
            read_whole(file, pos + got, size)
        except OSError:
            if got < needed:
                raise
            return got
        got += size
    return count


def read_whole(file: ReadableFile, pos: int, count: int) -> bytes:
    """All of these bytes, or OSError or BadBatch."""
    data = file.read(pos, count)
    if len(data) < count:
        raise BadBatch(file.path, pos + len(data), "the file ends here: somebody made it shorter")
    return data
