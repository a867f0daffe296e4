"""Rows that a step failed on: noted beside the checkpoints, so that a query repeats its batch without them.

A note is written before anything is done about its rows: from then on they are set aside, whatever is killed. It is
open until their letters are sent and they are counted; a run that finds it so does that first.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.spark.source.progress import write_file

FOLDER = "unfit"
EARLIER_MAX = 10_000
"""So many rows of earlier batches are remembered: another sink of the pipeline that fails on one needs no letter."""


class Row(NamedTuple):
    """A row that a step failed on: where it stands, and of when it is. In a topic made again it is another."""

    topic: str
    partition: int
    offset: int
    at_ms: int

    @property
    def place(self) -> tuple[str, int, int]:
        return self[:3]


class Unfit(NamedTuple):
    """A row, the step that fails on it, and why."""

    row: Row
    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """What one query set aside: the rows of the last batch that had any, and those of earlier ones."""

    batch: int = -1
    rows: list[Row] = field(default_factory=list[Row])
    earlier: list[Row] = field(default_factory=list[Row])
    number: int = 0
    """Grows from note to note, also where the one before was removed: the letters of each are sent once."""
    open: bool = False
    owed: list[Unfit] = field(default_factory=list[Unfit])
    """Those whose letters this note sends."""
    first: Unfit | None = None
    """One of the rows, for an example."""


def read(state: Path, query: str) -> Note:
    try:
        fields = json.loads(_file(state, query).read_text())
    except FileNotFoundError:
        return Note()
    return Note(
        batch=fields["batch"],
        rows=[Row(*each) for each in fields["rows"]],
        earlier=[Row(*each) for each in fields["earlier"]],
        number=fields["number"],
        open=fields["open"],
        owed=[_unfit(*each) for each in fields["owed"]],
        first=_unfit(*fields["first"]),
    )


def notes(state: Path) -> dict[str, Note]:
    """Of all queries, by name."""
    return {file.stem: read(state, file.stem) for file in sorted((state / FOLDER).glob("*.json"))}


def aside(state: Path, query: str, batch: int | None) -> list[Row]:
    """Those that a query leaves out of a batch."""
    note = read(state, query)
    return note.rows if note.batch == batch else []


def known(state: Path) -> set[Row]:
    """Those of all queries."""
    return {row for note in notes(state).values() for row in (*note.rows, *note.earlier)}


def add(state: Path, query: str, batch: int, unfit: Iterable[Unfit]) -> None:
    """Set rows of a batch aside, where no note is open. Those that nobody knew of yet are owed a letter."""
    before, new, others = read(state, query), sorted(unfit), known(state)
    rows, earlier = before.rows, before.earlier
    if before.batch != batch:
        rows, earlier = [], [*earlier, *rows][-EARLIER_MAX:]
    note = Note(
        batch=batch,
        rows=sorted({*rows, *(each.row for each in new)}),
        earlier=earlier,
        number=max(before.number + 1, int(time.time())),
        open=True,
        owed=[each for each in new if each.row not in others],
        first=new[0],
    )
    _write(state, query, asdict(note))


def forget_batch(state: Path, query: str) -> None:
    """A query begins anew: a batch of the same number is another. Its rows are known, and a letter that is owed is."""
    note = read(state, query)
    if note.batch >= 0:
        earlier = [*note.earlier, *note.rows][-EARLIER_MAX:]
        _write(state, query, asdict(replace(note, batch=-1, rows=[], earlier=earlier)))


def close(state: Path, query: str) -> None:
    """All that a note asks for is done."""
    _write(state, query, asdict(replace(read(state, query), open=False, owed=[])))


def _write(state: Path, query: str, fields: Mapping[str, Any]) -> None:
    file = _file(state, query)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, json.dumps(fields), durable=True)


def _file(state: Path, query: str) -> Path:
    return state / FOLDER / f"{query}.json"


def _unfit(row: Iterable[Any], step: str, reason: str) -> Unfit:
    return Unfit(Row(*row), step, reason)
