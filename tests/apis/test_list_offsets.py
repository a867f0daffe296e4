"""ListOffsets: the marks of a log and offsets by time, what each version knows, and what nobody is shown."""

from typing import Any

import pytest

from tests.apis.followers import change, register
from tests.apis.sim_broker import NOW_MS, Asked, SimBroker, batch, in_transaction, marker, produce_fields
from tests.batches import Batch, Sent
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
COMMITTED = 1
NOTHING = (0, -1, -1, -1)
Found = tuple[int, int, int, int]


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide", 2)
    return made


def ask(
    broker: SimBroker, timestamp: int, version: int = 11, *, partition: int = 0, epoch: int = -1, **more: Any
) -> Found:
    """(error, timestamp, offset, leader epoch)."""
    part = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    topics = [{"name": more.pop("topic", "tide"), "partitions": [part]}]
    response = broker.ask(ApiKey.LIST_OFFSETS, version, {"replica_id": -1, "topics": topics, **more})
    found = response.topics[0].partitions[0]
    assert (response.topics[0].name, found.partition_index) == (topics[0]["name"], partition)
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


def dated(broker: SimBroker, *times: int) -> None:
    """One batch whose records have these times after the start."""
    records = [Sent(b"x", timestamp_delta=time) for time in times]
    fields = produce_fields("tide", Batch(records, base_timestamp=NOW_MS).encode())
    assert broker.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0].error_code == 0


# -- the marks


def test_an_empty_log_has_a_start_and_an_end_and_no_records(broker: SimBroker) -> None:
    assert ask(broker, LATEST) == (0, -1, 0, 0)
    assert ask(broker, EARLIEST) == (0, -1, 0, 0)
    assert ask(broker, EARLIEST_LOCAL) == (0, -1, 0, 0)
    for timestamp in (MAX_TIMESTAMP, LATEST_TIERED, PENDING_UPLOAD, 0, NOW_MS):
        assert ask(broker, timestamp) == NOTHING


def test_the_marks_of_a_log_with_records(broker: SimBroker) -> None:
    dated(broker, 0, 50, 20)
    dated(broker, 50, 10)
    assert ask(broker, LATEST) == (0, -1, 5, 0)
    assert ask(broker, EARLIEST) == (0, -1, 0, 0)
    assert ask(broker, EARLIEST_LOCAL) == (0, -1, 0, 0)
    assert ask(broker, MAX_TIMESTAMP) == (0, NOW_MS + 50, 1, 0)
    assert ask(broker, LATEST_TIERED) == NOTHING
    assert ask(broker, PENDING_UPLOAD) == NOTHING


def test_after_records_were_deleted_the_log_starts_later(broker: SimBroker) -> None:
    dated(broker, 0, 10, 20)
    broker.delete_records("tide", 2)
    assert ask(broker, EARLIEST) == (0, -1, 2, 0)
    assert ask(broker, EARLIEST_LOCAL) == (0, -1, 2, 0)
    assert ask(broker, NOW_MS) == (0, NOW_MS + 20, 2, 0), "what was deleted isn't found by its time"
    broker.delete_records("tide", 3)
    assert ask(broker, EARLIEST) == (0, -1, 3, 0)
    assert ask(broker, LATEST) == (0, -1, 3, 0)
    assert ask(broker, NOW_MS) == NOTHING


def test_leader_epochs_are_those_that_wrote_the_records(broker: SimBroker) -> None:
    dated(broker, 0, 10)
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader_epoch=4))
    dated(broker, 20)
    assert ask(broker, EARLIEST) == (0, -1, 0, 0)
    assert ask(broker, NOW_MS + 5) == (0, NOW_MS + 10, 1, 0)
    assert ask(broker, MAX_TIMESTAMP) == (0, NOW_MS + 20, 2, 4)
    assert ask(broker, LATEST) == (0, -1, 3, 4)
    broker.delete_records("tide", 2)
    assert ask(broker, EARLIEST) == (0, -1, 2, 4)


# -- by time


@pytest.mark.parametrize(
    ("time", "expected"),
    [(-1000, (0, 0)), (0, (0, 0)), (1, (100, 1)), (100, (100, 1)), (150, (200, 4)), (201, (300, 5)), (301, None)],
)
def test_the_first_record_as_new_as_a_time_is_found(
    broker: SimBroker, time: int, expected: tuple[int, int] | None
) -> None:
    dated(broker, 0, 100, 50)
    dated(broker, 120, 200)
    dated(broker, 300)
    found = NOTHING if expected is None else (0, NOW_MS + expected[0], expected[1], 0)
    assert ask(broker, NOW_MS + time) == found


