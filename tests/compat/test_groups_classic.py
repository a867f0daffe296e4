"""Groups of the classic protocol, as other people's clients live them."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.compat.members import MEMBERS, ConfluentMember, Member, until, until_shared
from tests.served import Tidelog
from tidelog.client import Admin

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker without an initial delay, where sessions may be short; or the one that COMPAT_BOOTSTRAP names."""
    other = os.environ.get("COMPAT_BOOTSTRAP")
    if other:
        yield other
        return
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}
    folder: Path = tmp_path_factory.mktemp("groups") / "data"
    with Tidelog(folder, settings) as broker:
        yield broker.bootstrap


@pytest.fixture(params=sorted(MEMBERS))
def kind(request: pytest.FixtureRequest) -> type[Member]:
    return MEMBERS[request.param]


@pytest.fixture
def group() -> str:
    return f"crew-{os.getpid()}-{next(_numbers)}"


def make_topic(bootstrap: str, partitions: int, each: int = 0) -> str:
    name = f"tides-{os.getpid()}-{next(_numbers)}"
    Admin(bootstrap).create_topic(name, partitions, 1, {})
    fill(bootstrap, name, range(partitions), each)
    return name


def fill(bootstrap: str, topic: str, partitions: range, each: int, first: int = 0) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for partition in partitions:
        for number in range(first, first + each):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


def values(*members: Member) -> list[tuple[int, bytes]]:
    return sorted((seen.partition, seen.value) for member in members for seen in member.seen)


def all_values(partitions: int, each: int) -> list[tuple[int, bytes]]:
    return sorted((partition, b"%d" % number) for partition in range(partitions) for number in range(each))


def test_a_group_goes_on_where_it_stopped(bootstrap: str, kind: type[Member], group: str) -> None:
    topic = make_topic(bootstrap, 2, 20)
    with kind(bootstrap, group, topic) as first:
        until(lambda: len(first.seen) >= 40, "everything read")
    fill(bootstrap, topic, range(2), 5, first=20)
    with kind(bootstrap, group, topic) as second:
        until(lambda: len(second.seen) >= 10, "the rest read")
    assert values(first, second) == all_values(2, 25), "each record once"


def test_members_share_the_partitions_and_take_over_from_who_leaves(
    bootstrap: str, kind: type[Member], group: str
) -> None:
    topic = make_topic(bootstrap, 4, 10)
    with kind(bootstrap, group, topic) as first:
        until_shared(4, first)
        with kind(bootstrap, group, topic) as second:
            until_shared(4, first, second, each=2)
            fill(bootstrap, topic, range(4), 10, first=10)
            until(lambda: set(values(first, second)) == set(all_values(4, 20)), "everything read")
        until_shared(4, first)
        fill(bootstrap, topic, range(4), 10, first=20)
        until(lambda: set(values(first, second)) == set(all_values(4, 30)), "everything read after the second left")


def test_more_members_than_partitions(bootstrap: str, kind: type[Member], group: str) -> None:
    topic = make_topic(bootstrap, 2)
    members = [kind(bootstrap, group, topic) for _ in range(3)]
    try:
        until(lambda: all(member.given for member in members), "all have heard")
        until_shared(2, *members)
        idle = next(member for member in members if not member.assigned)
        busy = [member for member in members if member is not idle]
        busy[0].stop()
        until_shared(2, idle, busy[1], each=1)
    finally:
        for member in members:
            member.stop()


def test_two_groups_do_not_disturb_each_other(bootstrap: str, kind: type[Member], group: str) -> None:
    topic = make_topic(bootstrap, 2, 20)
    with kind(bootstrap, group, topic) as one:
        until_shared(2, one)
        rebalances = len(one.given)
        with kind(bootstrap, group + "-other", topic) as other:
            until_shared(2, other)
            until(lambda: len(one.seen) >= 40 and len(other.seen) >= 40, "both have read everything")
        assert values(one) == values(other) == all_values(2, 20)
        assert len(one.given) == rebalances


