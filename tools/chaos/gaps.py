"""How long nobody was told that a record is safe: the longest gap in a steady producer's acknowledgements after a
fault.

Pure. A gap belongs to a fault if it ends after the fault began and begins before the next one does; what is open at the
end of the time that is looked at counts up to there.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tools.chaos.history import Acked, Diary, Place


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


def longest_gap(times: Sequence[float], from_s: float, to_s: float) -> Gap:
    """The longest pause that touches this span; `times` rise."""
    first = max(bisect_right(times, from_s) - 1, 0)
    inside = list(times[first : bisect_left(times, to_s)])
    points = [*(inside or [from_s]), to_s]
    return max((Gap(began, ended - began) for began, ended in pairwise(points)), key=_length)


def gaps_after(times: Mapping[Place, Sequence[float]], from_s: float, to_s: float) -> Gaps:
    together = sorted(time for some in times.values() for time in some)
    by_place = {place: longest_gap(some, from_s, to_s) for place, some in times.items()}
    place = max(by_place, key=lambda one: by_place[one].length_s)
    return Gaps(longest_gap(together, from_s, to_s), by_place[place], place)


def _length(gap: Gap) -> float:
    return gap.length_s