def test_records_of_many_segments_are_found_by_time() -> None:
    broker = SimBroker()
    broker.make_topic("tide", configs={"internal.segment.bytes": "150", "index.interval.bytes": "0"})
    for time in range(0, 100, 10):
        dated(broker, time)
    assert len(broker.partition("tide").log.segments) > 3
    for time in range(91):
        offset = (time + 9) // 10
        assert ask(broker, NOW_MS + time) == (0, NOW_MS + 10 * offset, offset, 0)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_records_are_found_by_time(broker: SimBroker, codec: int) -> None:
    records = [Sent(b"x", timestamp_delta=delta) for delta in (0, 10, 20)]
    fields = produce_fields("tide", Batch(records, base_timestamp=NOW_MS, codec=codec).encode())
    broker.ask(ApiKey.PRODUCE, 9, fields)
    assert ask(broker, NOW_MS + 5) == (0, NOW_MS + 10, 1, 0)
    assert ask(broker, MAX_TIMESTAMP) == (0, NOW_MS + 20, 2, 0)


def test_where_the_broker_dates_records_all_of_a_batch_are_as_old(broker: SimBroker) -> None:
    broker.make_topic("dated", configs={"message.timestamp.type": "LogAppendTime"})
    broker.append("dated", b"a", b"b")
    broker.pass_time(1)
    broker.append("dated", b"c", b"d")
    now_ms = broker.timeline.now_ms()
    assert ask(broker, now_ms - 1, topic="dated") == (0, now_ms, 2, 0)
    assert ask(broker, MAX_TIMESTAMP, topic="dated")[:3] == (0, now_ms, 2)


# -- what nobody is shown


def asked_of(
    broker: SimBroker, timestamp: int, version: int = 11, *, epoch: int = -1, partition: int = 0, **more: Any
) -> Asked:
    """A request whose answer may come later."""
    part = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    fields = {"replica_id": -1, "topics": [{"name": "tide", "partitions": [part]}], **more}
    return broker.send(ApiKey.LIST_OFFSETS, version, fields)


def told(asked: Asked) -> Found:
    found = asked.response.topics[0].partitions[0]
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


def write_late(broker: SimBroker, partition: int = 0) -> None:
    """A record that is acknowledged, acks=1, and not durable while syncs are held."""
    fields = produce_fields("tide", batch(at_ms=NOW_MS + 10), acks=1, partition=partition)
    assert broker.send(ApiKey.PRODUCE, 9, fields).response.responses[0].partition_responses[0].error_code == 0


def test_what_is_not_durable_is_waited_for_and_not_shown_before(broker: SimBroker) -> None:
    dated(broker, 0)
    broker.hold_syncs()
    write_late(broker)
    waiting = [asked_of(broker, timestamp) for timestamp in (LATEST, MAX_TIMESTAMP, NOW_MS + 5, NOW_MS + 50)]
    waiting.append(asked_of(broker, LATEST, isolation_level=COMMITTED))
    broker.settle()
    write_late(broker)  # behind what they wait for
    broker.pass_time(1.0)
    assert not any(asked.done for asked in waiting)
    assert ask(broker, EARLIEST) == (0, -1, 0, 0)
    assert ask(broker, NOW_MS) == (0, NOW_MS, 0, 0), "what is shown already is found at once"
    for replica_id in (-2, 1):
        assert ask(broker, LATEST, replica_id=replica_id) == (0, -1, 3, 0)
        assert ask(broker, NOW_MS + 5, replica_id=replica_id) == (0, NOW_MS + 10, 1, 0)
    broker.let_first_sync()
    answers = [told(asked) for asked in waiting]
    assert answers == [(0, -1, 2, 0), (0, NOW_MS + 10, 1, 0), (0, NOW_MS + 10, 1, 0), NOTHING, (0, -1, 2, 0)]
    assert broker.partition("tide").high_watermark == 2


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (10, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_disk_that_hangs_keeps_nobody_waiting_for_ever(broker: SimBroker, version: int, code: ErrorCode) -> None:
    dated(broker, 0)
    broker.hold_syncs()
    write_late(broker)
    short = asked_of(broker, LATEST, version, timeout_ms=500)
    by_time = asked_of(broker, NOW_MS + 5, version, timeout_ms=500)
    broker.pass_time(1.0)
    assert short.done == by_time.done == (version == 10), "from version 10 on a client says how long it waits"
    broker.pass_time(10.0)
    assert (told(short)[0], told(by_time)[0]) == (code, code)
    broker.let_sync()
    assert ask(broker, LATEST, version)[:3] == (0, -1, 2)


def test_those_who_wait_for_an_end_hear_why_it_will_not_come(broker: SimBroker) -> None:
    dated(broker, 0)
    broker.hold_syncs()
    write_late(broker)
    write_late(broker, 1)
    waiting = [asked_of(broker, LATEST, partition=index) for index in (0, 1)]
    fenced = asked_of(broker, LATEST, epoch=0)
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader_epoch=1))
    broker.settle()
    assert told(fenced)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert not waiting[0].done, "the same leader goes on, and so does its sync"
    partition.follow_image(partition.image._replace(leader_epoch=2, leader=-1))
    broker.partition("tide", 1).log.go_offline("the disk is gone")
    broker.settle()
    assert [told(asked)[0] for asked in waiting] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]


