"""Lengths that no client writes and every client reads: negative ones are null, numbers have more bytes than needed."""

import pytest
from tests.batches import Batch, Sent, varint
from tests.log.harness import NOW_MS, LogHarness, send
from tests.log.keyed import clean, compacted, pairs, put, roll

from tidelog.wire.errors import ErrorCode, KafkaError

NULLS = {
    "-2": varint(-2),
    "-1 in two bytes": b"\x81\x00",
    "-1 in five bytes": b"\x81\x80\x80\x80\x00",
    "least": varint(-(2**31)),
}
LONG_ZERO, LONG_ONE = b"\x80\x80\x00", b"\x82\x80\x00"


def record(key: bytes, value: bytes, *, stamp: bytes = b"\0", offset: bytes = b"\0", padded: bool = False) -> Batch:
    """A batch of one record: key and value with their lengths."""
    body = b"\0" + stamp + offset + key + value + b"\0"
    size = varint(len(body))
    if padded:
        size = size[:-1] + bytes([size[-1] | 0x80, 0x80, 0])
    return Batch([Sent()], body=size + body, base_timestamp=NOW_MS)


@pytest.mark.parametrize("null", NULLS.values(), ids=NULLS)
def test_a_key_of_any_negative_length_is_none(sim: LogHarness, null: bytes) -> None:
    """Written before the topic was compacted: refused since, and no damage."""
    log = sim.log()
    send(log, record(null, varint(1) + b"v"))
    put(log, (b"k", b"old"))
    put(log, (b"k", b"new"))
    log.configure(sim.topic({"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}))
    with pytest.raises(KafkaError) as refused:
        send(log, record(null, varint(1) + b"v"))
    assert refused.value.code == ErrorCode.INVALID_RECORD
    roll(sim, log)
    clean(sim, log)
    assert sim.store.upkeep.cleaner.uncleanable == {}
    assert pairs(log) == [(2, b"k", b"new")]


@pytest.mark.parametrize("null", NULLS.values(), ids=NULLS)
def test_a_value_of_any_negative_length_is_a_tombstone(sim: LogHarness, null: bytes) -> None:
    log = compacted(sim, delete_retention_ms="0")
    put(log, (b"k", b"v"))
    send(log, record(varint(1) + b"k", null))
    put(log, (b"other", b"v"))
    for _ in range(3):
        roll(sim, log)
        clean(sim, log)
        sim.settle(10)
        put(log, (b"other", b"v"))
    assert sim.store.upkeep.cleaner.uncleanable == {}
    assert {key for _, key, _ in pairs(log)} == {b"other"}


@pytest.mark.parametrize("padded", [False, True])
def test_numbers_of_more_bytes_than_needed_are_read(sim: LogHarness, padded: bool) -> None:
    log = compacted(sim)
    send(log, record(varint(1) + b"k", varint(1) + b"1"))
    send(log, record(LONG_ONE + b"k", LONG_ONE + b"2", stamp=LONG_ZERO, offset=LONG_ZERO, padded=padded))
    send(log, record(LONG_ONE + b"j", LONG_ONE + b"3", stamp=LONG_ZERO, offset=LONG_ZERO, padded=padded))
    put(log, (b"j", b"4"))
    roll(sim, log)
    clean(sim, log)
    assert sim.store.upkeep.cleaner.uncleanable == {}
    assert pairs(log) == [(1, b"k", b"2"), (3, b"j", b"4")]
