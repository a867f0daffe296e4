"""The assignors, for any group: everything once, only to subscribers, balanced, and little changes hands."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.group.consumer.assignors import ASSIGNORS
from tidelog.coordinator.group.consumer.assignors.spec import Candidate
from tidelog.coordinator.group.consumer.state import Partitions
from tidelog.env.slices import whole

SEEDS = st.integers(0, 2**32)
TOPICS = tuple(bytes([index]) * 16 for index in range(1, 6))


def size(partitions: Partitions) -> int:
    return sum(len(indexes) for indexes in partitions.values())


def crew_of(seed: int, *, alike: bool = False) -> tuple[list[Candidate], dict[bytes, int]]:
    """Members with any former target, of which parts may be gone, unsubscribed, or claimed twice."""
    random = Random(seed)
    topics = tuple(sorted(random.sample(TOPICS, random.randint(1, len(TOPICS)))))
    members: list[Candidate] = []
    for index in range(random.randint(1, 8)):
        mine = topics if alike else tuple(sorted(random.sample(topics, random.randint(0, len(topics)))))
        before = {
            topic: tuple(sorted(random.sample(range(14), random.randint(1, 6))))
            for topic in random.sample(TOPICS, random.randint(0, 3))
        }
        instance = f"instance-{index}" if random.random() < 0.3 else None
        members.append(Candidate(f"member-{index}", instance, mine, before))
    return members, {topic: random.randint(1, 12) for topic in topics}


def check_complete(members: list[Candidate], found: dict[bytes, int], target: dict[str, Partitions]) -> None:
    assert target.keys() == {member.id for member in members}
    subscribed = {topic for member in members for topic in member.topics}
    owners: dict[tuple[bytes, int], str] = {}
    for member in members:
        for topic, indexes in target[member.id].items():
            assert topic in member.topics, "only what it subscribes to"
            assert indexes == tuple(sorted(indexes))
            assert indexes
            for index in indexes:
                assert owners.setdefault((topic, index), member.id) == member.id, "nothing twice"
    assert owners.keys() == {(topic, index) for topic in subscribed for index in range(found[topic])}, "everything"


@pytest.mark.parametrize("name", ASSIGNORS)
@given(seed=SEEDS)
def test_every_partition_goes_to_one_subscriber(name: str, seed: int) -> None:
    members, found = crew_of(seed)
    check_complete(members, found, whole(ASSIGNORS[name](members, found)))


@given(seed=SEEDS)
def test_uniform_sizes_differ_by_one_where_all_subscribe_to_the_same(
    seed: int,
) -> None:
    members, found = crew_of(seed, alike=True)
    target = whole(ASSIGNORS["uniform"](members, found))
    check_complete(members, found, target)
    sizes = [size(partitions) for partitions in target.values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", ASSIGNORS)
@given(seed=SEEDS)
def test_an_assignment_stays_while_nothing_changes(name: str, seed: int) -> None:
    members, found = crew_of(seed)
    first = whole(ASSIGNORS[name](members, found))
    again = [member._replace(before=first[member.id]) for member in members]
    second = whole(ASSIGNORS[name](again, found))
    assert second == first
    assert all(second[member.id] is member.before for member in again), "as the same object, so that nothing is written"


@given(seed=SEEDS, gone=st.integers(0, 7))
def test_uniform_moves_only_what_must_move(seed: int, gone: int) -> None:
    members, found = crew_of(seed, alike=True)
    first = whole(ASSIGNORS["uniform"](members, found))
    settled = [member._replace(before=first[member.id]) for member in members]
    left = [member for index, member in enumerate(settled) if index != gone % len(settled)]
    if left:
        second = whole(ASSIGNORS["uniform"](left, found))
        for member in left:
            assert _within(member.before, second[member.id]), "who stays loses nothing when another goes"
    joined = [*settled, Candidate("new", None, members[0].topics, {})]
    third = whole(ASSIGNORS["uniform"](joined, found))
    moved = sum(size(member.before) - _common(member.before, third[member.id]) for member in settled)
    assert moved == size(third["new"]), "only what the new one gets is taken from the others"


def _common(one: Partitions, other: Partitions) -> int:
    return sum(len(set(indexes) & set(other.get(topic, ()))) for topic, indexes in one.items())


def _within(one: Partitions, other: Partitions) -> bool:
    return _common(one, other) == size(one)


@given(seed=SEEDS)
def test_uniform_balances_as_far_as_single_moves_can(seed: int) -> None:
    members, found = crew_of(seed)
    target = whole(ASSIGNORS["uniform"](members, found))
    loads = {member.id: size(target[member.id]) for member in members}
    for topic in found:
        subscribers = [member.id for member in members if topic in member.topics]
        owners = [member_id for member_id in subscribers if topic in target[member_id]]
        if owners:
            assert max(loads[one] for one in owners) - min(loads[one] for one in subscribers) <= 1


def test_range_gives_the_same_numbers_of_topics_that_are_joined() -> None:
    one, two = TOPICS[:2]
    members = [Candidate(name, None, (one, two), {}) for name in ("b", "a")]
    assert whole(ASSIGNORS["range"](members, {one: 3, two: 3})) == {
        "a": {one: (0, 1), two: (0, 1)},
        "b": {one: (2,), two: (2,)},
    }


def test_range_puts_static_members_first_by_their_instance() -> None:
    (topic,) = TOPICS[:1]
    members = [
        Candidate("a", None, (topic,), {}),
        Candidate("z", "first", (topic,), {}),
        Candidate("b", "second", (topic,), {}),
    ]
    assert whole(ASSIGNORS["range"](members, {topic: 3})) == {
        "z": {topic: (0,)},
        "b": {topic: (1,)},
        "a": {topic: (2,)},
    }


def test_more_members_than_partitions_leave_some_with_nothing() -> None:
    (topic,) = TOPICS[:1]
    members = [Candidate(f"m{index}", None, (topic,), {}) for index in range(5)]
    for name in ASSIGNORS:
        target = whole(ASSIGNORS[name](members, {topic: 2}))
        assert sorted(size(partitions) for partitions in target.values()) == [0, 0, 0, 1, 1]


def test_nobody_is_assigned_nothing() -> None:
    assert all(whole(assign([], {})) == {} for assign in ASSIGNORS.values())
