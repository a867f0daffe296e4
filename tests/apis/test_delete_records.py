"""DeleteRecords of what was just written: it waits until that is durable, or hears why it won't be."""

import errno

import pytest

from tests.apis.followers import FollowingBroker, change, register, submit
from tests.apis.sim_broker import Asked, SimBroker, batch, produce_fields
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.records.metadata import BrokerRegistrationChangeRecord


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide", 2)
    for partition in (0, 1):
        write(made, partition, acks=-1)
    made.hold_syncs()
    for partition in (0, 1):
        write(made, partition, acks=1)
    return made


def write(broker: SimBroker, partition: int, acks: int) -> None:
    asked = broker.send(ApiKey.PRODUCE, 9, produce_fields("tide", batch(), partition=partition, acks=acks))
    broker.settle()
    assert asked.response.responses[0].partition_responses[0].error_code == 0


def delete(broker: SimBroker, offset: int, partition: int = 0, timeout_ms: int = 5000) -> Asked:
    parts = [{"partition_index": partition, "offset": offset}]
    fields = {"topics": [{"name": "tide", "partitions": parts}], "timeout_ms": timeout_ms}
    return broker.send(ApiKey.DELETE_RECORDS, 2, fields)


def told(asked: Asked) -> tuple[int, int]:
    found = asked.response.topics[0].partitions[0]
    return found.error_code, found.low_watermark


@pytest.mark.parametrize("offset", [2, -1])
def test_what_was_acknowledged_can_be_deleted(broker: SimBroker, offset: int) -> None:
    asked = delete(broker, offset)
    broker.pass_time(1.0)
    assert not asked.done
    broker.let_sync()
    assert told(asked) == (0, 2)


def test_what_is_shown_already_is_deleted_at_once(broker: SimBroker) -> None:
    before = len(broker.loop.held_work or ())
    asked = delete(broker, 1)
    broker.settle()
    assert len(broker.loop.held_work or ()) > before, "the new start is being saved"
    broker.let_sync()
    assert told(asked) == (0, 1)


def test_beyond_what_was_written_is_out_of_range_as_ever(broker: SimBroker) -> None:
    asked = delete(broker, 3)
    broker.let_sync()
    assert told(asked) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_its_time_is_over_while_the_disk_hangs(broker: SimBroker) -> None:
    asked = delete(broker, 2, timeout_ms=500)
    broker.pass_time(1.0)
    assert told(asked) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    broker.let_sync()
    assert broker.partition("tide").log.log_start == 0


def test_whoever_waits_hears_why_it_will_not_come(broker: SimBroker) -> None:
    waiting = [delete(broker, -1, partition) for partition in (0, 1)]
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader_epoch=1, leader=-1))
    broker.partition("tide", 1).log.go_offline("the disk is gone")
    broker.settle()
    codes = [told(asked)[0] for asked in waiting]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_topic_that_is_deleted_meanwhile_is_unknown(broker: SimBroker) -> None:
    asked = delete(broker, -1)
    broker.settle()
    gone = broker.send(ApiKey.DELETE_TOPICS, 3, {"topic_names": ["tide"], "timeout_ms": 1000})
    broker.settle()
    assert broker.loop.held_work
    broker.loop.held_work.pop()()  # the metadata log's; the topic's own hangs
    broker.settle()
    assert gone.response.responses[0].error_code == 0
    assert told(asked) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_where_others_have_a_say_the_high_watermark_answers(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(replicas=(1, 2)))
    assert told(delete(broker, 2)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_start_that_cannot_be_written_down_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log that was begun just now, where the page cache counts: that it was is written down first, at once."""
    broker = SimBroker()
    broker.make_topic("tide", configs={"tidelog.durability": "os"})
    write(broker, 0, acks=-1)
    write_whole = broker.disk.write_whole

    def refuse_once(*args: object) -> None:
        monkeypatch.setattr(broker.disk, "write_whole", write_whole)
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(broker.disk, "write_whole", refuse_once)
    asked = delete(broker, 1)
    broker.settle()
    assert told(asked) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    asked = delete(broker, 1)
    broker.settle()
    assert told(asked) == (0, 1)


# -- with several replicas


@pytest.fixture
def replicated() -> tuple[SimBroker, FollowingBroker, FollowingBroker]:
    broker = SimBroker()
    broker.make_topic("tide")
    for _ in range(3):
        write(broker, 0, acks=-1)
    for id in (2, 3):
        register(broker, id)
    change(broker, replicas=[1, 2, 3], isr=[1, 2, 3])
    two, three = FollowingBroker(broker, 2), FollowingBroker(broker, 3)
    for follower in (two, three):
        follower.fetch(follower.part(0, 3))
    return broker, two, three


Replicated = tuple[SimBroker, FollowingBroker, FollowingBroker]


def test_all_replicas_that_live_have_deleted_what_is_told_to_be(replicated: Replicated) -> None:
    broker, two, three = replicated
    parked = two.send()
    asked = delete(broker, 2)
    broker.pass_time(0.5)
    assert not asked.done
    assert two.take(parked) == [(0, 0, 3, [])]
    assert parked.response.responses[0].partitions[0].log_start_offset == 2
    two.fetch(two.part(0, 3, log_start_offset=2))
    assert not asked.done
    three.fetch(three.part(0, 3, log_start_offset=1))
    assert not asked.done
    three.fetch(three.part(0, 3, log_start_offset=2))
    assert told(asked) == (0, 2)


def test_one_that_is_gone_is_not_waited_for(replicated: Replicated) -> None:
    broker, two, _ = replicated
    asked = delete(broker, 2)
    two.fetch(two.part(0, 3, log_start_offset=2))
    assert not asked.done
    submit(broker, BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=300, fenced=1))
    assert told(asked) == (0, 2)


def test_a_deletion_ends_with_its_time_or_with_the_leader(replicated: Replicated) -> None:
    broker, _, _ = replicated
    asked = delete(broker, 1, timeout_ms=1000)
    broker.pass_time(1.2)
    assert told(asked) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert broker.partition("tide").log.log_start == 1, "it is done here all the same"
    asked = delete(broker, 2)
    broker.settle()
    change(broker, leader=2)
    assert told(asked) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
