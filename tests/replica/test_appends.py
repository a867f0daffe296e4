"""A partition that is written to: what it takes, what it asks the group commit for, and who waits for whom."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.apis.sim_broker import NOW_MS, SimBroker, batch, in_transaction, marker
from tests.batches import Producer
from tidelog.log.bounds import BEGUN_AT_ONCE_MAX
from tidelog.metadata.image import PartitionImage
from tidelog.replica.partition import Partition
from tidelog.replica.resends import KEPT_MS
from tidelog.wire.errors import ErrorCode, KafkaError

OS = {"tidelog.durability": "os"}


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide")
    made.make_topic("swift", configs=OS)
    return made


class Requests:
    """A group commit that only notes what is asked of it."""

    def __init__(self) -> None:
        self.logs: list[Any] = []

    def request(self, log: Any) -> None:
        self.logs.append(log)


def again(partition: Partition, image: PartitionImage | None = None) -> tuple[Partition, Requests]:
    """The partition as one that finds its log there, and whose syncs never come."""
    commit = Requests()
    made = Partition(
        partition.topic,
        partition.topic_id,
        partition.index,
        image or partition.image,
        partition.log,
        node_id=1,
        commit=commit,
        wake_later=lambda _: None,
    )
    return made, commit


def elsewhere(image: PartitionImage) -> PartitionImage:
    return image._replace(leader=2, leader_epoch=image.leader_epoch + 1, partition_epoch=image.partition_epoch + 1)


def put(partition: Partition, data: bytes, acks: int = 1, *, now_ms: int = NOW_MS) -> int:
    """The base offset."""
    view = memoryview(bytearray(b"before" + data + b"behind"))
    return partition.append(view, 6, 6 + len(data), acks, now_ms)[0]


def sent(sequence: int, *, epoch: int = 0) -> bytes:
    return batch(b"%d" % sequence, producer=Producer(7, epoch, sequence))


def own(offset: int, value: bytes = b"own", *, epoch: int = 0) -> memoryview:
    """A batch as coordinators write it: its offset and epoch are set."""
    return memoryview(bytearray(batch(value, base_offset=offset, leader_epoch=epoch)))


def put_together(partition: Partition, *batches: bytes, acks: int = -1) -> list[int]:
    """Their base offsets, and the log's end behind them."""
    spans = [(sum(map(len, batches[:at])), sum(map(len, batches[: at + 1]))) for at in range(len(batches))]
    return partition.append_together(memoryview(bytearray(b"".join(batches))), spans, acks, NOW_MS)


