"""Topics: made, looked at, grown, trimmed and deleted, and what is said where that can't be."""

import pytest

from tidelog.client import Admin, ClientError, Producer, Start
from tidelog.client.admin import Topic, Trim


@pytest.fixture
def admin(bootstrap: str) -> Admin:
    return Admin(bootstrap)


def fill(bootstrap: str, topic: str, *counts: int) -> None:
    with Producer(bootstrap) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=1000 + number)


def test_a_topic_has_the_brokers_defaults_unless_it_says_otherwise(admin: Admin, topic: str) -> None:
    admin.create_topic(f"{topic}-own", 3, 1, {"retention.ms": "5000"})
    plain, own = admin.topic(topic), admin.topic(f"{topic}-own")
    assert (len(plain.partitions), plain.configs) == (2, {})
    assert (len(own.partitions), own.configs, own.replication) == (3, {"retention.ms": "5000"}, 1)
    assert None not in (plain.id, own.id)
    assert plain.id != own.id
    assert [name for name in (each.name for each in admin.topics()) if name.startswith(topic)] == [
        topic,
        f"{topic}-own",
    ]


def test_only_kafkas_own_topics_are_internal() -> None:
    assert [Topic(name, []).internal for name in ("__consumer_offsets", "__transaction_state", "__mine", "tides")] == [
        True,
        True,
        False,
        False,
    ]
    assert Topic("tides", []).replication == 0


def test_a_topic_is_described_with_its_offsets(admin: Admin, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 3, 1)
    found = admin.topic(topic).partitions
    assert [(each.index, each.start, each.end, each.offline) for each in found] == [(0, 0, 3, None), (1, 0, 1, None)]


def test_a_topic_grows_and_does_not_shrink(admin: Admin, topic: str) -> None:
    admin.add_partitions(topic, 4)
    assert [each.index for each in admin.topic(topic).partitions] == [0, 1, 2, 3]
    with pytest.raises(ClientError, match=f"cannot grow topic {topic} to 3 partitions: INVALID_PARTITIONS"):
        admin.add_partitions(topic, 3)


def test_a_topic_that_is_not_there_is_told_with_one_that_is_meant(admin: Admin, topic: str) -> None:
    with pytest.raises(ClientError, match=f"there is no topic {topic}x: did you mean {topic}") as told:
        admin.topic(f"{topic}x")
    assert told.value.hint is not None
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PART"):
        admin.delete_topic(f"{topic}x")


def test_a_topic_that_was_deleted_is_gone(admin: Admin, topic: str) -> None:
    admin.delete_topic(topic)
    assert topic not in [each.name for each in admin.topics()]


def test_a_topic_that_is_there_is_not_made_again(admin: Admin, topic: str) -> None:
    with pytest.raises(ClientError, match=f"cannot create topic {topic}: TOPIC_ALREADY_EXISTS"):
        admin.create_topic(topic)


def test_numbers_that_the_library_refuses_are_told_as_all_else_is(admin: Admin, topic: str) -> None:
    with pytest.raises(ClientError, match="cannot create topic"):
        admin.create_topic(f"{topic}-wide", 10**9)


@pytest.mark.parametrize(
    ("where", "starts"),
    [
        (Start("beginning"), [0, 0]),
        (Start("end"), [5, 2]),
        (Start("last", 3), [2, 0]),
        (Start("time", 1003), [3, 2]),
        (Start("offset", 2), [2, 2]),
    ],
    ids=lambda value: value.kind if isinstance(value, Start) else "",
)
def test_what_is_before_a_place_is_trimmed(
    admin: Admin, bootstrap: str, topic: str, where: Start, starts: list[int]
) -> None:
    fill(bootstrap, topic, 5, 2)
    plan = admin.trim_plan(topic, where)
    assert plan == [Trim(0, 0, 5, starts[0]), Trim(1, 0, 2, starts[1])]
    assert [each.records for each in plan] == starts
    admin.trim(topic, plan)
    assert [(each.start, each.end) for each in admin.topic(topic).partitions] == [(starts[0], 5), (starts[1], 2)]


def test_partitions_to_trim_may_be_chosen_and_have_to_be_there(admin: Admin, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 5, 2)
    assert admin.trim_plan(topic, Start("end"), [1]) == [Trim(1, 0, 2, 2)]
    with pytest.raises(ClientError, match=f"{topic} has no partition 7: it has 2"):
        admin.trim_plan(topic, Start("end"), [1, 7])
    with pytest.raises(ClientError, match=f"{topic}-1 ends at offset 2: nothing was deleted"):
        admin.trim_plan(topic, Start("offset", 4))


def test_sizes_are_told_by_topic(admin: Admin, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 2, 2)
    sizes = admin.sizes()
    assert sizes is not None
    assert sizes[topic] > 0


def test_where_nobody_listens_that_is_told_at_once(nobody: str) -> None:
    with pytest.raises(ClientError, match=f"no broker answers at {nobody}"):
        Admin(nobody)
