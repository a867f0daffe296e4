"""Batches that have their offsets and leader epochs already: a follower's, the metadata log's. Checked, never walked.

Of a small batch its header is what costs: it is taken apart once, and `gather` keeps what an append needs of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidelog.wire.batch import ATTRIBUTES_AT, CONTROL_FLAG, HEADER, HEADER_BYTES, LOG_OVERHEAD, MAGIC, read_header
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.log.segment import Segment
    from tidelog.wire.batch import BatchHeader

Batch: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""First and last offset, bytes, newest timestamp, producer id, its epoch and sequence, attributes."""

_read = HEADER.unpack_from
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD


def check(place: str, buffer: memoryview, pos: int, end: int, next_offset: int) -> BatchHeader:
    """The header of a batch that is whole, sound, and goes on at `next_offset` or above; else a KafkaError."""
    if end - pos < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{place}: {end - pos} bytes are no record batch")
    header = read_header(buffer, pos)
    if header.magic != MAGIC or header.size < HEADER_BYTES or header.end > end:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{place}: no whole record batch of magic 2")
    if crc32c(buffer[pos + ATTRIBUTES_AT : header.end]) != header.crc or header.last_offset_delta < 0:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{place}: the batch at {header.base_offset} is damaged")
    if header.base_offset < next_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{place}: a batch of offset {header.base_offset}, but the log goes on at {next_offset}",
        )
    return header


def is_marker(header: BatchHeader) -> bool:
    return header.producer_id >= 0 and bool(header.attributes & CONTROL_FLAG)


def batch_of(header: BatchHeader) -> Batch:
    return (
        header.base_offset,
        header.last_offset,
        header.size,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.attributes,
    )


def gather(segment: Segment, buffer: memoryview, first: BatchHeader, end: int) -> tuple[list[Batch], int]:
    """The batches that go to the segment with the first, in one write, and where they end in the buffer.

    They are of its leader epoch, none is a marker, and `check` would find each of them sound: what is wrong with the
    one behind them, `check` tells.
    """
    batches = [batch_of(first)]
    pos, next_offset, epoch, start = first.end, first.next_offset, first.leader_epoch, first.pos
    size_max, count_max, roll_after, offset_max = segment.room
    while end - pos >= HEADER_BYTES:
        (
            base,
            length,
            leader_epoch,
            magic,
            crc,
            attributes,
            delta,
            _,
            newest,
            producer_id,
            producer_epoch,
            sequence,
            _,
        ) = _read(buffer, pos)
        behind = pos + length + LOG_OVERHEAD
        last = base + delta
        if (
            leader_epoch != epoch
            or magic != MAGIC
            or length < _LENGTH_MIN
            or behind > end
            or base < next_offset
            or delta < 0
            or (attributes & CONTROL_FLAG and producer_id >= 0)
            or behind - start > size_max
            or len(batches) >= count_max
            or newest > roll_after
            or last > offset_max
            or crc32c(buffer[pos + ATTRIBUTES_AT : behind]) != crc
        ):
            break
        batches.append((base, last, length + LOG_OVERHEAD, newest, producer_id, producer_epoch, sequence, attributes))
        pos, next_offset = behind, last + 1
    return batches, pos
