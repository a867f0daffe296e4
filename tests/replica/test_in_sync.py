"""How a leader asks the controller for another ISR, and what counts until the controller has said what is."""

from typing import Any

import pytest

from tests.apis.followers import FollowingBroker, change, register
from tests.apis.sim_broker import Asked, SimBroker, batch, produce_fields
from tidelog.env.promise import Promise
from tidelog.replica.in_sync import AGAIN_S, InSync
from tidelog.replica.waiters import LOOK_MIN
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)


class Controller:
    """As the leader asks it; it answers when the test lets it."""

    def __init__(self, broker: SimBroker) -> None:
        self.broker = broker
        self.requests: list[AlterPartitionRequest] = []
        self.answers: list[Promise[Any]] = []
        services = broker.services
        in_sync = InSync(
            services.env, 1, lambda: services.metadata.image, services.replicas, self.ask, lambda: 7, lag_ms=30_000
        )
        services.replicas.in_sync = in_sync
        services.metadata.subscribe(in_sync.brokers_changed)

    def ask(self, request: AlterPartitionRequest) -> Promise[Any]:
        self.requests.append(request)
        self.answers.append(Promise())
        return self.answers[-1]

    @property
    def last(self) -> list[tuple[int, list[tuple[int, int]], int]]:
        """Partition, ISR with broker epochs, and partition epoch of each that the last request names."""
        return [
            (
                one.partition_index,
                [(state.broker_id, state.broker_epoch) for state in one.new_isr_with_epochs],
                one.partition_epoch,
            )
            for topic in self.requests[-1].topics
            for one in topic.partitions
        ]

    def answer(self, **fields: Any) -> None:
        """The last request, with the same for each of its partitions."""
        topics = [
            TopicResult(
                topic_id=topic.topic_id,
                partitions=[PartitionResult(partition_index=one.partition_index, **fields) for one in topic.partitions],
            )
            for topic in self.requests[-1].topics
        ]
        self.answers[-1].resolve(AlterPartitionResponse(topics=topics))
        self.broker.settle()


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide", partitions=2)
    for id in (2, 3):
        register(made, id)
    return made


def replicate(broker: SimBroker, *isr: int, index: int = 0) -> None:
    change(broker, index=index, replicas=[1, 2, 3], isr=list(isr))


def produce(broker: SimBroker, partition: int = 0) -> Asked:
    fields = produce_fields("tide", batch(), partition=partition, timeout_ms=60_000)
    asked = broker.send(ApiKey.PRODUCE, 9, fields)
    broker.settle()
    return asked


def test_until_the_answer_the_largest_set_counts(broker: SimBroker) -> None:
    controller = Controller(broker)
    replicate(broker, 1)
    partition = broker.partition("tide")
    three = FollowingBroker(broker, 3)
    three.fetch(three.part(0, 0))
    assert controller.last == [(0, [(1, 7), (3, 300)], partition.image.partition_epoch)]
    waits = produce(broker)
    assert (waits.done, partition.high_watermark, partition.isr) == (False, 0, (1,))
    controller.answer(leader_id=1, leader_epoch=0, isr=[1, 3], partition_epoch=partition.image.partition_epoch + 1)
    assert (waits.done, partition.high_watermark, partition.isr) == (False, 0, (1, 3))
    three.fetch(three.part(0, 1))
    assert (waits.done, partition.high_watermark) == (True, 1)
    broker.check()


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refusal_leaves_the_isr_as_it_is_known(broker: SimBroker, code: ErrorCode) -> None:
    controller = Controller(broker)
    replicate(broker, 1, 2)
    two, three = FollowingBroker(broker, 2), FollowingBroker(broker, 3)
    for follower in (two, three):
        follower.fetch(follower.part(0, 0))
    waits = produce(broker)
    two.fetch(two.part(0, 1))
    assert not waits.done
    register(broker, 3, epoch=301)
    controller.answer(error_code=code)
    assert waits.done
    broker.pass_time(2 * AGAIN_S)
    assert len(controller.requests) == 1, "its broker came back as another"


