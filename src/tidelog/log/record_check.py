"""A look into the records of a producer's batch, where its topic asks for one: are they what they must be, and written
anew where the topic has another codec. Pure: the same is done on the loop, for a small batch, and by a child process.

What a look costs isn't in the batch's size: 1.5 KB may inflate to millions of records or headers. So everything has a
bound: what is inflated and how many headers there are by the topic's settings; and on the loop by a `Budget` of some
milliseconds. Who goes beyond that is `Lengthy`, and is looked into aside.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.wire.batch import (
    APPEND_TIME,
    APPEND_TIME_FLAG,
    CREATE_TIME,
    HEADER_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    assemble,
    build,
    read_header,
    records,
)
from tidelog.wire.compression import CODEC_NAMES, CompressionError, InflatesTooLarge, compress, decompress
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.record import RecordError
from tidelog.wire.survey import SHOWN_MAX, HeadersError, Survey, Wanted, survey

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.env.network import Buffer


class RecordsRefused(KafkaError):
    """INVALID_RECORD or INVALID_TIMESTAMP because of single records, which the answer may name (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, refused: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.refused = list(refused[:SHOWN_MAX])  # (place in the batch, what is wrong)


class Lengthy(Exception):
    """The look takes longer than the budget: nothing is said of the batch yet."""


class Budget(NamedTuple):
    """What may be looked into at once: some milliseconds of work, whatever the batch is made of."""

    records: int = 2000
    headers: int = 5000
    squeezed_bytes: int = 32 * 1024
    inflated_bytes: int = 256 * 1024
    rewritten_bytes: int = 32 * 1024
    """Inflated; to compress takes longer than all the rest."""


ON_THE_LOOP = Budget()


class Rules(NamedTuple):
    """What a topic wants of its records."""

    place: str
    keyed: bool
    before_max_ms: int
    after_max_ms: int
    append_time: bool
    codec: int | None
    """None: the producer's."""
    levels: Sequence[int | None]
    """By codec, where the broker compresses."""
    batch_bytes_max: int
    inflated_bytes_max: int
    headers_max: int


class Looked(NamedTuple):
    """A batch whose records are as they must be."""

    max_timestamp: int
    """The newest of the records, where the producer dates them."""
    batch: bytearray | memoryview | None
    """What it was written anew as; None: it may stay as it is."""


def rules_of(place: str, config: TopicConfig) -> Rules:
    return Rules(
        place,
        "compact" in config.cleanup_policy,
        config.message_timestamp_before_max_ms,
        config.message_timestamp_after_max_ms,
        config.message_timestamp_type != "CreateTime",
        target_codec(config),
        _levels(config),
        config.max_message_bytes,
        config.tidelog_inflated_bytes_max,
        config.tidelog_headers_max,
    )


def target_codec(config: TopicConfig) -> int | None:
    """The codec that batches are kept in; None: the producer's."""
    return None if config.compression_type == "producer" else CODEC_NAMES[config.compression_type]


def _levels(config: TopicConfig) -> tuple[int | None, ...]:
    gzip = None if config.compression_gzip_level == -1 else config.compression_gzip_level
    return None, gzip, None, config.compression_lz4_level, config.compression_zstd_level


def look(rules: Rules, batch: Buffer, now_ms: int, budget: Budget | None = None) -> Looked:
    """Look into the one batch, whose header and checksum are right. Raises KafkaError, and Lengthy with a `budget`."""
    header = read_header(batch)
    rewrites = rules.codec is not None and rules.codec != header.codec and not header.control
    section = _inflated(rules, batch, header, budget, rewrites=rewrites)
    found = _surveyed(rules, section, header, now_ms, budget)
    _refuse(rules, header, found, now_ms)
    dated = header.attributes & APPEND_TIME_FLAG
    newest = header.max_timestamp if dated else found.max_timestamp
    if (header.codec and not found.numbered) or (rewrites and (dated or not found.numbered)):
        if budget is not None:
            raise Lengthy
        return Looked(newest, _renumbered(rules, batch, header, now_ms))
    if not rewrites:
        return Looked(newest, None)
    assert rules.codec is not None
    squeezed = compress(rules.codec, section, rules.levels[rules.codec]) if rules.codec else section
    attributes = rules.codec | header.attributes & TRANSACTIONAL_FLAG | (APPEND_TIME_FLAG if rules.append_time else 0)
    made = header._replace(attributes=attributes, max_timestamp=now_ms if rules.append_time else newest)
    return Looked(newest, _bounded(rules, assemble(squeezed, made)))


# -- aside: a question and its answer as bytes


def question_of(rules: Rules, batch: Buffer, now_ms: int) -> tuple[bytearray, memoryview]:
    """What `answer` looks into, and the batch in it: a copy."""
    question = bytearray(json.dumps([now_ms, *rules]).encode())
    question += b"\n"
    start = len(question)
    question += batch
    return question, memoryview(question)[start:]


def answer(question: bytearray) -> bytearray:
    """`look` without a budget, in a process of its own perhaps: what came of it, for `read_answer`."""
    start = question.index(b"\n") + 1
    now_ms, *rules = json.loads(question[:start])
    try:
        looked = look(Rules._make(rules), memoryview(question)[start:], now_ms)
    except KafkaError as error:
        refused = error.refused if isinstance(error, RecordsRefused) else None
        return _told({"code": error.code, "message": error.message, "refused": refused})
    return _told({"max_timestamp": looked.max_timestamp, "written": looked.batch is not None}, looked.batch)


def _told(what: dict[str, Any], batch: Buffer | None = None) -> bytearray:
    told = bytearray(json.dumps(what).encode())
    told += b"\n"
    if batch is not None:
        told += batch
    return told


def read_answer(data: bytearray) -> Looked:
    """Raises KafkaError as `look` would have."""
    start = data.index(b"\n") + 1
    told = json.loads(data[:start])
    if "code" not in told:
        return Looked(told["max_timestamp"], memoryview(data)[start:] if told["written"] else None)
    code, message = ErrorCode(told["code"]), told["message"]
    if told["refused"] is not None:
        raise RecordsRefused(code, message, [(index, words) for index, words in told["refused"]])
    raise KafkaError(code, message)


def _inflated(
    rules: Rules, batch: Buffer, header: BatchHeader, budget: Budget | None, *, rewrites: bool
) -> bytes | bytearray:
    squeezed = memoryview(batch)[HEADER_BYTES:]
    limit = rules.inflated_bytes_max
    if budget is not None:
        limit = min(limit, budget.rewritten_bytes if rewrites else budget.inflated_bytes)
        if header.record_count > budget.records or len(squeezed) > (budget.squeezed_bytes if header.codec else limit):
            raise Lengthy
    if not header.codec:
        return bytes(squeezed)
    try:
        return decompress(header.codec, squeezed, limit)
    except InflatesTooLarge:
        if limit < rules.inflated_bytes_max:
            raise Lengthy from None
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{rules.place}: a record batch of {header.size} bytes inflates to more than {limit}: "
            "tidelog.inflated.bytes.max",
        ) from None
    except CompressionError as error:
        # Not CORRUPT_MESSAGE: a client would send the same bytes again.
        raise _invalid(rules, str(error)) from None