def test_those_who_wait_for_an_end_hear_that_the_topic_is_deleted(broker: SimBroker) -> None:
    dated(broker, 0)
    broker.hold_syncs()
    write_late(broker)
    waiting = asked_of(broker, LATEST)
    broker.send(ApiKey.DELETE_TOPICS, 3, {"topic_names": ["tide"], "timeout_ms": 1000})
    broker.settle()
    assert broker.loop.held_work
    broker.loop.held_work.pop()()  # the metadata log's; the topic's own hangs
    broker.settle()
    assert told(waiting)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_where_others_have_a_say_the_high_watermark_answers(broker: SimBroker) -> None:
    dated(broker, 0)
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(replicas=(1, 2)))
    broker.hold_syncs()
    write_late(broker)
    assert ask(broker, LATEST) == (0, -1, 1, 0)
    assert ask(broker, MAX_TIMESTAMP) == NOTHING, "the newest record isn't to be seen yet"
    assert ask(broker, NOW_MS + 5) == NOTHING


def test_who_looks_for_a_mistake_may_ask_a_follower(broker: SimBroker) -> None:
    dated(broker, 0)
    register(broker, 2)
    change(broker, replicas=[1, 2], isr=[1, 2], leader=2)
    for replica_id in (-1, 1, 2):
        assert ask(broker, LATEST, replica_id=replica_id)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(broker, LATEST, replica_id=-2) == (0, -1, 1, 1)
    assert ask(broker, EARLIEST, replica_id=-2) == (0, -1, 0, 0)
    assert ask(broker, NOW_MS, replica_id=-2) == (0, NOW_MS, 0, 0)
    assert ask(broker, LATEST, epoch=0, replica_id=-2)[0] == ErrorCode.FENCED_LEADER_EPOCH


def test_read_committed_ends_where_the_oldest_open_transaction_begins(broker: SimBroker) -> None:
    dated(broker, -100)
    broker.append_own("tide", in_transaction(b"a", producer_id=7))
    dated(broker, 100)
    assert ask(broker, LATEST, isolation_level=COMMITTED) == (0, -1, 1, 0)
    assert ask(broker, LATEST) == (0, -1, 3, 0)
    assert ask(broker, NOW_MS, isolation_level=COMMITTED) == NOTHING
    assert ask(broker, NOW_MS) == (0, NOW_MS, 1, 0)
    assert ask(broker, MAX_TIMESTAMP, isolation_level=COMMITTED) == NOTHING
    broker.append_own("tide", marker(7, commit=True))
    assert ask(broker, LATEST, isolation_level=COMMITTED) == (0, -1, 4, 0)
    assert ask(broker, MAX_TIMESTAMP, isolation_level=COMMITTED) == (0, NOW_MS + 100, 2, 0)


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_new_leader_does_not_name_an_end_before_it_knows_its_own(
    broker: SimBroker, version: int, code: ErrorCode
) -> None:
    dated(broker, 0)
    partition = broker.partition("tide")
    broker.hold_syncs()
    write_late(broker)
    partition.follow_image(partition.image._replace(leader_epoch=1, replicas=(1, 2)))
    assert ask(broker, LATEST, version)[0] == code
    assert ask(broker, NOW_MS + 5, version)[0] == code, "it may be among those that aren't shown yet"
    assert ask(broker, NOW_MS, version)[:3] == (0, NOW_MS, 0)
    assert ask(broker, EARLIEST, version)[:3] == (0, -1, 0)
    assert ask(broker, LATEST, version, replica_id=1)[:3] == (0, -1, 2)
    broker.let_sync()
    assert ask(broker, LATEST, version)[:3] == (0, -1, 2)


# -- versions and errors


