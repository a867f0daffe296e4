"""Parquet folders written exactly once: append with compaction of small files, or one row a key.

A micro-batch is staged by Spark, then its files are moved in (lake_files.py). Everything is plain Parquet; any reader
reads the folder. Folders of the local (or a mounted) file system only: for others Spark's own file sink is used,
without compaction.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType
from pyspark.sql.window import Window

from tidelog.spark.pipeline.sinks.lake_files import (
    Writer,
    alone,
    land,
    replace_by_merged,
    replace_version,
    small_files,
    versions,
)
from tidelog.spark.source.progress import write_file

BUCKET = "tidelog_bucket"
ORDER = "_order"
SHAPE = "_tidelog.json"


class OtherShape(ValueError):
    """Rows that don't fit to those that are there: other keys would put them in two places, other types on no table."""


def append(rows: Any, batch: int, writer: Writer, partition_by: Sequence[str], compact_files: int | None) -> None:
    """Add a micro-batch; then merge small files of earlier ones where there are many."""
    with alone(writer.path):
        _agree(writer.path, rows, {"buckets": None, "by": [], "order": None})
    shutil.rmtree(writer.staging, ignore_errors=True)
    writing = rows.write.mode("overwrite").options(**writer.options)
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
        writing = read.coalesce(1).write.mode("overwrite").options(**writer.options)
        writing.option("maxRecordsPerFile", 0).parquet(str(writer.staging))
        replace_by_merged(writer, folder, inputs)
        gone += len(inputs)
    return gone


def upsert(rows: Any, writer: Writer, by: Sequence[str], order_by: str, buckets: int) -> tuple[int, str]:
    """Keep the newest row of each key. Only touched buckets are written anew.

    `order_by` says which is the newest; equal ones are the same row, so that a repeated batch changes nothing. Rows
    whose `_tombstone` is true delete their key. Rows whose key is null have no place: how many there are is returned,
    and one of them as JSON.
    """
    types = dict(rows.dtypes)
    shape = {"buckets": buckets, "by": [[column, types[column]] for column in by], "order": order_by}
    keyless = F.lit(False)
    for column in by:
        keyless = keyless | F.col(column).isNull()
    fresh = rows.withColumn(BUCKET, F.when(~keyless, F.pmod(F.hash(*by), F.lit(buckets))))
    fresh = fresh.withColumn(ORDER, F.col(order_by)).withColumn("_seen", F.lit(1)).persist()
    try:
        counts = {row[0]: row[1] for row in fresh.groupBy(BUCKET).count().collect()}
        left_out, example = counts.pop(None, 0), ""
        if left_out:
            [row] = fresh.where(F.col(BUCKET).isNull()).select(F.to_json(F.struct(*rows.columns))).limit(1).collect()
            example = row[0]
        if counts:
            with alone(writer.path):
                _agree(writer.path, rows, shape)
                _write_buckets(fresh.where(F.col(BUCKET).isNotNull()), writer, by, sorted(counts))
    finally:
        fresh.unpersist()
    return left_out, example


def _write_buckets(fresh: Any, writer: Writer, by: Sequence[str], touched: list[int]) -> None:
    folders = {number: writer.path / f"{BUCKET}={number}" for number in touched}
    held = [str(files[-1]) for folder in folders.values() if (files := versions(folder))]
    both = fresh
    if held:
        both = _read(fresh.sparkSession, writer.path, held).withColumn("_seen", F.lit(0))
        both = both.unionByName(fresh, allowMissingColumns=True)
    newest = Window.partitionBy(*by).orderBy(F.col(ORDER).desc_nulls_last(), F.col("_seen").desc())
    kept = both.withColumn("_rank", F.row_number().over(newest)).where("_rank = 1").drop("_rank", "_seen")
    if "_tombstone" in kept.columns:
        kept = kept.withColumn("_tombstone", F.coalesce("_tombstone", F.lit(False)))
    shutil.rmtree(writer.staging, ignore_errors=True)
    writing = kept.repartition(len(touched), BUCKET).write.mode("overwrite").options(**writer.options)
    writing.option("maxRecordsPerFile", 0).partitionBy(BUCKET).parquet(str(writer.staging))
    for number, folder in folders.items():
        replace_version(writer.staging / f"{BUCKET}={number}", folder)
    shutil.rmtree(writer.staging, ignore_errors=True)


def _read(spark: Any, path: Path | str, files: list[str]) -> Any:
    return spark.read.option("basePath", str(path)).option("mergeSchema", "true").parquet(*files)


def _agree(path: Path, rows: Any, mine: dict[str, Any]) -> None:
    """Hold rows against what is kept beside those that are there: how a table is kept, and the types of its columns.

    The same key must always come to the same bucket, by the same order; columns may be added, but not change.
    """
    kept = path / SHAPE
    known: dict[str, Any] = {**mine, **(json.loads(kept.read_text()) if kept.exists() else {})}
    for part, value in mine.items():
        if known[part] != value:
            raise OtherShape(
                f"{path} is {_described(known)}, not {_described(mine)}: give this table another path, and have it "
                "read from the beginning"
            )
    columns = StructType.fromJson(known.get("columns", StructType().jsonValue()))
    grown = _grown(columns, rows.schema, path, ())
    if grown != columns:
        write_file(kept, json.dumps({**mine, "columns": grown.jsonValue()}), durable=True)


def _grown(known: StructType, mine: StructType, path: Path, inside: tuple[str, ...]) -> StructType:
    """All columns of both, in structs too; OtherShape where one has another type now."""
    fields = {field.name: field.dataType for field in known.fields}
    for field in mine.fields:
        name, kind = (*inside, field.name), field.dataType
        held = fields.get(field.name)
        if isinstance(held, StructType) and isinstance(kind, StructType):
            kind = _grown(held, kind, path, name)
        elif held is not None and held.simpleString() != kind.simpleString():
            raise OtherShape(
                f"{path} has {'.'.join(name)} as {held.simpleString()}, and now it comes as {kind.simpleString()}: "
                "cast it in a step, or give this sink another path and have it read from the beginning"
            )
        fields[field.name] = kind
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _described(shape: dict[str, Any]) -> str:
    if shape["buckets"] is None:
        return "a folder that rows are added to"
    by = ", ".join(f"{name} {kind}" for name, kind in shape["by"])
    return f"a table in {shape['buckets']} buckets by {by}, the newest by {shape['order']}"


def current(spark: Any, path: str) -> Any:
    """The table that `upsert` keeps, without deleted rows and columns that are its own."""
    buckets = [versions(folder) for folder in sorted(Path(path).glob(f"{BUCKET}=*"))]
    rows = _read(spark, path, [str(files[-1]) for files in buckets if files] or [path])
    if "_tombstone" in rows.columns:
        rows = rows.where("not _tombstone").drop("_tombstone")
    return rows.drop(BUCKET, ORDER)
