"""Record batch v2, the unit that is produced, stored and fetched: its header read, checked, patched and built.

Hot paths use the `Struct`s below straight on the buffer: the broker assigns offsets by patching the base offset and
the leader epoch in place, which the checksum doesn't cover. Records inside are in record.py.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from tidelog.env.network import Buffer
from tidelog.wire.compression import CompressionError, compress, decompress
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.record import Record, RecordError, encode_record, walk_records

HEADER = Struct(">qiibIhiqqqhii")
"""Every header field, in the order of `BatchHeader`."""
HEADER_BYTES: Final = 61
LOG_OVERHEAD: Final = 12
"""Base offset and length: what stands before the bytes that `length` counts."""
MAGIC: Final = 2
SEQUENCE_MAX: Final = 2**31 - 1

CRC = Struct(">I")
ATTRIBUTES = Struct(">h")
TIMESTAMP = Struct(">q")

LENGTH_AT: Final = 8
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_AT: Final = 43

CODEC_MASK: Final = 0x07
APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40
KNOWN_FLAGS: Final = 0x7F
"""What the attributes of a batch may hold; whoever writes them anew leaves the rest out."""

CREATE_TIME: Final = 0
APPEND_TIME: Final = 1

INFLATED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The bound on what one batch may inflate to, where the caller names none."""


class BatchHeader(NamedTuple):
    """A batch's header and the position in its buffer. Offsets inside are as stored."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    pos: int

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.length + LOG_OVERHEAD

    @property
    def end(self) -> int:
        """The position behind the batch."""
        return self.pos + self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """-1 where the batch has no sequence; wraps from 2^31-1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        return APPEND_TIME if self.attributes & APPEND_TIME_FLAG else CREATE_TIME

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon(self) -> int | None:
        """When tombstones in it may go (compaction writes it over the base timestamp)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


def read_header(buffer: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`, unchecked; CORRUPT_MESSAGE where fewer than 61 bytes are left."""
    if len(buffer) - pos < HEADER_BYTES:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"a record batch has {HEADER_BYTES} bytes at least, {len(buffer) - pos} are here"
        )
    return BatchHeader._make((*HEADER.unpack_from(buffer, pos), pos))


def is_transactional(records: Buffer | None) -> bool:
    """Whether the first batch, if there is one, is part of a transaction."""
    return (
        records is not None and len(records) >= HEADER_BYTES and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG)
    )


def check(buffer: Buffer, header: BatchHeader, end: int) -> None:
    """Magic, length within `end`, known codec, and checksum; CORRUPT_MESSAGE and its like where one is wrong."""
    if header.magic != MAGIC:
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"record batch of magic {header.magic}; 2 is served")
    if header.size < HEADER_BYTES or header.end > end:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"record batch claims {header.size} bytes where {end - header.pos} are here"
        )
    if header.codec > 4:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {header.codec}")
    computed = checksum(buffer, header.pos, header.end)
    if computed != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"record batch has checksum {header.crc:#010x}, its bytes give {computed:#010x}"
        )


def checksum(buffer: Buffer, pos: int, end: int) -> int:
    """CRC-32C from the attributes to the batch's end."""
    return crc32c(memoryview(buffer)[pos + ATTRIBUTES_AT : end])


