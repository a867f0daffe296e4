"""How many rows a pipeline left out, and an example: kept beside its checkpoints, shown by `status`, never silent."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog.spark.source.progress import write_file

FOLDER = "left-out"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows that one query left out since its state began. `where` says what became of them."""

    rows: int
    batch: int
    before: int  # what earlier batches left out: a repeated batch counts once
    where: str
    example: str

    @property
    def summary(self) -> str:
        rows = f"{self.rows} {'row' if self.rows == 1 else 'rows'} {self.where}"
        return f"{rows}; for example {self.example}" if self.example else rows


def add(state: Path, query: str, batch: int, rows: int, where: str, example: str) -> None:
    """A batch left out so many rows. Told again it counts once: batches come in order."""
    known = _read(state / FOLDER / f"{query}.json")
    if (known is not None and batch < known.batch) or (not rows and (known is None or known.batch != batch)):
        return
    before = 0 if known is None else known.before if known.batch == batch else known.rows
    (state / FOLDER).mkdir(parents=True, exist_ok=True)
    entry = LeftOut(before + rows, batch, before, where, example)
    write_file(state / FOLDER / f"{query}.json", json.dumps(asdict(entry)))


def left_out(state: Path) -> dict[str, LeftOut]:
    """What each query left out, where it left out anything."""
    entries = {file.stem: _read(file) for file in sorted((state / FOLDER).glob("*.json"))}
    return {query: entry for query, entry in entries.items() if entry is not None and entry.rows}


def forget(state: Path, query: str) -> None:
    """A query begins anew: its batches are counted from the first again."""
    for name in (query, f"{query}-late", f"{query}-failed"):
        (state / FOLDER / f"{name}.json").unlink(missing_ok=True)


def _read(file: Path) -> LeftOut | None:
    try:
        return LeftOut(**json.loads(file.read_text()))
    except FileNotFoundError:
        return None
