"""The uniform assignor where members subscribe to different topics.

First everyone keeps what it had and still subscribes to. Then what is free goes, topic by topic, to the least loaded
of the topic's subscribers; topics with many partitions a subscriber come first, since they leave the least choice.
Then topics are levelled: while some subscriber has two partitions more than another, it hands one of this topic over.
Levelling a topic can tilt another, so this goes in rounds until nothing moves, or `ROUNDS_MAX`: each round about halves
what is left, and a perfect balance isn't always there to be found by moving one partition at a time.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from tidelog.coordinator.group.consumer.assignors.spec import Candidate
from tidelog.coordinator.group.consumer.state import Partitions
from tidelog.env.slices import Steps

ROUNDS_MAX = 16
_NOBODY = -1


def assign_mixed(members: Sequence[Candidate], counts: Mapping[bytes, int]) -> Steps[dict[str, Partitions]]:
    subscribers: dict[bytes, list[int]] = {}
    for index, member in enumerate(members):
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(index)
        yield
    owners = {topic: [_NOBODY] * counts[topic] for topic in subscribers}
    yield
    loads: list[int] = []
    for index, member in enumerate(members):
        loads.append(_keep(index, member, owners))
        yield
    order = sorted(owners, key=lambda topic: (-counts[topic] / len(subscribers[topic]), len(subscribers[topic]), topic))
    for topic in order:
        _fill(owners[topic], subscribers[topic], loads)
        yield
    shared = [topic for topic in order if len(subscribers[topic]) > 1]
    for _ in range(ROUNDS_MAX):
        moved = 0
        for topic in shared:
            moved += _level(owners[topic], subscribers[topic], loads)
            yield
        if not moved:
            break
    return (yield from _gathered(members, owners))


def _keep(index: int, member: Candidate, owners: dict[bytes, list[int]]) -> int:
    """Take what the member had; how much that is."""
    load = 0
    mine = set(member.topics)
    for topic, partitions in member.before.items():
        if topic not in mine:
            continue
        owned = owners[topic]
        for partition in partitions:
            if partition < len(owned) and owned[partition] == _NOBODY:
                owned[partition] = index
                load += 1
    return load


def _fill(owned: list[int], subscribers: list[int], loads: list[int]) -> None:
    free = [partition for partition, owner in enumerate(owned) if owner == _NOBODY]
    if not free:
        return
    least = [(loads[index], index) for index in subscribers]
    heapify(least)
    for partition in free:
        load, index = least[0]
        owned[partition] = index
        loads[index] = load + 1
        heapreplace(least, (load + 1, index))


def _level(owned: list[int], subscribers: list[int], loads: list[int]) -> int:
    """Hand partitions of one topic from its most loaded owners to its least loaded subscribers; how many moved."""
    if max(loads[index] for index in set(owned)) - min(loads[index] for index in subscribers) < 2:
        return 0
    held: dict[int, list[int]] = {}
    for partition, index in enumerate(owned):
        held.setdefault(index, []).append(partition)
    most = [(-loads[index], index) for index in held]
    least = [(loads[index], index) for index in subscribers]
    heapify(most)
    heapify(least)
    moved = 0
    while most:
        load, giver = heappop(most)
        while least[0][0] != loads[least[0][1]]:
            heappop(least)
        taker = least[0][1]
        if -load - loads[taker] < 2:
            break
        owned[held[giver].pop()] = taker
        moved += 1
        loads[giver] -= 1
        loads[taker] += 1
        heapreplace(least, (loads[taker], taker))
        heappush(least, (loads[giver], giver))
        if held[giver]:
            heappush(most, (-loads[giver], giver))
    return moved


def _gathered(members: Sequence[Candidate], owners: dict[bytes, list[int]]) -> Steps[dict[str, Partitions]]:
    partitions_of: list[dict[bytes, list[int]]] = [{} for _ in members]
    for topic, owned in owners.items():
        for partition, index in enumerate(owned):
            partitions_of[index].setdefault(topic, []).append(partition)
        yield
    assigned: dict[str, Partitions] = {}
    for member, held in zip(members, partitions_of, strict=True):
        after = {topic: tuple(partitions) for topic, partitions in held.items()}
        assigned[member.id] = member.before if after == member.before else after
        yield
    return assigned
