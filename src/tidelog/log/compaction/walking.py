"""The records of one batch, walked for compaction: their keys noted, those that stay found, dates moved.

The loops that compaction spends its time in. A record is only looked at as far as its key, and copied as it is.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.wire import varint
from tidelog.wire.record import RecordError
from tidelog.wire.varint import VarintError

RAW_KEY_BYTES = 40
"""Shorter keys are kept as they are, longer ones as a digest of so many bytes: no key can be taken for another."""

RAW_KEY_TWICE = 2 * RAW_KEY_BYTES

NULL = 1
"""The length of a key or value that is null, as a varint."""

_LONG_LIMIT = 1 << 63


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


def note_keys(data: bytes, pos: int, end: int, count: int, base: int, least: int, last: dict[bytes, int]) -> None:
    """Note in `last` at which offset each key comes last, of records from offset `least` on. Raises RecordError."""
    least = (least - base) * 2
    stop = pos
    try:
        for _ in range(count):
            pos = stop
            size = data[pos]
            if size < 128:
                pos += 1
            elif (more := data[pos + 1]) < 128:
                size += (more << 7) - 128
                pos += 2
            else:
                size, pos = _long(data, pos, end)
            stop = pos + (size >> 1)
            at = pos + 2
            if data[at - 1] > 127:  # the timestamp
                while data[at] > 127:
                    at += 1
                at += 1
            delta = data[at]
            if delta < 128:
                at += 1
            elif (more := data[at + 1]) < 128:
                delta += (more << 7) - 128
                at += 2
            else:
                delta, at = _long(data, at, stop)
            length = data[at]
            if length == NULL:
                continue
            if length < 128:
                at += 1
            else:
                length, at = _long(data, at, stop)
            behind = at + (length >> 1)
            if behind >= stop or length & 1:
                raise RecordError(f"its key claims {length >> 1} bytes where {stop - at} are left")
            if delta >= least:
                key = data[at:behind]
                last[key if length < RAW_KEY_TWICE else short_key(key)] = base + (delta >> 1)
    except (IndexError, VarintError, RecordError) as error:
        raise RecordError(f"the record at byte {pos}: {error}") from None
    if stop != end:
        raise RecordError(f"{count} records end at byte {stop} where {end} is their end")


def survivors(
    data: bytes, pos: int, end: int, count: int, base: int, latest: int, last: dict[bytes, int], *, deletes: bool
) -> Survivors:
    """Which of the records stay: those above `latest`, and the last of each key; with `deletes` no tombstones.

    A record without a key has no place in a compacted log. Raises RecordError.
    """
    pieces: list[tuple[int, int]] = []
    from_pos = -1  # where the piece begins that is being gathered
    kept = 0
    tombstones = False
    find = last.get
    stop = pos
    try:
        for _ in range(count):
            begin = pos = stop
            size = data[pos]
            if size < 128:
                pos += 1
            elif (more := data[pos + 1]) < 128:
                size += (more << 7) - 128
                pos += 2
            else:
                size, pos = _long(data, pos, end)
            stop = pos + (size >> 1)
            at = pos + 2
            if data[at - 1] > 127:  # the timestamp
                while data[at] > 127:
                    at += 1
                at += 1
            delta = data[at]
            if delta < 128:
                at += 1
            elif (more := data[at + 1]) < 128:
                delta += (more << 7) - 128
                at += 2
            else:
                delta, at = _long(data, at, stop)
            offset = base + (delta >> 1)
            length = data[at]
            if length < 128:
                at += 1
            else:
                length, at = _long(data, at, stop)
            behind = at + (length >> 1)
            if behind >= stop or (length & 1 and length != NULL):
                raise RecordError(f"its key claims {length >> 1} bytes where {stop - at} are left")
            if length != NULL:
                key = data[at:behind]
                stays = offset >= find(key if length < RAW_KEY_TWICE else short_key(key), -1) or offset > latest
                if data[behind] == NULL and stays:
                    stays = not deletes or offset > latest
                    tombstones = tombstones or stays
            else:
                stays = offset > latest
            if stays:
                kept += 1
                if from_pos < 0:
                    from_pos = begin
            elif from_pos >= 0:
                pieces.append((from_pos, begin))
                from_pos = -1
    except (IndexError, VarintError, RecordError) as error:
        raise RecordError(f"the record at byte {pos}: {error}") from None
    if stop != end:
        raise RecordError(f"{count} records end at byte {stop} where {end} is their end")
    if from_pos >= 0:
        pieces.append((from_pos, end))
    return Survivors(pieces, kept, tombstones)


def _long(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """(twice the number, the position behind it) of a length or delta of any size; negative ones have no place here."""
    value, pos = varint.decode(data, pos, end)
    if value < 0:
        raise RecordError(f"a length or an offset of {value}")
    return value * 2, pos


def from_offset(data: bytes, pos: int, end: int, count: int, least_delta: int) -> tuple[int, int]:
    """(position, records left) from the first record on whose offset delta is `least_delta` or more."""
    decode = varint.decode
    try:
        for index in range(count):
            size, at = decode(data, pos, end)
            stop = at + size
            _, at = decode(data, at + 1, stop, 64)
            delta, _ = decode(data, at, stop)
            if delta >= least_delta:
                return pos, count - index
            if not pos < stop <= end:
                raise RecordError(f"record {index} claims {size} bytes where {end - pos} are left")
            pos = stop
    except (IndexError, VarintError) as error:
        raise RecordError(f"the records are cut off: {error}") from None
    return end, 0


def newest(data: bytes, pieces: list[tuple[int, int]], base_timestamp: int) -> int:
    """The newest timestamp of the records in these pieces of a section that was walked before."""
    decode = varint.decode
    found = -1
    for pos, end in pieces:
        while pos < end:
            size, pos = decode(data, pos, end)
            stamp = _wrapped(base_timestamp + decode(data, pos + 1, end, 64)[0])
            if stamp > found:
                found = stamp
            pos += size
    return found


def redate(data: bytes, pieces: list[tuple[int, int]], shift: int) -> bytes:
    """The records of these pieces with `shift` added to their timestamps' deltas: the base moved back by so much."""
    decode, encode = varint.decode, varint.encode
    parts: list[bytes] = []
    for pos, end in pieces:
        while pos < end:
            size, pos = decode(data, pos, end)
            stop = pos + size
            delta, at = decode(data, pos + 1, stop, 64)
            moved = encode(_wrapped(delta + shift))
            parts += (encode(1 + len(moved) + stop - at), data[pos : pos + 1], moved, data[at:stop])
            pos = stop
    return b"".join(parts)


def _wrapped(value: int) -> int:
    if -_LONG_LIMIT <= value < _LONG_LIMIT:
        return value
    return (value + _LONG_LIMIT) % (2 * _LONG_LIMIT) - _LONG_LIMIT
