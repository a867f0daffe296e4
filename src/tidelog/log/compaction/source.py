"""Reading a segment's batches whole, in bounded pieces, checked: what is written anew gets a new checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.log.scan import BadBatch, HeaderFields, read_fields, unlikely_header
from tidelog.wire.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD, MAGIC
from tidelog.wire.compression import CompressionError, InflatesTooLarge, decompress
from tidelog.wire.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.env.disk import File


class Found(NamedTuple):
    """A batch in a piece that was read: its bytes are `data[at : at + size]`, its place in the file is `pos`.

    `inflated_max` bounds what it may inflate to: it may be from a time when the topic let in everything.
    """

    data: bytes
    at: int
    size: int
    pos: int
    path: str
    fields: HeaderFields
    inflated_max: int

    def records(self) -> tuple[bytes, int, int]:
        """(buffer, start, end) of its records, inflated if need be. Raises BadBatch."""
        codec = self.fields.attributes & CODEC_MASK
        start, end = self.at + HEADER_BYTES, self.at + self.size
        if not codec:
            return self.data, start, end
        try:
            inflated = bytes(decompress(codec, memoryview(self.data)[start:end], self.inflated_max))
        except InflatesTooLarge as error:
            raise self.bad(f"{error}: tidelog.inflated.bytes.max") from None
        except CompressionError as error:
            raise self.bad(str(error)) from None
        return inflated, 0, len(inflated)

    def bad(self, reason: str) -> BadBatch:
        return BadBatch(self.path, self.pos, f"the batch at offset {self.fields.base_offset}: {reason}")


def whole_batches(
    file: File, path: str, end: int, buffer_bytes: int, inflated_max: int, took: Callable[[int], None]
) -> Iterator[Found]:
    """The batches in [0, end). `took` is told of the bytes that were read. Raises BadBatch at what is none."""
    pos, want = 0, buffer_bytes
    while pos < end:
        count = min(want, end - pos)
        data = file.read(pos, count)
        view = memoryview(data)
        got, at = len(data), 0
        if got < count:
            raise BadBatch(path, pos, f"the file ends {end - pos - got} bytes early")
        took(got)
        want = buffer_bytes
        while got - at >= HEADER_BYTES:
            fields = read_fields(data, at)
            size = fields.length + LOG_OVERHEAD
            if size < HEADER_BYTES or fields.magic != MAGIC:
                raise BadBatch(path, pos + at, unlikely_header(fields.magic, fields.length))
            if at + size > got:
                want = max(buffer_bytes, size)
                break
            if crc32c(view[at + ATTRIBUTES_AT : at + size]) != fields.crc:
                raise BadBatch(path, pos + at, f"the batch at offset {fields.base_offset} has a wrong checksum")
            yield Found(data, at, size, pos + at, path, fields, inflated_max)
            at += size
        if not at and (want <= got or pos + want > end or got < HEADER_BYTES):
            raise BadBatch(path, pos, f"{end - pos} bytes are left, which are no whole batch")
        pos += at