@pytest.mark.parametrize("how", ["lost", "unknown", "newer"])
def test_what_may_have_been_done_counts_until_the_metadata_say_what_is(broker: SimBroker, how: str) -> None:
    controller = Controller(broker)
    replicate(broker, 1, 2)
    two, three = FollowingBroker(broker, 2), FollowingBroker(broker, 3)
    for follower in (two, three):
        follower.fetch(follower.part(0, 0))
    waits = produce(broker)
    two.fetch(two.part(0, 1))
    if how == "lost":
        controller.answers[-1].fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    elif how == "unknown":
        controller.answer(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        controller.answer(error_code=ErrorCode.INVALID_UPDATE_VERSION)
    register(broker, 3, epoch=301)  # nobody would ask for it now
    assert not waits.done
    broker.pass_time(2 * AGAIN_S)
    assert len(controller.requests) == 2, "it is asked for a word"
    assert [isr for _, isr, _ in controller.last] == [[(1, 7), (2, 200)]]
    assert not waits.done
    change(broker, isr=[1, 2])
    assert waits.done


def test_an_error_that_is_not_known_here_is_one_and_it_is_asked_again(broker: SimBroker) -> None:
    controller = Controller(broker)
    replicate(broker, 1)
    three = FollowingBroker(broker, 3)
    three.fetch(three.part(0, 0))
    controller.answers[-1].resolve(AlterPartitionResponse(error_code=30_000))
    broker.pass_time(2 * AGAIN_S)
    assert [isr for _, isr, _ in controller.last] == [[(1, 7), (3, 300)]]
    assert len(controller.requests) == 2


@pytest.mark.parametrize("general", [False, True])
def test_who_gave_up_waiting_is_not_kept_while_the_high_watermark_stands_still(
    broker: SimBroker, *, general: bool
) -> None:
    """As it does where a follower is gone, and the controllers too, who alone could take it out of the ISR."""
    Controller(broker)
    replicate(broker, 1, 2, 3)
    partition = broker.partition("tide")
    if general:
        broker.take_the_general_way()
    for _ in range(2 * LOOK_MIN):
        asked = broker.send(ApiKey.PRODUCE, 9, produce_fields("tide", batch(), timeout_ms=100))
        broker.pass_time(0.3)
        assert asked.done
    waiting = produce(broker)
    assert partition.waiting_acks <= LOOK_MIN + 1
    change(broker, isr=[1])
    assert waiting.done, "who hasn't is there still"


def test_an_answer_that_the_metadata_overtook_changes_nothing(broker: SimBroker) -> None:
    controller = Controller(broker)
    replicate(broker, 1)
    partition = broker.partition("tide")
    three = FollowingBroker(broker, 3)
    three.fetch(three.part(0, 0))
    asked_at = partition.image.partition_epoch
    change(broker, isr=[1, 3])
    change(broker, isr=[1, 2, 3])
    assert partition.isr == (1, 2, 3)
    controller.answer(leader_id=1, leader_epoch=0, isr=[1, 3], partition_epoch=asked_at + 1)
    assert partition.isr == (1, 2, 3)
    broker.check()


def test_metadata_that_the_answer_overtook_change_nothing(broker: SimBroker) -> None:
    controller = Controller(broker)
    replicate(broker, 1)
    partition = broker.partition("tide")
    three = FollowingBroker(broker, 3)
    three.fetch(three.part(0, 0))
    before = partition.image
    controller.answer(leader_id=1, leader_epoch=0, isr=[1, 3], partition_epoch=before.partition_epoch + 1)
    partition.follow_image(before._replace(directories=()))  # an older word, as another object
    assert partition.isr == (1, 3)


def test_a_controller_that_cannot_be_asked_is_asked_again(broker: SimBroker) -> None:
    controller = Controller(broker)
    replicate(broker, 1)
    three = FollowingBroker(broker, 3)
    three.fetch(three.part(0, 0))
    controller.answers[-1].resolve(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    for _ in range(5):
        three.fetch(three.part(0, 0))
    assert len(controller.requests) == 1, "not with each fetch"
    broker.pass_time(2 * AGAIN_S)
    assert len(controller.requests) == 2
    change(broker, leader=2)
    controller.answers[-1].fail(TimeoutError())
    broker.pass_time(2 * AGAIN_S)
    assert len(controller.requests) == 2, "it doesn't lead any more"


def test_one_request_at_a_time_names_all_that_are_due(broker: SimBroker) -> None:
    controller = Controller(broker)
    for index in (0, 1):
        replicate(broker, 1, index=index)
    two, three = FollowingBroker(broker, 2), FollowingBroker(broker, 3)
    two.fetch(two.part(0, 0))
    assert [(index, [id for id, _ in isr]) for index, isr, _ in controller.last] == [(0, [1, 2])]
    two.fetch(two.part(1, 0))
    three.fetch(three.part(0, 0), three.part(1, 0))
    assert len(controller.requests) == 1
    epochs = {index: broker.partition("tide", index).image.partition_epoch for index in (0, 1)}
    controller.answer(leader_id=1, leader_epoch=0, isr=[1, 2], partition_epoch=epochs[0] + 1)
    assert sorted((index, [id for id, _ in isr], epoch) for index, isr, epoch in controller.last) == [
        (0, [1, 2, 3], epochs[0] + 1),
        (1, [1, 2, 3], epochs[1]),
    ]
    broker.delete_topic("tide")
    controller.answer(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    broker.pass_time(2 * AGAIN_S)
    assert len(controller.requests) == 2, "its topic is gone"


def test_after_a_restart_no_more_is_shown_than_is_known_to_be_committed() -> None:
    broker = SimBroker()
    broker.make_topic("tide")
    broker.append("tide", b"x")
    broker.wait(broker.broker.stop())
    broker.disk.release_locks()
    again = SimBroker(disk=broker.disk)
    replicate(again, 1, 2, 3)
    partition = again.partition("tide")
    assert (partition.log.durable_end, partition.high_watermark) == (1, 1), "it was written down"
    produce(again)
    again.pass_time(1.0)
    assert (partition.log.durable_end, partition.high_watermark) == (2, 1)
    disk = again.kill()
    third = SimBroker(disk=disk)
    partition = third.partition("tide")
    assert (partition.log.durable_end, partition.high_watermark) == (2, 1)
    assert partition.catching_up
