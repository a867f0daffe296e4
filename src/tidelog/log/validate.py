"""What a producer's batch must be before it is appended, and which error says that it isn't: Kafka's, in Kafka's order.

`Log.append` checks the usual case inline. Whatever is unusual comes here: a batch that is wrong, or one that must be
looked into or written anew (LogAppendTime, another codec, records to be walked). Kafka looks into every record; here
only topics do that ask for it (`tidelog.validate=records`) or need it (compaction, `message.timestamp.before.max.ms`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.config.setting import LONG_MAX
from tidelog.config.topic import TopicConfig
from tidelog.wire.batch import (
    APPEND_TIME,
    APPEND_TIME_FLAG,
    ATTRIBUTES,
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    CREATE_TIME,
    HEADER_BYTES,
    INFLATED_BYTES_MAX,
    KNOWN_FLAGS,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    build,
    checksum,
    read_header,
    records,
    seal,
    stamp_append_time,
)
from tidelog.wire.compression import CODEC_NAMES
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.record import Record

CODEC_MAX = 4
RECORDS_MAX = 1_000_000
"""Records of one batch, as librdkafka's batch.num.messages has it: compressed, a few kilobytes could claim many more,
and whoever looks for a time in them would go through them all."""
_LEGACY_OVERHEAD = 14  # the least that an entry of any message format has behind its length
_ERRORS_SHOWN_MAX = 100


_NO_ATTRIBUTES: frozenset[int] = frozenset()
_PLAIN_ATTRIBUTES: dict[int | None, frozenset[int]] = {
    codec: frozenset((codec, codec | TRANSACTIONAL_FLAG)) for codec in range(CODEC_MAX + 1)
}
_PLAIN_ATTRIBUTES[None] = frozenset().union(*_PLAIN_ATTRIBUTES.values())


class RecordsRefused(KafkaError):
    """INVALID_RECORD or INVALID_TIMESTAMP because of single records, which the answer may name (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, refused: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.refused = list(refused[:_ERRORS_SHOWN_MAX])  # (place in the batch, what is wrong)


class Admitted(NamedTuple):
    """A batch that may be appended; `buffer` is another one where it had to be written anew."""

    buffer: memoryview
    start: int
    end: int
    header: BatchHeader


def plain_attributes(config: TopicConfig) -> frozenset[int]:
    """The attributes of batches that this topic takes as they are, without a second look."""
    if config.message_timestamp_type != "CreateTime" or walks_records(config):
        return _NO_ATTRIBUTES
    return _PLAIN_ATTRIBUTES[target_codec(config)]


def walks_records(config: TopicConfig) -> bool:
    """Whether the topic needs a look into each record."""
    return (
        config.tidelog_validate == "records"
        or "compact" in config.cleanup_policy
        or config.message_timestamp_before_max_ms < LONG_MAX
    )


def target_codec(config: TopicConfig) -> int | None:
    """The codec that batches are kept in; None: the producer's."""
    return None if config.compression_type == "producer" else CODEC_NAMES[config.compression_type]


def admit(
    place: str, config: TopicConfig, buffer: memoryview, start: int, end: int, now_ms: int, *, internal: bool = False
) -> Admitted:
    """The batch in [start, end) of a produce request, checked in full and made what the topic wants; raises KafkaError.

    `internal`: the broker itself writes it, which may send control records.
    """
    end = _find_batch(place, buffer, start, end)
    if end - start < HEADER_BYTES:
        raise _headless(place, buffer, start, internal)
    header = read_header(buffer, start)
    _check_batch(place, config, buffer, header, internal)
    append_time = config.message_timestamp_type != "CreateTime"
    late = not append_time and header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
    target = target_codec(config)
    recompress = target is not None and target != header.codec and not header.attributes & CONTROL_FLAG
    max_timestamp = header.max_timestamp
    if append_time and header.attributes & APPEND_TIME_FLAG and not internal:
        raise _refused_dates(header, "the time of the append is the broker's to set, the producer set it")
    if recompress or late or walks_records(config):
        walked = _walk(place, config, buffer, header, now_ms, append_time)
        max_timestamp = max(-1, *(record.timestamp for record in walked))
        if recompress or (header.codec and _misnumbered(header, walked)):
            return _rebuild(place, config, header, walked, header.codec if target is None else target, now_ms)
    if append_time:
        stamp_append_time(buffer, start, end, now_ms)
    elif header.attributes & APPEND_TIME_FLAG or max_timestamp != header.max_timestamp:
        ATTRIBUTES.pack_into(buffer, start + ATTRIBUTES_AT, header.attributes & KNOWN_FLAGS & ~APPEND_TIME_FLAG)
        TIMESTAMP.pack_into(buffer, start + MAX_TIMESTAMP_AT, max_timestamp)
        seal(buffer, start, end)
    else:
        return Admitted(buffer, start, end, header)
    return Admitted(buffer, start, end, read_header(buffer, start))


def _find_batch(place: str, buffer: memoryview, start: int, end: int) -> int:
    """Where the one batch of the request ends. Bytes behind it that are no whole batch are passed over, as in Kafka."""
    size = _entry_size(place, buffer, start, end)
    if size is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{place}: there is no whole record batch in the request")
    magic = buffer[start + MAGIC_AT]
    if magic != MAGIC:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{place}: a record batch of magic {magic}; only 2 is taken")
    if _entry_size(place, buffer, start + size, end) is not None:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{place}: a produce request has one record batch a partition")
    return start + size


def _entry_size(place: str, buffer: memoryview, pos: int, end: int) -> int | None:
    """The size of the whole entry at `pos`; None where none is, or only a part of one."""
    left = end - pos
    if left < LOG_OVERHEAD:
        return None
    length = int.from_bytes(buffer[pos + LENGTH_AT : pos + LENGTH_AT + 4], signed=True)
    if length < _LEGACY_OVERHEAD:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{place}: a record batch claims a length of {length}")
    if left <= MAGIC_AT:
        return None
    if buffer[pos + MAGIC_AT] > MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{place}: a record batch of magic {buffer[pos + MAGIC_AT]}")
    return None if length + LOG_OVERHEAD > left else length + LOG_OVERHEAD


def _headless(place: str, buffer: memoryview, start: int, internal: bool) -> KafkaError:
    """The entry is too short for a batch's header; its base offset, which comes first, may be wrong too."""
    base_offset = int.from_bytes(buffer[start : start + LENGTH_AT], signed=True)
    if base_offset and not internal:
        return _invalid(place, f"a produced batch has base offset 0, this one has {base_offset}")
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{place}: the record batch is shorter than its header")


def _check_batch(place: str, config: TopicConfig, buffer: memoryview, header: BatchHeader, internal: bool) -> None:
    if header.base_offset and not internal:
        raise _invalid(place, f"a produced batch has base offset 0, this one has {header.base_offset}")
    if header.size > config.max_message_bytes:
        raise _too_large(place, header.size, config)
    if checksum(buffer, header.pos, header.end) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{place}: the record batch doesn't match its checksum")
    if header.codec > CODEC_MAX:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{place}: compression codec {header.codec} is unknown"
        )
    if header.last_offset_delta < 0 or header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            place,
            f"the batch claims {header.record_count} records, but a last offset delta of {header.last_offset_delta}",
        )
    if header.record_count > RECORDS_MAX and not internal:
        raise _invalid(place, f"a batch of {header.record_count} records; {RECORDS_MAX} are allowed")
    if header.control and not internal:
        raise _invalid(place, "control records are the broker's to write")
    if header.producer_id >= 0 and header.base_sequence < 0 and not internal:
        raise _invalid(place, f"producer {header.producer_id} sent a batch of sequence {header.base_sequence}")


