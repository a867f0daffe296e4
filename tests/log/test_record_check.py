"""A look into a batch's records: what is found at once and what aside is the same, and everything has a bound."""

import random
from dataclasses import replace
from typing import Any

import pytest
from tests.batches import GZIP, LZ4, NONE, NOW_MS, SNAPPY, ZSTD, Batch, Producer, Sent, compressed

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import resolve_topic
from tidelog.log.record_check import (
    ON_THE_LOOP,
    Budget,
    Lengthy,
    Looked,
    RecordsRefused,
    Rules,
    answer,
    look,
    question_of,
    read_answer,
    rules_of,
)
from tidelog.wire.batch import read_header, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.record import Record

NO_BUDGET = Budget(*(1 << 40 for _ in Budget._fields))


def rules(**settings: str) -> Rules:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return rules_of("t-0", resolve_topic(given, BrokerConfig.parse({})))


def outcome(looked: Any) -> Any:
    """What came of a look, comparable."""
    try:
        found: Looked = looked()
    except RecordsRefused as error:
        return error.code, error.message, error.refused
    except KafkaError as error:
        return error.code, error.message
    return found.max_timestamp, None if found.batch is None else bytes(found.batch)


def aside(wanted: Rules, batch: bytes) -> Looked:
    question, copy = question_of(wanted, batch, NOW_MS)
    assert bytes(copy) == batch
    before = bytes(question)
    told = answer(question)
    assert bytes(question) == before
    return read_answer(told)


def made(seed: int) -> Batch:
    choose = random.Random(seed)
    sent = [
        Sent(
            None if choose.random() < 0.1 else bytes(choose.randint(0, 200)),
            None if choose.random() < 0.05 else b"k" * choose.randint(0, 80),
            [("h", None), ("", b"v")][: choose.randint(0, 2)],
            choose.choice((0, 0, 5, -3, 70)) if choose.random() < 0.9 else choose.choice((10**9, -(10**9))),
        )
        for _ in range(choose.randint(1, 12))
    ]
    if choose.random() < 0.3:
        sent[-1] = replace(sent[-1], offset_delta=choose.randint(0, 50))
    attributes = None
    codec = choose.choice((NONE, GZIP, SNAPPY, LZ4, ZSTD))
    if choose.random() < 0.2:
        attributes = codec | 8
    return Batch(sent, codec=codec, base_timestamp=NOW_MS, attributes=attributes, producer=Producer(5, 1, 77))


SETTINGS: list[dict[str, str]] = [
    {"tidelog_validate": "records"},
    {"cleanup_policy": "compact"},
    {"compression_type": "zstd"},
    {"compression_type": "uncompressed", "message_timestamp_type": "LogAppendTime"},
    {"compression_type": "gzip", "compression_gzip_level": "1", "cleanup_policy": "compact"},
    {"message_timestamp_before_max_ms": "60000"},
    {"max_message_bytes": "200", "compression_type": "snappy"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(settings.values()))
@pytest.mark.parametrize("seed", range(25))
def test_at_once_and_aside_the_same_comes_of_it(settings: dict[str, str], seed: int) -> None:
    wanted, batch = rules(**settings), made(seed).encode()
    right = outcome(lambda: look(wanted, batch, NOW_MS))
    assert outcome(lambda: aside(wanted, batch)) == right
    try:
        within = outcome(lambda: look(wanted, batch, NOW_MS, NO_BUDGET))
    except Lengthy:
        anew = isinstance(right[1], bytes) or right[0] == ErrorCode.MESSAGE_TOO_LARGE
        assert anew, "only what is numbered anew is left for later"
    else:
        assert within == right


def read(batch: bytes | bytearray | memoryview) -> list[Record]:
    header = read_header(batch)
    return list(records(batch, header))


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_records_that_are_squeezed_anew_are_the_same(codec: int, target: str) -> None:
    headers = [("name", b"value"), ("none", None)]
    sent = [Sent(b"v" * place, b"k%d" % place, headers, timestamp_delta=9 - place) for place in range(10)]
    batch = Batch(sent, codec=codec, base_timestamp=NOW_MS, producer=Producer(5, 1, 77)).encode()
    found = look(rules(compression_type=target), batch, NOW_MS)
    assert found.max_timestamp == NOW_MS + 9
    if found.batch is None:
        assert {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}[target] == codec
        return
    assert read(found.batch) == read(batch)
    before, after = read_header(batch), read_header(found.batch)
    kept = ("producer_id", "producer_epoch", "base_sequence", "record_count", "last_offset_delta", "max_timestamp")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]