def _surveyed(
    rules: Rules, section: bytes | bytearray, header: BatchHeader, now_ms: int, budget: Budget | None
) -> Survey:
    headers_max = rules.headers_max if budget is None else min(rules.headers_max, budget.headers)
    wanted = Wanted(keyed=rules.keyed and not header.control, headers_max=headers_max)
    if not rules.append_time and not header.attributes & APPEND_TIME_FLAG:
        wanted = wanted._replace(earliest=now_ms - rules.before_max_ms, latest=now_ms + rules.after_max_ms)
    try:
        return survey(section, header.record_count, header.base_timestamp, wanted)
    except HeadersError as error:
        if headers_max < rules.headers_max:
            raise Lengthy from None
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"{rules.place}: the batch's {error}: tidelog.headers.max"
        ) from None
    except RecordError as error:
        raise _invalid(rules, str(error)) from None


def _refuse(rules: Rules, header: BatchHeader, found: Survey, now_ms: int) -> None:
    """Raises where records are not what they must be, in Kafka's words for it."""
    dates = f"[{now_ms - rules.before_max_ms}, {now_ms + rules.after_max_ms}]"
    keyless = f"{rules.place} is compacted: its records must have keys"
    refused = [
        (index, keyless if stamp is None else f"timestamp {stamp} is outside of {dates}")
        for index, stamp in found.shown
    ]
    misdated = found.misdated
    if not rules.append_time and header.attributes & APPEND_TIME_FLAG:  # all have the batch's
        stamp = header.max_timestamp
        if stamp == -1:
            why = "the time of the append is the broker's to set"
        elif not -rules.after_max_ms <= now_ms - stamp <= rules.before_max_ms:
            why = f"timestamp {stamp} is outside of {dates}"
        else:
            why = None
        if why is not None:
            misdated = header.record_count - found.keyless
            without = {index for index, _ in refused}
            shown = range(min(header.record_count, SHOWN_MAX))
            refused = [(index, keyless if index in without else why) for index in shown]
    if misdated:
        message = f"{rules.place}: {misdated} of {header.record_count} records have a timestamp that is not allowed"
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, refused)
    if refused:
        message = (
            f"{rules.place}: {found.keyless} of {header.record_count} records were refused; the first: {refused[0][1]}"
        )
        raise RecordsRefused(ErrorCode.INVALID_RECORD, message, refused)


def _renumbered(rules: Rules, batch: Buffer, header: BatchHeader, now_ms: int) -> bytearray:
    """The batch with its records numbered from 0."""
    codec = header.codec if rules.codec is None else rules.codec
    made = build(
        (record._replace(offset=-1) for record in records(batch, header, rules.inflated_bytes_max)),
        timestamp_type=APPEND_TIME if rules.append_time else CREATE_TIME,
        append_time=now_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        compression=codec,
        level=rules.levels[codec],
        transactional=header.transactional,
    )
    return _bounded(rules, made)


def _bounded(rules: Rules, made: bytearray) -> bytearray:
    if len(made) > rules.batch_bytes_max:
        raise too_large(rules.place, len(made), rules.batch_bytes_max)
    return made


def _invalid(rules: Rules, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"{rules.place}: {why}")


def too_large(place: str, size: int, most: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{place}: a record batch of {size} bytes; max.message.bytes is {most}"
    )
