"""What running queries do, for people and programs: rows a second, lag, time of a batch; a file beside the state."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from tidelog.spark.pipeline.left_out import LeftOut
from tidelog.spark.progress import write_file

FILE = "status.json"


def told_of(query: Any) -> dict[str, Any]:
    """One query's last progress."""
    progress = query.lastProgress
    failure = query.exception()
    told: dict[str, Any] = {"active": query.isActive, "message": query.status["message"]}
    if failure is not None:
        told["error"] = str(failure).strip().split("\n")[0]
    if progress is None:
        return told
    return told | {
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "rows_per_s": progress["processedRowsPerSecond"],
        "batch_ms": progress["durationMs"].get("triggerExecution"),
        "lag": sum(_lag(source) for source in progress["sources"]),
        "at": progress["timestamp"],
    }


def _lag(source: Any) -> int:
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return sum(max(0, offset - end.get(place, 0)) for place, offset in latest.items())


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    told: Any = json.loads(text) if isinstance(text, str) else text
    found: dict[tuple[str, str], int] = {}
    for topic, places in dict[str, Any](told or {}).items():
        if isinstance(places, dict):
            found.update({(topic, index): offset for index, offset in cast("dict[str, int]", places).items()})
    return found


def late_rows(query: Any) -> list[tuple[int, int]]:
    """Which of the last micro-batches left rows out that were older than their watermark: number and rows of each."""
    found: list[tuple[int, int]] = []
    for progress in query.recentProgress:
        rows = sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])
        if rows:
            found.append((progress["batchId"], rows))
    return found


def write_status(
    state: Path, name: str, queries: dict[str, Any], outcome: str, left_out: Mapping[str, LeftOut]
) -> None:
    """`outcome` is running, done, stopped or failed."""
    told = {"pipeline": name, "outcome": outcome, "pid": os.getpid(), "at": time.time(), "queries": queries}
    told["left_out"] = {query: {**asdict(each), "told": each.told} for query, each in left_out.items()}
    write_file(state / FILE, json.dumps(told, indent=1))


def read_status(state: Path) -> dict[str, Any] | None:
    """What was written last; a pipeline whose process is gone without a word is `gone`."""
    try:
        told: dict[str, Any] = json.loads((state / FILE).read_text())
    except (OSError, ValueError):
        return None
    if told["outcome"] == "running" and not _alive(told["pid"]):
        told["outcome"] = "gone"
    return told


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
