"""What a pipeline's file means, as far as its JSON Schema can't say: keys that go together, names, rows in a circle."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tidelog.rpc.address import addresses
from tidelog.spark import client_options
from tidelog.spark.pipeline.file.toml_lines import KeyPath
from tidelog.spark.sink import sink_options
from tidelog.spark.source import options
from tidelog.spark.source.options import OptionError, compiled

TARGETS = ("topic", "path", "jdbc", "format", "console")
INPUTS = ("topics", "pattern", "format")
ISOLATION, COMMIT_TO = "kafka.isolation.level", "commitoffsetsto"
"""Options of the source for which a pipeline has keys."""
BAD_ROWS = "bad-rows"
"""What the queries for bad rows are called, or how their names begin."""
OF_TOPICS = ("registry", "from", "max_rows", "committed", "ignore_loss")
"""Keys of a source that reads topics."""
OF_DECODING = {
    "schema": ("json", "avro"),
    "descriptor": ("protobuf",),
    "message": ("protobuf",),
    "registry": ("json", "avro", "protobuf", "text"),
}
OF_TARGET = {
    "key": "topic",
    "partitions": "topic",
    "partition_by": "path",
    "upsert_by": "path",
    "order_by": "path",
    "buckets": "path",
    "compact_files": "path",
    "table": "jdbc",
}
"""Which sinks a key is for: elsewhere it would do nothing, and nobody would hear of it."""
Problems = Iterator[tuple[KeyPath, str]]


def problems(toml: dict[str, Any]) -> Problems:
    """What is wrong in a file whose shape is right: where, and what to do."""
    if "://" in toml["state"]:
        yield ("state",), "state is a folder of the local (or a mounted) file system, no address"
    yield from _brokers(toml)
    tables: dict[str, KeyPath] = {}
    for name, source in toml["source"].items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield ("source", name), f"source {name!r} is no name of a table: letters, digits and _"
        yield from _source(name, source)
        yield from _twice(tables, name, ("source", name))
    yield from _bad_rows(toml)
    watermarks = any("watermark" in each for each in [*toml["source"].values(), *toml.get("step", ())])
    for index, step in enumerate(toml.get("step", ())):
        path: KeyPath = ("step", index)
        yield from _twice(tables, step["name"], (*path, "name"))
        if "dedup" in step and not watermarks:
            yield (*path, "dedup"), "dedup keeps state for ever without a watermark: add one to the step or its source"
    names: set[str] = set()
    for index, sink in enumerate(toml["sink"]):
        yield from _sink(index, sink, tables, names)
    yield from _circles(toml)


def _brokers(toml: dict[str, Any]) -> Problems:
    """Where brokers are, and how they are reached."""
    if "bootstrap" in toml:
        try:
            addresses(toml["bootstrap"])
        except ValueError as error:
            yield ("bootstrap",), f"bootstrap: {error}"
    for name in toml.get("kafka", {}):
        if problem := client_options.problem_of_reaching(name):
            yield ("kafka", name), problem


def _twice(tables: dict[str, KeyPath], name: str, path: KeyPath) -> Problems:
    """SQL doesn't tell names apart by case: the second would take the first's place."""
    if name.lower() in {each.lower() for each in tables}:
        yield path, f"there are two tables {name}"
    tables[name] = path


def _source(name: str, source: dict[str, Any]) -> Problems:
    path: KeyPath = ("source", name)
    given = [key for key in INPUTS if key in source]
    if len(given) != 1:
        yield path, f"source {name} needs one of topics, pattern and format, it has {', '.join(given) or 'none'}"
        return
    decode = source.get("decode", "none")
    if given == ["format"]:
        if decode != "none":
            yield (*path, "decode"), "only topics are decoded; files and tables have columns already"
        for key in [key for key in OF_TOPICS if key in source]:
            yield (*path, key), f"{key} is for topics; {source['format']} has `options`"
        return
    if "path" in source:
        yield (*path, "path"), f"path is for files (format); this source reads {given[0]}"
    if "pattern" in source:
        try:
            compiled(source["pattern"])
        except OptionError as error:
            yield (*path, "pattern"), str(error).removeprefix("option subscribePattern: ")
    yield from _decoding(path, source, decode)
    yield from _options(path, source, options.KNOWN, options.REFUSED)
    for key in source.get("options", {}):
        if key.lower() == ISOLATION:
            yield (*path, "options", key), f"{key}: write committed = true or false instead"
        if key.lower() == COMMIT_TO:
            yield (
                (*path, "options", key),
                f"{key}: several queries may read a source; write lag_groups = true at the top",
            )


def _options(path: KeyPath, given: dict[str, Any], known: Mapping[str, str], refused: Mapping[str, str]) -> Problems:
    """Options of a topic's source or sink whose names are not known."""
    for name in given.get("options", {}):
        for problem in client_options.problems([name.lower()], known, refused):
            yield (*path, "options", name), problem


