"""Going through a segment batch by batch, in bounded reads: for recovery, index building, searches and the scrub.

Read, not mapped: a disk that fails answers a read with an error, a mapping with the end of the process.
"""

from collections.abc import Iterator
from typing import TypeAlias

from tidelog.env.disk import ReadableFile
from tidelog.wire.batch import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LOG_OVERHEAD, MAGIC, BatchHeader
from tidelog.wire.crc import crc32c

READ_BYTES = 1 << 16
"""Small, since many threads go through segments: each read lets the loop's thread have its turn."""

HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""A batch's header, in the order of `BatchHeader`, without the position."""


class BadBatch(Exception):
    """What stands at `pos` is no whole, valid batch. Says why."""

    def __init__(self, path: str, pos: int, reason: str) -> None:
        super().__init__(path, pos, reason)
        self.path = path
        self.pos = pos
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} byte {self.pos}: {self.reason}"


def batches(file: ReadableFile, pos: int, end: int, *, check: bool) -> Iterator[tuple[int, HeaderFields]]:
    """(position, header) of each batch in [pos, end). Raises BadBatch at the first that isn't whole and sound.

    With `check` checksums are looked at too; without, of large batches only the headers are read. A file that ends
    before `end` gives what it has, then BadBatch. Where a read fails, what it was for is read batch by batch, and only
    what is needed of each: OSError comes with the first batch that can't be had.
    """
    want = READ_BYTES
    early = careful = 0
    unpack = HEADER.unpack_from
    while pos < end:
        count = min(want, end - pos)
        try:
            view = memoryview(file.read(pos, count))
        except OSError:
            if pos < careful:
                raise
            careful, want = pos + count, HEADER_BYTES
            continue
        got, at = len(view), 0
        want = 0
        if got < count:
            early, end = end - pos - got, pos + got
        while got - at >= HEADER_BYTES:
            fields: HeaderFields = unpack(view, at)
            size = fields[1] + LOG_OVERHEAD
            if size < HEADER_BYTES or fields[3] != MAGIC:
                raise BadBatch(file.path, pos + at, unlikely_header(fields))
            if at + size > got:
                if pos + at + size > end:
                    raise BadBatch(file.path, pos + at, f"a batch of {size} bytes, of which {end - pos - at} are here")
                if check:
                    want = size
                    break
            if check and crc32c(view[at + ATTRIBUTES_AT : at + size]) != fields[4]:
                raise BadBatch(file.path, pos + at, f"the batch at offset {fields[0]} has a wrong checksum")
            yield pos + at, fields
            at += size
        else:
            if pos + got >= end and got > at:
                raise BadBatch(file.path, pos + at, f"{got - at} bytes are here, too few for a batch's header")
        pos += at
        want = max(want, HEADER_BYTES if pos < careful else READ_BYTES)
    if early:
        raise BadBatch(file.path, pos, f"the file ends {early} bytes early")


def batch_at(file: ReadableFile, pos: int, fields: HeaderFields) -> tuple[memoryview, BatchHeader]:
    """The whole batch whose header was found at `pos`, for a look at its records."""
    view = memoryview(file.read(pos, fields[1] + LOG_OVERHEAD))
    return view, BatchHeader(*fields, 0)


def locate(file: ReadableFile, pos: int, end: int, offset: int) -> tuple[int, int, int] | None:
    """(position, size, base offset) of the first batch from `pos` on whose last offset is `offset` or above; None where
    none is."""
    unpack = HEADER.unpack_from
    while end - pos >= HEADER_BYTES:
        count = min(8192, end - pos)
        try:
            data = file.read(pos, count)
        except OSError:  # what lies behind it may be all that can't be had
            count = HEADER_BYTES
            data = file.read(pos, count)
        got, at = len(data), 0
        while got - at >= HEADER_BYTES:
            fields: HeaderFields = unpack(data, at)
            size = fields[1] + LOG_OVERHEAD
            if size < HEADER_BYTES or fields[3] != MAGIC:
                raise BadBatch(file.path, pos + at, unlikely_header(fields))
            if fields[0] + fields[6] >= offset:
                return pos + at, size, fields[0]
            at += size
        if not at:
            if got < count:
                raise BadBatch(file.path, pos + got, f"the file ends {end - pos - got} bytes early")
            return None
        pos += at
    return None


def unlikely_header(fields: HeaderFields) -> str:
    if fields[3] in (0, 1) and fields[1] > 0:
        return f"a batch in the old message format {fields[3]}; only format 2 is served"
    return f"no batch begins here (magic {fields[3]}, length {fields[1]})"
