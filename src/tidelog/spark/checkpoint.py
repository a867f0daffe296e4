"""What Spark keeps in the checkpoint of a query, as far as it is looked at here: its id, and its micro-batches."""

import json
from pathlib import Path
from typing import NamedTuple

OFFSET_LOG = "v1"
"""What Spark writes above a batch's offsets, in the form that is understood here."""
HEAD_LINES = 2


class PlannedBatch(NamedTuple):
    """What a micro-batch was planned with, the time for one, and a line with the offsets of each of its sources."""

    head: list[str]
    sources: list[str]


def query_id(checkpoint: Path) -> str:
    """The query's, for as long as it has this checkpoint."""
    return json.loads((checkpoint / "metadata").read_text())["id"]


def planned_batch(checkpoint: Path, batch: int) -> PlannedBatch | None:
    """None where it has another form; OSError where it can't be read."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return PlannedBatch(lines[1:HEAD_LINES], lines[HEAD_LINES:]) if lines[:1] == [OFFSET_LOG] else None


def last_finished(checkpoint: Path) -> int | None:
    return _last(checkpoint / "commits")


def unfinished(checkpoint: Path) -> int | None:
    """The micro-batch that a query began and did not finish."""
    last = _last(checkpoint / "offsets")
    return None if last is None or (checkpoint / "commits" / str(last)).exists() else last


def _last(folder: Path) -> int | None:
    return max((int(file.name) for file in folder.glob("[0-9]*")), default=None)
