"""Is a file a pipeline: its shape by the published JSON Schema, then what the schema can't say. Errors have lines."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path as File
from typing import Any, cast

from tidelog.spark.pipeline.places import Path, line_of, lines_of

SCHEMA_FILE = File(__file__).with_name("pipeline.schema.json")
TARGETS = ("topic", "path", "jdbc", "format", "console")
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
}


@dataclass(frozen=True, slots=True)
class Problem:
    line: int
    text: str


class PipelineError(Exception):
    """A file that is no pipeline that could run: every problem with its line."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        super().__init__("\n".join(f"{file}:{each.line}: {each.text}" for each in problems))
        self.problems = problems


def read_file(file: File) -> tuple[dict[str, Any], dict[Path, int]]:
    """The file's contents and the lines of its keys; PipelineError with every problem that it shows by itself."""
    text = file.read_text()
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        raise PipelineError(str(file), [Problem(int(found[1]) if found else 1, f"not TOML: {error}")]) from None
    lines = lines_of(text)
    shape = json.loads(SCHEMA_FILE.read_text())
    problems = [Problem(line_of(lines, path), text) for path, text in _shape(told, shape, ())]
    if not problems:
        problems = [Problem(line_of(lines, path), text) for path, text in _meaning(told)]
    if problems:
        raise PipelineError(str(file), sorted(problems, key=lambda each: each.line))
    return told, lines


def _shape(value: Any, shape: dict[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
    name = ".".join(str(part) for part in path) or "the file"
    if "enum" in shape and value not in shape["enum"]:
        yield path, f"{name} is {value!r}, expected one of {', '.join(map(_written, shape['enum']))}"
        return
    kind = shape.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield path, f"{name} is {value!r}, expected a {kind}"
        return
    if isinstance(value, dict):
        yield from _members(cast("dict[str, Any]", value), shape, path, name)
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if len(items) < shape.get("minItems", 0):
            yield path, f"{name} is empty"
        for index, item in enumerate(items):
            yield from _shape(item, shape.get("items", {}), (*path, index))
    elif isinstance(value, str):
        if len(value) < shape.get("minLength", 0):
            yield path, f"{name} is empty"
        if "pattern" in shape and not re.search(shape["pattern"], value):
            yield path, f"{name} is {value!r}: {shape.get('description', 'it does not match ' + shape['pattern'])}"
    elif isinstance(value, int) and not shape.get("minimum", value) <= value <= shape.get("maximum", value):
        yield path, f"{name} is {value}, expected at least {shape.get('minimum', 0)}"


def _written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _members(value: dict[str, Any], shape: dict[str, Any], path: Path, name: str) -> Iterator[tuple[Path, str]]:
    known: dict[str, Any] = shape.get("properties", {})
    others = shape.get("additionalProperties", True)
    if len(value) < shape.get("minProperties", 0):
        yield path, f"{name} is empty"
    for missing in [key for key in shape.get("required", ()) if key not in value]:
        yield path, f"{name} has no {missing}: {known.get(missing, {}).get('description', 'it is needed')}"
    for key, item in value.items():
        if key in known:
            yield from _shape(item, known[key], (*path, key))
        elif isinstance(others, dict):
            yield from _shape(item, cast("dict[str, Any]", others), (*path, key))
        elif others is False:
            close = get_close_matches(key, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            yield (*path, key), f"unknown key {key}; {hint}"


def _meaning(told: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    tables: dict[str, Path] = {}
    for name, source in told["source"].items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield ("source", name), f"source {name!r} is no name of a table: letters, digits and _"
        given = [key for key in ("topics", "pattern", "format") if key in source]
        if len(given) != 1:
            yield ("source", name), f"source {name} needs one of topics, pattern and format, it has {given or 'none'}"
        yield from _decoding(name, source)
        tables[name] = ("source", name)
    yield from _bad_rows(told)
    for index, step in enumerate(told.get("step", ())):
        path: Path = ("step", index)
        if step["name"] in tables:
            yield (*path, "name"), f"there are two tables {step['name']}"
        if "dedup" in step and "watermark" not in step and "watermark" not in _all_watermarks(told):
            yield (*path, "dedup"), "dedup keeps state for ever without a watermark: add one to the step or its source"
        tables[step["name"]] = path
    names: set[str] = set()
    for index, sink in enumerate(told["sink"]):
        yield from _sink(index, sink, tables, names)


def _all_watermarks(told: dict[str, Any]) -> set[str]:
    every = [*told["source"].values(), *told.get("step", ())]
    return {"watermark"} if any("watermark" in each for each in every) else set()


def _decoding(name: str, source: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    path: Path = ("source", name)
    decode = source.get("decode", "none")
    if decode in ("json", "avro") and not source.get("schema"):
        yield (*path, "decode"), f"decode = {decode!r} needs a schema" + (", or infer" if decode == "json" else "")
    if decode == "protobuf" and not (source.get("descriptor") and source.get("message")):
        yield (*path, "decode"), "decode = 'protobuf' needs a descriptor file and a message"
    if "format" in source and decode != "none":
        yield (*path, "decode"), "only topics are decoded; files and tables have columns already"


def _bad_rows(told: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Every row that can't be decoded must have a place, or be left out because the file says so."""
    given = told.get("bad_rows")
    if given is not None and ("topic" in given) == ("drop" in given):
        yield ("bad_rows",), "bad_rows needs one of topic and drop: where rows go that can't be decoded"
    for name, source in told["source"].items():
        if given is None and source.get("decode", "none") != "none":
            yield (
                ("source", name, "decode"),
                f"source {name}: rows that can't be decoded need a place: add [bad_rows] with topic = '{name}-dead' "
                "and partitions = 1, or with drop = true to leave them out (status counts them)",
            )


def _sink(index: int, sink: dict[str, Any], tables: dict[str, Path], names: set[str]) -> Iterator[tuple[Path, str]]:
    path: Path = ("sink", index)
    if sink["from"] not in tables:
        close = get_close_matches(str(sink["from"]), list(tables), 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(tables)}"
        yield (*path, "from"), f"there is no table {sink['from']}; {hint}"
    given = [key for key in TARGETS if key in sink]
    if len(given) != 1:
        yield path, f"a sink needs one of {', '.join(TARGETS)}; this one has {', '.join(given) or 'none'}"
    if "jdbc" in sink and "table" not in sink:
        yield (*path, "jdbc"), "a JDBC sink needs a table"
    for key in ("upsert_by", "compact_files", "buckets", "order_by"):
        if key in sink and "path" not in sink:
            yield (*path, key), f"{key} is for Parquet folders (path)"
    if "upsert_by" in sink and "partition_by" in sink:
        yield (*path, "partition_by"), "a table that is upserted is kept in buckets; leave partition_by out"
    name = sink_name(index, sink)
    if name in names:
        yield path, f"there are two sinks {name}: give them names"
    names.add(name)


def sink_name(index: int, sink: dict[str, Any]) -> str:
    """The sink's name: its own, or what it writes to."""
    target = sink.get("name") or sink.get("topic") or sink.get("table") or File(sink.get("path", "")).name
    return re.sub(r"[^A-Za-z0-9_.-]", "-", target) or f"sink-{index}"
