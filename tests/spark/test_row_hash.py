"""A batch's fingerprint by its rows: order and cuts don't show in it, and everything else of a row does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("librt", reason="needs pip install tidelog[spark]")

import pyarrow

from tidelog.spark import native
from tidelog.spark.sink import pack
from tidelog.spark.sink.row_hash import RowHash

arrow: Any = pyarrow
HEADERS = arrow.list_(arrow.struct([("key", arrow.string()), ("value", arrow.binary())]))
SCHEMA = arrow.schema(
    [
        ("topic", arrow.string()),
        ("key", arrow.binary()),
        ("value", arrow.binary()),
        ("partition", arrow.int32()),
        ("headers", HEADERS),
    ]
)
header = st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.none() | st.binary(max_size=2)})
row = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "b"]),
        "key": st.none() | st.binary(max_size=9),
        "value": st.none() | st.binary(max_size=40),
        "partition": st.none() | st.integers(0, 3),
        "headers": st.none() | st.lists(header, max_size=2),
    }
)
rows = st.lists(row, max_size=12)


def table(rows: list[dict[str, Any]], *columns: str) -> Any:
    return arrow.RecordBatch.from_pylist(rows, schema=SCHEMA).select(list(columns or SCHEMA.names))


def hashed(batches: list[Any], topic: str | None = None) -> int:
    row_hash = RowHash(topic)
    for each in batches:
        row_hash.add(each)
    assert row_hash.rows == sum(each.num_rows for each in batches)
    return row_hash.total


@pytest.mark.parametrize("kind", ["compiled", "plain"])
@given(rows=rows, cut=st.integers(0, 12), seed=st.randoms())
@settings(max_examples=60)
def test_order_and_cuts_do_not_show(kind: str, rows: list[dict[str, Any]], cut: int, seed: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        packer = (pack, False) if kind == "plain" else native.packer()
        patch.setattr("tidelog.spark.sink.row_hash.packer", lambda: packer)
        whole = hashed([table(rows)])
        shuffled = seed.sample(rows, len(rows))
        assert hashed([table(shuffled[:cut]), table(shuffled[cut:])]) == whole
        assert hashed([table([{}, *rows]).slice(1)]) == whole
    assert hashed([table(rows)]) == whole  # of the one and the other


@given(rows=rows.filter(bool), other=row, at=st.integers(0, 11))
@settings(max_examples=200)
def test_another_row_shows(rows: list[dict[str, Any]], other: dict[str, Any], at: int) -> None:
    def meant(row: dict[str, Any]) -> Any:
        return {**row, "headers": row["headers"] or []}

    place = at % len(rows)
    changed = [*rows[:place], other, *rows[place + 1 :]]
    same = meant(other) == meant(rows[place])
    assert (hashed([table(changed)]) == hashed([table(rows)])) == same
    assert hashed([table([*rows, other])]) != hashed([table(rows)])


def test_columns_that_say_nothing_do_not_show() -> None:
    rows = [{"topic": "a", "key": None, "value": b"%d" % number} for number in range(5)]
    whole = hashed([table(rows)])
    assert hashed([table(rows, "value")], "a") == hashed([table(rows, "topic", "value")]) == whole
    assert hashed([table(rows, "value")], "b") != whole
    texts = arrow.record_batch({"value": [f"{number}" for number in range(5)]})
    assert hashed([texts], "a") == whole
