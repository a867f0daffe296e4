"""How long nobody was told that a record is safe: the longest gap in a steady producer's acknowledgements after a
fault.

Pure. A gap belongs to the fault after which it began: from that one, or a moment before it, until the next one. What is
still open when producers end counts up to there.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tools.chaos.history import Acked, Diary, Place

MOMENT_S = 0.3
"""The last acknowledgement before a fault is no older than that, on a busy machine."""


class Gap(NamedTuple):
    began_s: float
    length_s: float


class Gaps(NamedTuple):
    """After one fault: without an acknowledgement in any partition, and in the partition that waited longest."""

    overall: Gap
    worst: Gap
    place: Place


def acked_times(diaries: Iterable[Diary], producer: str) -> dict[Place, list[float]]:
    times: dict[Place, list[float]] = {}
    for diary in diaries:
        if diary.name == producer:
            for event in diary.events:
                if isinstance(event, Acked):
                    times.setdefault(event.place, []).append(event.at_s)
    return {place: sorted(found) for place, found in times.items()}


def longest_gap(times: Sequence[float], from_s: float, to_s: float, end_s: float) -> Gap:
    """The longest one that began in this span; `times` rise, and `end_s` is when nothing more was sent."""
    points = [*times[: bisect_left(times, end_s)], end_s]
    first, last = (bisect_left(points, at_s - MOMENT_S) for at_s in (from_s, to_s))
    began = (Gap(one, other - one) for one, other in pairwise(points[first : last + 1]))
    return max(began, key=_length, default=Gap(from_s, 0.0))


def gaps_after(times: Mapping[Place, Sequence[float]], from_s: float, to_s: float, end_s: float) -> Gaps:
    together = sorted(time for some in times.values() for time in some)
    by_place = {place: longest_gap(some, from_s, to_s, end_s) for place, some in times.items()}
    place = max(by_place, key=lambda one: by_place[one].length_s)
    return Gaps(longest_gap(together, from_s, to_s, end_s), by_place[place], place)


def _length(gap: Gap) -> float:
    return gap.length_s
