"""Produce: when each kind of acknowledgement comes, what it says, and what those hear whose records can't be kept."""

from typing import Any

import pytest

from tests.apis.sim_broker import Asked, SimBroker, batch, in_transaction, produce_fields
from tests.batches import Producer
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.world.loop import SimLoop
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

OS = {"tidelog.durability": "os"}
NO_OFFSETS = (-1, -1, -1)


@pytest.fixture(params=["fast", "general"])
def broker(request: pytest.FixtureRequest) -> SimBroker:
    made = SimBroker(fast=request.param == "fast")
    made.make_topic("tide", 2)
    return made


def produce(broker: SimBroker, acks: int = -1, version: int = 9, **more: Any) -> Asked:
    records = more.pop("records", None) or batch()
    return broker.send(ApiKey.PRODUCE, version, produce_fields(more.pop("topic", "tide"), records, acks=acks, **more))


def told(asked: Asked) -> Any:
    return asked.response.responses[0].partition_responses[0]


def offsets(told: Any) -> tuple[int, int, int]:
    return told.base_offset, told.log_append_time_ms, told.log_start_offset


def test_acks_all_is_answered_when_the_records_are_durable(broker: SimBroker) -> None:
    broker.hold_syncs()
    first, second = produce(broker), produce(broker)
    broker.pass_time(0.5)
    assert not first.done
    assert not second.done
    broker.let_sync()
    assert [offsets(told(asked)) for asked in (first, second)] == [(0, -1, 0), (1, -1, 0)]
    assert [told(asked).error_code for asked in (first, second)] == [0, 0]


def test_acks_all_is_not_answered_by_a_sync_that_began_before_the_write(broker: SimBroker) -> None:
    broker.hold_syncs()
    first = produce(broker)
    broker.settle()
    second = produce(broker)
    held, broker.loop.held_work = broker.loop.held_work, []
    for begin in held or ():
        begin()
    broker.settle()
    assert first.done
    assert not second.done
    broker.let_sync()
    assert second.done


def test_acks_1_is_answered_after_the_write(broker: SimBroker) -> None:
    broker.hold_syncs()
    asked = produce(broker, acks=1)
    assert asked.done
    assert (told(asked).error_code, told(asked).base_offset) == (0, 0)


@pytest.mark.parametrize("acks", [1, -1])
def test_with_durability_os_no_sync_is_waited_for(broker: SimBroker, acks: int) -> None:
    broker.make_topic("surf", configs=OS)
    broker.make_topic("foam", configs={"tidelog.storage": "memory"})
    produce(broker, acks, topic="foam")
    broker.settle()
    broker.hold_syncs()
    assert produce(broker, acks, topic="surf").done
    assert produce(broker, acks, topic="foam").done


@pytest.mark.parametrize("acks", [1, -1])
def test_the_first_offsets_of_a_topic_in_memory_are_told_when_no_restart_gives_them_again(
    broker: SimBroker, acks: int
) -> None:
    broker.make_topic("foam", configs={"tidelog.storage": "memory"})
    broker.hold_syncs()
    asked = [produce(broker, acks, topic="foam") for _ in range(2)]
    assert [each.done for each in asked] == [False, False]
    broker.let_sync()
    assert [told(each).base_offset for each in asked] == [0, 1]