def refused(act: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        act()
    return error.value.code


def test_a_log_that_is_found_counts_as_far_as_it_is_durable_and_the_rest_is_asked_for(broker: SimBroker) -> None:
    broker.append("tide", b"x")
    partition, commit = again(broker.partition("tide"))
    assert (partition.high_watermark, partition.log.high_watermark, partition.catching_up) == (1, 1, False)
    assert commit.logs == []
    broker.hold_syncs()
    put(partition, batch(b"y"))
    partition, commit = again(partition)
    assert (partition.high_watermark, partition.log.high_watermark, partition.catching_up) == (1, 1, True)
    assert commit.logs == [partition.log]


def test_a_transaction_that_ended_in_a_log_that_is_found_holds_nobody_up(broker: SimBroker) -> None:
    first = broker.partition("tide")
    image = first.image
    first.follow_image(image._replace(isr=(1, 2), replicas=(1, 2)))
    broker.append_own("tide", in_transaction(b"x", producer_id=7))
    broker.append_own("tide", marker(7, commit=True))
    assert (first.high_watermark, first.last_stable_offset) == (0, 0)
    partition, _ = again(first, image)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


def test_a_log_that_nobody_has_written_to_has_nothing_to_remember(broker: SimBroker) -> None:
    data = memoryview(bytearray(sent(4)))
    assert broker.partition("tide").remember(data, 0, len(data)) is None


def test_a_log_that_is_found_begins_an_epoch_where_this_broker_leads(broker: SimBroker) -> None:
    first = broker.partition("tide")
    broker.append("tide", b"x")
    before = first.log.epochs.entries()
    followed, _ = again(first, elsewhere(first.image))
    assert followed.log.epochs.entries() == before
    led, _ = again(first, first.image._replace(leader_epoch=5))
    assert led.log.epochs.entries() == [*before, (5, 1)]


def test_an_append_tells_where_it_is_and_asks_for_a_sync(broker: SimBroker) -> None:
    partition, commit = again(broker.partition("tide"))
    data = memoryview(bytearray(batch(b"x", b"y")))
    assert partition.append(data, 0, len(data), 1, NOW_MS) == (0, 2, -1)
    assert commit.logs == [partition.log]
    assert partition.high_watermark == 0


def test_what_needs_no_sync_asks_for_none_and_counts_at_once(broker: SimBroker) -> None:
    partition, commit = again(broker.partition("swift"))
    put(partition, batch(b"x"), acks=-1)
    assert partition.high_watermark == 1
    partition.append_own(own(1), 0, NOW_MS)
    assert commit.logs == []
    assert (partition.high_watermark, partition.log.high_watermark) == (2, 2)


def test_who_leads_elsewhere_or_has_no_disk_takes_nothing(broker: SimBroker) -> None:
    partition = broker.partition("swift")
    put(partition, batch(b"x"))
    image = partition.image
    partition.follow_image(elsewhere(image))
    assert not partition.is_served
    assert refused(lambda: put(partition, batch(b"y"))) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.follow_image(image._replace(leader_epoch=image.leader_epoch + 2))
    assert partition.is_served
    partition.check_leader()
    partition.log.go_offline("a test")
    assert not partition.is_served
    assert refused(partition.check_leader) == ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(lambda: put(partition, batch(b"y"))) == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.log.log_end == 1


def test_several_are_taken_at_once_where_each_would_be(broker: SimBroker) -> None:
    partition, commit = again(broker.partition("tide"))
    assert put_together(partition, batch(b"x"), batch(b"y")) == [0], "the first one of a log makes its files"
    put(partition, batch(b"x"))
    commit.logs.clear()
    damaged = batch(b"y")[:-1] + b"?"
    assert put_together(partition, damaged, batch(b"z")) == [1]
    assert commit.logs == [], "nothing was appended"
    assert put_together(partition, batch(b"y"), damaged, batch(b"z")) == [1, 2]
    assert put_together(partition, batch(b"z"), batch(b"!", b"!")) == [2, 3, 5]
    assert commit.logs == [partition.log] * 2


def test_several_are_left_to_be_refused_one_by_one(broker: SimBroker) -> None:
    broker.make_topic("twice", configs={**OS, "min.insync.replicas": "2"})
    partition = broker.partition("twice")
    image = partition.image
    put(partition, batch(b"x"))
    two = image._replace(isr=(1,), replicas=(1, 2), partition_epoch=image.partition_epoch + 1)
    partition.follow_image(two)
    assert put_together(partition, batch(b"y"), batch(b"z")) == [1], "fewer are in sync than acks=all asks for"
    assert put_together(partition, batch(b"y"), batch(b"z"), acks=1) == [1, 2, 3]
    partition.follow_image(elsewhere(two))
    assert put_together(partition, batch(b"y"), batch(b"z"), acks=1) == [3], "another broker leads"
    partition.follow_image(image._replace(leader_epoch=image.leader_epoch + 2))
    data = memoryview(bytearray(sent(0)))
    partition.expect_again(data, 0, len(data), NOW_MS)
    assert put_together(partition, batch(b"y"), batch(b"z"), acks=1) == [3], (
        "one is expected again, perhaps before them"
    )
    partition.log.go_offline("a test")
    assert put_together(partition, batch(b"y"), batch(b"z"), acks=1) == [3]


def test_a_log_that_is_offline_begins_no_epoch(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    broker.append("tide", b"x")
    before = partition.log.epochs.entries()
    partition.log.go_offline("a test")
    partition.follow_image(partition.image._replace(leader_epoch=1, partition_epoch=1))
    assert partition.leader_epoch == 1
    assert partition.log.epochs.entries() == before


def test_records_that_were_looked_at_before_are_not_looked_at_again(broker: SimBroker) -> None:
    broker.make_topic("keyed", configs={"cleanup.policy": "compact"})
    partition = broker.partition("keyed")
    data = memoryview(bytearray(batch(b"x")))
    error = KafkaError(ErrorCode.INVALID_RECORD)
    assert refused(lambda: partition.append(data, 0, len(data), 1, NOW_MS, error)) == ErrorCode.INVALID_RECORD
    assert partition.log.log_end == 0
    made = memoryview(bytearray(b"..." + batch(b"without a key", b"nor this")))
    assert refused(lambda: put(partition, bytes(made[3:]))) == ErrorCode.INVALID_RECORD
    admitted: Any = (made, 3, len(made), None)
    assert partition.append(data, 0, len(data), 1, NOW_MS, admitted)[:2] == (0, 2)


# -- batches that come again


def test_what_comes_behind_a_refused_batch_waits_for_it(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    image = partition.image
    partition.follow_image(elsewhere(image))
    assert refused(lambda: put(partition, sent(0))) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.follow_image(image._replace(leader_epoch=image.leader_epoch + 2))
    assert refused(lambda: put(partition, sent(1))) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert put(partition, batch(b"of nobody")) == 0
    assert put(partition, batch(producer=Producer(8, 0, 4))) == 1
    assert [put(partition, sent(sequence)) for sequence in (0, 1)] == [2, 3]


def test_it_is_not_waited_for_longer_than_any_client_has_it_on_its_way(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    data = memoryview(bytearray(sent(0)))
    partition.expect_again(data, 0, len(data), NOW_MS)
    assert refused(lambda: put(partition, sent(1), now_ms=NOW_MS + KEPT_MS - 1)) == (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert put(partition, sent(1), now_ms=NOW_MS + KEPT_MS) == 0


def test_what_several_were_refused_waits_for_the_first_of_them(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    for sequence in (3, 4):
        data = memoryview(bytearray(sent(sequence)))
        partition.expect_again(data, 0, len(data), NOW_MS)
    assert refused(lambda: put(partition, sent(4))) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [put(partition, sent(sequence)) for sequence in (3, 4)] == [0, 1]


def test_a_producer_that_the_log_knows_is_kept_in_order_by_the_log_alone(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    put(partition, sent(0))
    data = memoryview(bytearray(sent(1)))
    partition.expect_again(data, 0, len(data), NOW_MS)
    assert put(partition, sent(0)) == 0, "one that is there already is told so, whatever is waited for"
    data = memoryview(bytearray(sent(0, epoch=1)))
    partition.expect_again(data, 0, len(data), NOW_MS)
    assert refused(lambda: put(partition, sent(1, epoch=1))) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [put(partition, sent(sequence, epoch=1)) for sequence in (0, 1)] == [1, 2]


def test_what_was_sent_before_is_told_its_offset_while_one_before_it_is_waited_for(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    for sequence in range(3):
        put(partition, sent(sequence))
    data = memoryview(bytearray(sent(1)))
    partition.expect_again(data, 0, len(data), NOW_MS)
    assert put(partition, sent(2)) == 2


def test_who_was_waited_for_and_came_is_not_waited_for_again() -> None:
    broker = SimBroker({"producer.id.expiration.ms": "1000"})
    broker.make_topic("tide")
    partition = broker.partition("tide")
    data = memoryview(bytearray(sent(0)))
    partition.expect_again(data, 0, len(data), NOW_MS)
    assert put(partition, sent(0)) == 0
    partition.log.expire_producers(NOW_MS + 2000)
    assert put(partition, sent(5), now_ms=NOW_MS + 2000) == 1, "nothing is known of it any more"


def test_a_batch_that_does_not_come_again_is_not_waited_for(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    view = memoryview(bytearray(sent(0)))
    error = KafkaError(ErrorCode.INVALID_RECORD)
    assert refused(lambda: partition.append(view, 0, len(view), 1, NOW_MS, error)) == ErrorCode.INVALID_RECORD
    assert put(partition, sent(1)) == 0


def test_a_batch_of_before_the_restart_is_looked_for_where_memory_does_not_have_it() -> None:
    broker = SimBroker()
    broker.make_topic("tide")
    for sequence in range(7):
        put(broker.partition("tide"), sent(sequence))
    broker.settle()
    broker.wait(broker.broker.stop())
    broker = SimBroker(disk=broker.kill())
    partition = broker.partition("tide")

    def remember(data: bytes) -> Any:
        return partition.remember(memoryview(bytearray(b"." + data)), 1, 1 + len(data))

    assert [remember(data) for data in (sent(6), sent(7), batch(b"of nobody"))] == [None] * 3
    assert partition.last_stable_offset == 7
    looking = remember(sent(4))
    assert looking is not None
    broker.wait(looking)
    assert remember(sent(4)) is None
    assert put(partition, sent(4)) == 4


def test_a_log_is_made_ready_off_the_loop_before_its_first_write_only_and_only_by_its_leader(broker: SimBroker) -> None:
    broker.make_topic("wide", BEGUN_AT_ONCE_MAX)
    for index in range(BEGUN_AT_ONCE_MAX):  # so many make their files themselves
        assert broker.partition("wide", index).begin() is None
    partition = broker.partition("tide")
    image = partition.image
    partition.follow_image(elsewhere(image))
    assert partition.begin() is None
    partition.follow_image(image._replace(leader_epoch=image.leader_epoch + 2))
    begun = partition.begin()
    assert begun is not None
    broker.wait(begun)
    put(partition, batch(b"x"))
    assert partition.begin() is None


# -- the broker's own


def test_the_brokers_own_batches_are_written_in_its_epoch_only(broker: SimBroker) -> None:
    partition, commit = again(broker.partition("tide"))
    assert partition.append_own(own(0), 0, NOW_MS) == 1
    assert commit.logs == [partition.log]
    assert refused(lambda: partition.append_own(own(1, epoch=1), 1, NOW_MS)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.follow_image(elsewhere(partition.image))
    assert refused(lambda: partition.append_own(own(1), 0, NOW_MS)) == ErrorCode.FENCED_LEADER_EPOCH
    assert refused(lambda: partition.append_own(own(1), 1, NOW_MS)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end == 1


def test_the_brokers_own_batches_have_the_topics_bounds() -> None:
    broker = SimBroker()
    most = len(own(0, b"v" * 100))
    broker.make_topic("two", configs={"min.insync.replicas": "2", "max.message.bytes": str(most)})
    partition = broker.partition("two")
    assert partition.append_own(own(0, b"v" * 100), 0, NOW_MS) == 1
    broker.settle()
    assert refused(lambda: partition.append_own(own(1, b"v" * 101), 0, NOW_MS)) == ErrorCode.MESSAGE_TOO_LARGE
    partition.follow_image(partition.image._replace(replicas=(1, 2)))
    assert refused(lambda: partition.append_own(own(1), 0, NOW_MS)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused(lambda: put(partition, batch(b"x"), acks=-1)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end == 1
    put(partition, batch(b"x"), acks=1)
    broker.settle()
    assert (partition.log.durable_end, partition.high_watermark) == (2, 1)
