"""Going through a segment batch by batch, in bounded reads: for recovery, index building, searches and the scrub.

Read, not mapped: a disk that fails answers a read with an error, a mapping with the end of the process.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, TypeAlias

from tidelog.env.disk import ReadableFile
from tidelog.env.network import Buffer
from tidelog.wire.batch import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LOG_OVERHEAD, MAGIC, BatchHeader
from tidelog.wire.crc import crc32c

READ_BYTES = 1 << 16
"""Small, since many threads go through segments: each read lets the loop's thread have its turn."""

# Base offset, length, magic and last offset delta: where a batch is, and what is in it.
_where = Struct(">qi4xb6xi").unpack_from
_BASE_OFFSET, _LENGTH, _MAGIC, _CRC = 0, 1, 3, 4  # places in `RawFields`


RawFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""Those of `HeaderFields`, to be unpacked into names at once: for who goes through all batches of a log."""


class HeaderFields(NamedTuple):
    """A batch's header, in the order of `BatchHeader`, without the position."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.length + LOG_OVERHEAD


def read_fields(data: Buffer, at: int = 0) -> HeaderFields:
    """The header at `at`, unchecked."""
    return HeaderFields._make(HEADER.unpack_from(data, at))


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
    """As `raw_batches`, read by name."""
    make = HeaderFields._make
    for at, fields in raw_batches(file, pos, end, check=check):
        yield at, make(fields)


def raw_batches(file: ReadableFile, pos: int, end: int, *, check: bool) -> Iterator[tuple[int, RawFields]]:
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
            fields: RawFields = unpack(view, at)
            size = fields[_LENGTH] + LOG_OVERHEAD
            if size < HEADER_BYTES or fields[_MAGIC] != MAGIC:
                raise BadBatch(file.path, pos + at, unlikely_header(fields[_MAGIC], fields[_LENGTH]))
            if at + size > got:
                if pos + at + size > end:
                    raise BadBatch(file.path, pos + at, f"a batch of {size} bytes, of which {end - pos - at} are here")
                if check:
                    want = size
                    break
            if check and crc32c(view[at + ATTRIBUTES_AT : at + size]) != fields[_CRC]:
                raise BadBatch(file.path, pos + at, f"the batch at offset {fields[_BASE_OFFSET]} has a wrong checksum")
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
    view = memoryview(file.read(pos, fields.length + LOG_OVERHEAD))
    return view, BatchHeader(*fields, 0)


def locate(file: ReadableFile, pos: int, end: int, offset: int) -> tuple[int, int, int] | None:
    """(position, size, base offset) of the first batch from `pos` on whose last offset is `offset` or above; None where
    none is."""
    while end - pos >= HEADER_BYTES:
        count = min(8192, end - pos)
        try:
            data = file.read(pos, count)
        except OSError:  # what lies behind it may be all that can't be had
            count = HEADER_BYTES
            data = file.read(pos, count)
        got, at = len(data), 0
        while got - at >= HEADER_BYTES:
            base_offset, length, magic, last_offset_delta = _where(data, at)
            size = length + LOG_OVERHEAD
            if size < HEADER_BYTES or magic != MAGIC:
                raise BadBatch(file.path, pos + at, unlikely_header(magic, length))
            if base_offset + last_offset_delta >= offset:
                return pos + at, size, base_offset
            at += size
        if not at:
            if got < count:
                raise BadBatch(file.path, pos + got, f"the file ends {end - pos - got} bytes early")
            return None
        pos += at
    return None


def unlikely_header(magic: int, length: int) -> str:
    if magic in (0, 1) and length > 0:
        return f"a batch in the old message format {magic}; only format 2 is served"
    return f"no batch begins here (magic {magic}, length {length})"