@pytest.mark.parametrize(
    ("timestamp", "first"), [(LATEST, 1), (EARLIEST, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (NOW_MS, 1)]
)
def test_each_special_time_has_its_first_version(broker: SimBroker, timestamp: int, first: int) -> None:
    dated(broker, 0)
    for version in range(1, 12):
        code = ask(broker, timestamp, version)[0]
        assert code == (0 if version >= first else ErrorCode.UNSUPPORTED_VERSION), version


@pytest.mark.parametrize("timestamp", [-7, -(2**63)])
def test_a_time_that_means_nothing_is_unsupported(broker: SimBroker, timestamp: int) -> None:
    assert ask(broker, timestamp)[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_is_answered(broker: SimBroker, version: int) -> None:
    dated(broker, 0, 10)
    assert ask(broker, LATEST, version) == (0, -1, 2, 0 if version >= 4 else -1)
    assert ask(broker, NOW_MS + 5, version) == (0, NOW_MS + 10, 1, 0 if version >= 4 else -1)


@pytest.mark.parametrize("wrong", [{"topic": "nobody"}, {"partition": 2}, {"partition": -1}])
def test_an_unknown_partition_is_told_with_nothing_else(broker: SimBroker, wrong: dict[str, Any]) -> None:
    assert ask(broker, LATEST, **wrong) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, 0), (2, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)]
)
def test_the_leader_epoch_is_checked_from_version_4_on(broker: SimBroker, epoch: int, code: int) -> None:
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader_epoch=1))
    assert ask(broker, LATEST, 4, epoch=epoch)[0] == code
    assert ask(broker, LATEST, 3, epoch=epoch)[0] == 0


def test_who_does_not_lead_and_who_is_offline_say_so(broker: SimBroker) -> None:
    broker.partition("tide", 1).log.go_offline("a test")
    assert ask(broker, LATEST, partition=1)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader=2, leader_epoch=1))
    assert ask(broker, LATEST)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_named_twice_is_refused_once_beside_the_others(broker: SimBroker) -> None:
    twice = [{"partition_index": index, "timestamp": LATEST} for index in (0, 1, 0)]
    topics = [{"name": "tide", "partitions": twice}]
    found = broker.ask(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": topics}).topics[0].partitions
    assert [(one.partition_index, one.error_code) for one in found] == [(0, ErrorCode.INVALID_REQUEST), (1, 0)]


# -- records that take long to walk


def zipped(broker: SimBroker, partition: int, *times: int) -> None:
    records = [Sent(b"x", timestamp_delta=time) for time in times]
    data = Batch(records, base_timestamp=NOW_MS, codec=1).encode()
    broker.ask(ApiKey.PRODUCE, 9, produce_fields("tide", data, partition=partition))


def look_for(broker: SimBroker, *times: int) -> Asked:
    """A time in each partition, one after the other."""
    partitions = [{"partition_index": index, "timestamp": NOW_MS + time} for index, time in enumerate(times)]
    fields = {"replica_id": -1, "topics": [{"name": "tide", "partitions": partitions}]}
    return broker.send(ApiKey.LIST_OFFSETS, 7, fields)


def found_by(asked: Asked) -> list[tuple[int, int]]:
    return [(one.error_code, one.offset) for one in asked.response.topics[0].partitions]


def test_records_are_inflated_and_walked_beside_the_loop(broker: SimBroker) -> None:
    for partition in (0, 1):
        zipped(broker, partition, 0, 5, 9)
    broker.hold_syncs()
    asked = look_for(broker, 5, 9)
    assert not asked.done
    assert ask(broker, EARLIEST) == (0, -1, 0, 0), "others are answered meanwhile"
    broker.let_sync()
    broker.settle()
    assert found_by(asked) == [(0, 1), (0, 2)]


def test_a_log_that_goes_offline_while_its_records_are_walked(broker: SimBroker) -> None:
    for partition in (0, 1):
        zipped(broker, partition, 0, 5, 9)
    broker.hold_syncs()
    asked = look_for(broker, 5, 9)
    broker.partition("tide").log.go_offline("a test")
    broker.let_sync()
    broker.settle()
    assert found_by(asked) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 2)]


def test_records_deleted_while_they_are_walked_are_not_found(broker: SimBroker) -> None:
    for partition in (0, 1):
        zipped(broker, partition, 0, 5, 9)
    zipped(broker, 0, 7)
    broker.hold_syncs()
    asked = look_for(broker, 5, 0)
    broker.partition("tide").log.delete_before(3)
    broker.let_sync()
    broker.settle()
    assert found_by(asked) == [(0, 3), (0, 0)]


def test_batches_that_claim_a_newer_record_than_they_have_are_passed_over() -> None:
    broker = SimBroker()
    broker.make_topic("tide")
    for _ in range(2):
        data = Batch([Sent(b"x")], base_timestamp=NOW_MS, codec=1, max_timestamp=NOW_MS + 9).encode()
        broker.ask(ApiKey.PRODUCE, 9, produce_fields("tide", data))
    zipped(broker, 0, 3, 9)
    asked = look_for(broker, 9)
    broker.settle()
    assert found_by(asked) == [(0, 3)]


def test_many_partitions_are_walked_one_after_the_other() -> None:
    broker = SimBroker()
    broker.make_topic("tide", 400)
    for partition in range(400):
        zipped(broker, partition, 0, 5)
    asked = look_for(broker, *[5] * 400)
    broker.pass_time(1)  # it answers in steps
    assert found_by(asked) == [(0, 1)] * 400
