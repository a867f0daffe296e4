"""What a broker tells the controller of where its replicas are, and that a log which failed is nowhere."""

import logging
from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tidelog.env.promise import Promise
from tidelog.machine.decision import Decision
from tidelog.metadata.directories import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog.metadata.image import NO_LEADER, PartitionImage
from tidelog.replica.directories import AGAIN_S, Directories
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from tidelog.wire.records.metadata import PartitionChangeRecord

TWO = {"log.dirs": "/a,/b"}
OTHER = b"directory      2"
FAILURE_TIMEOUT_MS = 5000


class Asked:
    """The controller, as the broker asks it; it answers when the test lets it."""

    def __init__(self, broker: SimBroker, ids: dict[str, bytes]) -> None:
        self.requests: list[AssignReplicasToDirsRequest] = []
        self.answers: list[Promise[Any]] = []
        self.given_up: list[str] = []
        services = broker.services
        services.store.on_offline.pop()  # the broker's own
        services.replicas.directories = Directories(
            broker.loop,
            1,
            services.store,
            services.metadata,
            ids,
            self.ask,
            lambda: 7,
            failure_timeout_ms=FAILURE_TIMEOUT_MS,
            give_up=self.given_up.append,
        )

    def ask(self, request: AssignReplicasToDirsRequest) -> Promise[Any]:
        self.requests.append(request)
        self.answers.append(Promise())
        return self.answers[-1]

    @property
    def last(self) -> list[tuple[bytes, list[int]]]:
        return [
            (directory.id, [one.partition_index for topic in directory.topics for one in topic.partitions])
            for directory in self.requests[-1].directories
        ]


def change(broker: SimBroker, index: int = 0, **fields: Any) -> None:
    topic_id = broker.services.metadata.image.topics["tide"].id
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id, **fields)
    broker.wait(broker.services.controller.submit(lambda image, now_ms: Decision([record], None)))
    broker.settle()


def own(broker: SimBroker) -> tuple[bytes, ...]:
    return broker.services.metadata.image.brokers[1].log_dirs


def replicate(broker: SimBroker, index: int = 0) -> None:
    """Another broker has a replica, too, and isn't in sync."""
    change(broker, index, replicas=[1, 2], isr=[1], directories=[own(broker)[0], OTHER])


def image_of(broker: SimBroker, index: int = 0) -> PartitionImage:
    return broker.services.metadata.image.topics["tide"].partitions[index]


def with_topic(partitions: int = 1, settings: dict[str, str] | None = None) -> SimBroker:
    broker = SimBroker(settings)
    broker.make_topic("tide", partitions)
    return broker


def test_a_leader_whose_log_fails_gives_its_leadership_up_and_leads_again_after_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = with_topic()
    replicate(broker)
    broker.append("tide", b"before")
    with caplog.at_level(logging.WARNING):
        broker.partition("tide").log.go_offline("its disk is worn")
        broker.pass_time(1.0)
    assert "the log of tide-0 failed: the controller is asked to have another replica lead" in caplog.text
    left = image_of(broker)
    assert (left.leader, left.isr, left.elr, left.directories) == (NO_LEADER, (), (1,), (LOST_DIRECTORY, OTHER))

    again = SimBroker(disk=broker.kill())
    again.pass_time(1.0)
    led = image_of(again)
    assert (led.leader, led.isr, led.directories) == (1, (1,), (own(again)[0], OTHER))
    assert again.partition("tide").log.log_end == 1


def test_the_only_replica_keeps_its_place() -> None:
    broker = with_topic()
    broker.append("tide", b"x")
    before = image_of(broker)
    broker.partition("tide").log.go_offline("its disk is worn")
    broker.pass_time(5.0)
    assert image_of(broker) == before


def test_a_follower_whose_log_fails_leaves_the_isr() -> None:
    broker = with_topic(2)
    controller = Asked(broker, {"/data": own(broker)[0]})
    change(broker, 1, replicas=[2, 1], isr=[2, 1], leader=2, directories=[OTHER, own(broker)[0]])
    broker.partition("tide", 1).log.go_offline("its disk is worn")
    broker.settle()
    assert controller.last == [(LOST_DIRECTORY, [1])]
    assert (controller.requests[0].broker_id, controller.requests[0].broker_epoch) == (1, 7)


def test_it_is_told_again_until_the_metadata_has_it_so() -> None:
    broker = with_topic(3)
    for index in range(3):
        replicate(broker, index)
    controller = Asked(broker, {"/data": own(broker)[0]})
    for index in (0, 2):
        broker.partition("tide", index).log.go_offline("its disk is worn")
    broker.settle()
    assert controller.last == [(LOST_DIRECTORY, [0, 2])]
    controller.answers[-1].fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    broker.pass_time(AGAIN_S / 2)
    assert len(controller.requests) == 1, "and not at once"
    broker.pass_time(AGAIN_S)
    assert controller.last == [(LOST_DIRECTORY, [0, 2])]
    change(broker, 0, directories=[LOST_DIRECTORY, OTHER])
    controller.answers[-1].resolve(AssignReplicasToDirsResponse())
    broker.pass_time(1.0)
    assert controller.last == [(LOST_DIRECTORY, [2])]
    change(broker, 2, directories=[LOST_DIRECTORY, OTHER])
    controller.answers[-1].resolve(AssignReplicasToDirsResponse(error_code=ErrorCode.NOT_CONTROLLER))
    broker.pass_time(60.0)
    assert len(controller.requests) == 3


def test_a_broker_with_several_folders_tells_which_one_it_chose() -> None:
    broker = with_topic(4, TWO)
    assert {image_of(broker, index).directories for index in range(4)} == {(UNASSIGNED_DIRECTORY,)}
    for index in range(4):
        broker.append("tide", b"x", partition=index)
    broker.pass_time(1.0)
    roots = dict(zip(("/a", "/b"), own(broker), strict=True))
    assert [image_of(broker, index).directories for index in range(4)] == [
        (roots[broker.partition("tide", index).log.root],) for index in range(4)
    ]

    broker.wait(broker.broker.stop())
    disk = broker.kill()
    root = "/a" if disk.exists("/a/tide-0") else "/b"
    other = "/b" if root == "/a" else "/a"
    disk.rename(f"{root}/tide-0", f"{other}/tide-0")
    again = SimBroker(TWO, disk=disk)
    again.pass_time(0.5)  # nobody asked for it
    assert image_of(again).directories == (roots[other],)


def test_a_leader_whose_failed_log_the_controller_never_hears_of_ends() -> None:
    """As `log.dir.failure.timeout.ms` has it: others lead what it led once it is gone."""
    broker = with_topic(2)
    for index in range(2):
        replicate(broker, index)
    controller = Asked(broker, {"/data": own(broker)[0]})
    broker.partition("tide", 0).log.go_offline("its disk is worn")
    broker.pass_time(FAILURE_TIMEOUT_MS / 1000 - 1)
    assert controller.given_up == []
    change(broker, 0, directories=[LOST_DIRECTORY, OTHER])
    broker.pass_time(FAILURE_TIMEOUT_MS / 1000 + 1)
    assert controller.given_up == [], "it was heard"
    broker.partition("tide", 1).log.go_offline("its disk is worn")
    broker.pass_time(FAILURE_TIMEOUT_MS / 1000 + 1)
    assert len(controller.given_up) == 1
    assert "the log of tide-1 failed" in controller.given_up[0]
