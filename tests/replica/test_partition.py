"""A partition as a replica: its high watermark, who leads it, and what those who wait are told."""

import pytest

from tests.apis.sim_broker import NOW_MS, SimBroker, batch, in_transaction, marker, produce_fields
from tidelog.log.log import Log
from tidelog.metadata.image import PartitionImage
from tidelog.replica.partition import Partition
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.keys import ApiKey
from tidelog.wire.records.metadata import PartitionChangeRecord


class Waiter:
    def __init__(self) -> None:
        self.woken = 0
        self.expired = 0

    def wake(self, partition: Partition) -> None:
        self.woken += 1

    def expire(self) -> None:
        self.expired += 1


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide")
    return made


def produce(broker: SimBroker, acks: int = 1) -> None:
    broker.send(ApiKey.PRODUCE, 9, produce_fields("tide", batch(), acks=acks))


def next_image(image: PartitionImage, leader: int = 1) -> PartitionImage:
    return image._replace(leader=leader, leader_epoch=image.leader_epoch + 1, partition_epoch=image.partition_epoch + 1)


def test_the_high_watermark_follows_what_is_durable_not_what_is_written(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    broker.hold_syncs()
    produce(broker)
    produce(broker)
    broker.settle()
    assert (partition.log.log_end, partition.high_watermark) == (2, 0)
    broker.let_sync()
    assert partition.high_watermark == 2
    broker.check()


def test_a_sync_covers_only_what_was_written_when_it_began(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    broker.hold_syncs()
    produce(broker)
    broker.settle()
    produce(broker)
    held, broker.loop.held_work = broker.loop.held_work, []
    for begin in held or ():
        begin()
    assert partition.high_watermark == 1
    broker.let_sync()
    assert partition.high_watermark == 2


def test_with_durability_os_the_high_watermark_needs_no_sync() -> None:
    broker = SimBroker()
    broker.make_topic("tide", configs={"tidelog.durability": "os"})
    broker.hold_syncs()
    produce(broker, acks=-1)
    assert broker.partition("tide").high_watermark == 1


def test_when_durability_is_lowered_what_was_written_counts_at_once(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    produce(broker)
    broker.settle()
    configs = [{"name": "tidelog.durability", "config_operation": 0, "value": "os"}]
    resource = {"resource_type": 2, "resource_name": "tide", "configs": configs}
    broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    broker.hold_syncs()
    produce(broker)
    assert partition.high_watermark == 2


def test_no_more_in_sync_replicas_are_asked_for_than_there_are_replicas() -> None:
    broker = SimBroker()
    broker.make_topic("tide", configs={"min.insync.replicas": "2"})
    assert broker.append("tide", b"x") == 0
    assert broker.partition("tide").high_watermark == 1


def test_below_min_insync_replicas_nothing_is_taken_and_the_high_watermark_stands_still(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    configs = [{"name": "min.insync.replicas", "config_operation": 0, "value": "2"}]
    resource = {"resource_type": 2, "resource_name": "tide", "configs": configs}
    broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    partition.follow_image(partition.image._replace(replicas=(1, 2)))
    data = memoryview(bytearray(batch()))
    with pytest.raises(KafkaError) as refused:
        partition.append(data, 0, len(data), -1, NOW_MS)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    partition.append(data, 0, len(data), 1, NOW_MS)
    broker.settle()
    assert (partition.log.durable_end, partition.high_watermark) == (1, 0)


def test_those_who_wait_hear_of_a_new_leader_epoch(broker: SimBroker) -> None:
    partition, told, waiter = broker.partition("tide"), [], Waiter()
    broker.hold_syncs()
    produce(broker)
    partition.wait_for_ack(1, told.append)
    partition.park(waiter)
    partition.follow_image(next_image(partition.image, leader=-1))
    broker.settle()
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert waiter.woken == 1
    with pytest.raises(KafkaError) as refused:
        partition.check_leader()
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_only_a_leader_begins_an_epoch_in_its_log(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    broker.append("tide", b"x")
    before = partition.log.epochs.entries()
    partition.follow_image(next_image(partition.image, leader=2))
    assert partition.log.epochs.entries() == before
    partition.follow_image(next_image(partition.image, leader=1))
    assert partition.log.epochs.entries() == [*before, (partition.leader_epoch, 1)]


def test_the_same_image_again_changes_nothing(broker: SimBroker) -> None:
    partition, told = broker.partition("tide"), []
    broker.hold_syncs()
    produce(broker)
    partition.wait_for_ack(1, told.append)
    partition.follow_image(partition.image)
    assert told == []


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, None),
        (0, None),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_a_client_is_fenced_by_the_epoch_it_believes_in(broker: SimBroker, epoch: int, code: ErrorCode | None) -> None:
    partition = broker.partition("tide")
    assert partition.leader_epoch == 0
    if code is None:
        partition.check_leader(epoch)
        return
    with pytest.raises(KafkaError) as refused:
        partition.check_leader(epoch)
    assert refused.value.code == code


def test_an_older_epoch_is_fenced(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    partition.follow_image(next_image(partition.image))
    with pytest.raises(KafkaError) as refused:
        partition.check_leader(0)
    assert refused.value.code == ErrorCode.FENCED_LEADER_EPOCH


def test_waiting_for_what_is_committed_or_can_not_be_ends_at_once(broker: SimBroker) -> None:
    partition, told = broker.partition("tide"), []
    broker.append("tide", b"x")
    partition.wait_for_ack(1, told.append)
    partition.log.go_offline("a test")
    partition.wait_for_ack(2, told.append)
    broker.delete_topic("tide")
    partition.wait_for_ack(2, told.append)
    assert told == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_waiter_is_woken_once_a_turn_however_many_batches_come(broker: SimBroker) -> None:
    partition, waiter = broker.partition("tide"), Waiter()
    broker.hold_syncs()
    for _ in range(5):
        produce(broker)
    partition.park(waiter)
    partition.park(waiter)
    broker.let_sync()
    assert waiter.woken == 1
    partition.unpark(waiter)
    partition.unpark(waiter)
    broker.append("tide", b"x")
    assert waiter.woken == 1


def test_when_the_broker_stops_parked_fetches_are_answered(broker: SimBroker) -> None:
    partition, waiter = broker.partition("tide"), Waiter()
    partition.park(waiter)
    broker.wait(broker.broker.stop())
    assert waiter.expired


def test_a_topic_made_again_under_its_name_has_a_new_partition(broker: SimBroker) -> None:
    old = broker.partition("tide")
    broker.append("tide", b"x")
    broker.delete_topic("tide")
    with pytest.raises(KafkaError) as refused:
        broker.partition("tide")
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as refused:
        broker.services.replicas.by_id(old.topic_id, 0)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_ID
    topic_id = broker.make_topic("tide")
    new = broker.services.replicas.by_id(topic_id, 0)
    assert new is broker.partition("tide")
    assert new is not old
    assert (new.log.log_end, new.high_watermark) == (0, 0)


@pytest.mark.parametrize("index", [-1, 1, 2**31 - 1])
def test_a_partition_beyond_the_topics_is_unknown(broker: SimBroker, index: int) -> None:
    with pytest.raises(KafkaError) as refused:
        broker.partition("tide", index)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_new_partitions_can_be_used_and_the_old_ones_go_on(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    broker.append("tide", b"x")
    fields = {"topics": [{"name": "tide", "count": 3, "assignments": None}], "timeout_ms": 1000}
    assert broker.ask(ApiKey.CREATE_PARTITIONS, 3, fields).results[0].error_code == 0
    assert broker.append("tide", b"y", partition=2) == 0
    assert broker.partition("tide") is partition
    assert broker.append("tide", b"y") == 1


def test_a_log_that_can_not_follow_does_not_keep_the_others_from_it(
    broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.make_topic("wide", 3)
    partitions = [broker.partition("wide", index) for index in range(3)]
    lead = Log.lead

    def lead_unless_second(log: Log, leader_epoch: int) -> None:
        assert log is not partitions[1].log, "its epochs can't be read"
        lead(log, leader_epoch)

    monkeypatch.setattr(Log, "lead", lead_unless_second)
    records = [
        PartitionChangeRecord(partition_id=index, topic_id=partitions[0].topic_id, leader=1) for index in range(3)
    ]
    broker.wait(broker.services.controller.submit(lambda *_: (records, None)))
    assert [partition.leader_epoch for partition in partitions] == [1, 1, 1]
    assert [partition.log.offline is None for partition in partitions] == [True, False, True]
    assert broker.append("wide", b"x", partition=2) == 0


# -- those who wait


def test_acknowledgements_come_in_order_each_once_and_none_too_early(broker: SimBroker) -> None:
    partition, told = broker.partition("tide"), []
    broker.hold_syncs()
    for _ in range(3):
        produce(broker)
    for next_offset in (2, 1, 4):
        partition.wait_for_ack(next_offset, lambda code, of=next_offset: told.append((of, code)))
    broker.let_sync()
    assert told == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    broker.append("tide", b"x")
    assert told[2:] == [(4, ErrorCode.NONE)]


def test_nobody_is_woken_while_nothing_new_is_there(broker: SimBroker) -> None:
    partition, waiter = broker.partition("tide"), Waiter()
    broker.append("tide", b"x")
    partition.park(waiter)
    partition.advance()
    broker.settle()
    assert waiter.woken == 0


def test_those_who_wait_hear_that_the_topic_is_gone(broker: SimBroker) -> None:
    partition, told, waiter = broker.partition("tide"), [], Waiter()
    partition.wait_for_ack(1, told.append)
    partition.park(waiter)
    assert not partition.deleted
    partition.delete()
    broker.settle()
    assert (partition.deleted, told, waiter.woken) == (True, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], 1)
    assert partition.log.listener is None


def test_those_who_wait_hear_that_the_disk_failed(broker: SimBroker) -> None:
    partition, told, waiter = broker.partition("tide"), [], Waiter()
    partition.wait_for_ack(1, told.append)
    partition.park(waiter)
    partition.log.go_offline("a test")
    broker.settle()
    assert (told, waiter.woken) == ([ErrorCode.KAFKA_STORAGE_ERROR], 1)


def test_a_waiter_that_leaves_takes_nobody_else_along(broker: SimBroker) -> None:
    partition, first, second, third = broker.partition("tide"), Waiter(), Waiter(), Waiter()
    partition.unpark(first)
    for waiter in (first, second, third):
        partition.park(waiter)
    partition.unpark(first)
    partition.unpark(first)
    broker.append("tide", b"x")
    broker.settle()
    assert [waiter.woken for waiter in (first, second, third)] == [0, 1, 1]
    partition.expire_fetches()
    assert [waiter.expired for waiter in (first, second, third)] == [0, 1, 1]


# -- as the image says


def test_what_an_earlier_leader_may_have_shown_is_caught_up_with_first(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    broker.append("tide", b"x")
    assert not partition.catching_up
    broker.hold_syncs()
    produce(broker)
    assert not partition.catching_up, "it is this epoch's own"
    partition.follow_image(next_image(partition.image))
    assert (partition.epoch_start, partition.catching_up) == (2, True)
    broker.let_sync()
    assert not partition.catching_up


def test_the_high_watermark_waits_for_the_whole_isr_and_goes_on_when_that_shrinks(broker: SimBroker) -> None:
    partition, told = broker.partition("tide"), []
    image = partition.image
    both = image._replace(isr=(1, 2), replicas=(1, 2), partition_epoch=image.partition_epoch + 1)
    partition.follow_image(both)
    assert (partition.image, partition.isr, partition.is_alone) == (both, (1, 2), False)
    produce(broker)
    broker.settle()
    partition.wait_for_ack(1, told.append)
    assert (partition.log.durable_end, partition.high_watermark, told) == (1, 0, [])
    partition.follow_image(both._replace(isr=(1,), partition_epoch=both.partition_epoch + 1))
    assert (partition.high_watermark, partition.log.high_watermark, told) == (1, 1, [ErrorCode.NONE])
    assert not partition.is_alone
    partition.follow_image(image)
    assert partition.is_alone


# -- reading


def read(partition: Partition, *, committed: bool, offset: int = 0) -> int:
    """How many bytes there are to read."""
    found = partition.read(offset, 1 << 20, committed=committed, at_least_one=True)
    return 0 if found is None else len(bytes(found.view()))


def test_readers_of_what_is_committed_stop_at_the_oldest_open_transaction(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    assert partition.last_stable_offset == 0
    broker.append("tide", b"plain")
    plain = read(partition, committed=True)
    assert (plain, partition.last_stable_offset) == (read(partition, committed=False), 1)
    broker.append_own("tide", in_transaction(b"open", producer_id=7))
    broker.append_own("tide", in_transaction(b"later", producer_id=8))
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 1)
    assert read(partition, committed=True) == plain < read(partition, committed=False)
    broker.append_own("tide", marker(7, commit=True))
    assert partition.last_stable_offset == 2
    broker.append_own("tide", marker(8, commit=False))
    assert partition.last_stable_offset == partition.high_watermark == 5
    broker.check()


def test_a_transaction_is_open_for_readers_until_its_marker_is_durable(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    broker.append_own("tide", in_transaction(b"x", producer_id=7))
    broker.hold_syncs()
    broker.append_own("tide", marker(7, commit=True))
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    broker.let_sync()
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


def test_a_transaction_that_nobody_may_read_yet_holds_nobody_up(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    broker.append("tide", b"plain")
    broker.hold_syncs()
    broker.append_own("tide", in_transaction(b"x", producer_id=7))
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 1)


def test_of_a_transaction_whose_beginning_was_deleted_the_rest_counts(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    for sequence in range(3):
        broker.append_own("tide", in_transaction(b"x", producer_id=7, sequence=sequence))
    assert partition.last_stable_offset == 0
    broker.delete_records("tide", 2)
    assert (partition.last_stable_offset, partition.high_watermark) == (2, 3)


def test_after_a_restart_open_transactions_hold_readers_up_and_ended_ones_do_not(broker: SimBroker) -> None:
    broker.append_own("tide", in_transaction(b"x", producer_id=7))
    broker.append_own("tide", marker(7, commit=True))
    broker.append_own("tide", in_transaction(b"y", producer_id=8))
    broker.wait(broker.broker.stop())
    partition = (broker := SimBroker(disk=broker.kill())).partition("tide")
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 2)
    broker.append_own("tide", marker(8, commit=True))
    assert partition.last_stable_offset == 4
