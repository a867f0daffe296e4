"""Records as Arrow columns: what wire/record.py reads is what Spark gets, compiled or not."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("librt", reason="needs pip install tidelog[spark]")

from tidelog.spark import native
from tidelog.spark.source import columns, walk
from tidelog.spark.source.columns import Decoder, Range
from tidelog.wire.batch import APPEND_TIME, HEADER_BYTES, build, read_header, records, seal
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import marker_record
from tidelog.wire.record import Record, RecordError, walk_records

EVERYTHING = Range("orders", 3, 0, 1 << 60)
pair = st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8))
record = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.integers(-(2**40), 2**40),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(pair, max_size=3).map(tuple),
)


@pytest.fixture(params=["compiled", "plain"], autouse=True, scope="module")
def decoder_kind(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr("tidelog.spark.source.columns.walker", lambda: (walk, False))
        elif not native.walker()[1]:
            pytest.skip("no compiled decoder here: it needs a C compiler and mypy")
        yield request.param


def rows(*batches: bytes | bytearray, wanted: Range = EVERYTHING, aborted: Any = (), **kinds: Any) -> list[Any]:
    decoder = Decoder(wanted, headers=True, **kinds)
    pylist: list[Any] = []
    for made in decoder.feed(memoryview(b"".join(batches)), aborted):
        made.validate(full=True)
        pylist += made.to_pylist()
    return pylist


def as_records(pylist: list[Any]) -> list[Record]:
    return [
        Record(
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((pair["key"], pair["value"]) for pair in row["headers"] or ()),
        )
        for row in pylist
    ]


@given(st.lists(st.lists(record, min_size=1, max_size=8), min_size=1, max_size=4), st.integers(0, 4))
@settings(max_examples=100)
def test_columns_hold_what_the_records_hold(batches: list[list[Record]], codec: int) -> None:
    built: list[bytearray] = []
    expected: list[Record] = []
    offset = 5
    for batch in batches:
        made = build(batch, base_offset=offset, compression=codec)
        built.append(made)
        expected += records(made, read_header(made))
        offset += len(batch) + 2  # gaps, as compaction leaves them
    pylist = rows(*built)
    assert as_records(pylist) == expected
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in pylist} == {("orders", 3, 0)}
    assert [row["headers"] is None for row in pylist] == [not each.headers for each in expected]


@given(st.lists(record, min_size=1, max_size=20), st.integers(0, 25), st.integers(0, 25))
@settings(max_examples=60)
def test_only_the_wanted_offsets_come(batch: list[Record], start: int, end: int) -> None:
    pylist = rows(build(batch, base_offset=3), wanted=Range("orders", 3, start, end))
    assert [row["offset"] for row in pylist] == [offset for offset in range(3, 3 + len(batch)) if start <= offset < end]


@given(st.binary(max_size=60), st.integers(0, 6))
@settings(max_examples=300)
def test_what_is_no_record_is_refused_just_as_the_wire_refuses_it(section: bytes, count: int) -> None:
    module = columns.walker()[0]
    out = module.Walked()
    try:
        expected = list(walk_records(section, count, 0, 0, None))
    except RecordError:
        expected = None
    try:
        module.walk(out, section, 0, len(section), count, 0, 0, 0, False, -(1 << 40), 1 << 40, True)
        row_count = out.rows
    except (ValueError, IndexError):
        row_count = None
    assert row_count == (None if expected is None else len(expected))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_timestamps_of_64_bits_wrap_as_in_every_client(base: int, delta: int) -> None:
    module = importlib.import_module("tidelog.spark.source.walk")
    wrapped = (base + delta + 2**63) % 2**64 - 2**63
    assert module.sum_of(base, delta) == native.walker()[0].sum_of(base, delta) == wrapped


def test_the_broker_dates_a_batch_of_log_append_time() -> None:
    made = build([Record(timestamp=1000, value=b"a")], timestamp_type=APPEND_TIME, append_time=7000)
    [row] = rows(made)
    assert (row["timestampType"], row["timestamp"].timestamp()) == (1, 7.0)


def test_times_beyond_sparks_calendar_become_the_nearest_it_has() -> None:
    made = build([Record(timestamp=2**62, value=b"a")])
    [batch] = Decoder(EVERYTHING).feed(memoryview(made))
    assert batch.column("timestamp").cast("int64").to_pylist() == [((1 << 63) // 1000 - 1) * 1000]


def test_tombstones_and_missing_keys_are_null_and_empty_ones_are_not() -> None:
    made = build([Record(0, 0, b"k", None), Record(1, 0, None, b""), Record(2, 0, b"", b"v")])
    assert [(row["key"], row["value"]) for row in rows(made)] == [(b"k", None), (None, b""), (b"", b"v")]


def test_header_names_that_are_not_utf8_are_replaced() -> None:
    made = build([Record(0, 0, None, b"v", (("a\udcff", b"1"),))])
    assert rows(made)[0]["headers"] == [{"key": "a�", "value": b"1"}]


def transactional(producer: int, offset: int, *values: bytes) -> bytearray:
    made = [Record(timestamp=0, value=value) for value in values]
    return build(made, base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)


def marker(producer: int, offset: int, *, commit: bool) -> bytearray:
    record = marker_record(0, 0, commit=commit)
    return build([record], base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True, control=True)


LOG = [
    transactional(1, 0, b"a"),
    transactional(2, 1, b"b"),
    marker(1, 2, commit=False),
    transactional(1, 3, b"c"),
    marker(2, 4, commit=True),
    build([Record(timestamp=0, value=b"d")], base_offset=5),
    marker(1, 6, commit=True),
]


def test_aborted_transactions_are_left_out_and_markers_never_come() -> None:
    assert [row["value"] for row in rows(*LOG, aborted=[(1, 0)], committed=True)] == [b"b", b"c", b"d"]
    assert [row["value"] for row in rows(*LOG)] == [b"a", b"b", b"c", b"d"]


def test_an_aborted_transaction_may_span_fetches_and_begin_before_the_first() -> None:
    decoder = Decoder(EVERYTHING, committed=True)
    parts = [(transactional(1, 10, b"a"), [(1, 4)]), (transactional(1, 11, b"b"), [(1, 4)])]
    parts += [(marker(1, 12, commit=False), [(1, 4)]), (transactional(1, 13, b"c"), [])]
    values = [row["value"] for part, aborted in parts for made in decoder.feed(memoryview(part), aborted)
             for row in made.to_pylist()]  # fmt: skip
    assert values == [b"c"]


def test_a_flipped_bit_is_said_not_read_and_where_it_is() -> None:
    made = build([Record(timestamp=0, value=b"a" * 50)], base_offset=7)
    made[80] ^= 1
    with pytest.raises(KafkaError, match=r"orders-3: record batch at offset 7: .*checksum") as raised:
        rows(build([Record(timestamp=0)]), made)
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_does_not_inflate_is_said_with_its_place(codec: int) -> None:
    made = build([Record(timestamp=0, value=b"a" * 500)], base_offset=7, compression=codec)
    made[HEADER_BYTES:] = b"\xff" * (len(made) - HEADER_BYTES)
    seal(made, 0, len(made))
    with pytest.raises(KafkaError, match="orders-3: record batch at offset 7: corrupt"):
        rows(made)


def test_older_formats_are_said_with_their_place() -> None:
    made = build([Record(timestamp=0)], base_offset=7)
    made[16] = 1
    with pytest.raises(KafkaError, match="orders-3: record batch at offset 7: record batch of magic 1"):
        rows(made)


def test_records_that_are_next_to_nothing_make_several_arrow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROWS_MAX", 10)
    built = [build([Record(timestamp=0)] * 6, base_offset=offset) for offset in (0, 6, 12)]
    built.append(build([Record(timestamp=0)] * 35, base_offset=18, last_offset_delta=40))
    made = list(Decoder(Range("orders", 3, 2, 50)).feed(memoryview(b"".join(built))))
    assert [batch.num_rows for batch in made] == [4, 6, 6, 10, 10, 10, 2]
    assert [offset for batch in made for offset in batch.column("offset").to_pylist()] == list(range(2, 50))


def test_holes_that_compaction_left_inside_a_batch_keep_the_offsets() -> None:
    left = [Record(offset, 5, b"k", b"%d" % offset) for offset in (21, 24, 29)]
    made = build(left, base_offset=20, last_offset_delta=15, delete_horizon=3)
    assert [(row["offset"], row["value"]) for row in rows(made)] == [(21, b"21"), (24, b"24"), (29, b"29")]
    assert {row["timestamp"].timestamp() for row in rows(made)} == {0.005}
    assert rows(build([], base_offset=20, last_offset_delta=15)) == []


def test_batches_that_compaction_emptied_say_nothing() -> None:
    empty = {"base_offset": 5, "producer_id": 1, "producer_epoch": 0, "transactional": True}
    squeezed = build([], compression=4, **empty)
    del squeezed[HEADER_BYTES:]
    squeezed[8:12] = (HEADER_BYTES - 12).to_bytes(4, "big")
    seal(squeezed, 0, len(squeezed))
    emptied_marker = build([], control=True, **empty)
    pylist = rows(
        LOG[0], squeezed, emptied_marker, LOG[3], marker(1, 9, commit=False), aborted=[(1, 0)], committed=True
    )
    assert pylist == []


def test_no_rows_make_no_batch() -> None:
    assert list(Decoder(Range("orders", 0, 100, 200)).feed(memoryview(build([Record(timestamp=0)])))) == []
    assert list(Decoder(EVERYTHING).feed(memoryview(b""))) == []
