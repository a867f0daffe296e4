"""Is a file a pipeline: its shape by the published JSON Schema, then what the schema can't say. Errors have lines."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from tidelog.spark.pipeline.file.parse import parse
from tidelog.spark.pipeline.file.spec import PipelineSpec
from tidelog.spark.pipeline.file.toml_lines import KeyPath, line_of, lines_of
from tidelog.spark.pipeline.file.validate import problems

SCHEMA_FILE = Path(__file__).with_name("pipeline.schema.json")
TYPES: dict[str, tuple[type, str]] = {
    "object": (dict, "a table"),
    "array": (list, "a list"),
    "string": (str, "text in quotes"),
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
}
"""JSON Schema's types in Python and in TOML."""
SHOWN = 60
"""So much of a value is shown."""


@dataclass(frozen=True, slots=True)
class Problem:
    line: int
    text: str


class PipelineError(Exception):
    """A file that is no pipeline that could run: every problem with its line."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        super().__init__("\n".join(f"{file}:{each.line}: {each.text}" for each in problems))
        self.problems = problems


def read_file(file: Path) -> tuple[PipelineSpec, dict[KeyPath, int]]:
    """What the file says and the lines of its keys; PipelineError with every problem that it shows by itself."""
    raw = file.read_bytes()
    try:
        text = raw.decode()
        toml = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PipelineError(str(file), [Problem(line, "not UTF-8: save the file as UTF-8")]) from None
    except tomllib.TOMLDecodeError as error:
        at_line = re.search(r"line (\d+)", str(error))
        line = int(at_line[1]) if at_line else len(raw.splitlines()) or 1
        raise PipelineError(str(file), [Problem(line, f"not TOML: {error}")]) from None
    lines = lines_of(text)
    shape = json.loads(SCHEMA_FILE.read_text())
    wrong = list(_shape(toml, shape, ())) or list(problems(toml))
    if wrong:
        with_lines = [Problem(line_of(lines, path), text) for path, text in wrong]
        raise PipelineError(str(file), sorted(with_lines, key=lambda each: each.line))
    return parse(toml), lines


def _shape(value: Any, shape: dict[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    name = ".".join(str(part) for part in path) or "the file"
    if "enum" in shape and value not in shape["enum"]:
        yield path, f"{name} is {_written(value)}, expected {_one_of([_written(each) for each in shape['enum']])}"
        return
    kind = shape.get("type")
    if kind and (not isinstance(value, TYPES[kind][0]) or (kind == "integer" and isinstance(value, bool))):
        yield path, f"{name} is {_written(value)}, expected {TYPES[kind][1]}{_example(path, kind)}"
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
            yield path, f"{name} is {_written(value)}: {shape['description']}"
    elif isinstance(value, int) and not shape.get("minimum", value) <= value <= shape.get("maximum", value):
        least, most = shape.get("minimum"), shape.get("maximum")
        bounds = [f"at least {least}"] * (least is not None) + [f"at most {most}"] * (most is not None)
        yield path, f"{name} is {value}, expected {' and '.join(bounds)}"


def _written(value: Any) -> str:
    """A value as the file has it, and no more of it than fits in a line."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def _one_of(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"one of {', '.join(values)}"


def _example(path: KeyPath, kind: str) -> str:
    """How TOML writes what is expected, where people often write it otherwise."""
    if kind == "array" and len(path) == 1:
        return f": write [[{path[0]}]] above each"
    return ": write [source.NAME] above its keys" if kind == "object" and path[:1] == ("source",) else ""


def _members(value: dict[str, Any], shape: dict[str, Any], path: KeyPath, name: str) -> Iterator[tuple[KeyPath, str]]:
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
