"""All records of a batch looked at once, without making anything of them: well formed, keyed, numbered, dated?

A batch may have a million records, and a record as many headers: each costs some tenths of a microsecond here, where
`record.walk_records`, the oracle of this in tests, takes several and makes an object of each.
"""

from typing import NamedTuple

from tidelog.wire import varint
from tidelog.wire.record import RECORD_BYTES_MIN, RecordError, wrapped
from tidelog.wire.varint import VarintError

SHOWN_MAX = 100
"""So many of the records that are wrong are named; the others are counted."""
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1


class HeadersError(RecordError):
    """The records have more headers than they may."""


class Wanted(NamedTuple):
    """What the records must be. `earliest` and `latest` bound timestamps; one of -1 is none, and passes."""

    keyed: bool = False
    earliest: int = LONG_MIN
    latest: int = LONG_MAX
    headers_max: int = LONG_MAX
    """Of all records together."""


class Survey(NamedTuple):
    max_timestamp: int
    """-1 where no record has one."""
    numbered: bool
    """Whether their offsets count up from 0."""
    keyless: int
    """How many have no key, though they must."""
    misdated: int
    """How many others have a timestamp that is out of bounds."""
    shown: list[tuple[int, int | None]]
    """The first of both: the place, and the timestamp, or None where the key is missing."""


def survey(data: bytes | bytearray, count: int, base_timestamp: int, wanted: Wanted) -> Survey:
    """Go through the `count` records that fill `data`; RecordError where they aren't well formed.

    Most numbers are of one byte and read in place: a call for each would take longer than all the rest.
    """
    end = len(data)
    if count < 0 or count * RECORD_BYTES_MIN > end:
        raise RecordError(f"{count} records can't be in {end} bytes")
    decode = varint.decode
    keyed, earliest, latest, headers_left = wanted
    newest, numbered, keyless, misdated = -1, True, 0, 0
    shown: list[tuple[int, int | None]] = []
    index = pos = 0
    try:
        for index in range(count):
            size = data[pos]
            if size > 127 or size & 1:
                size, pos = decode(data, pos, end)
                if size < 0 or size > end - pos:
                    raise RecordError(f"it claims {size} bytes where {end - pos} are left")
            else:
                size >>= 1
                pos += 1
            stop = pos + size
            delta = data[pos + 1]
            if delta > 127:
                delta, at = decode(data, pos + 1, stop, 64)
                timestamp = wrapped(base_timestamp + delta)
            else:
                at = pos + 2
                timestamp = wrapped(base_timestamp + (delta >> 1 ^ -(delta & 1))) if delta else base_timestamp
            if timestamp > newest:
                newest = timestamp
            offset = data[at] >> 1
            if offset > 63 or data[at] & 1:
                offset, at = decode(data, at, stop)
            else:
                at += 1
            if offset != index:
                numbered = False
            size = data[at]
            if size > 127:
                size, at = decode(data, at, stop)
                at += max(size, 0)
            elif size & 1:
                size, at = -1, at + 1
            else:
                at += 1 + (size >> 1)
            if keyed and size < 0:
                keyless += 1
                if len(shown) < SHOWN_MAX:
                    shown.append((index, None))
            elif not earliest <= timestamp <= latest and timestamp != -1:
                misdated += 1
                if len(shown) < SHOWN_MAX:
                    shown.append((index, timestamp))
            size = data[at]
            if size > 127:
                size, at = decode(data, at, stop)
                at += max(size, 0)
            else:
                at += 1 if size & 1 else 1 + (size >> 1)
            if data[at]:
                headers_left, at = _skip_headers(data, at, stop, headers_left, wanted)
            else:
                at += 1
            if at != stop:
                raise RecordError(f"its fields end {abs(at - stop)} bytes {'behind' if at > stop else 'before'} it")
            pos = stop
    except HeadersError:
        raise
    except (VarintError, RecordError, IndexError) as error:
        what = "it goes on behind the batch" if isinstance(error, IndexError) else error
        raise RecordError(f"record {index}: {what}") from None
    if pos != end:
        raise RecordError(f"{end - pos} bytes are left behind the last of {count} records")
    return Survey(newest, numbered, keyless, misdated, shown)


def _skip_headers(data: bytes | bytearray, at: int, stop: int, left: int, wanted: Wanted) -> tuple[int, int]:
    """How many headers there may be after those at `at`, and where they end."""
    decode = varint.decode
    count, at = decode(data, at, stop)
    if count < 0 or count > stop - at >> 1:
        raise RecordError(f"{count} headers can't be in {max(stop - at, 0)} bytes")
    if count > left:
        raise HeadersError(f"the records have more than {wanted.headers_max} headers")
    for _ in range(count):
        size = data[at]
        if size > 127 or size & 1:
            size, at = decode(data, at, stop)
            if size < 0:
                raise RecordError("a header has no name")
            at += size
        else:
            at += 1 + (size >> 1)
        size = data[at]
        if size > 127:
            size, at = decode(data, at, stop)
            at += max(size, 0)
        else:
            at += 1 if size & 1 else 1 + (size >> 1)
    return left - count, at
