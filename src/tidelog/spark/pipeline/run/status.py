"""What running queries do, for people and programs: rows a second, lag, time of a batch; a file beside the state."""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from tidelog.spark.pipeline.run.reason import reason_of
from tidelog.spark.pipeline.sinks.left_out import LeftOut
from tidelog.spark.source.progress import write_file
from tidelog.wire.topic_partition import TopicPartition

FILE = "status.json"
LOCK = "lock"
ALIVE = ("starting", "running", "stopping")
"""Outcomes of a run that is not over: without a process that holds the state it is gone."""


def query_status(query: Any) -> dict[str, Any]:
    """How one query is, and what its last micro-batch did."""
    failure = query.exception()
    status: dict[str, Any] = {"active": query.isActive, "message": query.status["message"]}
    if failure is not None:
        status["error"] = reason_of(failure)
    progress = query.lastProgress
    return status if progress is None else status | figures(progress)


def figures(progress: Any) -> dict[str, Any]:
    """One micro-batch in figures. `lag` is what waited behind it; `bytes` are those of keys and values that it read."""
    return {
        "batch": progress["batchId"],
        "rows": _summed(progress, "numInputRows"),
        "bytes": sum(map(_bytes, dict[str, Any](progress.get("observedMetrics") or {}).values())),
        "rows_per_s": _summed(progress, "processedRowsPerSecond"),
        "batch_ms": progress["durationMs"].get("triggerExecution"),
        "lag": sum(_lag(source) for source in progress["sources"]),
        "at": progress["timestamp"],
    }


def _summed(progress: Any, name: str) -> Any:
    """A figure of a micro-batch; Spark Connect has it of each source only."""
    total = progress[name]
    return sum(source.get(name) or 0 for source in progress["sources"]) if total is None else total


def done_by(progress: Any) -> dict[TopicPartition, int]:
    """The offsets before which a micro-batch, and those before it, are done with their topics."""
    offsets: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        offsets |= _offsets(source.get("endOffset"))
    return offsets


def _bytes(row: Any) -> int:
    """Of a batch without rows there is no sum, and through Spark Connect no column of it either."""
    return int(row["bytes"] or 0) if "bytes" in row else 0


def _lag(source: Any) -> int:
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return sum(max(0, offset - end.get(place, 0)) for place, offset in latest.items())


def _offsets(text: Any) -> dict[TopicPartition, int]:
    """Of a topic; sources of other kinds have offsets of other shapes, which count nothing.

    What stands beside a topic's offsets has a zero in front (`plan.to_json`).
    """
    value: Any = json.loads(text) if isinstance(text, str) else text
    offsets: dict[TopicPartition, int] = {}
    if isinstance(value, dict):
        for topic, places in cast("dict[str, Any]", value).items():
            if isinstance(places, dict):
                each = cast("dict[str, int]", places).items()
                offsets |= {
                    (topic, int(index)): offset
                    for index, offset in each
                    if index.isdecimal() and index == str(int(index))
                }
    return offsets


def late_rows(progress: Any) -> int:
    """How many rows a micro-batch left out that were older than its watermark."""
    return sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])


def write_status(
    state: Path,
    name: str,
    queries: dict[str, Any],
    outcome: str,
    left_out: Mapping[str, LeftOut],
    **more: Any,
) -> None:
    """`outcome` is starting, running, stopping, done, stopped or failed; `more` stands beside it."""
    status = {"pipeline": name, "outcome": outcome, "pid": os.getpid(), "at": time.time(), "queries": queries}
    status |= {name: value for name, value in more.items() if value is not None}
    status["left_out"] = {query: {**asdict(each), "told": each.summary} for query, each in left_out.items()}
    write_file(state / FILE, json.dumps(status, indent=1))


def read_status(state: Path) -> dict[str, Any] | None:
    """What was written last; a run that is not over, and holds its state no more, is `gone`."""
    try:
        status: dict[str, Any] = json.loads((state / FILE).read_text())
    except (OSError, ValueError):
        return None
    if status["outcome"] in ALIVE and not _held(state):
        status["outcome"] = "gone"
    return status


def _held(state: Path) -> bool:
    """Whether a process holds the state: ids of processes are given again, and those of other machines not known."""
    try:
        with (state / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