def test_acks_0_is_never_answered(broker: SimBroker) -> None:
    asked = produce(broker, acks=0)
    broker.settle()
    assert (asked.done, asked.frame, asked.closed) == (True, None, None)
    assert broker.partition("tide").high_watermark == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "nobody"},
        {"partition": 7},
        {"records": batch(crc=1)},
        {"records": in_transaction(b"a", producer_id=7)},  # of no transaction: it would stay open for ever
    ],
)
def test_an_error_with_acks_0_closes_the_connection_and_says_why(
    broker: SimBroker, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    asked = produce(broker, acks=0, **wrong)
    assert asked.closed is not None
    assert "acks=0" in asked.closed
    assert not caplog.records, "a client's mistake is no bug of ours"
    assert broker.partition("tide").log.log_end == 0


def test_acks_beyond_the_three_are_refused_and_nothing_is_written(broker: SimBroker) -> None:
    asked = produce(broker, acks=7)
    assert told(asked).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert offsets(told(asked)) == NO_OFFSETS
    assert broker.partition("tide").log.log_end == 0


def test_when_the_time_is_over_the_producer_is_told_and_the_records_are_kept(broker: SimBroker) -> None:
    broker.hold_syncs()
    asked = produce(broker, timeout_ms=300)
    broker.pass_time(0.29)
    assert not asked.done
    broker.pass_time(0.2)
    assert told(asked).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert offsets(told(asked)) == NO_OFFSETS
    broker.let_sync()
    assert broker.partition("tide").high_watermark == 1


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_patience_a_late_answer_is_a_timeout_soon(broker: SimBroker, timeout_ms: int) -> None:
    broker.hold_syncs()
    asked = produce(broker, timeout_ms=timeout_ms)
    broker.pass_time(0.11)
    assert told(asked).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_resent_batch_waits_as_the_original_does_and_gets_its_offset(broker: SimBroker) -> None:
    records = batch(b"once", producer=Producer(7, 0, 0))
    broker.append("tide", b"before")
    broker.hold_syncs()
    first, again = produce(broker, records=records), produce(broker, records=records)
    after = produce(broker)
    broker.settle()
    assert not any(asked.done for asked in (first, again, after))
    assert broker.partition("tide").log.log_end == 3
    broker.let_sync()
    assert [told(asked).base_offset for asked in (first, again, after)] == [1, 1, 2]


def test_a_resent_batch_that_is_committed_already_is_answered_at_once(broker: SimBroker) -> None:
    records = batch(b"once", producer=Producer(7, 0, 0))
    produce(broker, records=records)
    broker.settle()
    broker.hold_syncs()
    produce(broker)
    assert told(produce(broker, records=records)).base_offset == 0


def mixed(broker: SimBroker, *partitions: tuple[str, int, bytes], timeout_ms: int = 1000) -> Asked:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, index, records in partitions:
        topics.setdefault(topic, []).append({"index": index, "records": records})
    data = [{"name": name, "partition_data": parts} for name, parts in topics.items()]
    return broker.send(ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": timeout_ms, "topic_data": data})


def codes(asked: Asked) -> list[tuple[str, int, int, int]]:
    return [
        (topic.name, part.index, part.error_code, part.base_offset)
        for topic in asked.response.responses
        for part in topic.partition_responses
    ]


def test_each_partition_has_its_own_answer_and_the_last_one_is_waited_for(broker: SimBroker) -> None:
    broker.append("tide", b"before", partition=1)
    broker.hold_syncs()
    asked = mixed(
        broker,
        ("tide", 0, batch()),
        ("tide", 1, batch(b"a", b"b")),
        ("tide", 2, batch()),
        ("nobody", 0, batch()),
        ("tide", 0, batch(crc=1)),
    )
    broker.settle()
    assert not asked.done
    broker.let_sync()
    assert codes(asked) == [
        ("tide", 0, 0, 0),
        ("tide", 1, 0, 1),
        ("tide", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("tide", 0, ErrorCode.CORRUPT_MESSAGE, -1),
        ("nobody", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_a_request_of_which_everything_failed_waits_for_nothing(broker: SimBroker) -> None:
    broker.hold_syncs()
    assert mixed(broker, ("nobody", 0, batch()), ("tide", 5, batch())).done


def test_only_the_partitions_that_were_late_time_out(broker: SimBroker) -> None:
    broker.make_topic("surf", configs=OS)
    broker.hold_syncs()
    asked = mixed(broker, ("surf", 0, batch()), ("tide", 0, batch()), timeout_ms=100)
    broker.pass_time(0.3)
    assert codes(asked) == [("surf", 0, 0, 0), ("tide", 0, ErrorCode.REQUEST_TIMED_OUT, -1)]
    broker.let_sync()


def test_a_deleted_topic_releases_who_waits_for_it(broker: SimBroker) -> None:
    broker.hold_syncs()
    asked = produce(broker, timeout_ms=30_000)
    broker.settle()
    broker.partition("tide").delete()
    assert told(asked).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offsets(told(asked)) == NO_OFFSETS
    broker.let_sync()
    broker.delete_topic("tide")
    assert told(produce(broker)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_made_again_is_written_from_its_start(broker: SimBroker) -> None:
    produce(broker)
    produce(broker, partition=1)
    broker.settle()
    broker.delete_topic("tide")
    broker.make_topic("tide")
    asked = produce(broker)
    broker.settle()
    assert told(asked).base_offset == 0
    assert told(produce(broker, partition=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_failed_sync_is_a_storage_error_for_who_waits_and_who_comes_later(broker: SimBroker) -> None:
    broker.append("tide", b"good")
    broker.hold_syncs()
    first = produce(broker)
    broker.settle()
    second = produce(broker)
    broker.disk.failing_syncs = 2  # the journal's, and that of the segment instead
    broker.let_sync()
    for asked in (first, second, produce(broker), produce(broker, acks=1)):
        assert told(asked).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets(told(asked)) == NO_OFFSETS
    other = produce(broker, partition=1)
    broker.settle()
    assert told(other).error_code == 0, "another log is none of its business"


def test_a_full_disk_is_a_storage_error_that_passes(broker: SimBroker) -> None:
    broker.append("tide", b"good")
    broker.disk.capacity = broker.disk.used_bytes() + 10
    for _ in range(2):
        assert told(produce(broker)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.disk.capacity = None
    asked = produce(broker)
    broker.settle()
    assert (told(asked).error_code, told(asked).base_offset) == (0, 1)


def test_a_new_leader_epoch_releases_who_waits(broker: SimBroker) -> None:
    broker.hold_syncs()
    asked = produce(broker)
    partition = broker.partition("tide")
    image = partition.image
    partition.follow_image(image._replace(leader=-1, leader_epoch=1))
    assert told(asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert offsets(told(asked)) == NO_OFFSETS
    partition.follow_image(image._replace(leader_epoch=2))
    asked = produce(broker)
    broker.let_sync()
    assert (told(asked).error_code, told(asked).base_offset) == (0, 1)


@pytest.mark.parametrize("version", [3, 9, 10, 12, 13])
def test_who_asks_the_wrong_broker_is_told_the_right_one_from_version_10_on(broker: SimBroker, version: int) -> None:
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader=5, leader_epoch=3))
    fields = produce_fields("tide", batch())
    fields["topic_data"][0]["topic_id"] = partition.topic_id
    asked = broker.send(ApiKey.PRODUCE, version, fields)
    assert told(asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    hint = (told(asked).current_leader.leader_id, told(asked).current_leader.leader_epoch)
    endpoints = [(node.node_id, node.host, node.port) for node in asked.response.node_endpoints]
    if version >= 10:
        assert (hint, endpoints) == ((5, 3), [(1, "localhost", 9092)])
    else:
        assert (hint, endpoints) == ((-1, -1), [])


def test_nobody_is_hurt_when_the_producer_left_before_its_answer(broker: SimBroker) -> None:
    broker.hold_syncs()
    gone, there = produce(broker, timeout_ms=100), produce(broker, timeout_ms=30_000)
    gone.late.abandon()
    broker.pass_time(0.5)
    broker.let_sync()
    assert there.done
    assert told(there).error_code == 0


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_is_answered(broker: SimBroker, version: int) -> None:
    fields = produce_fields("tide", batch(b"a", b"b"))
    fields["topic_data"][0]["topic_id"] = broker.partition("tide").topic_id
    broker.ask(ApiKey.PRODUCE, version, fields)
    answer = broker.ask(ApiKey.PRODUCE, version, fields)
    part = answer.responses[0].partition_responses[0]
    assert (part.index, part.error_code, part.base_offset, part.log_append_time_ms) == (0, 0, 2, -1)
    assert part.log_start_offset == (0 if version >= 5 else -1)
    assert (answer.responses[0].name, answer.responses[0].topic_id) == (
        ("tide", bytes(16)) if version < 13 else ("", broker.partition("tide").topic_id)
    )


def test_an_unknown_topic_id_is_told_as_such(broker: SimBroker) -> None:
    fields = produce_fields("tide", batch())
    fields["topic_data"][0]["topic_id"] = b"nobody's id.....".ljust(16)
    answer = broker.ask(ApiKey.PRODUCE, 13, fields).responses[0]
    assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert answer.topic_id == fields["topic_data"][0]["topic_id"]


def test_append_times_are_told(broker: SimBroker) -> None:
    broker.make_topic("dated", configs={"message.timestamp.type": "LogAppendTime"})
    broker.pass_time(2.0)
    asked = produce(broker, topic="dated")
    broker.settle()
    assert told(asked).log_append_time_ms == broker.timeline.now_ms()


def test_a_wrong_sequence_is_told_as_such_where_the_broker_sets_the_time_too(broker: SimBroker) -> None:
    broker.make_topic("dated", configs={"message.timestamp.type": "LogAppendTime"})
    produce(broker, topic="dated", records=batch(producer=Producer(7, 0, 0)))
    asked = produce(broker, topic="dated", records=batch(producer=Producer(7, 0, 5)))
    assert told(asked).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# -- over a connection


def connect(broker: SimBroker, lost: list[bool]) -> ClientConnection:
    loop = SimLoop(broker.timeline, SimRandom("client"))
    return ClientConnection("client", loop, broker.network, lambda: lost.append(True))


def request(acks: int, topic: str = "tide") -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=memoryview(batch()))]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def test_answers_come_in_the_order_of_requests(broker: SimBroker) -> None:
    answered: list[str] = []
    connection = connect(broker, [])

    def note(name: str) -> Any:
        return lambda _: answered.append(name)

    broker.hold_syncs()
    connection.ask(request(-1), ProduceResponse, 0, 9, note("all"))
    connection.ask(request(1), ProduceResponse, 0, 9, note("one"))
    connection.tell(request(0), 9)
    connection.ask(MetadataRequest(topics=[]), MetadataResponse, 3, 9, note("metadata"))
    connection.ask(request(-1), ProduceResponse, 0, 9, note("all again"))
    broker.pass_time(1.0)
    assert answered == []
    assert broker.partition("tide").log.log_end == 4, "appended all the same"
    broker.let_sync()
    broker.pass_time(1.0)
    assert answered == ["all", "one", "metadata", "all again"]


def test_a_refused_produce_with_acks_0_loses_the_connection_after_the_answers_before_it(broker: SimBroker) -> None:
    answered: list[int] = []
    lost: list[bool] = []
    connection = connect(broker, lost)
    connection.ask(request(1), ProduceResponse, 0, 9, lambda _: answered.append(1))
    connection.tell(request(0, "nobody"), 9)
    broker.pass_time(1.0)
    assert (answered, lost) == ([1], [True])
    assert broker.broker.connections == 0
