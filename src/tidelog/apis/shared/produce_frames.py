"""How the frames of usual Produce requests look, one partition of one topic: where their batches are.

They are read where they lie. A frame that isn't in this shape is for the compiled codec.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from tidelog.apis.shared.record_validation import IDS_FROM
from tidelog.wire.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL_FLAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLEXIBLE_FROM = 9

# Header tags, transactional id, acks, timeout, number of topics + 1, length of the topic's name + 1.
HEAD = Struct(">BBhiBB")
NAME_AT = HEAD.size
NAME_LENGTH_AT = NAME_AT - 1
KEY_BYTES = NAME_AT + 4  # and the name's length: the name has a byte less; then one partition and its index
# All that, as one, and the first three bytes of the batch's length; by the byte that has the name's length.
_READ_START = [Struct(f">{KEY_BYTES + name_bytes}sBBB").unpack_from for name_bytes in range(0x80)]
_read_frame = Struct(">iIih").unpack_from  # size, API key and version, correlation id, bytes of the client id
CLIENT_AT = 12  # where in a frame the client id begins, with its length
FRAME_HEADER_BYTES = 14
TAGS_BEHIND = 3  # bytes behind the batch: the tags of the partition, of the topic and of the request


def locate(buffer: memoryview, pos: int, end: int) -> tuple[bytes, int, int] | None:
    """What a frame whose header ends at `pos` has up to its batch, and from where to where the batch is.

    Everything up to the batch is the same each time a client writes to a partition. None where the frame doesn't end as
    one with a single batch does; raises struct.error and IndexError where that can't be told.
    """
    name_bytes: int = buffer[pos + NAME_LENGTH_AT]
    key, size, second, third = _READ_START[name_bytes](buffer, pos)
    after = pos + KEY_BYTES + 1 + name_bytes
    if size > 127:
        size += (second - 1) << 7
        after += 1
        if second > 127:
            size += (third - 1) << 14
            after += 1
            if third > 127:
                size, after = _rest_of_uvarint(buffer, size, after)
    stop = after + size - 1
    if stop + TAGS_BEHIND != end or buffer[stop] or buffer[stop + 1] or buffer[stop + 2]:  # tags: there are none
        return None
    return key, after, stop


def _rest_of_uvarint(buffer: memoryview, value: int, pos: int) -> tuple[int, int]:
    """Of one with four bytes or five, where three are in `value` and `pos` is that of the fourth."""
    for shift in (21, 28):
        byte = buffer[pos]
        pos += 1
        value += (byte - 1) << shift
        if byte < 0x80:
            return value, pos
    raise IndexError


def keys_of(buffer: memoryview, start: int, end: int) -> Iterator[bytes]:
    """What each frame from `start` on has up to its batch, as `locate` finds it: up to the first of another shape."""
    while end - start >= FRAME_HEADER_BYTES:
        size, kind, _, client_bytes = _read_frame(buffer, start)
        stop = start + 4 + size
        if not start < stop <= end or kind >> 16 or not FLEXIBLE_FROM <= kind & 0xFFFF < IDS_FROM:
            return
        try:
            located = locate(buffer, start + FRAME_HEADER_BYTES + max(client_bytes, 0), stop)
        except (StructError, IndexError):
            return
        if located is None:
            return
        yield located[0]
        start = stop


def find_alike(
    buffer: memoryview, start: int, end: int, most: int
) -> tuple[bytes, list[tuple[int, int]], list[int]] | None:
    """What the frames from `start` on have alike up to their batches, where those are, and the correlation ids.

    The first frame is whole. None where there are fewer than two, or where they are of transactions.
    """
    size, kind, _, client_bytes = _read_frame(buffer, start)
    if kind >> 16 or not FLEXIBLE_FROM <= kind & 0xFFFF < IDS_FROM:
        return None
    header_end = start + FRAME_HEADER_BYTES + max(client_bytes, 0)
    first = locate(buffer, header_end, start + 4 + size)
    if first is None:
        return None
    key = first[0]
    alike_bytes = header_end - start - CLIENT_AT + len(key)
    read = _alike_reader(alike_bytes)
    least = CLIENT_AT + alike_bytes + 1 + HEADER_BYTES + TAGS_BEHIND
    first_alike = None
    spans, correlation_ids = list[tuple[int, int]](), list[int]()
    while end - start >= least and len(spans) < most:
        size, next_kind, correlation_id, alike, length, second, third = read(buffer, start)
        stop = start + 4 + size - TAGS_BEHIND
        if next_kind != kind or size < least - 4 or stop + TAGS_BEHIND > end:
            break
        if first_alike is None:
            first_alike = alike
        elif alike != first_alike:
            break
        at = start + CLIENT_AT + alike_bytes + 1
        if length > 127:
            length += (second - 1) << 7
            at += 1
            if second > 127:
                length += (third - 1) << 14
                at += 1
                if third > 127:
                    break
        if (
            at + length - 1 != stop
            or buffer[stop]
            or buffer[stop + 1]
            or buffer[stop + 2]
            or buffer[at + ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG
        ):
            break
        spans.append((at, stop))
        correlation_ids.append(correlation_id)
        start = stop + TAGS_BEHIND
    return None if len(spans) < 2 else (key, spans, correlation_ids)


@lru_cache(128)
def _alike_reader(alike_bytes: int) -> Callable[..., tuple[Any, ...]]:
    """Reads size, key and version, correlation id, all up to the batch, and the first bytes of the batch's length."""
    return Struct(f">iIi{alike_bytes}sBBB").unpack_from
