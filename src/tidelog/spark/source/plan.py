"""What to read: pure decisions on offsets. Rate limits, ranges for tasks, and what counts as lost data."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from tidelog.wire.topic_partition import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]

SMALL_RANGE_RECORDS = 20_000
"""Ranges of fewer records share a task: a task costs more than reading them."""
TASK_RANGES_MAX = 500
BEGAN, ID = "0", "00"
"""What stands in front of a partition's number, in a checkpoint, where it isn't a batch's end that stands there."""
WHY_LOST = "Retention or a deletion was faster than this query, or the topic is another one"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition, in [start, end). One that is `floating` starts wherever the partition does by then."""

    topic: str
    partition: int
    start: int
    end: int
    floating: bool = False

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that can't be read any more, as a sentence, and how that comes."""

    what: str
    why: str = WHY_LOST


def to_json(
    offsets: Mapping[TopicPartition, int],
    began: Mapping[TopicPartition, int] | None = None,
    ids: Mapping[str, int] | None = None,
) -> dict[str, dict[str, int]]:
    """Offsets as they stand in Spark's checkpoint, in the form of Spark's own Kafka source.

    A checkpoint holds the ends of batches, which is where those that follow begin. It doesn't hold where the first one
    `began`, nor which topic of a name was read (`ids`: a number for each). Those stand beside the ends, the one under
    the partition's number with a zero in front, the other under a topic's first partition with two. Spark's own source
    takes them for the same partition, and of two offsets the later one in the text: the end.
    """
    by_topic: dict[str, dict[str, int]] = {}
    for place, offset in sorted(offsets.items()):
        topic, partition = place
        if topic not in by_topic:
            by_topic[topic] = {f"{ID}{partition}": ids[topic]} if ids and topic in ids else {}
        if began is not None and place in began:
            by_topic[topic][f"{BEGAN}{partition}"] = began[place]
        by_topic[topic][str(partition)] = offset
    return by_topic


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The offsets, without what stands beside them."""
    return _entries(offsets, "")


def began(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Where a first batch began, by its end; nothing is told by the end of another."""
    return _entries(offsets, BEGAN)


def topic_ids(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Which topics were meant; nothing is told by what Spark's own source wrote."""
    return {topic: number for (topic, _), number in _entries(offsets, ID).items()}


def _entries(offsets: Mapping[str, Mapping[str, int]], kind: str) -> Offsets:
    return {
        (topic, int(at)): it
        for topic, places in offsets.items()
        for at, it in places.items()
        if at == f"{kind}{int(at)}"
    }


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """At most `limit` records from start towards end: each partition its share by size, and one at least.

    So that no one starves, more partitions with records than `limit` make that many records, as in Spark's own source.
    """
    sizes = {place: offset - start.get(place, offset) for place, offset in end.items()}
    sizes = {place: size for place, size in sizes.items() if size > 0}
    if sum(sizes.values()) <= limit:
        return dict(end)
    spare = max(0, limit - len(sizes))
    beyond = sum(sizes.values()) - len(sizes)
    shares = {place: 1 + (size - 1) * spare // max(1, beyond) for place, size in sizes.items()}
    left = limit - sum(shares.values())
    for place in sorted(sizes, key=lambda place: (-sizes[place], place)):
        if left <= 0:
            break
        if shares[place] < sizes[place]:
            shares[place] += 1
            left -= 1
    return dict(end) | {place: start[place] + share for place, share in shares.items()}


def lag(at: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """Records between here and the end, over all partitions."""
    return sum(max(0, offset - at.get(place, 0)) for place, offset in latest.items())


def ranges(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], floating: Collection[TopicPartition] = ()
) -> list[OffsetRange]:
    """What lies between two sets of offsets; a partition that is only in `end` is new and read from `start` 0."""
    return [
        OffsetRange(*place, start.get(place, 0), offset, place in floating)
        for place, offset in sorted(end.items())
        if offset > start.get(place, 0)
    ]


def split(whole: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Large ranges cut into equal parts: none above `max_records`, and about `min_partitions` in all."""
    pieces = list(whole)
    if max_records:
        pieces = [part for each in pieces for part in _cut(each, -(-each.count // max_records))]
    if min_partitions and len(pieces) < min_partitions:
        total = sum(each.count for each in pieces)
        large = [each for each in pieces if _share(each.count, total, min_partitions) > 1]
        parts = min_partitions - (len(pieces) - len(large))  # what is left for those, beside the small ones
        total = sum(each.count for each in large)
        sizes = {each: _share(each.count, total, parts) for each in large}
        pieces = [part for each in pieces for part in _cut(each, sizes.get(each, 1))]
    return pieces


def _share(size: int, total: int, parts: int) -> int:
    """Of so many parts, as many as are for this size; a half is one."""
    return (2 * size * parts + total) // (2 * total)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = max(1, min(parts, whole.count))
    edges = [whole.start + whole.count * index // parts for index in range(parts + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, low, high, whole.floating and low == whole.start)
        for low, high in pairwise(edges)
    ]


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


def made_again(topics: Collection[str]) -> Loss:
    return Loss(
        f"{', '.join(sorted(topics))} was deleted and made again since it was read: what was not read yet is gone"
    )


def other_ids(read: Mapping[str, int], now: Mapping[str, int]) -> set[str]:
    """The topics that are others now than those that were read; where one of the two isn't known, it is the same."""
    return {topic for topic, number in read.items() if now.get(topic, number) != number}


def too_short(place: TopicPartition, latest: int, begin: int, by_option: bool) -> Loss:
    """A partition that ends before where it is to be read from: as the query was told, or as it was read so far."""
    name = f"{place[0]}-{place[1]} ends at offset {latest}, before {begin} where "
    return Loss(name + ("it was to start" if by_option else "the last batch ended: was it deleted and made again?"))


def available(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    by_option: Collection[TopicPartition] = (),
) -> tuple[Offsets, Offsets, list[Loss]]:
    """Start and end cut to what is there, and what that lost: nothing, where all is well.

    An end before the start is that of a partition that was made anew: it is read from its beginning. But where the
    start is that of an option (`by_option`), and not how far the query had read, there is nothing to read.
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
            at = latest[place] if latest[place] < begin else offset
            losses.append(too_short(place, at, begin, place in by_option))
            anew = offset < begin and place not in by_option
            low[place] = earliest[place] if anew else begin
            high[place] = max(earliest[place], min(offset, latest[place])) if anew else begin
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
            losses.append(Loss(f"{name} ends at offset {latest[place]}, before {offset} which was to be its end"))
            high[place] = max(latest[place], low.get(place, begin))
    losses += [Loss(f"{topic}-{partition} is gone") for topic, partition in sorted(start.keys() - end.keys())]
    return low, high, losses
