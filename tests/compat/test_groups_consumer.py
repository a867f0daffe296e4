"""Groups of the consumer protocol (KIP-848) with other people's clients: librdkafka and Apache Kafka's own.

What a member has is asked of the client, never of the broker; `settle` polls all members until it is as it should be.
"""

import itertools
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.kafka.jars import JarsMissingError, find_jars
from tidelog.testing import Broker

FAST = {
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 4000,
    "group.consumer.assignment.interval.ms": 0,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
}
DEADLINE_S = 30.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(FAST) as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"tides-{next(_numbers)}-"
    make_topic(admin, name, 4)
    return name


@pytest.fixture
def group() -> str:
    return f"scenario_run-{next(_numbers)}"


def make_topic(admin: AdminClient, name: str, partitions: int) -> None:
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def produce(broker: Broker, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(DEADLINE_S) == 0


class Member:
    """A confluent-kafka consumer."""

    def __init__(self, broker: Broker, group: str, topic: str, protocol: str = "consumer", **more: object) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "topic.metadata.refresh.interval.ms": 500,
        }
        if protocol == "classic":
            settings |= {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 100}
            settings |= {"session.timeout.ms": 4000}
        self.consumer = confluent_kafka.Consumer({**settings, **more})
        self.consumer.subscribe([topic])
        self.read: list[bytes] = []

    @property
    def has(self) -> set[tuple[str, int]]:
        return {(one.topic, one.partition) for one in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.read.append(message.value() or b"")

    def leave(self) -> None:
        self.consumer.close()


def settle(members: Sequence[Member], wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not wanted():
        assert time.monotonic() < deadline, [member.has for member in members]
        for member in members:
            member.poll()


def shared(members: Sequence[Member], partitions: int) -> bool:
    """Everything has one owner, and the sizes differ by one at most."""
    sizes = [len(member.has) for member in members]
    everything = set().union(*(member.has for member in members))
    return sum(sizes) == len(everything) == partitions and max(sizes) - min(sizes) <= 1


def test_members_come_and_go_and_share_the_work(broker: Broker, topic: str, group: str) -> None:
    produce(broker, topic, 200)
    members = [Member(broker, group, topic)]
    settle(members, lambda: shared(members, 4))
    members.append(Member(broker, group, topic))
    settle(members, lambda: shared(members, 4))
    settle(members, lambda: sum(len(member.read) for member in members) >= 200)
    members.pop(0).leave()
    settle(members, lambda: shared(members, 4))
    members[0].leave()


def test_more_members_than_partitions(broker: Broker, topic: str, group: str) -> None:
    members = [Member(broker, group, topic) for _ in range(6)]
    settle(members, lambda: shared(members, 4))
    idle = [member for member in members if not member.has]
    assert len(idle) == 2
    busy = next(member for member in members if member.has)
    members.remove(busy)
    busy.leave()
    settle(members, lambda: shared(members, 4))
    for member in members:
        member.leave()


def test_a_topic_that_gains_partitions(broker: Broker, admin: AdminClient, topic: str, group: str) -> None:
    members = [Member(broker, group, topic) for _ in range(2)]
    settle(members, lambda: shared(members, 4))
    admin.create_partitions([NewPartitions(topic, 7)])[topic].result()
    settle(members, lambda: shared(members, 7))
    for member in members:
        member.leave()


def test_an_expression_finds_topics_that_are_there_and_new_ones(
    broker: Broker, admin: AdminClient, topic: str, group: str
) -> None:
    members = [Member(broker, group, f"^{topic}.*")]
    settle(members, lambda: shared(members, 4))
    make_topic(admin, f"{topic}more", 2)
    settle(members, lambda: shared(members, 6))
    members[0].leave()


def test_a_static_member_restarts_without_disturbing_the_others(
    broker: Broker, admin: AdminClient, topic: str, group: str
) -> None:
    anchor = Member(broker, group, topic, **{"group.instance.id": "anchor"})
    other = Member(broker, group, topic)
    settle([anchor, other], lambda: shared([anchor, other], 4))
    kept, left = anchor.has, other.has
    anchor.leave()
    again = Member(broker, group, topic, **{"group.instance.id": "anchor"})
    settle([again, other], lambda: bool(again.has))
    assert (again.has, other.has) == (kept, left)
    described = admin.describe_consumer_groups([group])[group].result()
    assert len(described.members) == 2
    again.leave()
    other.leave()


def test_commits_go_on_where_the_group_left_off(broker: Broker, topic: str, group: str) -> None:
    produce(broker, topic, 100)
    first = Member(broker, group, topic)
    settle([first], lambda: len(first.read) == 100)
    first.consumer.commit(asynchronous=False)
    first.leave()
    produce(broker, topic, 10)
    second = Member(broker, group, topic)
    settle([second], lambda: len(second.read) >= 10)
    second.poll()
    assert len(second.read) == 10
    second.leave()


def test_a_live_group_moves_to_the_new_protocol_and_back(
    broker: Broker, admin: AdminClient, topic: str, group: str
) -> None:
    def kind() -> str:
        listed = admin.list_consumer_groups().result().valid
        return next(one.type.name for one in listed if one.group_id == group)

    members = [Member(broker, group, topic, "classic") for _ in range(2)]
    settle(members, lambda: shared(members, 4))
    assert kind() == "CLASSIC"
    members.append(Member(broker, group, topic))
    settle(members, lambda: shared(members, 4))
    assert kind() == "CONSUMER"
    members.pop(0).leave()
    members.append(Member(broker, group, topic))
    settle(members, lambda: shared(members, 4))
    members.pop(0).leave()
    settle(members, lambda: shared(members, 4))
    assert kind() == "CONSUMER"
    members.append(Member(broker, group, topic, "classic"))
    settle(members, lambda: shared(members, 4))
    for _ in range(2):
        members.pop(0).leave()
    settle(members, lambda: shared(members, 4))
    assert kind() == "CLASSIC"
    members[0].leave()


# ---- Apache Kafka's client


class JavaMember:
    """`GroupMember.java`, which says what it has."""

    def __init__(self, broker: Broker, group: str, topic: str, protocol: str = "consumer", *settings: str) -> None:
        try:
            jars = find_jars()
        except JarsMissingError as error:
            pytest.skip(str(error))
        program = Path(__file__).with_name("GroupMember.java")
        command = ["java", "-cp", f"{jars}/*", str(program), broker.bootstrap, group, protocol, topic, *settings]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """The first line that is `wanted`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if wanted(line.strip()):
                return line.strip()
        raise AssertionError("the client ended")

    def wait_to_have(self, count: int) -> set[str]:
        line = self.wait_for(lambda line: line.startswith("has") and len(_places(line)) == count)
        return _places(line)

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.wait_for(lambda line: line == "left")
        assert self.process.wait(DEADLINE_S) == 0
        self.process.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]


def _places(line: str) -> set[str]:
    return set(filter(None, line.removeprefix("has").strip().split(",")))


@pytest.mark.kafka
def test_members_of_apache_kafkas_client_share_and_hand_over(
    broker: Broker, admin: AdminClient, topic: str, group: str
) -> None:
    produce(broker, topic, 100)
    first = JavaMember(broker, group, topic)
    assert first.wait_to_have(4) == {f"{topic}-{index}" for index in range(4)}
    first.wait_for(lambda line: line == "read 100")
    second = JavaMember(broker, group, topic)
    mine = first.wait_to_have(2)
    assert mine | second.wait_to_have(2) == {f"{topic}-{index}" for index in range(4)}
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result()
    first.wait_to_have(3)
    second.wait_to_have(3)
    second.leave()
    first.wait_to_have(6)
    first.leave()


@pytest.mark.kafka
def test_apache_kafkas_client_with_an_expression_and_an_instance_id(
    broker: Broker, admin: AdminClient, topic: str, group: str
) -> None:
    first = JavaMember(broker, group, f"^{topic}.*", "consumer", "group.instance.id", "anchor")
    first.wait_to_have(4)
    make_topic(admin, f"{topic}more", 1)
    first.wait_to_have(5)
    first.leave()
    again = JavaMember(broker, group, f"^{topic}.*", "consumer", "group.instance.id", "anchor")
    again.wait_to_have(5)
    again.leave()


@pytest.mark.kafka
def test_apache_kafkas_client_of_either_protocol_in_one_group(broker: Broker, topic: str, group: str) -> None:
    classic = ("classic", "session.timeout.ms", "4000", "heartbeat.interval.ms", "100")
    strategy = ("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
    old = JavaMember(broker, group, topic, *classic, *strategy)
    old.wait_to_have(4)
    new = JavaMember(broker, group, topic)
    old.wait_to_have(2)
    new.wait_to_have(2)
    new.leave()
    old.wait_to_have(4)
    old.leave()
