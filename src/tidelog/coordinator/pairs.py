"""Keys and values of a batch's records, and nothing else of them: a load reads a million, a few at a time.

`wire.record` reads whole records, and is the oracle of this in tests.
"""

from collections.abc import Iterator

from tidelog.wire.errors import MalformedError
from tidelog.wire.varint import VarintError, decode


def pairs(section: bytes, count: int) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """(offset delta, key, value) of the `count` records in `section`; MalformedError where they aren't well formed."""
    end, pos = len(section), 0
    try:
        for _ in range(count):
            size, pos = _number(section, pos, end)
            stop = pos + size
            at = pos + 1
            while section[at] > 127:  # the timestamp is passed over
                at += 1
            delta, at = _number(section, at + 1, end)
            size, at = _number(section, at, end)
            key = section[at : at + size] if size >= 0 else None
            size, at = _number(section, at + size if size > 0 else at, end)
            value = section[at : at + size] if size >= 0 else None
            pos = at + size if size > 0 else at
            if not pos < stop <= end:
                raise MalformedError("a record ends before its value does")
            yield delta, key, value
            pos = stop
    except (IndexError, VarintError) as error:
        raise MalformedError(f"the records of a batch are cut off: {error}") from None
    if pos != end:
        raise MalformedError(f"{end - pos} bytes are left behind the last of {count} records")


def _number(section: bytes, pos: int, end: int) -> tuple[int, int]:
    number = section[pos]
    if number > 127:
        return decode(section, pos, end)
    return number >> 1 ^ -(number & 1), pos + 1