def iterate(buffer: Buffer, pos: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
    """Headers of the whole batches in [pos, end); stops before one that is cut off. Checksums are not looked at.

    A length that no batch can have raises CORRUPT_MESSAGE: nothing after it can be found.
    """
    stop = len(buffer) if end is None else end
    while stop - pos >= HEADER_BYTES:
        header = BatchHeader._make((*HEADER.unpack_from(buffer, pos), pos))
        size = header.length + LOG_OVERHEAD
        if size < HEADER_BYTES:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch at {pos} claims a length of {header.length}")
        if pos + size > stop:
            return
        yield header
        pos += size


def payload(buffer: Buffer, header: BatchHeader, limit: int = INFLATED_BYTES_MAX) -> Buffer:
    """The records section, inflated where it is compressed: at most `limit` bytes."""
    section = memoryview(buffer)[header.pos + HEADER_BYTES : header.end]
    if not header.codec:
        return section
    try:
        return decompress(header.codec, section, limit)
    except CompressionError as error:
        # Not CORRUPT_MESSAGE: a client would send the same bytes again.
        raise KafkaError(ErrorCode.INVALID_RECORD, f"record batch at offset {header.base_offset}: {error}") from None


def records(buffer: Buffer, header: BatchHeader, limit: int = INFLATED_BYTES_MAX) -> Iterator[Record]:
    """The records of a batch, with their offsets and timestamps; INVALID_RECORD where they aren't well formed."""
    section = payload(buffer, header, limit)
    append_time = header.max_timestamp if header.attributes & APPEND_TIME_FLAG else None
    try:
        yield from walk_records(section, header.record_count, header.base_offset, header.base_timestamp, append_time)
    except RecordError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"record batch at offset {header.base_offset}: {error}") from None


def build(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp_type: int = CREATE_TIME,
    append_time: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: int = 0,
    level: int | None = None,
    transactional: bool = False,
    control: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon: int | None = None,
) -> bytearray:
    """A whole batch. A record's offset counts from `base_offset`; -1 gives it the next one.

    `last_offset_delta` is for compaction, which keeps the range of a batch whose last records went, and
    `append_time` dates a batch of type APPEND_TIME.
    """
    body = bytearray()
    base_timestamp = delete_horizon
    max_timestamp = -1
    count = delta = 0
    for record in records:
        if record.offset >= 0:
            delta = record.offset - base_offset
        if base_timestamp is None:
            base_timestamp = record.timestamp
        max_timestamp = max(max_timestamp, record.timestamp)
        body += encode_record(record, delta, record.timestamp - base_timestamp)
        count += 1
        delta += 1
    attributes = (
        compression
        | (APPEND_TIME_FLAG if timestamp_type else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon is not None else 0)
    )
    section = compress(compression, body, level) if compression else body
    return assemble(
        section,
        BatchHeader(
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            max(delta - 1, 0) if last_offset_delta is None else last_offset_delta,
            -1 if base_timestamp is None else base_timestamp,
            append_time if timestamp_type else max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
            0,
        ),
    )


def assemble(section: Buffer, header: BatchHeader) -> bytearray:
    """A batch of this header and records section, as it is compressed; length and checksum are set here."""
    out = bytearray(HEADER_BYTES)
    out += section
    HEADER.pack_into(out, 0, header.base_offset, len(out) - LOG_OVERHEAD, *header[2:-1])
    seal(out, 0, len(out))
    return out


def whole_batch(
    section: bytes | bytearray, count: int, *, base_offset: int, leader_epoch: int, timestamp: int
) -> bytearray:
    """A plain batch around records that are encoded already, all of one time and without a gap."""
    out = bytearray(HEADER_BYTES)
    out += section
    HEADER.pack_into(
        out,
        0,
        base_offset,
        len(out) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        0,
        max(count - 1, 0),
        timestamp if count else -1,
        timestamp if count else -1,
        -1,
        -1,
        -1,
        count,
    )
    seal(out, 0, len(out))
    return out


def seal(buffer: bytearray | memoryview, pos: int, end: int) -> None:
    """Write the checksum of the batch at [pos, end) after its attributes, timestamps or records changed."""
    CRC.pack_into(buffer, pos + CRC_AT, checksum(buffer, pos, end))


def stamp_append_time(buffer: bytearray | memoryview, pos: int, end: int, now_ms: int) -> None:
    """Date the whole batch by the broker (LogAppendTime): its records' own timestamps are no longer looked at."""
    (attributes,) = ATTRIBUTES.unpack_from(buffer, pos + ATTRIBUTES_AT)
    ATTRIBUTES.pack_into(buffer, pos + ATTRIBUTES_AT, attributes & KNOWN_FLAGS | APPEND_TIME_FLAG)
    TIMESTAMP.pack_into(buffer, pos + MAX_TIMESTAMP_AT, now_ms)
    seal(buffer, pos, end)
