"""Lakes written by Spark: small files merged, tables by key, and what would have lost rows without a word."""

from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.spark.pipeline.lake import OtherShape, append, current, upsert
from tidelog.spark.pipeline.lake_files import Writer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]


@pytest.mark.long
def test_a_table_keeps_the_newest_by_its_own_time_and_columns_that_came_later(spark: Any, tmp_path: Path) -> None:
    def put(rows: list[tuple[Any, ...]], columns: str, writer: str = "w1", buckets: int = 2) -> int:
        table = spark.createDataFrame(rows, columns).selectExpr("*", "to_timestamp(at_text) as at").drop("at_text")
        return upsert(table, Writer(tmp_path, writer), ["id"], "at", buckets)

    put([(1, "a", "2026-01-31 12:00:00.5"), (2, "b", "2026-01-31 12:00:00")], "id long, name string, at_text string")
    left_out = put(
        [(1, "newer", "2026-02-01 00:00:00", "Brest"), (None, "nobody", "2026-02-01 00:00:00", None)],
        "id long, name string, at_text string, city string",
    )
    assert left_out == 1
    put([(2, "older", "2026-01-30 00:00:00"), (3, "c", "2026-01-30 00:00:00")], "id long, name string, at_text string")
    put([(1, "w2", "2026-03-01 00:00:00")], "id long, name string, at_text string", writer="w2")  # a state begun anew
    rows = current(spark, str(tmp_path)).orderBy("id").collect()
    assert [(row.id, row.name, row.city) for row in rows] == [(1, "w2", None), (2, "b", None), (3, "c", None)]
    assert len(list(tmp_path.glob("tidelog_bucket=*/*.parquet"))) == 2
    with pytest.raises(OtherShape, match="is kept in 2 buckets by id bigint, not in 4 by id bigint"):
        put([(1, "x", "2026-04-01 00:00:00")], "id long, name string, at_text string", buckets=4)
    with pytest.raises(OtherShape, match="not in 2 by id int"):
        put([(1, "x", "2026-04-01 00:00:00")], "id int, name string, at_text string")


@pytest.mark.long
def test_small_files_are_merged_folder_by_folder_and_no_column_is_lost(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path, "w1")
    for batch in range(6):
        rows = spark.createDataFrame([(batch, "old"), (batch, "new")], "id int, day string")
        rows = rows.selectExpr("*", "id * 2 as twice") if batch == 1 else rows
        append(rows, batch, writer, ["day"], 3)
        append(rows, batch, writer, ["day"], 3)  # as after a crash
    found = spark.read.option("mergeSchema", "true").parquet(str(tmp_path)).orderBy("id", "day").collect()
    assert [(row.id, row.day) for row in found] == [(batch, day) for batch in range(6) for day in ("new", "old")]
    assert [row.twice for row in found if row.id == 1] == [2, 2]
    assert len(list((tmp_path / "day=old").glob("*.parquet"))) < 6
    before = len(found)
    append(spark.createDataFrame([(7, "old")], "id int, day string"), 0, Writer(tmp_path, "w2"), ["day"], 3)
    assert spark.read.parquet(str(tmp_path)).count() == before + 1
