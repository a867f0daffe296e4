"""Lakes written by Spark: small files merged, tables by key, and what would have lost rows without a word."""

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.spark.pipeline.sinks.lake import OtherShape, append, current, upsert
from tidelog.spark.pipeline.sinks.lake_files import Writer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]


@pytest.mark.long
def test_a_table_keeps_the_newest_by_its_own_time_and_columns_that_came_later(spark: Any, tmp_path: Path) -> None:
    def put(rows: list[tuple[Any, ...]], columns: str, writer: str = "w1", buckets: int = 2) -> tuple[int, str]:
        table = spark.createDataFrame(rows, columns).selectExpr("*", "to_timestamp(at_text) as at").drop("at_text")
        return upsert(table, Writer(tmp_path, writer), ["id"], "at", buckets)

    put([(1, "a", "2026-01-31 12:00:00.5"), (2, "b", "2026-01-31 12:00:00")], "id long, name string, at_text string")
    left_out, example = put(
        [(1, "newer", "2026-02-01 00:00:00", "Brest"), (None, "nobody", "2026-02-01 00:00:00", None)],
        "id long, name string, at_text string, city string",
    )
    assert (left_out, example) == (1, '{"name":"nobody","at":"2026-02-01T00:00:00.000Z"}')
    put([(2, "older", "2026-01-30 00:00:00"), (3, "c", "2026-01-30 00:00:00")], "id long, name string, at_text string")
    put([(1, "w2", "2026-03-01 00:00:00")], "id long, name string, at_text string", writer="w2")  # a state begun anew
    rows = current(spark, str(tmp_path)).orderBy("id").collect()
    assert [(row.id, row.name, row.city) for row in rows] == [(1, "w2", None), (2, "b", None), (3, "c", None)]
    assert len(list(tmp_path.glob("tidelog_bucket=*/*.parquet"))) == 2
    with pytest.raises(
        OtherShape, match=r"a table in 2 buckets by id bigint, .* not a table in 4 buckets by id bigint"
    ):
        put([(1, "x", "2026-04-01 00:00:00")], "id long, name string, at_text string", buckets=4)
    with pytest.raises(OtherShape, match="not a table in 2 buckets by id int"):
        put([(1, "x", "2026-04-01 00:00:00")], "id int, name string, at_text string")
    with pytest.raises(OtherShape, match="has name as string, and now it comes as int: cast it in a step"):
        put([(1, 2, "2026-04-01 00:00:00")], "id long, name int, at_text string")
    offsets = spark.createDataFrame([(1, 5)], "id long, _offset long")
    with pytest.raises(OtherShape, match=r"the newest by at, not .* the newest by _offset"):
        upsert(offsets, Writer(tmp_path, "w1"), ["id"], "_offset", 2)
    with pytest.raises(OtherShape, match="the newest by at, not a folder that rows are added to"):
        append(offsets, 0, Writer(tmp_path, "w1"), [], None)


@pytest.mark.long
def test_what_a_crash_left_of_a_bucket_is_not_read(spark: Any, tmp_path: Path) -> None:
    """And a table may be kept by the record's key, its files be compressed as a person likes."""
    writer = Writer(tmp_path, "w1", {"compression": "zstd"})
    rows = spark.createDataFrame([(b"k", 1, 1)], "_key binary, n int, _offset long")
    assert upsert(rows, writer, ["_key"], "_offset", 1) == (0, "")
    [first] = tmp_path.glob("tidelog_bucket=0/*.parquet")
    kept = first.read_bytes()
    assert pyarrow.parquet.ParquetFile(first).metadata.row_group(0).column(0).compression == "ZSTD"
    upsert(rows.selectExpr("_key", "2 as n", "2L as _offset"), writer, ["_key"], "_offset", 1)
    first.write_bytes(kept)
    assert [(row["_key"], row.n) for row in current(spark, str(tmp_path)).collect()] == [(b"k", 2)]
    upsert(rows.selectExpr("_key", "3 as n", "3L as _offset"), writer, ["_key"], "_offset", 1)
    assert [
        (row.n, len(list(first.parent.glob("*.parquet")))) for row in spark.read.parquet(str(tmp_path)).collect()
    ] == [(3, 1)]


@pytest.mark.long
def test_a_column_may_come_to_a_lake_but_not_change(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path, "w1")
    append(spark.createDataFrame([(1, (1,))], "id int, inner struct<a: int>"), 0, writer, [], 2)
    append(spark.createDataFrame([(2, (1, 2))], "id int, inner struct<a: int, b: int>"), 1, writer, [], 2)
    with pytest.raises(OtherShape, match=r"has inner\.a as int, and now it comes as string: cast it in a step"):
        append(spark.createDataFrame([(3, ("x",))], "id int, inner struct<a: string>"), 2, writer, [], 2)
    append(spark.createDataFrame([(3, "x")], "id int, name string"), 2, writer, [], 2)  # which merges the first two
    assert sorted(row.id for row in spark.read.option("mergeSchema", "true").parquet(str(tmp_path)).collect()) == [
        1,
        2,
        3,
    ]


@pytest.mark.long
def test_small_files_are_merged_folder_by_folder_and_no_column_is_lost(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path, "w1")
    for batch in range(6):
        rows = spark.createDataFrame([(batch, "old"), (batch, "new")], "id int, day string")
        rows = rows.selectExpr("*", "id * 2 as twice") if batch == 1 else rows
        append(rows, batch, writer, ["day"], 3)
        append(rows, batch, writer, ["day"], 3)  # as after a crash
    rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path)).orderBy("id", "day").collect()
    assert [(row.id, row.day) for row in rows] == [(batch, day) for batch in range(6) for day in ("new", "old")]
    assert [row.twice for row in rows if row.id == 1] == [2, 2]
    assert len(list((tmp_path / "day=old").glob("*.parquet"))) < 6
    before = len(rows)
    append(spark.createDataFrame([(7, "old")], "id int, day string"), 0, Writer(tmp_path, "w2"), ["day"], 3)
    assert spark.read.parquet(str(tmp_path)).count() == before + 1