def test_a_topic_that_gains_partitions(bootstrap: str, kind: type[Member], group: str) -> None:
    topic = make_topic(bootstrap, 1, 5)
    with kind(bootstrap, group, topic) as member:
        until_shared(1, member)
        raw = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        for done in raw.create_partitions([confluent_kafka.admin.NewPartitions(topic, 3)]).values():
            done.result(30)
        fill(bootstrap, topic, range(1, 3), 5)
        until_shared(3, member)
        until(lambda: values(member) == all_values(3, 5), "the new partitions are read from their start")


def test_a_static_member_restarts_without_a_rebalance(bootstrap: str, kind: type[Member], group: str) -> None:
    topic = make_topic(bootstrap, 4, 5)
    with kind(bootstrap, group, topic, instance="one") as one:
        two = kind(bootstrap, group, topic, instance="two")
        until_shared(4, one, two, each=2)
        held, told = set(two.assigned), (len(one.given), len(one.taken))
        two.stop()
        with kind(bootstrap, group, topic, instance="two") as again:
            until_shared(4, one, again)
            assert again.assigned == held
            fill(bootstrap, topic, range(4), 5, first=5)
            until(lambda: set(values(one, two, again)) == set(all_values(4, 10)), "everything read")
        assert (len(one.given), len(one.taken)) == told, "the other member noticed nothing"


def test_a_cooperative_hand_over_leaves_the_rest_alone(bootstrap: str, group: str) -> None:
    topic = make_topic(bootstrap, 4)
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    with ConfluentMember(bootstrap, group, topic, **cooperative) as first:
        until_shared(4, first)
        with ConfluentMember(bootstrap, group, topic, **cooperative) as second:
            until_shared(4, first, second, each=2)
            kept = set(first.assigned)
            assert all(not (revoked & kept) for revoked in first.taken), "what it keeps was never taken"
            fill(bootstrap, topic, range(4), 25)
            until(lambda: values(first, second) == all_values(4, 25), "each record once")
        until_shared(4, first)
        assert all(not (revoked & kept) for revoked in first.taken)


def test_a_slow_member_loses_its_partitions_and_gets_some_back_when_it_polls_again(bootstrap: str, group: str) -> None:
    topic = make_topic(bootstrap, 2, 5)
    impatient = {"session.timeout.ms": 1000, "max.poll.interval.ms": 1500, "enable.auto.commit": False}
    with ConfluentMember(bootstrap, group, topic, **impatient) as slow:
        until_shared(2, slow)
        with ConfluentMember(bootstrap, group, topic, **impatient) as other:
            until_shared(2, slow, other, each=1)
            slow.hang.set()
            until_shared(2, other)
            slow.hang.clear()
            until_shared(2, slow, other, each=1)


KILLED = """
import sys, confluent_kafka
bootstrap, group, topic = sys.argv[1:]
consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 1000,
    "heartbeat.interval.ms": 200, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


def test_a_killed_member_is_missed_within_its_session(bootstrap: str, group: str) -> None:
    topic = make_topic(bootstrap, 2, 10)
    with ConfluentMember(bootstrap, group, topic, **{"session.timeout.ms": 1000}) as survivor:
        until_shared(2, survivor)
        arguments = [sys.executable, "-c", KILLED, bootstrap, group, topic]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            for line in victim.stdout:
                if line.strip() == "1":
                    break
            victim.send_signal(signal.SIGKILL)
        until_shared(2, survivor)
        until(lambda: set(values(survivor)) == set(all_values(2, 10)), "everything read")


def test_members_of_different_clients_work_in_one_group(bootstrap: str, group: str) -> None:
    topic = make_topic(bootstrap, 6, 10)
    members = [kind(bootstrap, group, topic) for kind in MEMBERS.values()]
    try:
        until_shared(6, *members, each=2)
        until(lambda: set(values(*members)) == set(all_values(6, 10)), "everything read")
    finally:
        for member in members:
            member.stop()
