"""Stretches of topics: what a micro-batch reads, by its query's checkpoint, and halves of that."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from tidelog.spark.checkpoint import planned_batch
from tidelog.spark.source import plan
from tidelog.spark.source.plan import OffsetRange
from tidelog.wire.topic_partition import TopicPartition


def size(ranges: Iterable[OffsetRange]) -> int:
    return sum(each.count for each in ranges)


def halves(ranges: Sequence[OffsetRange]) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Two parts of one length, or almost so."""
    left: list[OffsetRange] = []
    right: list[OffsetRange] = []
    room = size(ranges) // 2
    for each in ranges:
        cut = min(each.end, each.start + room)
        room -= cut - each.start
        left += [replace(each, end=cut)] if cut > each.start else []
        right += [replace(each, start=cut)] if cut < each.end else []
    return left, right


def around(rows: Iterable[tuple[str, int, int]]) -> list[OffsetRange]:
    """One stretch of each partition, with all of these rows (topic, partition, offset) in it."""
    by_place: dict[TopicPartition, list[int]] = {}
    for topic, partition, offset in rows:
        by_place.setdefault((topic, partition), []).append(offset)
    return [OffsetRange(*place, min(offsets), max(offsets) + 1) for place, offsets in sorted(by_place.items())]


def lying_in(ranges: Iterable[OffsetRange], row: tuple[str, int, int]) -> bool:
    """Whether a row (topic, partition, offset) lies in one of them."""
    return any((each.topic, each.partition) == row[:2] and each.start <= row[2] < each.end for each in ranges)


def between(first: tuple[str, int, int], last: tuple[str, int, int]) -> Any:
    """Whether a row of a source stands between two, or is one of them, as a condition of Spark's."""
    low, high = (f"('{topic}', {partition}, {offset}L)" for topic, partition, offset in (first, last))
    return F.expr(f"(_topic, _partition, _offset) between {low} and {high}")


def options_for(ranges: Sequence[OffsetRange]) -> dict[str, str]:
    """What makes the source read them: one of each partition."""
    assigned: dict[str, list[int]] = {}
    for each in ranges:
        assigned.setdefault(each.topic, []).append(each.partition)
    return {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(plan.to_json({(each.topic, each.partition): each.start for each in ranges})),
        "endingOffsets": json.dumps(plan.to_json({(each.topic, each.partition): each.end for each in ranges})),
    }


def read_by(checkpoint: Path, batch: int, initial: Path, is_read: Callable[[str], bool]) -> list[OffsetRange]:
    """What a micro-batch reads of the topics of a source; `initial` says where that source's first one begins.

    Nothing where the checkpoint can't be understood. A source that a query reads twice has two ends there: from the
    first start to the last end is what the two read. A partition that ends before its start was made anew, and is read
    from its beginning.
    """
    ends = _offsets(checkpoint, batch, is_read)
    starts = [plan.from_json(each) for each in _offsets(checkpoint, batch - 1, is_read)]
    starts = starts or [begun for each in ends if (begun := plan.began(each))]
    if not starts and initial.exists():
        starts = [plan.from_json(json.loads(initial.read_text()))]
    end_offsets: dict[TopicPartition, int] = {}
    for end in map(plan.from_json, ends):
        for place, offset in end.items():
            end_offsets[place] = max(end_offsets.get(place, 0), offset)
    ranges: list[OffsetRange] = []
    for place, end in sorted(end_offsets.items()):
        start = min((each[place] for each in starts if place in each), default=0)
        ranges.append(OffsetRange(*place, start if start <= end else 0, end))
    return [each for each in ranges if each.count > 0]


def _offsets(checkpoint: Path, batch: int, is_read: Callable[[str], bool]) -> list[Mapping[str, Mapping[str, int]]]:
    """The offsets of each source of a query that reads such topics."""
    try:
        planned = planned_batch(checkpoint, batch)
    except FileNotFoundError:
        planned = None
    if planned is None:
        return []
    sources = [json.loads(line) for line in planned.sources if line.startswith("{")]
    return [
        each for each in sources if each and all(isinstance(at, dict) and is_read(topic) for topic, at in each.items())
    ]
