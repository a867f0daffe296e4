"""The range assignor: of each topic a member gets one stretch of partitions.

Members stand in a fixed order, static ones first by instance id, so that a topic's first stretch goes to the first of
its subscribers, and members that subscribe to the same topics with as many partitions get the same numbers of each:
what joins two streams needs. The first members get one more where the partitions don't divide evenly.
"""

from collections.abc import Iterable, Mapping, Sequence

from tidelog.coordinator.group.consumer.assignors.spec import Candidate, alike
from tidelog.coordinator.group.consumer.state import Partitions
from tidelog.env.slices import Steps


def assign_range(members: Sequence[Candidate], counts: Mapping[bytes, int]) -> Steps[dict[str, Partitions]]:
    if not members:
        return {}
    ordered = sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.id))
    partitions_of: list[dict[bytes, tuple[int, ...]]] = [{} for _ in ordered]
    for topic, subscribers in (yield from _subscribers(ordered)):
        yield
        least, more = divmod(counts[topic], len(subscribers))
        start = 0
        for place in range(len(subscribers) if least else more):
            end = start + least + (place < more)
            partitions_of[subscribers[place]][topic] = tuple(range(start, end))
            start = end
    assigned: dict[str, Partitions] = {}
    for member, after in zip(ordered, partitions_of, strict=True):
        assigned[member.id] = member.before if after == member.before else after
        yield
    return assigned


def _subscribers(ordered: list[Candidate]) -> Steps[Iterable[tuple[bytes, Sequence[int]]]]:
    """Each topic with the places of its subscribers."""
    if alike(ordered):
        everyone = range(len(ordered))
        return [(topic, everyone) for topic in ordered[0].topics]
    subscribers: dict[bytes, list[int]] = {}
    for place, member in enumerate(ordered):
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(place)
        yield
    return subscribers.items()
