"""The bytes of a journal: what was written is read, and what is torn or older isn't."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Batch, Sent

from tidelog.log.journal_blocks import (
    ALIGNMENT,
    Entry,
    Piece,
    batches_of,
    block_bytes,
    encode_block,
    entry_bytes,
    read_blocks,
)
from tidelog.log.journal_replay import additions, lasting
from tidelog.log.scan import read_fields

TOPIC_ID = bytes(range(16))

pieces = st.lists(
    st.builds(
        Piece,
        st.text("abcé.", min_size=1, max_size=20),
        st.binary(min_size=16, max_size=16),
        st.integers(0, 2**31 - 1),
        st.just(1000),
        st.integers(1000, 2000),
        st.integers(2000, 3000),
        st.binary(max_size=200),
    ),
    min_size=1,
    max_size=5,
)


class Bytes(NamedTuple):
    """A file."""

    data: bytes
    path: str = "journal"

    def size(self) -> int:
        return len(self.data)

    def read(self, pos: int, count: int) -> bytes:
        return self.data[pos : pos + count]


def found(data: bytes) -> list[list[Piece]]:
    return [
        [
            Piece(*entry[1:4], entry.segment_base, entry.start, entry.end, data[entry.position :][: entry.size])
            for entry in block.entries
        ]
        for block in read_blocks(Bytes(data))
    ]


@given(st.lists(pieces, max_size=4))
def test_what_was_written_is_read(blocks: list[list[Piece]]) -> None:
    data = b"".join(encode_block(number, block) for number, block in enumerate(blocks, 7))
    assert found(data + bytes(3 * ALIGNMENT)) == blocks


@given(pieces)
def test_a_block_takes_no_more_than_was_reckoned(block: list[Piece]) -> None:
    data = encode_block(1, block)
    assert len(data) % ALIGNMENT == 0
    assert len(data) <= block_bytes(sum(entry_bytes(piece.topic, len(piece.data)) for piece in block))


@given(st.lists(pieces, min_size=2, max_size=3), st.data())
def test_nothing_counts_from_a_damaged_block_on(blocks: list[list[Piece]], data: st.DataObject) -> None:
    encoded = [encode_block(number, block) for number, block in enumerate(blocks)]
    bad = data.draw(st.integers(0, len(blocks) - 1))
    contents = len(encoded[bad].rstrip(b"\0"))
    pos = data.draw(st.integers(0, contents - 1))
    torn = bytearray(encoded[bad])
    torn[pos] ^= data.draw(st.integers(1, 255))
    assert found(b"".join((*encoded[:bad], bytes(torn), *encoded[bad + 1 :]))) == blocks[:bad]


@given(pieces, pieces)
def test_what_an_earlier_use_of_the_file_left_does_not_count(old: list[Piece], new: list[Piece]) -> None:
    left = b"".join(encode_block(number, old) for number in range(5))
    written = encode_block(5, new)
    assert found(written + left[len(written) :]) == [new]


# -- what is added to a log


def batch(base: int, *values: bytes, epoch: int = 3) -> bytes:
    data = bytearray(Batch([Sent(value) for value in values]).encode())
    data[:8] = base.to_bytes(8)
    data[12:16] = epoch.to_bytes(4)
    return bytes(data)


class Kept:
    """Entries of one log, one batch each."""

    def __init__(self, *batches: bytes, segment_base: int = 0) -> None:
        self.data = list(batches)
        self.entries: list[Entry] = []
        for number, data in enumerate(batches):
            fields = read_fields(data)
            start, end = fields.base_offset, fields.last_offset + 1
            self.entries.append(Entry(number, "t", TOPIC_ID, 0, segment_base, start, end, "", number, len(data)))

    def added(self, next_offset: int, last: bytes | None, segment_base: int = 0) -> list[bytes]:
        fields = None if last is None else read_fields(last)
        found = additions(self.entries, lambda entry: self.data[entry.position], segment_base, next_offset, fields)
        return [addition.data for addition in found]


A, B, C = batch(0, b"a"), batch(1, b"b"), batch(2, b"c", b"d")


def test_what_comes_next_is_added() -> None:
    kept = Kept(A, B, C)
    assert kept.added(0, None) == [A, B, C]
    assert kept.added(1, A) == [B, C]
    assert kept.added(4, C) == []


def test_nothing_is_added_behind_a_hole() -> None:
    assert Kept(A, C).added(0, None) == [A]
    assert Kept(C).added(1, A) == []


def test_nothing_is_added_behind_another_batch() -> None:
    assert Kept(A, B, C).added(2, batch(1, b"other")) == []
    assert Kept(B, C).added(1, batch(0, b"any")) == [B, C]  # it knows of no other


def test_what_an_earlier_segment_had_may_have_been_compacted() -> None:
    kept = Kept(A, B, C)
    kept.entries[2] = kept.entries[2]._replace(segment_base=2)
    assert kept.added(2, batch(1, b"compacted"), segment_base=2) == [C]
    assert kept.added(2, batch(0, b"compacted"), segment_base=2) == [C]
    assert kept.added(2, batch(1, b"compacted", epoch=4), segment_base=2) == []


def test_nothing_is_added_within_a_batch() -> None:
    assert Kept(C).added(3, batch(2, b"other")) == []


def test_nothing_is_added_of_an_older_leader() -> None:
    assert Kept(B, C).added(1, batch(0, b"a", epoch=4)) == []


def test_an_entry_may_hold_what_is_there_already() -> None:
    kept = Kept(A)
    kept.data[0] = A + B
    kept.entries[0] = kept.entries[0]._replace(end=2, size=len(A + B))
    assert kept.added(1, A) == [B]
    assert kept.added(1, batch(0, b"other")) == []


def test_who_begins_again_further_back_takes_the_place_of_what_was_there() -> None:
    other = batch(1, b"other")
    kept = Kept(A, B, C, other)
    assert [entry.number for entry in lasting(kept.entries)] == [0, 3]
    assert kept.added(0, None) == [A, other]


def test_batches_that_are_damaged_are_none() -> None:
    assert batches_of(A + B) is not None
    assert batches_of(A + A) is None
    assert batches_of(A[:-1]) is None
    damaged = bytearray(A)
    damaged[-1] ^= 1
    assert batches_of(damaged) is None
    assert batches_of(A + b"\0" * 10) is None
