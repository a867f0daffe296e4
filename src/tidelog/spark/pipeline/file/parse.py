"""A pipeline's file into its spec: the only place, behind the checks, where its keys are read as text."""

import re
from typing import Any

from tidelog.spark.pipeline.file.spec import (
    Avro,
    BadRows,
    ConsoleSink,
    Decoding,
    FolderSink,
    FormatSink,
    FormatSource,
    JdbcSink,
    Json,
    PipelineSpec,
    Protobuf,
    Sink,
    Source,
    Step,
    Text,
    Toml,
    TopicSink,
    TopicSource,
    Undecoded,
    UpsertSink,
    Watermark,
)
from tidelog.spark.pipeline.file.validate import sink_name

SPARKS_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
NEWEST_BY = "_offset"
BUCKETS = 8


def parse(toml: Toml) -> PipelineSpec:
    """The spec of a file in which check.py sees no problem."""
    bad_rows = toml.get("bad_rows")
    return PipelineSpec(
        name=toml["name"],
        state=toml["state"],
        bootstrap=toml.get("bootstrap"),
        trigger=_trigger(toml.get("trigger", "")),
        lag_groups=toml.get("lag_groups", False),
        sources={name: _source(name, table) for name, table in toml["source"].items()},
        steps=tuple(_step(index, table) for index, table in enumerate(toml.get("step", ()))),
        sinks=tuple(_sink(index, table) for index, table in enumerate(toml["sink"])),
        bad_rows=None
        if bad_rows is None
        else BadRows(topic=bad_rows.get("topic"), partitions=bad_rows.get("partitions")),
        kafka=toml.get("kafka", {}),
        spark=toml.get("spark", {}),
    )


def _trigger(text: str) -> str | None:
    match = re.fullmatch(r"(\d+) *(\w+)", text)
    return f"{match[1]} {SPARKS_UNITS.get(match[2], match[2])}" if match else None


def _watermark(toml: Toml) -> Watermark | None:
    if "watermark" not in toml:
        return None
    column, _, delay = toml["watermark"].partition(" ")
    return Watermark(column, delay.strip())


def _source(name: str, toml: Toml) -> Source:
    shared: dict[str, Any] = {
        "name": name,
        "is_stream": toml.get("stream", "format" not in toml),
        "watermark": _watermark(toml),
        "options": toml.get("options", {}),
        "toml": toml,
    }
    if "format" in toml:
        return FormatSource(format=toml["format"], path=toml.get("path"), schema=toml.get("schema"), **shared)
    return TopicSource(
        topics=tuple(toml.get("topics", ())),
        pattern=toml.get("pattern"),
        decoding=_decoding(toml),
        start=toml.get("from", "earliest"),
        max_rows=toml.get("max_rows"),
        committed=toml.get("committed", True),
        ignore_loss=toml.get("ignore_loss", False),
        **shared,
    )


def _decoding(toml: Toml) -> Decoding:
    registry: bool = toml.get("registry", False)
    match toml.get("decode", "none"):
        case "json":
            return Json(toml["schema"], registry)
        case "avro":
            return Avro(toml["schema"], registry)
        case "protobuf":
            return Protobuf(toml["descriptor"], toml["message"], registry)
        case "text":
            return Text(registry)
        case _:
            return Undecoded()


def _step(index: int, toml: Toml) -> Step:
    return Step(
        index=index,
        name=toml["name"],
        sql=toml["sql"],
        watermark=_watermark(toml),
        dedup=tuple(toml.get("dedup", ())),
        toml=toml,
    )


def _sink(index: int, toml: Toml) -> Sink:
    shared: dict[str, Any] = {
        "index": index,
        "name": sink_name(index, toml),
        "from_table": toml["from"],
        "mode": toml.get("mode", "append"),
        "options": toml.get("options", {}),
        "toml": toml,
    }
    if "topic" in toml:
        return TopicSink(topic=toml["topic"], key=toml.get("key"), partitions=toml.get("partitions"), **shared)
    if "upsert_by" in toml:
        return UpsertSink(
            path=toml["path"],
            upsert_by=tuple(toml["upsert_by"]),
            order_by=toml.get("order_by", NEWEST_BY),
            buckets=toml.get("buckets", BUCKETS),
            **shared,
        )
    if "path" in toml:
        partition_by = tuple(toml.get("partition_by", ()))
        return FolderSink(
            path=toml["path"], partition_by=partition_by, compact_files=toml.get("compact_files"), **shared
        )
    if "jdbc" in toml:
        return JdbcSink(url=toml["jdbc"], table=toml["table"], **shared)
    return FormatSink(format=toml["format"], **shared) if "format" in toml else ConsoleSink(**shared)