def test_records_that_are_numbered_wrong_are_numbered_anew() -> None:
    sent = [Sent(b"a", offset_delta=0), Sent(b"b", offset_delta=7), Sent(b"c", offset_delta=2)]
    batch = Batch(sent, codec=ZSTD, base_timestamp=NOW_MS).encode()
    found = look(rules(tidelog_validate="records"), batch, NOW_MS)
    assert found.batch is not None
    assert [(record.offset, record.value) for record in read(found.batch)] == [(0, b"a"), (1, b"b"), (2, b"c")]


def inflating(data: bytes, codec: int = ZSTD, count: int = 1) -> bytes:
    return Batch((), codec=codec, count=count, last_offset_delta=count - 1, body=compressed(codec, data)).encode()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_a_batch_may_inflate_to_is_the_topics_to_say(codec: int) -> None:
    record = Sent(bytes(99_000)).encode(0)
    allowed = rules(tidelog_validate="records", tidelog_inflated_bytes_max=str(len(record)))
    assert look(allowed, inflating(record, codec), NOW_MS) == Looked(Batch(()).base_timestamp, None)
    less = rules(tidelog_validate="records", tidelog_inflated_bytes_max=str(len(record) - 1))
    with pytest.raises(KafkaError, match=r"more than \d+: tidelog.inflated.bytes.max") as caught:
        look(less, inflating(record, codec), NOW_MS)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE, "which a client answers with smaller batches"


def test_how_many_headers_a_batch_may_have_is_the_topics_to_say() -> None:
    sent = [Sent(headers=[("h", b"v")] * 5) for _ in range(4)]
    assert look(rules(tidelog_headers_max="20"), Batch(sent).encode(), NOW_MS).batch is None
    with pytest.raises(KafkaError, match=r"more than 19 headers: tidelog\.headers\.max") as caught:
        look(rules(tidelog_headers_max="19"), Batch(sent).encode(), NOW_MS)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


LONG: dict[str, tuple[bytes, dict[str, str]]] = {
    "records": (Batch([Sent(key=b"k")] * (ON_THE_LOOP.records + 1)).encode(), {}),
    "headers": (Batch([Sent(key=b"k", headers=[("h", b"v")] * (ON_THE_LOOP.headers + 1))]).encode(), {}),
    "bytes": (Batch([Sent(bytes(ON_THE_LOOP.inflated_bytes), b"k")]).encode(), {}),
    "inflated": (Batch([Sent(bytes(ON_THE_LOOP.inflated_bytes), b"k")], codec=ZSTD).encode(), {}),
    "squeezed": (
        Batch([Sent(random.Random(1).randbytes(ON_THE_LOOP.squeezed_bytes), b"k")], codec=ZSTD).encode(),
        {},
    ),
    "rewritten": (Batch([Sent(bytes(ON_THE_LOOP.rewritten_bytes), b"k")]).encode(), {"compression_type": "zstd"}),
    "numbered": (Batch([Sent(key=b"k", offset_delta=3)], codec=ZSTD, last_offset_delta=0).encode(), {}),
}


@pytest.mark.parametrize("what", LONG)
def test_what_takes_long_is_not_done_on_the_loop(what: str) -> None:
    batch, settings = LONG[what]
    wanted = rules(cleanup_policy="compact", **settings)
    with pytest.raises(Lengthy):
        look(wanted, batch, NOW_MS, ON_THE_LOOP)
    assert look(wanted, batch, NOW_MS).max_timestamp == read_header(batch).max_timestamp


def test_what_is_as_long_as_it_may_be_is_done_on_the_loop() -> None:
    wanted = rules(cleanup_policy="compact", compression_type="zstd")
    many = Batch([Sent(b"", b"")] * ON_THE_LOOP.records).encode()
    assert look(wanted, many, NOW_MS, ON_THE_LOOP).batch is not None
    headers = Batch([Sent(key=b"k", headers=[("", b"")] * ON_THE_LOOP.headers)]).encode()
    assert look(wanted, headers, NOW_MS, ON_THE_LOOP).batch is not None
