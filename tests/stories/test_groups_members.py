"""Members that come, go, die, hang and dawdle: partitions change hands, and no record is lost on the way."""

from itertools import pairwise

import pytest

from tests.stories.groups.band import Band

PYTHON_CLIENTS = ("confluent-classic", "confluent-consumer", "kafka-python", "aiokafka")
SLOW = pytest.mark.long
HANDED_OVER_TIMES = 3


def clients(*every_time: str) -> pytest.MarkDecorator:
    """These in every run of the tests, the other clients in the long ones."""
    return pytest.mark.parametrize(
        "client", [name if name in every_time else pytest.param(name, marks=SLOW) for name in PYTHON_CLIENTS]
    )


@clients(*PYTHON_CLIENTS)
def test_members_join_and_leave_and_each_record_is_processed_once(groups_bootstrap: str, client: str) -> None:
    with Band(groups_bootstrap, client) as band:
        band.write(100)
        first = band.join("first")
        band.settle(first)
        second = band.join("second")
        band.write(100)
        band.settle(first, second, each=2)
        third = band.join("third")
        band.write(100)
        band.settle(first, second, third)
        band.write(100)
        first.leave()
        band.settle(second, third, each=2)
        band.write(100)
        second.leave()
        band.settle(third)
        band.write(20)
        band.processed()
        third.leave()
        band.check(once=True)


@clients(*PYTHON_CLIENTS)
def test_a_killed_members_partitions_go_to_the_others(groups_bootstrap: str, client: str) -> None:
    with Band(groups_bootstrap, client, work_ms=1) as band:
        killed, other = band.join("killed"), band.join("other")
        band.settle(killed, other, each=2)
        band.write(400)
        band.wait(lambda: killed.saw("committed"), "the member works")
        killed.kill()
        band.settle(other)
        band.processed()
        other.leave()
        band.check(once=False)


@clients("confluent-classic", "confluent-consumer")
def test_a_hung_member_is_replaced_and_what_it_commits_late_is_refused(groups_bootstrap: str, client: str) -> None:
    with Band(groups_bootstrap, client) as band:
        hung, other = band.join("hung"), band.join("other")
        band.settle(hung, other, each=2)
        hung.tell("keep")
        band.write(100)
        band.wait(lambda: sum(band.history.records("hung").values()) == 50, "the member processes its half")
        hung.stop()
        hung.tell("again")
        band.settle(other)
        band.write(100)
        band.processed()
        hung.go_on()
        band.wait(lambda: hung.saw("lost", "refused"), "the member notices that it was gone")
        band.wait(lambda: hung.holds, "the member comes back")
        other.leave()
        hung.leave()
        band.check(once=False)


@pytest.mark.parametrize(
    "client", ["confluent-classic", *(pytest.param(name, marks=SLOW) for name in ("kafka-python", "aiokafka"))]
)
def test_a_member_too_slow_for_its_poll_interval_is_replaced_and_comes_back(groups_bootstrap: str, client: str) -> None:
    with Band(groups_bootstrap, client, session_ms=1200, max_poll_ms=1200) as band:
        slow, other = band.join("slow"), band.join("other")
        band.settle(slow, other, each=2)
        slow.tell("hang 3")
        band.wait(lambda: slow.saw("hangs"), "the member hangs")
        band.settle(other)
        assert not slow.saw("woke"), "the group waited for the member to wake up"
        band.write(100)
        band.processed()
        band.wait(lambda: slow.saw("woke") and slow.holds, "the member comes back")
        band.settle(slow, other, each=2)
        band.write(100)
        band.processed()
        slow.leave()
        other.leave()
        band.check(once=False)


def test_a_member_too_slow_to_give_a_partition_back_is_put_out(groups_bootstrap: str) -> None:
    """In the server-side protocol librdkafka goes on with heartbeats: it is the hand-over that has a deadline."""
    with Band(groups_bootstrap, "confluent-consumer", max_poll_ms=1200) as band:
        slow = band.join("slow")
        band.settle(slow)
        slow.tell("hang 5")
        band.wait(lambda: slow.saw("hangs"), "the member hangs")
        other = band.join("other")
        band.settle(other)
        assert not slow.saw("woke"), "the group waited for the member to wake up"
        band.write(100)
        band.processed()
        band.wait(lambda: slow.saw("woke") and slow.holds, "the member comes back")
        band.settle(slow, other, each=2)
        band.write(100)
        band.processed()
        slow.leave()
        other.leave()
        band.check(once=False)


