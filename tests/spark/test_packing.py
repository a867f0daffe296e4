"""Columns as records: what is packed is what wire/record.py reads, compiled or not; keys go where Java sends them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("librt", reason="needs pip install tidelog[spark]")

import pyarrow

from tidelog.spark import native
from tidelog.spark.sink import pack
from tidelog.spark.sink.arrow_buffers import buffers
from tidelog.wire.record import walk_records

arrow: Any = pyarrow
rows = st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=300)), max_size=30)


@pytest.mark.parametrize("kind", ["compiled", "plain"])
@given(rows=rows, partitions=st.integers(1, 5))
@settings(max_examples=60)
def test_every_row_becomes_one_record(kind: str, rows: list[Any], partitions: int) -> None:
    module = pack if kind == "plain" else native.packer()[0]
    held = [module.Partitioned() for _ in range(partitions)]
    keys = buffers(arrow.array([key for key, _ in rows], type=arrow.binary()))
    values = buffers(arrow.array([value for _, value in rows], type=arrow.binary()))
    row = 0
    while row < len(rows):
        row = module.pack(held, row, len(rows), *keys, *values, b"", 0, 1 << 20)
    packed = []
    for index, each in enumerate(held):
        count = each.count
        section = each.taken()
        records = list(walk_records(section, count, 0, 0, None))
        assert [record.offset for record in records] == list(range(count))
        assert all(
            record.key is None or pack.murmur2(record.key, 0, len(record.key)) % partitions == index
            for record in records
        )
        packed += [(record.key, record.value) for record in records]
    assert sorted(packed, key=repr) == sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_keys_are_hashed_as_java_hashes_them(key: bytes, hashed: int) -> None:
    assert pack.murmur2(key, 0, len(key)) == hashed & 0x7FFFFFFF
    assert native.packer()[0].murmur2(key, 0, len(key)) == hashed & 0x7FFFFFFF


def test_a_slice_of_a_column_is_itself() -> None:
    whole = arrow.array([b"a", None, b"ccc", b""], type=arrow.binary())
    ends, data, nulls = buffers(whole.slice(1, 3))
    assert (len(ends), nulls) == (16, b"\1\0\0")
    assert data[int.from_bytes(ends[4:8], "little") : int.from_bytes(ends[8:12], "little")] == b"ccc"
