"""Groups: their members read on where the group stopped, and offsets are looked at, planned, reset and deleted."""

import pytest

from tidelog.client import ClientError, Producer, Start
from tidelog.client.groups import Change, Groups
from tidelog.client.lag import Lag
from tidelog.client.member import read_as_member


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    with Producer(bootstrap) as producer:
        for number in range(6):
            producer.send(topic, b"%d" % number, partition=number % 2)
    return topic


def consumed(bootstrap: str, topic: str, **more: object) -> list[bytes | None]:
    """What a member of the group that has the topic's name reads, to the end unless told otherwise."""
    reading = read_as_member(bootstrap, [topic], topic, **{"stop_at_end": True, **more})  # type: ignore[arg-type]
    return sorted(each.value or b"" for each in reading)


def test_a_member_reads_on_where_the_group_stopped(bootstrap: str, filled: str) -> None:
    assert consumed(bootstrap, filled) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert Groups(bootstrap).committed(filled) == {(filled, 0): 3, (filled, 1): 3}
    assert consumed(bootstrap, filled) == []
    with Producer(bootstrap) as producer:
        producer.send(filled, b"6", partition=0)
    assert consumed(bootstrap, filled) == [b"6"]


def test_a_new_group_may_begin_at_the_end(bootstrap: str, filled: str) -> None:
    assert consumed(bootstrap, filled, reset="latest") == []


def test_a_group_is_described_and_its_lag_counted(bootstrap: str, filled: str) -> None:
    groups = Groups(bootstrap)
    consumed(bootstrap, filled)
    with Producer(bootstrap) as producer:
        producer.send(filled, b"6", partition=1)
    group = groups.group(filled)
    assert (group.name, group.state, group.members) == (filled, "empty", [])
    assert filled in groups.names()
    assert filled in [each.name for each in groups.all()]
    [progress] = groups.progress([group])
    assert [(each.place, each.committed, each.end, each.lag) for each in progress] == [
        ((filled, 0), 3, 3, 0),
        ((filled, 1), 3, 4, 1),
    ]
    assert progress[0].behind_ms == 0
    assert (progress[1].behind_ms or 0) > 0
    assert Lag.of(progress).messages == 1


def test_a_reset_is_planned_and_then_done(bootstrap: str, filled: str) -> None:
    groups = Groups(bootstrap)
    consumed(bootstrap, filled)
    plan = groups.plan(filled, Start("offset", 1), [(filled, [1])])
    assert plan == [Change(filled, 1, 3, 1)]
    assert groups.committed(filled)[filled, 1] == 3, "a plan changes nothing"
    groups.reset(filled, plan)
    assert consumed(bootstrap, filled) == [b"3", b"5"]
    assert groups.plan(filled, Start("offset", 99)) == [Change(filled, 0, 3, 3), Change(filled, 1, 3, 3)]
    assert groups.plan(filled, Start("beginning")) == [Change(filled, 0, 3, 0), Change(filled, 1, 3, 0)]


def test_a_group_that_is_deleted_is_unknown(bootstrap: str, filled: str) -> None:
    groups = Groups(bootstrap)
    consumed(bootstrap, filled)
    groups.delete(filled)
    assert groups.committed(filled) == {}
    for act in (groups.group, groups.delete):
        with pytest.raises(ClientError, match=filled):
            act(filled)
    with pytest.raises(ClientError, match=f"group {filled} has no offsets to reset"):
        groups.plan(filled, Start("end"))


def test_a_group_with_members_is_left_alone(bootstrap: str, filled: str) -> None:
    groups = Groups(bootstrap)
    reading = read_as_member(bootstrap, [filled], filled)
    next(reading)
    try:
        [member] = groups.group(filled).members
        assert sorted(member.partitions) == [(filled, 0), (filled, 1)]
        for act in (lambda: groups.plan(filled, Start("end")), lambda: groups.delete(filled)):
            with pytest.raises(ClientError, match="member"):
                act()
    finally:
        reading.close()


def test_a_topic_that_is_not_there_is_an_error_and_no_long_wait(bootstrap: str) -> None:
    with pytest.raises(ClientError, match="nowhere"):
        list(read_as_member(bootstrap, ["nowhere"], "crew"))