def _walk(
    place: str, config: TopicConfig, buffer: memoryview, header: BatchHeader, now_ms: int, append_time: bool
) -> list[Record]:
    """All records, each checked for a key where the topic is compacted, and for its timestamp."""
    found = list(records(buffer, header, INFLATED_BYTES_MAX))
    keyed = "compact" in config.cleanup_policy and not header.control
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    refused: list[tuple[int, str]] = []
    dates = 0
    for index, record in enumerate(found):
        if keyed and record.key is None:
            refused.append((index, f"{place} is compacted: its records must have keys"))
        elif not append_time and record.timestamp != -1 and not -after <= now_ms - record.timestamp <= before:
            dates += 1
            refused.append((index, f"timestamp {record.timestamp} is outside of [{now_ms - before}, {now_ms + after}]"))
        elif not append_time and record.timestamp == -1 and header.attributes & APPEND_TIME_FLAG:
            dates += 1
            refused.append((index, "the time of the append is the broker's to set"))
    if dates:
        message = f"{place}: {dates} of {len(found)} records have a timestamp that is not allowed"
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, refused)
    if refused:
        message = f"{place}: {len(refused)} of {len(found)} records were refused; the first: {refused[0][1]}"
        raise RecordsRefused(ErrorCode.INVALID_RECORD, message, refused)
    return found


def _misnumbered(header: BatchHeader, walked: list[Record]) -> bool:
    return any(record.offset - header.base_offset != place for place, record in enumerate(walked))


def _rebuild(
    place: str, config: TopicConfig, header: BatchHeader, walked: list[Record], codec: int, now_ms: int
) -> Admitted:
    """The batch written anew, in the topic's codec, its records numbered from 0."""
    append_time = config.message_timestamp_type != "CreateTime"
    made = build(
        [record._replace(offset=-1) for record in walked],
        timestamp_type=APPEND_TIME if append_time else CREATE_TIME,
        append_time=now_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        compression=codec,
        level=_level(config, codec),
        transactional=header.transactional,
    )
    if len(made) > config.max_message_bytes:
        raise _too_large(place, len(made), config)
    view = memoryview(made)
    return Admitted(view, 0, len(made), read_header(view, 0))


def _level(config: TopicConfig, codec: int) -> int | None:
    level = {1: config.compression_gzip_level, 3: config.compression_lz4_level, 4: config.compression_zstd_level}
    chosen = level.get(codec)
    return None if chosen == -1 and codec == 1 else chosen


def _refused_dates(header: BatchHeader, why: str) -> RecordsRefused:
    shown = range(min(header.record_count, _ERRORS_SHOWN_MAX))
    return RecordsRefused(ErrorCode.INVALID_TIMESTAMP, why, [(index, why) for index in shown])


def _invalid(place: str, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"{place}: {why}")


def _too_large(place: str, size: int, config: TopicConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{place}: a record batch of {size} bytes; max.message.bytes is {config.max_message_bytes}",
    )


def too_large_for_segment(place: str, size: int, config: TopicConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"{place}: a record batch of {size} bytes; segment.bytes is {config.segment_size}",
    )