@pytest.mark.parametrize(
    ("client", "end"),
    [
        ("confluent-classic", "leave"),
        ("confluent-classic", "kill"),
        ("confluent-consumer", "leave"),
        pytest.param("kafka-python", "kill", marks=SLOW),
        pytest.param("aiokafka", "kill", marks=SLOW),
    ],
)
def test_a_static_member_restarts_without_a_rebalance(groups_bootstrap: str, client: str, end: str) -> None:
    with Band(groups_bootstrap, client, session_ms=10_000) as band:
        stays = band.join("stays", instance="one")
        band.settle(stays)
        goes = band.join("goes", instance="two")
        band.settle(stays, goes, each=2)
        band.write(40)
        band.processed()
        owned, seen = goes.holds, len(stays.saw("assigned", "revoked", "lost"))
        getattr(goes, end)()
        if not stays.saw("assigned", "revoked", "lost")[seen:]:
            back = band.join("back", instance="two")
            band.wait(lambda: back.holds == owned, "it has its partitions again")
            band.write(40)
            band.processed()
        assert stays.saw("assigned", "revoked", "lost")[seen:] == []


def _longest_standstill_s(bootstrap: str, client: str, assignor: str) -> float:
    """A third member comes and gets some partitions: how long any of the others stood still meanwhile."""
    gaps: list[float] = []
    with Band(bootstrap, client, partitions=6, assignor=assignor) as band:
        first, second = band.join("first"), band.join("second")
        band.settle(first, second, each=3)
        before = {member.name: member.holds for member in (first, second)}
        with band.writing():
            third = band.join("third")
            band.settle(first, second, third, each=2)
        band.processed()
        for member in (first, second):
            kept = member.holds
            assert kept <= before[member.name], "a partition that was not in question moved"
            revoked = {tuple(place) for e in member.saw("revoked") for place in e["places"]}
            assert not kept & revoked, "a partition that was not in question was revoked"
            begin, end = third.saw("subscribed")[0]["at"], third.saw("assigned")[-1]["at"]
            for topic, partition in kept:
                times = [
                    e["at"]
                    for e in member.saw("record")
                    if (e["topic"], e["partition"]) == (topic, partition) and begin <= e["at"] <= end + 1
                ]
                assert times, f"{member.name} did nothing in {topic}-{partition} while others were handed over"
                gaps += [after - before for before, after in pairwise([begin, *times])]
        for member in (first, second, third):
            member.leave()
        band.check(once=True)
    return max(gaps)


@pytest.mark.parametrize(
    ("client", "assignor"),
    [
        ("confluent-classic", "cooperative-sticky"),
        ("confluent-consumer", "range"),
        pytest.param("kafka-python", "cooperative-sticky", marks=SLOW),
    ],
)
def test_untouched_partitions_flow_on_while_others_are_handed_over(
    groups_bootstrap: str, client: str, assignor: str
) -> None:
    """On a busy machine a member may stand still by itself; where the group holds it up, it does so each time."""
    standstills_s: list[float] = []
    while not standstills_s or (standstills_s[-1] >= 1.0 and len(standstills_s) < HANDED_OVER_TIMES):
        standstills_s.append(_longest_standstill_s(groups_bootstrap, client, assignor))
    assert standstills_s[-1] < 1.0, f"partitions that were not in question stood still for {standstills_s} s"


@clients("confluent-classic", "confluent-consumer")
def test_with_more_members_than_partitions_the_idle_ones_step_in(groups_bootstrap: str, client: str) -> None:
    with Band(groups_bootstrap, client, partitions=2) as band:
        members = [band.join(name) for name in ("first", "second", "third", "fourth")]
        band.wait(lambda: all(member.saw("subscribed") for member in members), "all have subscribed")
        band.wait(lambda: sorted(len(member.holds) for member in members) == [0, 0, 1, 1], "two have one each")
        band.write(40)
        band.processed()
        busy = [member for member in members if member.holds]
        idle = [member for member in members if member not in busy]
        for member in busy:
            member.leave()
        band.settle(*idle, each=1)
        band.write(40)
        band.processed()
        for member in idle:
            member.leave()
        band.check(once=True)


@pytest.mark.parametrize(
    "steps", [("confluent-classic", "confluent-consumer"), ("confluent-consumer", "confluent-classic")]
)
def test_a_live_group_moves_to_the_other_protocol_and_back(groups_bootstrap: str, steps: tuple[str, str]) -> None:
    before, after = steps
    with Band(groups_bootstrap, before) as band:
        first, second = band.join("first"), band.join("second")
        band.settle(first, second, each=2)
        band.write(40)
        for name, client, leaves in (("third", after, first), ("fourth", after, second)):
            members = [member for member in band.members if member.process.poll() is None]
            joined = band.join(name, client=client)
            band.write(40)
            band.settle(*members, joined)
            leaves.leave()
        band.settle(*[member for member in band.members if member.process.poll() is None], each=2)
        band.write(40)
        band.processed()
        back = band.join("fifth", client=before)
        members = [member for member in band.members if member.process.poll() is None]
        band.settle(*members)
        band.write(40)
        band.processed()
        for member in members:
            member.leave()
        assert back.process.returncode == 0
        band.check(once=True)
