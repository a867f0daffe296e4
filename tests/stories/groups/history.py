"""The history of a group, from the diaries of all its members, and what it must show.

Promised: at any time a partition has at most one owner who may commit; what a former owner commits is refused;
committed offsets never go back; an owner goes on where the one before stopped. So each record is processed at least
once, and exactly once where everybody says goodbye.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

from tidelog.wire.topic_partition import TopicPartition

ENDED = ("left", "killed", "stopped")


@dataclass(slots=True)
class Span:
    """A member's ownership of a partition: from when it was told, until it let go or was gone."""

    member: str
    begin: float
    end: float = inf
    alive: bool = True
    """It ended with the member's knowledge: it was revoked, or is still its."""


@dataclass(slots=True)
class History:
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, member: str, event: dict[str, Any]) -> None:
        self.events.append({"member": member, **event})

    def ordered(self) -> list[dict[str, Any]]:
        return sorted(self.events, key=lambda event: event["at"])

    def of(self, member: str, *kinds: str) -> list[dict[str, Any]]:
        return [e for e in self.ordered() if e["member"] == member and (not kinds or e["event"] in kinds)]

    def spans(self) -> dict[TopicPartition, list[Span]]:
        """For each partition, who owned it when; a member that was killed or stood still lost it then."""
        found: dict[TopicPartition, list[Span]] = defaultdict(list)
        held: dict[tuple[str, TopicPartition], Span] = {}
        for event in self.ordered():
            member, kind = event["member"], event["event"]
            if kind == "assigned":
                for place in map(tuple, event["places"]):
                    span = held.get((member, place))
                    if span is None or span.end < inf:
                        held[member, place] = Span(member, event["at"])
                        found[place].append(held[member, place])
            elif kind in ("revoked", "lost"):
                for place in map(tuple, event["places"]):
                    if span := held.pop((member, place), None):
                        span.end = min(span.end, event["at"])
            elif kind in (*ENDED, "hangs"):
                for (owner, _), span in held.items():
                    if owner == member:
                        span.end = min(span.end, event["at"])
                        span.alive = kind == "left"
        return dict(found)

    def owners(self) -> dict[TopicPartition, list[str]]:
        """Who owns what just now."""
        return {place: [s.member for s in spans if s.end == inf] for place, spans in self.spans().items()}

    def holding(self, member: str) -> set[TopicPartition]:
        return {place for place, owners in self.owners().items() if member in owners}

    def records(self, member: str | None = None) -> Counter[tuple[str, int, int]]:
        return Counter(
            (event["topic"], event["partition"], event["offset"])
            for event in list(self.events)
            if event["event"] == "record" and member in (None, event["member"])
        )

    def last_committed(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for event in self.ordered():
            if event["event"] == "committed":
                for topic, partition, offset in event["offsets"]:
                    found[topic, partition] = max(offset, found.get((topic, partition), 0))
        return found

    def check(self, expected: Iterable[tuple[str, int, int]], *, once: bool) -> None:
        """`expected` was all processed: exactly once, or at least once where somebody died."""
        self.check_one_owner()
        self.check_commits()
        seen, wanted = self.records(), set(expected)
        missing = sorted(wanted - seen.keys())
        assert not missing, f"{len(missing)} records were never processed, {missing[:5]}"
        assert seen.keys() <= wanted, f"never written: {sorted(seen.keys() - wanted)[:5]}"
        if once:
            doubled = [place for place, count in seen.items() if count > 1]
            assert not doubled, f"{len(doubled)} records were processed more than once, {sorted(doubled)[:5]}"

    def check_one_owner(self) -> None:
        for place, spans in self.spans().items():
            for before, after in pairwise(spans):
                assert before.end <= after.begin, (
                    f"{place} was given to {after.member} at {after.begin:.3f} and was {before.member}'s "
                    f"until {before.end:.3f}"
                )

    def check_commits(self) -> None:
        """Nobody's commit went through after somebody else had been given the partition; none went back.

        A commit took place between its beginning and its answer, which a member that was stopped reads late: it is
        behind those that were answered before it began, and no others.
        """
        spans, earlier = self.spans(), defaultdict[TopicPartition, list[tuple[float, int]]](list)
        for event in self.ordered():
            if event["event"] != "committed":
                continue
            for topic, partition, offset in event["offsets"]:
                place = (topic, partition)
                others = [
                    span.member
                    for span in spans.get(place, ())
                    if span.member != event["member"] and span.begin < event["began"] < span.end
                ]
                assert not others, f"{event['member']} committed {place} to {offset}, which was {others}'s"
                highest = max((was for at, was in earlier[place] if at < event["began"]), default=0)
                assert offset >= highest, f"{place} was committed to {highest} and then to {offset}"
                earlier[place].append((event["at"], offset))
