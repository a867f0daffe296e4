"""The records of one batch, walked for compaction: their keys noted, those that stay found, dates moved.

The loops that compaction spends its time in: each step of one counts a million times. A record is looked at no further
than its key, and copied as it is.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.bounds import RAW_KEY_BYTES
from tidelog.wire import varint
from tidelog.wire.record import RecordError, wrapped
from tidelog.wire.varint import VarintError

RAW_KEY_TWICE = 2 * RAW_KEY_BYTES

NEGATIVE = 1
"""The sign of a varint, a bit of its first byte: every client takes a key or value of negative length for null."""

STAYS, SUPERSEDED, TOMBSTONE = range(3)
"""The fate of a record whose key was noted."""


class Survivors(NamedTuple):
    """What stays of a batch: pieces [start, stop) of its records section, so many records, a tombstone among them?"""

    pieces: list[tuple[int, int]]
    records: int
    tombstones: bool


def short_key(key: bytes) -> bytes:
    """The key, or what stands for it."""
    if len(key) < RAW_KEY_BYTES:
        return key
    from hashlib import blake2b

    return blake2b(key, digest_size=RAW_KEY_BYTES).digest()


def note_keys(data: bytes, pos: int, end: int, count: int, last: dict[bytes, int], fates: bytearray) -> None:
    """Number the records on, from `len(fates)`; note in `last` which is the last of each key. Raises RecordError."""
    _look_at_keys(data, pos, end, count, last, fates, note=True)


def fates_of(data: bytes, pos: int, end: int, count: int, last: dict[bytes, int]) -> bytearray:
    """The fates of records that come before all that were noted: superseded where their key was. Raises RecordError."""
    fates = bytearray()
    _look_at_keys(data, pos, end, count, last, fates, note=False)
    return fates


def _look_at_keys(
    data: bytes, pos: int, end: int, count: int, last: dict[bytes, int], fates: bytearray, *, note: bool
) -> None:
    """Add the fates of `count` records. With `note` they come behind those in `last`, and are noted there; else before.

    A record without a key has no place in a compacted log.
    """
    first = len(fates)
    fates.extend(bytes(count))
    stop = pos
    try:
        for number in range(first, first + count):
            pos = stop
            size = data[pos]
            if size < 128:
                at = pos + 2
                stop = pos + 1 + (size >> 1)
            elif (more := data[pos + 1]) < 128:
                at = pos + 3
                stop = pos + 2 + (size + (more << 7) - 128 >> 1)
            else:
                size, at = _long(data, pos, end)
                stop = at + (size >> 1)
                at += 1
            while data[at] > 127:  # the timestamp
                at += 1
            at += 1
            while data[at] > 127:  # the offset
                at += 1
            length = data[at + 1]
            if length & NEGATIVE:
                fates[number] = SUPERSEDED
                continue
            if length < 128:
                at += 2
            else:
                length, at = _long(data, at + 1, stop)
            behind = at + (length >> 1)
            if behind >= stop:
                raise RecordError(f"its key claims {length >> 1} bytes where {stop - at} are left")
            key = data[at:behind]
            if length >= RAW_KEY_TWICE:
                key = short_key(key)
            if note:
                before = last.setdefault(key, number)
                if before != number:
                    fates[before] = SUPERSEDED
                    last[key] = number
            elif key in last:
                fates[number] = SUPERSEDED
                continue
            if data[behind] & NEGATIVE:
                fates[number] = TOMBSTONE
    except (IndexError, VarintError, RecordError) as error:
        raise RecordError(f"the record at byte {pos}: {error}") from None
    if stop != end:
        raise RecordError(f"{count} records end at byte {stop} where {end} is their end")


def survivors(data: bytes, pos: int, end: int, fates: bytes | bytearray, *, deletes: bool) -> Survivors:
    """Which records of a batch stay whose keys were noted, with these fates; with `deletes` no tombstones."""
    tombstones = TOMBSTONE in fates
    gone = fates.count(SUPERSEDED) + (fates.count(TOMBSTONE) if deletes else 0)
    if not gone:
        return Survivors([(pos, end)], len(fates), tombstones)
    if gone == len(fates):
        return Survivors([], 0, False)
    pieces: list[tuple[int, int]] = []
    from_pos = -1  # where the piece begins that is being gathered
    for fate in fates:
        begin = pos
        size = data[pos]
        if size < 128:
            pos += 1 + (size >> 1)
        elif (more := data[pos + 1]) < 128:
            pos += 2 + (size + (more << 7) - 128 >> 1)
        else:
            size, pos = _long(data, pos, end)
            pos += size >> 1
        if fate == SUPERSEDED or (fate and deletes):
            if from_pos >= 0:
                pieces.append((from_pos, begin))
                from_pos = -1
        elif from_pos < 0:
            from_pos = begin
    if from_pos >= 0:
        pieces.append((from_pos, end))
    return Survivors(pieces, len(fates) - gone, tombstones and not deletes)


def below(data: bytes, pos: int, end: int, count: int, least_delta: int) -> tuple[int, int]:
    """How many records come before the first whose offset delta is `least_delta` or more, and where that one begins."""
    decode = varint.decode
    try:
        for number in range(count):
            size, at = decode(data, pos, end)
            stop = at + size
            _, at = decode(data, at + 1, stop, 64)
            delta, _ = decode(data, at, stop)
            if delta >= least_delta:
                return number, pos
            if not pos < stop <= end:
                raise RecordError(f"record {number} claims {size} bytes where {end - pos} are left")
            pos = stop
    except (IndexError, VarintError) as error:
        raise RecordError(f"the records are cut off: {error}") from None
    return count, end


def _long(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """(twice the number, the position behind it) of a length of any size; negative ones have no place here."""
    value, pos = varint.decode(data, pos, end)
    if value < 0:
        raise RecordError(f"a length of {value}")
    return value * 2, pos


def newest(data: bytes, pieces: list[tuple[int, int]], base_timestamp: int) -> int:
    """The newest timestamp of the records in these pieces of a section that was walked before."""
    decode = varint.decode
    least = found = -1 - base_timestamp  # as a delta
    for pos, end in pieces:
        while pos < end:
            size = data[pos]
            if size < 128:
                pos += 1
            else:
                size, pos = _long(data, pos, end)
            delta = data[pos + 1]
            delta = delta >> 1 ^ -(delta & 1) if delta < 128 else decode(data, pos + 1, end, 64)[0]
            if delta > found:
                found = delta
            pos += size >> 1
    return -1 if found == least else wrapped(base_timestamp + found)


def redate(data: bytes, pieces: list[tuple[int, int]], shift: int) -> bytes:
    """The records of these pieces with `shift` added to their timestamps' deltas: the base moved back by so much."""
    decode, encode = varint.decode, varint.encode
    parts: list[bytes] = []
    for pos, end in pieces:
        while pos < end:
            size, pos = decode(data, pos, end)
            stop = pos + size
            delta, at = decode(data, pos + 1, stop, 64)
            moved = encode(wrapped(delta + shift))
            parts += (encode(1 + len(moved) + stop - at), data[pos : pos + 1], moved, data[at:stop])
            pos = stop
    return b"".join(parts)
