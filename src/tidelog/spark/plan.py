"""What to read: pure decisions on offsets. Rate limits, ranges for tasks, and what counts as lost data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Place, int]

SMALL_RANGE_RECORDS = 20_000
"""Ranges of fewer records share a task: a task costs more than reading them."""
TASK_RANGES_MAX = 500


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition, in [start, end)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that can't be read any more, as a sentence."""

    what: str


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """Offsets as they stand in Spark's checkpoint, in the form of Spark's own Kafka source."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(index)): offset for topic, places in offsets.items() for index, offset in places.items()}


def limited(start: Mapping[Place, int], end: Mapping[Place, int], limit: int) -> Offsets:
    """At most about `limit` records from start towards end: each partition its share, and no one starves."""
    sizes = {place: max(0, end[place] - start.get(place, end[place])) for place in end}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    shares = {place: size * limit // total for place, size in sizes.items()}
    left = limit - sum(shares.values())
    for place in sorted(sizes, key=lambda place: (shares[place] > 0, -sizes[place], place)):
        if left <= 0:
            break
        if shares[place] < sizes[place]:
            shares[place] += 1
            left -= 1
    return {place: end[place] if place not in start else start[place] + shares[place] for place in end}


def lag(at: Mapping[Place, int], latest: Mapping[Place, int]) -> int:
    """Records between here and the end, over all partitions."""
    return sum(max(0, offset - at.get(place, 0)) for place, offset in latest.items())


def ranges(start: Mapping[Place, int], end: Mapping[Place, int]) -> list[OffsetRange]:
    """What lies between two sets of offsets; a partition that is only in `end` is new and read from `start` 0."""
    return [
        OffsetRange(topic, partition, start.get((topic, partition), 0), offset)
        for (topic, partition), offset in sorted(end.items())
        if offset > start.get((topic, partition), 0)
    ]


def split(whole: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Large ranges cut into equal parts: none above `max_records`, and about `min_partitions` in all."""
    found = list(whole)
    if max_records:
        found = [part for each in found for part in _cut(each, -(-each.count // max_records))]
    if min_partitions and len(found) < min_partitions:
        total = sum(each.count for each in found) or 1
        found = [part for each in found for part in _cut(each, max(1, round(each.count * min_partitions / total)))]
    return found


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = max(1, min(parts, whole.count))
    edges = [whole.start + whole.count * index // parts for index in range(parts + 1)]
    return [OffsetRange(whole.topic, whole.partition, low, high) for low, high in pairwise(edges)]


def shared(parts: Iterable[OffsetRange], small: int = SMALL_RANGE_RECORDS) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task: small ones together, in order, large ones alone."""
    tasks: list[tuple[OffsetRange, ...]] = []
    held: list[OffsetRange] = []
    size = 0
    for part in parts:
        if held and (size + part.count > small or len(held) >= TASK_RANGES_MAX):
            tasks.append(tuple(held))
            held, size = [], 0
        held.append(part)
        size += part.count
    return [*tasks, tuple(held)] if held else tasks


def made_anew(place: Place, latest: int, begin: int) -> Loss:
    """A partition that ends before where it was read to."""
    return Loss(
        f"{place[0]}-{place[1]} ends at offset {latest}, before {begin} where the last batch ended: was it deleted and "
        "made again?"
    )


def available(
    start: Mapping[Place, int], end: Mapping[Place, int], earliest: Mapping[Place, int], latest: Mapping[Place, int]
) -> tuple[Offsets, Offsets, list[Loss]]:
    """Start and end cut to what is there, and what that lost: nothing, where all is well.

    An end before the start is that of a partition that was made anew: it is read from its beginning.
    """
    losses: list[Loss] = []
    low, high = dict(start), dict(end)
    for place, offset in end.items():
        name = f"{place[0]}-{place[1]}"
        begin = start.get(place, 0)
        if place not in earliest:
            if offset > begin:
                losses.append(Loss(f"{name} is gone, and with it the offsets {begin} to {offset - 1}"))
            low[place] = high[place] = begin
            continue
        if latest[place] < begin or offset < begin:
            losses.append(made_anew(place, latest[place], begin))
            low[place] = earliest[place]
            high[place] = max(earliest[place], min(offset, latest[place])) if offset < begin else earliest[place]
            continue
        if earliest[place] > begin:
            if offset > begin:
                upto = min(earliest[place], offset)
                losses.append(
                    Loss(f"the offsets {begin} to {upto - 1} of {name} are gone: it begins at {earliest[place]}")
                )
            low[place] = earliest[place]
            high[place] = max(offset, earliest[place])
        if latest[place] < offset:
            losses.append(Loss(f"{name} ends at offset {latest[place]}, before {offset} which was seen earlier"))
            high[place] = max(latest[place], low.get(place, begin))
    gone = sorted(place for place in start.keys() - end.keys() if place not in earliest)
    losses += [Loss(f"{topic}-{partition} is gone") for topic, partition in gone]
    return low, high, losses
