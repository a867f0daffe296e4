"""Rows that a step failed on: noted beside the checkpoints, so that a query repeats its batch without them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.spark.progress import write_file

FOLDER = "unfit"
EARLIER_MAX = 10_000
"""So many rows of earlier batches are remembered: another sink of the pipeline that fails on one needs no letter."""


class Row(NamedTuple):
    """Where a row stands that a step failed on."""

    topic: str
    partition: int
    offset: int


def aside(state: Path, query: str) -> list[Row]:
    """Those that a query leaves out of the last batch that had any."""
    return _rows(_read(_file(state, query))["rows"])


def known(state: Path, but: tuple[str, int]) -> set[Row]:
    """Those of all queries, but for a batch of one of them."""
    found: set[Row] = set()
    for file in (state / FOLDER).glob("*.json"):
        told = _read(file)
        found.update(_rows(told["earlier"]))
        if (file.stem, told["batch"]) != but:
            found.update(_rows(told["rows"]))
    return found


def note(state: Path, query: str, batch: int, rows: Iterable[Row]) -> int:
    """Add rows of a batch; how many it has by now."""
    file = _file(state, query)
    told = _read(file)
    before: list[Any]
    earlier: list[Any]
    before, earlier = told["rows"], told["earlier"]
    if told["batch"] != batch:
        before, earlier = [], [*earlier, *before][-EARLIER_MAX:]
    noted = sorted({*_rows(before), *rows})
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, json.dumps({"batch": batch, "rows": noted, "earlier": earlier}), durable=True)
    return len(noted)


def _file(state: Path, query: str) -> Path:
    return state / FOLDER / f"{query}.json"


def _rows(told: Iterable[Any]) -> list[Row]:
    return [Row(*each) for each in told]


def _read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        return {"batch": -1, "rows": [], "earlier": []}
