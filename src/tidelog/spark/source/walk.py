"""The hot loop of reading: records to places in columns. Plain Python that mypyc compiles to C (see native.py).

Nothing is copied here. Keys and values stay where they are in the arena, the bytes of one or more batches; what comes
out are their places, which Arrow gathers. This file imports nothing of Tidelog, so that it compiles by itself.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

_SAFE: Final = 2305843009213693952  # 2^61: sums of two smaller numbers fit 64 bits; a literal, so that it is inlined


class Walked:
    """Places and numbers of records, one after the other, as little-endian columns.

    `places`: four positions a record: where its key begins and ends, and its value. `null_keys` and `null_values` name
    rows. `header_counts` has a number a record where headers were asked for; `header_places` four positions a header
    (name and value), `null_headers` names headers without a value.
    """

    def __init__(self) -> None:
        self.rows: i64 = 0
        self.headers: i64 = 0
        self.places = BytesWriter()
        self.offsets = BytesWriter()
        self.times = BytesWriter()
        self.null_keys = BytesWriter()
        self.null_values = BytesWriter()
        self.header_counts = BytesWriter()
        self.header_places = BytesWriter()
        self.null_headers = BytesWriter()

    def add(self, key: i64, key_end: i64, value: i64, value_end: i64, offset: i64, time: i64) -> None:
        """One more record; `rows` is for the caller to count, who knows what else there is to a row."""
        write_i32_le(self.places, i32(key))
        write_i32_le(self.places, i32(key_end))
        write_i32_le(self.places, i32(value))
        write_i32_le(self.places, i32(value_end))
        write_i64_le(self.offsets, offset)
        write_i64_le(self.times, time)


def number(arena: bytes, pos: i64) -> tuple[i64, i64]:
    """The zigzag varint of 32 bits at `pos`, and where it ended."""
    value: i64 = 0
    shift: i64 = 0
    while True:
        byte: i64 = arena[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise ValueError("a number is longer than 32 bits")
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), pos


def long_number(arena: bytes, pos: i64) -> tuple[i64, i64]:
    """The zigzag varint of 64 bits at `pos`, and where it ended."""
    value: i64 = 0
    top: i64 = 0
    shift: i64 = 0
    while True:
        byte: i64 = arena[pos]
        pos += 1
        if shift < 63:
            value |= (byte & 127) << shift
        else:
            top = byte & 1
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")
    return ((value >> 1) | (top << 62)) ^ -(value & 1), pos


def sum_of(base: i64, delta: i64) -> i64:
    """Their sum in 64 bits; it wraps, as in every client."""
    if -_SAFE < base < _SAFE and -_SAFE < delta < _SAFE:
        return base + delta
    total: int = int(base) + int(delta)
    limit: int = 1 << 63
    return i64((total + limit) % (2 * limit) - limit)


def end_of(pos: i64, size: i64, stop: i64) -> i64:
    """Where something of `size` bytes at `pos` ends; one without a value has none."""
    if size > 0:
        pos += size
    if pos > stop:
        raise ValueError("a key, a value or a header reaches beyond its record")
    return pos


def begun(arena: bytes, pos: i64, end: i64) -> tuple[i64, i64, i64, i64]:
    """Where the record at `pos` must end, what it adds to the batch's time and offset, and where its key's size is."""
    size: i64 = 0
    delta: i64 = 0
    offset: i64 = 0
    size, pos = number(arena, pos)
    stop: i64 = pos + size
    if size < 0 or stop > end:
        raise ValueError("a record reaches beyond its batch")
    pos += 1
    delta = arena[pos]
    if delta < 128:  # most are of one byte: read in place, since a call costs more than all the rest of a record
        delta = (delta >> 1) ^ -(delta & 1)
        pos += 1
    else:
        delta, pos = long_number(arena, pos)
    offset, pos = number(arena, pos)
    return stop, delta, offset, pos


def walk(
    out: Walked,
    arena: bytes,
    pos: i64,
    end: i64,
    count: i64,
    base_offset: i64,
    base_time: i64,
    append_time: i64,
    is_append_time: bool,
    first: i64,
    last: i64,
    want_headers: bool,
) -> None:
    """Add the records in arena[pos:end] with offsets in [first, last); ValueError where they aren't well formed."""
    if count < 0 or count * 7 > end - pos:
        raise ValueError("so many records can't be in so few bytes")
    rows: i64 = out.rows
    stop: i64 = 0
    delta: i64 = 0
    offset: i64 = 0
    key_size: i64 = 0
    value: i64 = 0
    value_size: i64 = 0
    index: i64 = 0
    while index < count:
        stop, delta, offset, pos = begun(arena, pos, end)
        offset += base_offset
        key_size = arena[pos]
        if key_size < 128:
            key_size = (key_size >> 1) ^ -(key_size & 1)
            pos += 1
        else:
            key_size, pos = number(arena, pos)
        key: i64 = pos
        key_end: i64 = end_of(pos, key_size, stop)
        value_size, value = number(arena, key_end)
        value_end: i64 = end_of(value, value_size, stop)
        pos = value_end
        wanted: bool = first <= offset < last
        headers: i64 = arena[pos]
        if headers == 0:
            pos += 1
        else:
            headers, pos = number(arena, pos)
            pos = walk_headers(out, arena, pos, stop, headers, wanted and want_headers)
        if pos != stop:
            raise ValueError("a record does not end where its length says")
        if wanted:
            time: i64 = append_time
            if not is_append_time:
                time = sum_of(base_time, delta)
            out.add(key, key_end, value, value_end, offset, time)
            if key_size < 0:
                write_i32_le(out.null_keys, i32(rows))
            if value_size < 0:
                write_i32_le(out.null_values, i32(rows))
            if want_headers:
                write_i32_le(out.header_counts, i32(headers))
            rows += 1
        index += 1
    if pos != end:
        raise ValueError("bytes are left behind the last record")
    out.rows = rows


def walk_headers(out: Walked, arena: bytes, pos: i64, stop: i64, count: i64, wanted: bool) -> i64:
    """Where the headers end; those that are wanted are added."""
    if count < 0 or count * 2 > stop - pos:
        raise ValueError("so many headers can't be in so few bytes")
    index: i64 = 0
    while index < count:
        size: i64 = 0
        size, pos = number(arena, pos)
        if size < 0:
            raise ValueError("a header has no name")
        name: i64 = pos
        name_end: i64 = end_of(pos, size, stop)
        value: i64 = 0
        size, value = number(arena, name_end)
        pos = end_of(value, size, stop)
        if wanted:
            places = out.header_places
            write_i32_le(places, i32(name))
            write_i32_le(places, i32(name_end))
            write_i32_le(places, i32(value))
            write_i32_le(places, i32(pos))
            if size < 0:
                write_i32_le(out.null_headers, i32(out.headers))
            out.headers += 1
        index += 1
    return pos
