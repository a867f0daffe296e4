"""What a leader says of followers that copy nothing, and what it acknowledges before the controller has heard that."""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker, batch, produce_fields
from tidelog.env.promise import Promise
from tidelog.machine.decision import Decision
from tidelog.replica.in_sync import AGAIN_S, InSync
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.wire.records.metadata import PartitionChangeRecord


class Asked:
    """The controller, as the leader asks it; it answers when the test lets it."""

    def __init__(self, broker: SimBroker) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.answers: list[Promise[Any]] = []
        broker.services.replicas.in_sync = InSync(broker.loop, 1, self.ask, lambda: 7)

    def ask(self, request: AlterPartitionRequest) -> Promise[Any]:
        self.requests.append(request)
        self.answers.append(Promise())
        return self.answers[-1]

    @property
    def last(self) -> list[tuple[int, list[int], int]]:
        """Partition, ISR and partition epoch of each that the last request names."""
        return [
            (one.partition_index, [state.broker_id for state in one.new_isr_with_epochs], one.partition_epoch)
            for topic in self.requests[-1].topics
            for one in topic.partitions
        ]


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide", partitions=2)
    return made


def change(broker: SimBroker, index: int = 0, **fields: Any) -> None:
    topic_id = broker.services.metadata.image.topics["tide"].id
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id, **fields)
    broker.wait(broker.services.controller.submit(lambda image, now_ms: Decision([record], None)))
    broker.settle()


def produce(broker: SimBroker, partition: int = 0) -> Any:
    fields = produce_fields("tide", batch(), partition=partition, timeout_ms=60_000)
    asked = broker.send(ApiKey.PRODUCE, 9, fields)
    broker.settle()
    return asked


def test_nothing_is_acknowledged_while_others_are_in_the_isr(broker: SimBroker) -> None:
    controller = Asked(broker)
    change(broker, replicas=[1, 2, 3], isr=[1, 2, 3])
    waits = produce(broker)
    partition = broker.partition("tide")
    assert not waits.done
    assert (partition.log.durable_end, partition.high_watermark) == (1, 0)
    assert controller.last == [(0, [1], partition.image.partition_epoch)]
    assert (controller.requests[0].broker_id, controller.requests[0].broker_epoch) == (1, 7)
    change(broker, isr=[1])
    assert waits.response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert partition.high_watermark == 1
    controller.answers[0].resolve(AlterPartitionResponse())
    broker.pass_time(1.0)
    assert len(controller.requests) == 1
    broker.check()


def test_a_partition_without_records_stays_as_it_was_made(broker: SimBroker) -> None:
    """Any of its replicas may lead it: a broker that stops hands it over."""
    controller = Asked(broker)
    for index in (0, 1):
        change(broker, index=index, replicas=[1, 2, 3], isr=[1, 2, 3])
    broker.partition("tide")
    broker.pass_time(10.0)
    assert controller.requests == []


def test_a_leader_shows_nothing_of_which_it_does_not_know_that_others_have_it(broker: SimBroker) -> None:
    broker.append("tide", b"x")
    Asked(broker)
    broker.services.replicas.in_sync = None
    again = SimBroker(disk=broker.kill())  # it had no time to write its high watermark down
    controller = Asked(again)
    change(again, replicas=[1, 2, 3], isr=[1, 2, 3])
    partition = again.partition("tide")
    assert (partition.log.durable_end, partition.high_watermark) == (1, 0)
    assert partition.catching_up
    again.settle()
    assert controller.last == [(0, [1], partition.image.partition_epoch)]


def test_a_refusal_is_asked_about_again_until_it_is_settled_otherwise(broker: SimBroker) -> None:
    controller = Asked(broker)
    change(broker, replicas=[1, 2], isr=[1, 2])
    produce(broker)
    controller.answers[-1].resolve(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    broker.pass_time(2 * AGAIN_S)
    assert len(controller.requests) == 2
    change(broker, leader=2)
    controller.answers[-1].fail(TimeoutError())
    broker.pass_time(2 * AGAIN_S)
    assert len(controller.requests) == 2, "it doesn't lead any more"


def test_one_request_at_a_time_names_all_that_are_due(broker: SimBroker) -> None:
    controller = Asked(broker)
    for index in (0, 1):
        change(broker, index=index, replicas=[1, 2], isr=[1, 2])
        produce(broker, index)
    assert [index for index, _, _ in controller.last] == [0]
    controller.answers[-1].resolve(AlterPartitionResponse())
    broker.pass_time(2 * AGAIN_S)
    assert [index for index, _, _ in controller.last] == [0, 1]
    change(broker, isr=[1])
    change(broker, index=1, replicas=[1, 3], isr=[1, 3])
    assert len(controller.requests) == 2
    controller.answers[-1].resolve(AlterPartitionResponse())
    broker.pass_time(2 * AGAIN_S)
    assert [index for index, _, _ in controller.last] == [1]
    broker.delete_topic("tide")
    controller.answers[-1].resolve(AlterPartitionResponse())
    broker.pass_time(2 * AGAIN_S)
    assert len(controller.requests) == 3, "its topic is gone"