def _decoding(path: KeyPath, source: dict[str, Any], decode: str) -> Problems:
    if decode in ("json", "avro") and not source.get("schema"):
        yield (*path, "decode"), f"decode = {decode!r} needs a schema" + (", or infer" if decode == "json" else "")
    if decode == "protobuf" and not (source.get("descriptor") and source.get("message")):
        yield (*path, "decode"), "decode = 'protobuf' needs a descriptor file and a message"
    for key, kinds in OF_DECODING.items():
        if key in source and decode not in kinds:
            yield (*path, key), f"{key} is for decode = {' or '.join(map(repr, kinds))}; this source has {decode!r}"


def _bad_rows(toml: dict[str, Any]) -> Problems:
    """Every row that can't be decoded must have a place, or be left out because the file says so."""
    given = toml.get("bad_rows")
    if given is not None and ("topic" in given) == ("drop" in given):
        yield ("bad_rows",), "bad_rows needs one of topic and drop: where rows go that can't be decoded"
    elif given is not None and "drop" in given and "partitions" in given:
        yield ("bad_rows", "partitions"), "partitions is for a topic; these rows are dropped"
    for name, source in toml["source"].items():
        if given is None and source.get("decode", "none") != "none":
            yield (
                ("source", name, "decode"),
                f"source {name}: rows that can't be decoded need a place: add [bad_rows] with topic = '{name}-dead' "
                "and partitions = 1, or with drop = true to leave them out (status counts them)",
            )


def _sink(index: int, sink: dict[str, Any], tables: dict[str, KeyPath], names: set[str]) -> Problems:
    path: KeyPath = ("sink", index)
    if sink["from"] not in tables:
        close = get_close_matches(str(sink["from"]), list(tables), 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(tables)}"
        yield (*path, "from"), f"there is no table {sink['from']}; {hint}"
    given = [key for key in TARGETS if key in sink]
    if len(given) != 1:
        hint = "; with format, where it writes to stands in `options`" if given == ["path", "format"] else ""
        yield path, f"a sink needs one of {', '.join(TARGETS)}; this one has {', '.join(given) or 'none'}{hint}"
        return
    if "jdbc" in sink and "table" not in sink:
        yield (*path, "jdbc"), "a JDBC sink needs a table"
    for key, target in OF_TARGET.items():
        if key in sink and target not in sink:
            what = {"path": "Parquet folders (path)", "topic": "topics", "jdbc": "databases (jdbc)"}[target]
            yield (*path, key), f"{key} is for {what}; this sink has {given[0]}"
    yield from _folder(path, sink)
    if "topic" in sink:
        yield from _options(path, sink, sink_options.KNOWN, {})
    name = sink_name(index, sink)
    if name.startswith(BAD_ROWS):
        yield path, f"{name} is what a query for bad rows is called: give this sink another name"
    if name in names:
        yield path, f"there are two sinks {name}: give them names"
    names.add(name)


def _folder(path: KeyPath, sink: dict[str, Any]) -> Problems:
    """A folder of Parquet files, or a table: it either adds rows or keeps the newest."""
    upserts, mode = "upsert_by" in sink, sink.get("mode", "append")
    if "path" in sink and mode != "append" and not upserts:
        yield (
            (*path, "mode"),
            f"mode = {mode!r} gives a row anew each time that it changes, and a folder would keep each: add upsert_by "
            "to keep the newest",
        )
    if "jdbc" in sink and mode == "complete":
        yield (*path, "mode"), "mode = 'complete' would insert every row anew with each batch; use append or update"
    if upserts and "partition_by" in sink:
        yield (*path, "partition_by"), "a table that is upserted is kept in buckets; leave partition_by out"
    if upserts and "compact_files" in sink:
        yield (*path, "compact_files"), "a table that is upserted has one file a bucket; leave compact_files out"
    for key in ("order_by", "buckets"):
        if key in sink and "path" in sink and not upserts:
            yield (*path, key), f"{key} is for tables that are upserted: add upsert_by, or leave it out"
    for key in ("upsert_by", "compact_files"):
        if key in sink and "://" in sink.get("path", ""):
            yield (*path, key), f"{key} needs a folder of the local (or a mounted) file system, no address"


def _circles(toml: dict[str, Any]) -> Problems:
    """A pipeline that reads what it writes never comes to an end."""
    writes: list[tuple[KeyPath, str]] = [
        (("sink", index, "topic"), sink["topic"]) for index, sink in enumerate(toml["sink"]) if "topic" in sink
    ]
    if "topic" in toml.get("bad_rows", {}):
        writes.append((("bad_rows", "topic"), toml["bad_rows"]["topic"]))
    for name, source in toml["source"].items():
        for path, topic in writes:
            if topic in source.get("topics", ()) or ("pattern" in source and _matches(source["pattern"], topic)):
                yield path, f"source {name} reads {topic} too: its rows would go in a circle; write to another topic"


def _matches(pattern: str, topic: str) -> bool:
    try:
        return compiled(pattern).search(topic) is not None
    except OptionError:
        return False


def sink_name(index: int, sink: Mapping[str, Any]) -> str:
    """The sink's name: its own, or what it writes to. Its checkpoint lies under it."""
    target = sink.get("name") or sink.get("topic") or sink.get("table") or Path(sink.get("path", "")).name
    target = target or sink.get("format") or ("console" if "console" in sink else "")
    return re.sub(r"[^A-Za-z0-9_.-]", "-", target).strip(".") or f"sink-{index}"
