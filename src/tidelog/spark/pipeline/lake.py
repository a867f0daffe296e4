"""Parquet folders written exactly once: append with compaction of small files, or one row a key.

A micro-batch is staged, then its files are moved in under names that bear its number: a repeated batch takes the place
of its first try. Everything is plain Parquet; any reader reads the folder. Folders of the local (or a mounted) file
system only: for others Spark's own file sink is used, without compaction.
"""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.window import Window

STAGING = "_staging"
BUCKET = "tidelog_bucket"
ORDER = "_order"
SMALL_BYTES = 32 * 1024 * 1024
BUCKETS = 8
_NAME = re.compile(r"(?:batch|upto)-(\d+)-")


def append(rows: Any, batch: int, path: Path, partition_by: list[str], compact_files: int | None) -> None:
    """Add a micro-batch; then merge small files of earlier ones where there are many."""
    staged = path / STAGING / f"batch-{batch}"
    shutil.rmtree(staged, ignore_errors=True)
    writing = rows.write.mode("overwrite")
    (writing.partitionBy(*partition_by) if partition_by else writing).parquet(str(staged))
    _remove(path, f"batch-{batch:09d}-")
    _move_in(staged, path, f"batch-{batch:09d}-")
    if compact_files is not None:
        compact(rows.sparkSession, path, batch, compact_files)


def compact(spark: Any, path: Path, batch: int, least: int) -> int:
    """Merge the small files of batches before this one, folder by folder, where there are `least`; how many went.

    Between the merged file's arrival and the small ones' end a reader may see rows twice; a crash in between is mended
    by the next call, since the merged file says up to which batch it goes.
    """
    gone = 0
    for folder in [path, *(each for each in path.rglob("*=*") if each.is_dir())]:
        if STAGING in folder.parts:
            continue
        gone += _superseded(folder)
        small = [
            file
            for file in sorted(folder.glob("batch-*.parquet"))
            if file.stat().st_size < SMALL_BYTES and _number(file) < batch
        ]
        if len(small) < least:
            continue
        upto = max(_number(file) for file in small)
        merged = [file for file in folder.glob("upto-*.parquet") if file.stat().st_size < SMALL_BYTES]
        staged = path / STAGING / "compact"
        shutil.rmtree(staged, ignore_errors=True)
        inputs = [str(file) for file in [*merged, *small]]
        spark.read.parquet(*inputs).coalesce(1).write.mode("overwrite").parquet(str(staged))
        _move_in(staged, folder, f"upto-{upto:09d}-")
        for file in [*merged, *small]:
            file.unlink(missing_ok=True)
        gone += len(inputs)
    return gone


def upsert(rows: Any, batch: int, path: Path, by: list[str], order_by: str, buckets: int) -> None:
    """Keep the newest row of each key. Only the buckets that a batch touches are written anew.

    `order_by` says which is the newest; equal ones are the same row, so that a repeated batch changes nothing. Rows
    whose `_tombstone` is true delete their key.
    """
    path.mkdir(parents=True, exist_ok=True)
    _mend_buckets(path)
    spark = rows.sparkSession
    fresh = rows.withColumn(BUCKET, F.pmod(F.hash(*by), F.lit(buckets))).withColumn(
        ORDER, F.col(order_by).cast("string")
    )
    fresh = fresh.withColumn("_seen", F.lit(1)).persist()
    try:
        touched = [row[0] for row in fresh.select(BUCKET).distinct().collect()]
        if not touched:
            return
        held = [str(file) for number in touched for file in _bucket_files(path, number)]
        both = fresh
        if held:
            known = spark.read.option("basePath", str(path)).parquet(*held).withColumn("_seen", F.lit(0))
            both = known.unionByName(fresh, allowMissingColumns=True)
        newest = Window.partitionBy(*by).orderBy(F.length(ORDER).desc(), F.col(ORDER).desc(), F.col("_seen").desc())
        kept = both.withColumn("_rank", F.row_number().over(newest)).where("_rank = 1").drop("_rank", "_seen")
        if "_tombstone" in kept.columns:
            kept = kept.withColumn("_tombstone", F.coalesce("_tombstone", F.lit(False)))
        staged = path / STAGING / f"batch-{batch}"
        shutil.rmtree(staged, ignore_errors=True)
        kept.repartition(len(touched), BUCKET).write.mode("overwrite").partitionBy(BUCKET).parquet(str(staged))
        _move_in(staged, path, f"batch-{batch:09d}-")
        _mend_buckets(path)
    finally:
        fresh.unpersist()


def current(spark: Any, path: str) -> Any:
    """The table that `upsert` keeps, without deleted rows and columns that are its own."""
    rows = spark.read.parquet(path)
    if "_tombstone" in rows.columns:
        rows = rows.where("not _tombstone").drop("_tombstone")
    return rows.drop(BUCKET, ORDER)


def _bucket_files(path: Path, number: int) -> list[Path]:
    return sorted((path / f"{BUCKET}={number}").glob("*.parquet"))


def _mend_buckets(path: Path) -> None:
    """Each bucket's files are those of its last batch: older ones were replaced, though a crash may have left them."""
    for folder in path.glob(f"{BUCKET}=*"):
        files = list(folder.glob("*.parquet"))
        last = max((_number(file) for file in files), default=0)
        for file in files:
            if _number(file) < last:
                file.unlink(missing_ok=True)


def _superseded(folder: Path) -> int:
    """Remove files that a merged one holds already, left by a crash."""
    upto = max((_number(file) for file in folder.glob("upto-*.parquet")), default=-1)
    left = [
        file for file in folder.glob("batch-*.parquet") if _number(file) <= upto and file.stat().st_size < SMALL_BYTES
    ]
    older = [
        file for file in folder.glob("upto-*.parquet") if _number(file) < upto and file.stat().st_size < SMALL_BYTES
    ]
    for file in [*left, *older]:
        file.unlink(missing_ok=True)
    return len(left) + len(older)


def _number(file: Path) -> int:
    found = _NAME.match(file.name)
    return int(found[1]) if found else -1


def _move_in(staged: Path, path: Path, prefix: str) -> None:
    """Files are numbered folder by folder: a bucket's only file takes the place of that of an earlier try at once."""
    counts: dict[Path, int] = {}
    for file in sorted(staged.rglob("*.parquet")):
        folder = path / file.parent.relative_to(staged)
        folder.mkdir(parents=True, exist_ok=True)
        index = counts[folder] = counts.get(folder, -1) + 1
        file.rename(folder / f"{prefix}{index:05d}.parquet")
    shutil.rmtree(staged, ignore_errors=True)


def _remove(path: Path, prefix: str) -> None:
    files: Iterable[Path] = path.rglob(f"{prefix}*.parquet")
    for file in list(files):
        if STAGING not in file.parts:
            file.unlink(missing_ok=True)
