"""What a producer's batch must be before it is appended, and which error says that it isn't: Kafka's, in Kafka's order.

`Log.append` checks the usual case inline. Whatever is unusual comes here: a batch that is wrong, or one that must be
looked into or written anew (LogAppendTime, another codec, records to be walked). Kafka looks into every record; here
only topics do that ask for it (`tidelog.validate=records`) or need it (compaction, `message.timestamp.before.max.ms`).
A look that takes long is done aside (record_check.py): `begin` then gives what is to be looked into, and goes on with
what came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.setting import LONG_MAX
from tidelog.log.bounds import RECORDS_MAX
from tidelog.log.record_check import (
    ON_THE_LOOP,
    Budget,
    Lengthy,
    Looked,
    RecordsRefused,
    look,
    question_of,
    read_answer,
    rules_of,
    target_codec,
    too_large,
)
from tidelog.wire.batch import (
    APPEND_TIME_FLAG,
    ATTRIBUTES,
    ATTRIBUTES_AT,
    HEADER_BYTES,
    KNOWN_FLAGS,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    checksum,
    read_header,
    seal,
    stamp_append_time,
)
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.survey import SHOWN_MAX

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig

CODEC_MAX = 4
_LEGACY_OVERHEAD = 14  # the least that an entry of any message format has behind its length


_NO_ATTRIBUTES: frozenset[int] = frozenset()
_PLAIN_ATTRIBUTES: dict[int | None, frozenset[int]] = {
    codec: frozenset((codec, codec | TRANSACTIONAL_FLAG)) for codec in range(CODEC_MAX + 1)
}
_PLAIN_ATTRIBUTES[None] = frozenset().union(*_PLAIN_ATTRIBUTES.values())


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


class Unlooked(NamedTuple):
    """A batch that must be looked into aside: `question` is for record_check.answer; `settle` takes its answer."""

    question: bytearray
    config: TopicConfig
    batch: memoryview
    now_ms: int

    def settle(self, answer: bytearray) -> Admitted:
        """Raises KafkaError where the batch is refused."""
        looked = read_answer(answer)
        return _settled(self.config, self.batch, read_header(self.batch), looked, self.now_ms)


def admit(
    place: str,
    config: TopicConfig,
    buffer: memoryview,
    start: int,
    end: int,
    now_ms: int,
    *,
    internal: bool = False,
    budget: Budget | None = ON_THE_LOOP,
) -> Admitted:
    """The batch in [start, end) of a produce request, checked in full and made what the topic wants; raises KafkaError.

    `internal`: the broker itself writes it, which may send control records. Lengthy: it takes more than the budget.
    """
    header = _examine(place, config, buffer, start, end, internal)
    looked = None
    if _must_look(config, header, now_ms):
        batch = buffer[start : header.end]
        looked = look(rules_of(place, config), batch, now_ms, None if internal else budget)
    return _settled(config, buffer, header, looked, now_ms)


def begin(
    place: str, config: TopicConfig, buffer: memoryview, now_ms: int, budget: Budget = ON_THE_LOOP
) -> Admitted | Unlooked:
    """As `admit`, for what fills `buffer`; where that takes long, what is to be done aside. It is a copy."""
    try:
        return admit(place, config, buffer, 0, len(buffer), now_ms, budget=budget)
    except Lengthy:
        whole = buffer[: read_header(buffer).end]
        question, batch = question_of(rules_of(place, config), whole, now_ms)
        return Unlooked(question, config, batch, now_ms)


def _examine(place: str, config: TopicConfig, buffer: memoryview, start: int, end: int, internal: bool) -> BatchHeader:
    """The header of the one batch, which is right as far as that can be told without its records."""
    end = _find_batch(place, buffer, start, end)
    if end - start < HEADER_BYTES:
        raise _headless(place, buffer, start, internal)
    header = read_header(buffer, start)
    _check_batch(place, config, buffer, header, internal)
    append_time = config.message_timestamp_type != "CreateTime"
    if append_time and header.attributes & APPEND_TIME_FLAG and not internal:
        raise _refused_dates(header, "the time of the append is the broker's to set, the producer set it")
    return header


def _must_look(config: TopicConfig, header: BatchHeader, now_ms: int) -> bool:
    target = target_codec(config)
    return (
        walks_records(config)
        or (target is not None and target != header.codec and not header.control)
        or (
            config.message_timestamp_type == "CreateTime"
            and header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
        )
    )


def _settled(
    config: TopicConfig, buffer: memoryview, header: BatchHeader, looked: Looked | None, now_ms: int
) -> Admitted:
    """What is appended: the batch as it came, or dated, or what it was written anew as."""
    if looked is not None and looked.batch is not None:
        made = memoryview(looked.batch)
        return Admitted(made, 0, len(made), read_header(made))
    start, end = header.pos, header.end
    max_timestamp = header.max_timestamp if looked is None else looked.max_timestamp
    if config.message_timestamp_type != "CreateTime":
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
        raise too_large(place, header.size, config.max_message_bytes)
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


def _refused_dates(header: BatchHeader, why: str) -> RecordsRefused:
    shown = range(min(header.record_count, SHOWN_MAX))
    return RecordsRefused(ErrorCode.INVALID_TIMESTAMP, why, [(index, why) for index in shown])


def _invalid(place: str, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"{place}: {why}")


def too_large_for_segment(place: str, size: int, config: TopicConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"{place}: a record batch of {size} bytes; segment.bytes is {config.segment_size}",
    )
