"""The uniform assignor: balance first, then as little as possible changes hands.

Where all members subscribe to the same topics the sizes differ by one at most, and a member loses only what it has
above its share. Otherwise see `balance.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from tidelog.coordinator.group.consumer.assignors.balance import assign_mixed
from tidelog.coordinator.group.consumer.assignors.spec import Candidate, alike
from tidelog.coordinator.group.consumer.state import Partitions
from tidelog.env.slices import Steps
from tidelog.wire.topic_partition import TopicIdPartition


def assign_uniform(members: Sequence[Candidate], counts: Mapping[bytes, int]) -> Steps[dict[str, Partitions]]:
    if not members:
        return {}
    return (yield from (_assign_alike if alike(members) else assign_mixed)(members, counts))


def _assign_alike(members: Sequence[Candidate], counts: Mapping[bytes, int]) -> Steps[dict[str, Partitions]]:
    topics = members[0].topics
    free = {topic: bytearray(b"\1") * counts[topic] for topic in topics}
    least, more = divmod(sum(counts[topic] for topic in topics), len(members))
    assigned: dict[str, Partitions] = {}
    hungry: list[tuple[Candidate, dict[bytes, list[int]], int]] = []
    for member in members:
        yield
        held, size = _kept(member.before, free)
        if size > least and more:
            quota = least + 1
            more -= 1
        else:
            quota = least
        if size > quota:
            _shed(held, size - quota, free)
        elif size <= least:
            hungry.append((member, held, least - size))
            continue
        assigned[member.id] = _fixed(member.before, held)
    spare = _spare(free, topics)
    for member, held, missing in hungry:
        yield
        if more:
            missing += 1
            more -= 1
        for _ in range(missing):
            topic, partition = next(spare)
            held.setdefault(topic, []).append(partition)
        assigned[member.id] = _fixed(member.before, held)
    return assigned


def _kept(before: Partitions, free: dict[bytes, bytearray]) -> tuple[dict[bytes, list[int]], int]:
    """What of the former target is still there to have, taken from `free`; and how much that is."""
    held: dict[bytes, list[int]] = {}
    size = 0
    for topic, partitions in before.items():
        flags = free.get(topic)
        if flags is None:
            continue
        count = len(flags)
        kept = [one for one in partitions if one < count and flags[one]]
        if kept:
            for one in kept:
                flags[one] = 0
            held[topic] = kept
            size += len(kept)
    return held, size


def _shed(held: dict[bytes, list[int]], excess: int, free: dict[bytes, bytearray]) -> None:
    """Give up `excess` partitions: one at a time from the topic of which it has most, so that topics stay spread."""
    most = [(-len(partitions), topic) for topic, partitions in held.items()]
    heapify(most)
    for _ in range(excess):
        size, topic = most[0]
        free[topic][held[topic].pop()] = 1
        if size == -1:
            heappop(most)
            del held[topic]
        else:
            heapreplace(most, (size + 1, topic))


def _spare(free: dict[bytes, bytearray], topics: Sequence[bytes]) -> Iterator[TopicIdPartition]:
    for topic in topics:
        flags = free[topic]
        place = flags.find(1)
        while place >= 0:
            yield topic, place
            place = flags.find(1, place + 1)


def _fixed(before: Partitions, held: dict[bytes, list[int]]) -> Partitions:
    """As it is kept; the former object where nothing changed."""
    after = {topic: tuple(sorted(partitions)) for topic, partitions in held.items()}
    return before if after == before else after
