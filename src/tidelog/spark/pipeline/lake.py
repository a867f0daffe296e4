"""Parquet folders written exactly once: append with compaction of small files, or one row a key.

A micro-batch is staged by Spark, then its files are moved in (lake_files.py). Everything is plain Parquet; any reader
reads the folder. Folders of the local (or a mounted) file system only: for others Spark's own file sink is used,
without compaction.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from tidelog.spark.pipeline.lake_files import (
    STAGING,
    Writer,
    current_version,
    land,
    replace_by_merged,
    replace_version,
    small_files,
)
from tidelog.spark.progress import write_file

BUCKET = "tidelog_bucket"
ORDER = "_order"
BUCKETS = 8
SHAPE = "_tidelog.json"


class OtherShape(ValueError):
    """A table that is kept by other keys or in other buckets: rows of one key would lie in two places."""


def append(rows: Any, batch: int, writer: Writer, partition_by: list[str], compact_files: int | None) -> None:
    """Add a micro-batch; then merge small files of earlier ones where there are many."""
    shutil.rmtree(writer.staging, ignore_errors=True)
    writing = rows.write.mode("overwrite")
    (writing.partitionBy(*partition_by) if partition_by else writing).parquet(str(writer.staging))
    touched = land(writer, batch)
    if compact_files is not None:
        compact(rows.sparkSession, writer, touched, batch, compact_files)


def compact(spark: Any, writer: Writer, folders: list[Path], batch: int, least: int) -> int:
    """Merge this writer's small files from before a batch, folder by folder, where there are `least`; how many went.

    Between the merged file's arrival and the small ones' end a reader may see rows twice; a crash in between is mended
    when the batch is repeated, since the merged file says up to which batch it goes.
    """
    gone = 0
    for folder in folders:
        merged, single = small_files(writer, folder, batch)
        if len(single) < least:
            continue
        inputs = [*merged, *single]
        shutil.rmtree(writer.staging, ignore_errors=True)
        read = spark.read.option("mergeSchema", "true").parquet(*(str(file) for file in inputs))
        writing = read.coalesce(1).write.mode("overwrite").option("maxRecordsPerFile", 0)
        writing.parquet(str(writer.staging))
        replace_by_merged(writer, folder, inputs)
        gone += len(inputs)
    return gone


def upsert(rows: Any, writer: Writer, by: list[str], order_by: str, buckets: int) -> int:
    """Keep the newest row of each key, and say how many rows have none. Only touched buckets are written anew.

    `order_by` says which is the newest; equal ones are the same row, so that a repeated batch changes nothing. Rows
    whose `_tombstone` is true delete their key. Rows whose key is null have no place, and are counted.
    """
    path = writer.path
    _agreed(path, rows, by, buckets)
    keyless = F.lit(False)
    for column in by:
        keyless = keyless | F.col(column).isNull()
    fresh = rows.withColumn(BUCKET, F.when(~keyless, F.pmod(F.hash(*by), F.lit(buckets))))
    fresh = fresh.withColumn(ORDER, F.col(order_by)).withColumn("_seen", F.lit(1)).persist()
    try:
        counts = {row[0]: row[1] for row in fresh.groupBy(BUCKET).count().collect()}
        left_out = counts.pop(None, 0)
        if counts:
            _write_buckets(fresh.where(F.col(BUCKET).isNotNull()), writer, by, sorted(counts))
    finally:
        fresh.unpersist()
    return left_out


def _write_buckets(fresh: Any, writer: Writer, by: list[str], touched: list[int]) -> None:
    folders = {number: writer.path / f"{BUCKET}={number}" for number in touched}
    held = [str(file) for folder in folders.values() if (file := current_version(folder)) is not None]
    both = fresh
    if held:
        reading = fresh.sparkSession.read.option("basePath", str(writer.path)).option("mergeSchema", "true")
        both = reading.parquet(*held).withColumn("_seen", F.lit(0)).unionByName(fresh, allowMissingColumns=True)
    newest = Window.partitionBy(*by).orderBy(F.col(ORDER).desc_nulls_last(), F.col("_seen").desc())
    kept = both.withColumn("_rank", F.row_number().over(newest)).where("_rank = 1").drop("_rank", "_seen")
    if "_tombstone" in kept.columns:
        kept = kept.withColumn("_tombstone", F.coalesce("_tombstone", F.lit(False)))
    shutil.rmtree(writer.staging, ignore_errors=True)
    writing = kept.repartition(len(touched), BUCKET).write.mode("overwrite").option("maxRecordsPerFile", 0)
    writing.partitionBy(BUCKET).parquet(str(writer.staging))
    for number, folder in folders.items():
        replace_version(writer.staging / f"{BUCKET}={number}", folder)
    shutil.rmtree(writer.staging, ignore_errors=True)


def _agreed(path: Path, rows: Any, by: list[str], buckets: int) -> None:
    """The table's shape, kept beside its rows: the same key must always come to the same bucket."""
    types = dict(rows.dtypes)
    mine: dict[str, Any] = {"buckets": buckets, "by": [[column, types[column]] for column in by]}
    kept = path / SHAPE
    if not kept.exists():
        (path / STAGING).mkdir(parents=True, exist_ok=True)
        write_file(kept, json.dumps(mine), durable=True)
    known = json.loads(kept.read_text())
    if known != mine:
        raise OtherShape(
            f"{path} is kept in {known['buckets']} buckets by {_columns(known['by'])}, not in {buckets} by "
            f"{_columns(mine['by'])}: give this table another path, and have it read from the beginning"
        )


def _columns(by: list[list[str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in by)


def current(spark: Any, path: str) -> Any:
    """The table that `upsert` keeps, without deleted rows and columns that are its own."""
    rows = spark.read.option("mergeSchema", "true").parquet(path)
    if "_tombstone" in rows.columns:
        rows = rows.where("not _tombstone").drop("_tombstone")
    return rows.drop(BUCKET, ORDER)
