"""Keys and values, read the short way: what the whole way reads, and no further than it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.pairs import pairs
from tidelog.wire.batch import HEADER_BYTES, build
from tidelog.wire.errors import MalformedError
from tidelog.wire.record import Record, RecordError, walk_records

texts = st.none() | st.binary(max_size=200)
records = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.integers(0, 2**50),
    key=texts,
    value=texts,
    headers=st.lists(st.tuples(st.text(max_size=3), texts), max_size=2).map(tuple),
)


@given(st.lists(records, max_size=6), st.lists(st.integers(1, 5000), min_size=6, max_size=6))
def test_pairs_are_those_of_the_records(given_records: list[Record], gaps: list[int]) -> None:
    offset = 0
    numbered = []
    for record, gap in zip(given_records, gaps, strict=False):
        numbered.append(record._replace(offset=offset))
        offset += gap
    section = bytes(build(numbered))[HEADER_BYTES:]
    assert list(pairs(section, len(numbered))) == [(one.offset, one.key, one.value) for one in numbered]


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_bytes_that_are_no_records_are_refused_and_never_read_past(
    given_records: list[Record], data: st.DataObject
) -> None:
    section = bytearray(build(given_records)[HEADER_BYTES:])
    place = data.draw(st.integers(0, len(section) - 1))
    section[place] = data.draw(st.integers(0, 255))
    cut = bytes(section[: data.draw(st.integers(0, len(section)))])
    try:
        expected = [(one.offset, one.key, one.value) for one in walk_records(cut, len(given_records), 0, 0, None)]
    except RecordError:
        return
    assert list(pairs(cut, len(given_records))) == expected


@pytest.mark.parametrize(
    "section", [b"", b"\x10", b"\x10\x00\x00\x00\x02k", b"\x0a\x00\x00\x00\x7e\x7e\x00", b"\xff" * 20]
)
def test_what_is_cut_off_is_malformed(section: bytes) -> None:
    with pytest.raises(MalformedError):
        list(pairs(section, 1))
