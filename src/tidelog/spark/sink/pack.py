"""The hot loop of writing: columns to records. Plain Python that mypyc compiles to C (see native.py).

A row becomes a record behind those that its partition has already. This file imports nothing of Tidelog.
"""

from librt.strings import BytesWriter, read_i32_le, write_i16_le
from mypy_extensions import i64, u8


class Partitioned:
    """The records gathered for one partition: `count` of them, since the last `taken`; `full` when they are to go."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.full: bool = False
        self.out = BytesWriter()

    def taken(self) -> bytes:
        """The records, which are forgotten here."""
        held = self.out.getvalue()
        self.out = BytesWriter()
        self.count = 0
        self.full = False
        return held

    def has_room(self, size: i64, bytes_max: i64) -> bool:
        """Whether a record of about `size` bytes may join the others; one that is larger than all may be alone."""
        return self.count == 0 or i64(len(self.out)) + size <= bytes_max


def write_number(out: BytesWriter, number: i64) -> None:
    """A zigzag varint of a number of at most 32 bits."""
    value: i64 = ((number << 1) ^ (number >> 63)) & 0xFFFFFFFF
    while value >= 128:
        out.append(u8((value & 127) | 128))
        value >>= 7
    out.append(u8(value))


def number_size(number: i64) -> i64:
    value: i64 = ((number << 1) ^ (number >> 63)) & 0xFFFFFFFF
    size: i64 = 1
    while value >= 128:
        value >>= 7
        size += 1
    return size


def murmur2(data: bytes, pos: i64, end: i64) -> i64:
    """The hash by which Java's producers choose a key's partition, without its sign."""
    mask: i64 = 0xFFFFFFFF
    mixer: i64 = 0x5BD1E995
    hashed: i64 = (0x9747B28C ^ (end - pos)) & mask
    while end - pos >= 4:
        part: i64 = i64(read_i32_le(data, pos)) & mask
        part = (part * mixer) & mask
        part ^= part >> 24
        part = (part * mixer) & mask
        hashed = ((hashed * mixer) & mask) ^ part
        pos += 4
    left: i64 = end - pos
    if left == 3:
        hashed ^= i64(data[pos + 2]) << 16
    if left >= 2:
        hashed ^= i64(data[pos + 1]) << 8
    if left >= 1:
        hashed ^= i64(data[pos])
        hashed = (hashed * mixer) & mask
    hashed ^= hashed >> 13
    hashed = (hashed * mixer) & mask
    hashed ^= hashed >> 15
    return hashed & 0x7FFFFFFF


def mixed(hashed: i64, part: i64) -> i64:
    """32 bits, with 32 more worked into them."""
    made: i64 = ((hashed ^ part) * 0x5BD1E995) & 0xFFFFFFFF
    return made ^ (made >> 15)


def hash_rows(
    count: i64,
    key_ends: bytes,
    keys: bytes,
    key_nulls: bytes,
    value_ends: bytes,
    values: bytes,
    value_nulls: bytes,
    extra: bytes,
    seed: i64,
) -> i64:
    """The sum of the hashes of some rows, in which their order doesn't show; columns are as `pack` has them.

    `extra` are 32 bits more of each row, or nothing, which is the same as zeros; `seed` is 32 bits of all of them.
    """
    any_null_key: bool = len(key_nulls) > 0
    any_null_value: bool = len(value_nulls) > 0
    any_extra: bool = len(extra) > 0
    total: i64 = 0
    row: i64 = 0
    while row < count:
        key: i64 = i64(read_i32_le(key_ends, row * 4))
        key_end: i64 = i64(read_i32_le(key_ends, row * 4 + 4))
        value: i64 = i64(read_i32_le(value_ends, row * 4))
        value_end: i64 = i64(read_i32_le(value_ends, row * 4 + 4))
        hashed: i64 = seed
        if any_extra:
            hashed ^= i64(read_i32_le(extra, row * 4)) & 0xFFFFFFFF
        if any_null_key and key_nulls[row] != 0:
            hashed = mixed(hashed, 1)
        else:
            hashed = mixed(mixed(hashed, 2 + key_end - key), murmur2(keys, key, key_end))
        if any_null_value and value_nulls[row] != 0:
            hashed = mixed(hashed, 1)
        else:
            hashed = mixed(mixed(hashed, 2 + value_end - value), murmur2(values, value, value_end))
        total += mixed(hashed, 0x9E3779B9)
        row += 1
    return total


def pack(
    partitions: list[Partitioned],
    first: i64,
    end: i64,
    key_ends: bytes,
    keys: bytes,
    key_nulls: bytes,
    value_ends: bytes,
    values: bytes,
    value_nulls: bytes,
    chosen: bytes,
    sticky: i64,
    bytes_max: i64,
) -> i64:
    """Add the rows from `first` on; the row to go on with, once a partition is full: it holds about `bytes_max`.

    `key_ends` are Arrow's offsets (one more than rows), `key_nulls` a byte a row or empty, `chosen` a partition a row
    (-1: by the key) or empty. Rows without a key go to partition `sticky`.
    """
    count: i64 = len(partitions)
    any_null_key: bool = len(key_nulls) > 0
    any_null_value: bool = len(value_nulls) > 0
    any_chosen: bool = len(chosen) > 0
    row: i64 = first
    # No conditional expressions here: one of numbers of two kinds makes an object of them, for each row.
    while row < end:
        key: i64 = i64(read_i32_le(key_ends, row * 4))
        key_end: i64 = i64(read_i32_le(key_ends, row * 4 + 4))
        key_size: i64 = key_end - key
        if any_null_key and key_nulls[row] != 0:
            key_size = -1
        value: i64 = i64(read_i32_le(value_ends, row * 4))
        value_end: i64 = i64(read_i32_le(value_ends, row * 4 + 4))
        value_size: i64 = value_end - value
        if any_null_value and value_nulls[row] != 0:
            value_size = -1
        place: i64 = -1
        if any_chosen:
            place = i64(read_i32_le(chosen, row * 4))
        if place < 0 and key_size >= 0:
            place = murmur2(keys, key, key_end) % count
        if place < 0:
            place = sticky
        target: Partitioned = partitions[place]
        out = target.out
        body: i64 = 3 + number_size(target.count) + number_size(key_size) + number_size(value_size)
        if key_size > 0:
            body += key_size
        if value_size > 0:
            body += value_size
        if not target.has_room(body, bytes_max):
            target.full = True
            break
        write_number(out, body)
        write_i16_le(out, 0)  # attributes, and the time after the batch's
        write_number(out, target.count)
        write_number(out, key_size)
        if key_size > 0:
            out.write(keys[key:key_end])
        write_number(out, value_size)
        if value_size > 0:
            out.write(values[value:value_end])
        out.append(0)
        target.count += 1
        row += 1
    return row
