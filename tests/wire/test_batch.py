"""Record batches: other people's builders and ours read each other, and hostile bytes are told."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.wire import varint
from tidelog.wire.batch import (
    APPEND_TIME,
    HEADER_BYTES,
    build,
    check,
    iterate,
    read_header,
    records,
    seal,
    stamp_append_time,
)
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import marker_record, read_marker
from tidelog.wire.record import Record, encode_record

with warnings.catch_warnings():  # kafka-python reads its schemas by a way that Python deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=3).map(tuple)
record_lists = st.lists(
    st.builds(
        Record, offset=st.just(-1), timestamp=st.integers(0, 2**42), key=maybe_bytes, value=maybe_bytes, headers=headers
    ),
    min_size=1,
    max_size=10,
)
codecs = st.integers(0, 4)


def read(buffer: bytes | bytearray) -> list[Record]:
    header = read_header(buffer)
    check(buffer, header, len(buffer))
    return list(records(buffer, header))


def theirs(batch: Any) -> Iterator[Record]:
    assert batch.validate_crc()
    for record in batch:
        yield Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


@given(found=record_lists, codec=codecs)
@pytest.mark.parametrize("oracle", [KafkaPythonBatch, AiokafkaBatch])
def test_other_clients_read_what_is_built_here(oracle: Any, found: list[Record], codec: int) -> None:
    built = build(found, base_offset=1000, producer_id=7, producer_epoch=1, base_sequence=3, compression=codec)
    expected = [record._replace(offset=1000 + index) for index, record in enumerate(found)]
    batch = oracle(bytes(built))
    assert list(theirs(batch)) == expected
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 3)
    assert read(built) == expected


@given(found=record_lists, codec=codecs)
@pytest.mark.parametrize("oracle", [KafkaPythonBuilder, AiokafkaBuilder])
def test_what_other_clients_build_is_read_here_and_built_the_same(oracle: Any, found: list[Record], codec: int) -> None:
    builder = oracle(2, codec, 0, 5, 2, 9, 1 << 20)
    for index, record in enumerate(found):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    built = bytes(builder.build())
    assert read(built) == [record._replace(offset=index) for index, record in enumerate(found)]
    if not read_header(built).codec:  # they fall back to none where squeezing gains nothing
        ours = build(found, leader_epoch=-1, producer_id=5, producer_epoch=2, base_sequence=9)
        header = read_header(built)
        assert bytes(ours)[21:] == built[21:]
        assert header.crc == read_header(ours).crc


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_a_varint_comes_back(value: int) -> None:
    encoded = varint.encode(value)
    assert varint.decode(encoded, 0, len(encoded), 64) == (value, len(encoded))
    with pytest.raises(varint.VarintError):
        varint.decode(encoded, 0, len(encoded) - 1, 64)


def test_a_varint_longer_than_its_type_is_told() -> None:
    with pytest.raises(varint.VarintError, match="longer than 32 bits"):
        varint.decode(b"\xff" * 5 + b"\x01", 0, 6)
    with pytest.raises(varint.VarintError, match="longer than 64 bits"):
        varint.decode(b"\xff" * 10 + b"\x01", 0, 11, 64)
    assert varint.decode(varint.encode(-(2**31)), 0, 5) == (-(2**31), 5)


@given(found=record_lists, codec=codecs, data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_damaged_records_with_a_right_checksum_give_one_clear_error_or_records(
    found: list[Record], codec: int, data: st.DataObject
) -> None:
    built = build(found, compression=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        pos = data.draw(st.integers(HEADER_BYTES - 4, len(built) - 1))
        built[pos] = data.draw(st.integers(0, 255))
    seal(built, 0, len(built))
    header = read_header(built)
    told: KafkaError | None = None
    walked: list[Record] = []
    try:
        walked = list(records(built, header, 1 << 20))
    except KafkaError as error:
        told = error
    if told is None:
        assert len(walked) == header.record_count
    else:
        assert told.code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
        assert told.message


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (b"", 1, "1 records can't be in 0 bytes"),
        (b"\0" * 7, 2**31 - 1, "can't be in"),
        (varint.encode(500) + b"\0" * 7, 1, "claims 500 bytes"),
        (varint.encode(-5) + b"\0" * 7, 1, "claims -5 bytes"),
        (encode_record(Record(value=b"v"), 0, 0) + b"x", 1, "left behind the last"),
        (encode_record(Record(value=b"v" * 9), 0, 0)[:-3], 1, "claims"),
        (varint.encode(8) + b"\0\0\0\x01\x01\0xx", 1, "left at the record's end"),
        (varint.encode(6) + b"\0\0\0\x01\x01\x02", 1, "headers can't be"),
        (varint.encode(6) + b"\0\0\0\x01\x01\x01", 1, "headers can't be"),
        (varint.encode(8) + b"\0\0\0\x01\x01\x02\x01\x01", 1, "no name"),
        (varint.encode(7) + b"\0\0\0\x28\x01\x00x", 1, "key claims 20 bytes"),
    ],
)
def test_records_that_are_not_well_formed_are_told(body: bytes, count: int, reason: str) -> None:
    built = build([Record(value=b"v")])
    built[HEADER_BYTES:] = body
    built[8:12] = (len(built) - 12).to_bytes(4)
    built[57:61] = count.to_bytes(4)
    seal(built, 0, len(built))
    with pytest.raises(KafkaError, match=reason) as failure:
        read(built)
    assert failure.value.code == ErrorCode.INVALID_RECORD


def test_a_header_says_what_its_batch_is() -> None:
    built = build(
        [Record(value=b"a", timestamp=5), Record(value=b"b", timestamp=4)],
        base_offset=10,
        leader_epoch=3,
        producer_id=1,
        producer_epoch=0,
        base_sequence=2**31 - 1,
        transactional=True,
    )
    header = read_header(built)
    assert (header.size, header.end, header.last_offset, header.next_offset) == (len(built), len(built), 11, 12)
    assert (header.last_sequence, header.transactional, header.control, header.delete_horizon) == (0, True, False, None)
    assert (header.max_timestamp, header.base_timestamp, header.leader_epoch, header.timestamp_type) == (5, 5, 3, 0)


def test_compaction_keeps_offsets_and_the_range_of_a_batch() -> None:
    kept = [Record(offset=12, timestamp=7, key=b"k", value=b"v")]
    built = build(kept, base_offset=10, last_offset_delta=5, delete_horizon=99)
    header = read_header(built)
    assert (header.last_offset, header.delete_horizon, header.record_count) == (15, 99, 1)
    assert read(built) == kept


def test_an_empty_batch_of_compaction_is_read() -> None:
    built = build([], base_offset=10, last_offset_delta=5, producer_id=4, producer_epoch=0, base_sequence=0)
    assert read(built) == []
    assert read_header(built).last_sequence == 5


def test_append_time_dates_every_record() -> None:
    built = build([Record(value=b"a", timestamp=5), Record(value=b"b", timestamp=9)])
    stamp_append_time(built, 0, len(built), 1234)
    assert [record.timestamp for record in read(built)] == [1234, 1234]
    assert read_header(built).timestamp_type == APPEND_TIME
    made = build([Record(value=b"a", timestamp=5)], timestamp_type=APPEND_TIME, append_time=77)
    assert [record.timestamp for record in read(made)] == [77]


def test_offsets_are_patched_without_a_new_checksum() -> None:
    built = build([Record(value=b"a")])
    built[:8] = (500).to_bytes(8)
    assert [record.offset for record in read(built)] == [500]


def test_a_timestamp_beyond_64_bits_wraps() -> None:
    built = build([Record(value=b"a", timestamp=2**63 - 1), Record(value=b"b", timestamp=2**63 - 1)])
    record = bytearray(encode_record(Record(value=b"a"), 0, 5) + encode_record(Record(value=b"b"), 1, 5))
    built[HEADER_BYTES:] = record
    built[8:12] = (len(built) - 12).to_bytes(4)
    seal(built, 0, len(built))
    assert read(built)[0].timestamp == -(2**63) + 4


def test_a_header_key_that_is_no_utf8_survives() -> None:
    built = build([Record(value=b"a", headers=(("\udcff", b"1"),))])
    assert b"\xff" in built
    assert read(built)[0].headers == (("\udcff", b"1"),)


def test_batches_are_walked_up_to_the_one_that_is_cut_off() -> None:
    first, second = build([Record(value=b"a")]), build([Record(value=b"b")], base_offset=1)
    whole = bytes(first + second)
    assert [header.base_offset for header in iterate(whole)] == [0, 1]
    for cut in range(len(first), len(whole)):
        assert [header.base_offset for header in iterate(whole, 0, cut)] == [0]
    assert [header.pos for header in iterate(whole, len(first))] == [len(first)]


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_that_no_batch_has_ends_the_walk_with_an_error(length: int) -> None:
    built = build([Record(value=b"a")])
    built[8:12] = length.to_bytes(4, signed=True)
    with pytest.raises(KafkaError) as failure:
        list(iterate(built))
    assert failure.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("at", "value", "code"),
    [
        (16, 1, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (11, 0xFF, ErrorCode.CORRUPT_MESSAGE),
        (22, 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (30, 1, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_batch_that_is_wrong_is_told(at: int, value: int, code: ErrorCode) -> None:
    built = build([Record(value=b"a")])
    built[at] = value
    with pytest.raises(KafkaError) as failure:
        check(built, read_header(built), len(built))
    assert failure.value.code == code


def test_fewer_bytes_than_a_header_are_told() -> None:
    with pytest.raises(KafkaError, match="61 bytes at least"):
        read_header(bytes(60))


def test_a_batch_that_inflates_beyond_the_limit_is_refused() -> None:
    built = build([Record(value=bytes(1_000_000))], compression=4)
    with pytest.raises(KafkaError, match="more than the 100000 bytes"):
        list(records(built, read_header(built), 100_000))


def test_a_marker_comes_back() -> None:
    for commit in (True, False):
        built = build([marker_record(7, 5, commit=commit)], control=True, producer_id=1, producer_epoch=0)
        assert read_header(built).control
        assert read_marker(read(built)[0]) == (commit, 7)


@pytest.mark.parametrize("record", [Record(), Record(key=b"\0\0\0\x02", value=bytes(6)), Record(key=bytes(4))])
def test_a_control_record_that_is_no_marker_is_told(record: Record) -> None:
    with pytest.raises(KafkaError):
        read_marker(record)
