"""Finding records by time in a log, and the aborted transactions of a range: for ListOffsets and Fetch.

Finding the batch takes a look at indexes and headers; finding the record may take inflating and walking a million of
them. Who can't wait for that passes what was `walked` so far, is given what is to be walked next, has it walked aside
(`answer`), and asks again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidelog.log.bounds import RECORDS_AT_ONCE
from tidelog.log.names import LOG
from tidelog.log.scan import HeaderFields, batch_at, batches
from tidelog.wire.batch import APPEND_TIME_FLAG, payload, read_header
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.record import RecordError, first_since

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.log.aborted import Aborted
    from tidelog.log.segment import Segment
    from tidelog.log.segments import Segments
    from tidelog.log.slice import Slice
    from tidelog.wire.batch import BatchHeader

Found: TypeAlias = "tuple[int, int, int]"
"""Timestamp, offset and leader epoch of a record."""
Key: TypeAlias = "tuple[int, int, int]"
"""Base offset and checksum of a batch, and from which offset on it was looked into: the log's start may move."""
Walked: TypeAlias = "Mapping[Key, Found | None]"
"""Which records were found in batches."""

LONG_MIN = -(2**63)
LIES_MAX = 3
"""Batches of which no record is as new as their header says: the last of so many is believed, so that one question
doesn't go through all the records that someone made up."""


class Unwalked(NamedTuple):
    """A batch in which a record is to be looked for: `question` is for `answer`, `read` takes what that gave."""

    data: memoryview
    header: BatchHeader
    timestamp: int
    from_offset: int

    @property
    def key(self) -> Key:
        return self.header.base_offset, self.header.crc, self.from_offset

    def walk(self) -> Found | None:
        """The first record as new as `timestamp`, from `from_offset` on."""
        header = self.header
        base, dated = header.base_offset, header.attributes & APPEND_TIME_FLAG
        since = LONG_MIN if dated else self.timestamp
        try:
            section = bytes(payload(self.data, header))
            found = first_since(section, header.record_count, header.base_timestamp, since, self.from_offset - base)
        except RecordError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"record batch at offset {base}: {error}") from None
        if found is None:
            return None
        return header.max_timestamp if dated else found[0], base + found[1], header.leader_epoch

    @property
    def is_long(self) -> bool:
        """Whether it may take more than some milliseconds."""
        return bool(self.header.codec) or self.header.record_count > RECORDS_AT_ONCE

    @property
    def question(self) -> bytearray:
        question = bytearray(json.dumps([self.timestamp, self.from_offset]).encode())
        question += b"\n"
        question += self.data
        return question

    @staticmethod
    def read(told: bytearray) -> Found | None:
        """Raises KafkaError as `walk` would have."""
        found, error = json.loads(told)
        if error is not None:
            raise KafkaError(ErrorCode(error[0]), error[1])
        return None if found is None else (found[0], found[1], found[2])


def answer(question: bytearray) -> bytearray:
    """`walk`, in a process of its own perhaps."""
    start = question.index(b"\n") + 1
    timestamp, from_offset = json.loads(question[:start])
    data = memoryview(question)[start:]
    found = failure = None
    try:
        found = Unwalked(data, read_header(data), timestamp, from_offset).walk()
    except KafkaError as error:
        failure = error.code, error.message
    return bytearray(json.dumps((found, failure)).encode())


def find_by_time(
    segments: Segments, log_start: int, timestamp: int, end: int, walked: Walked | None
) -> Found | Unwalked | None:
    """The first record as new as `timestamp`: time index, offset index, then batch by batch, record by record."""
    lies = 0
    for number, segment in enumerate(segments):
        segments.look(segment, number)
        if segment.max_timestamp < timestamp:
            continue
        if segment.times is not None:
            offset = segment.times.lookup(timestamp)
        else:
            offset = segments.sealed(segment).lookup_time(timestamp)
        start = segments.indexes(segment).lookup(max(offset, log_start))
        for pos, fields in batches(segments.reader_of(segment), start, segment.size, check=False):
            if fields.base_offset >= end:
                return None
            if (
                fields.max_timestamp >= timestamp and fields.record_count
            ):  # one that compaction emptied keeps its timestamp
                found = _record_from(segments, segment, pos, fields, timestamp, log_start, walked)
                if isinstance(found, Unwalked):
                    return found
                if found is None and fields.base_offset >= log_start:
                    lies += 1
                    if lies == LIES_MAX:
                        found = fields.max_timestamp, fields.base_offset, fields.leader_epoch
                if found is not None:
                    return found if found[1] < end else None
    return None


def max_timestamp(segments: Segments, walked: Walked | None) -> Found | Unwalked | None:
    """The newest record: the first of the first such batch of the first segment that has the newest timestamp."""
    newest: Segment | None = None
    for number, segment in enumerate(segments):
        segments.look(segment, number)
        if newest is None or segment.max_timestamp > newest.max_timestamp:
            newest = segment
    if newest is None:
        return None
    timestamp, offset = newest.max_timestamp, newest.max_timestamp_offset
    start = segments.indexes(newest).lookup(offset)
    for pos, fields in batches(segments.reader_of(newest), start, newest.size, check=False):
        if fields.max_timestamp == timestamp and fields.record_count:
            return _record_from(segments, newest, pos, fields, timestamp, 0, walked)
    return None


def _record_from(
    segments: Segments,
    segment: Segment,
    pos: int,
    fields: HeaderFields,
    timestamp: int,
    from_offset: int,
    walked: Walked | None,
) -> Found | Unwalked | None:
    """The batch's first record as new as `timestamp`, from `from_offset` on."""
    if (
        fields.attributes & APPEND_TIME_FLAG and fields.record_count == fields.last_offset_delta + 1
    ):  # all are there, and as new as the batch
        offset = max(fields.base_offset, from_offset)
        return (fields.max_timestamp, offset, fields.leader_epoch) if offset <= fields.last_offset else None
    batch = Unwalked(
        *batch_at(segments.reader_of(segment), pos, fields), timestamp, max(from_offset, fields.base_offset)
    )
    if walked is None or not batch.is_long:
        return batch.walk()
    return walked.get(batch.key, batch)


def aborted(segments: Segments, log_end: int, offset: int, found: Slice) -> list[Aborted]:
    """Those whose data or marker a reader meets in `found`: from its segment on, until no more can come."""
    number = next((n for n, segment in enumerate(segments) if segment.stem + LOG == found.file.path), None)
    if number is None:
        return []
    segment = segments[number]
    upper = segments.indexes(segment).upper_bound(found.pos + len(found))
    if upper is None:
        upper = segments[number + 1].base if number + 1 < len(segments) else log_end
    collected: list[Aborted] = []
    for later in segments[number:]:
        entries, complete = later.aborted(segments.around.disk).collect(offset, upper)
        collected += entries
        if complete:
            break
    return collected
