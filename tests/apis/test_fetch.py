"""Fetch: what comes back within which bounds, who is parked and what wakes them, epochs and transactions."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.apis.sim_broker import Asked, SimBroker, batch, in_transaction, marker, produce_fields
from tests.batches import batches
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.world.loop import SimLoop
from tidelog.sim.world.random import SimRandom
from tidelog.wire.bounds import ELEMENTS_A_STEP
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

PLENTY = 1 << 20
SIZE = len(batch(b"x"))
COMMITTED = 1


@pytest.fixture(params=["fast", "general"])
def broker(request: pytest.FixtureRequest) -> SimBroker:
    made = SimBroker(fast=request.param == "fast")
    made.make_topic("tide", 3)
    return made


def part(offset: int = 0, partition: int = 0, max_bytes: int = PLENTY, **more: Any) -> dict[str, Any]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes, **more}


def fetch(
    broker: SimBroker, *parts: dict[str, Any], version: int = 16, topic: str = "tide", wait_ms: int = 0, **more: Any
) -> Asked:
    """Hand over a fetch of one topic, by id where the version does so."""
    image = broker.services.metadata.image.topics.get(topic)
    topic_id = image.id if image else b"nobody's id....."
    topics = [{"topic": topic, "topic_id": topic_id, "partitions": list(parts or (part(),))}]
    fields = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": PLENTY, "topics": topics, **more}
    return broker.send(ApiKey.FETCH, version, fields)


def answered(asked: Asked) -> list[Any]:
    """The partitions of the answer."""
    return [partition for topic in asked.response.responses for partition in topic.partitions]


def bases(partition: Any) -> list[int]:
    """Base offsets of the whole batches."""
    return [found.base_offset for found in batches(bytes(partition.records))]


def sizes(asked: Asked) -> list[int]:
    return [len(partition.records) for partition in answered(asked)]


def fill(broker: SimBroker, count: int = 4, partition: int = 0) -> None:
    for _ in range(count):
        broker.append("tide", b"x", partition=partition)


# -- what comes back


def test_records_come_from_the_offset_on_with_the_ends_of_the_log(broker: SimBroker) -> None:
    fill(broker)
    broker.delete_records("tide", 1)
    found = answered(fetch(broker, part(2)))[0]
    assert (found.partition_index, found.error_code) == (0, 0)
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (4, 4, 1)
    assert (bases(found), found.aborted_transactions, found.preferred_read_replica) == ([2, 3], None, -1)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_is_answered(broker: SimBroker, version: int) -> None:
    fill(broker, 2)
    response = fetch(broker, version=version).response
    assert (response.error_code, response.session_id, response.throttle_time_ms) == (0, 0, 0)
    found = response.responses[0]
    assert found.topic == ("tide" if version < 13 else "")
    assert found.topic_id == (broker.partition("tide").topic_id if version >= 13 else bytes(16))
    assert bases(found.partitions[0]) == [0, 1]
    assert found.partitions[0].log_start_offset == (0 if version >= 5 else -1)


def test_an_offset_inside_a_batch_returns_that_batch(broker: SimBroker) -> None:
    broker.append("tide", b"a", b"b", b"c")
    broker.append("tide", b"d")
    assert bases(answered(fetch(broker, part(2)))[0]) == [0, 3]


def test_a_log_start_inside_a_batch_returns_that_batch(broker: SimBroker) -> None:
    broker.append("tide", b"a", b"b", b"c")
    broker.delete_records("tide", 1)
    assert bases(answered(fetch(broker, part(1)))[0]) == [0]
    assert answered(fetch(broker, part(0)))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("partition_max", "request_max"), [(1, PLENTY), (PLENTY, 1), (0, 0), (SIZE - 1, PLENTY)])
def test_the_first_batch_comes_even_above_the_bounds(broker: SimBroker, partition_max: int, request_max: int) -> None:
    fill(broker)
    asked = fetch(broker, part(max_bytes=partition_max), max_bytes=request_max)
    assert bases(answered(asked)[0]) == [0]


def test_what_does_not_fit_is_cut(broker: SimBroker) -> None:
    fill(broker)
    found = answered(fetch(broker, part(max_bytes=2 * SIZE + 10)))[0]
    assert (bases(found), len(found.records)) == ([0, 1], 2 * SIZE + 10)


def test_partitions_share_the_bytes_in_their_order(broker: SimBroker) -> None:
    for partition in range(3):
        fill(broker, 2, partition)
    parts = [part(partition=index) for index in (2, 0, 1)]
    assert sizes(fetch(broker, *parts, max_bytes=10 * SIZE)) == [2 * SIZE] * 3
    assert sizes(fetch(broker, *parts, max_bytes=3 * SIZE)) == [2 * SIZE, SIZE, 0]
    assert sizes(fetch(broker, *parts, max_bytes=2 * SIZE + 5)) == [2 * SIZE, 0, 0], "no half of a first batch"
    assert sizes(fetch(broker, *parts, max_bytes=1)) == [SIZE, 0, 0], "one batch above the bounds, not three"


def test_an_empty_partition_leaves_the_first_batch_to_the_next(broker: SimBroker) -> None:
    fill(broker, 2, partition=1)
    assert sizes(fetch(broker, part(), part(partition=1, max_bytes=1))) == [0, SIZE]


def test_the_brokers_own_bound_holds_too() -> None:
    broker = SimBroker({"fetch.max.bytes": "1024"})
    broker.make_topic("tide")
    broker.append("tide", b"x" * 700)
    broker.append("tide", b"x" * 700)
    assert sizes(fetch(broker)) == [1024]


def test_nothing_that_is_not_durable_is_shown(broker: SimBroker) -> None:
    fill(broker, 1)
    broker.hold_syncs()
    broker.send(ApiKey.PRODUCE, 9, produce_fields("tide", batch(), acks=1))
    found = answered(fetch(broker))[0]
    assert (bases(found), found.high_watermark) == ([0], 1)
    found = answered(fetch(broker, part(2)))[0]
    assert (found.error_code, bases(found)) == (0, []), "beyond the high watermark, but not out of range"
    assert answered(fetch(broker, part(3)))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    broker.let_sync()
    assert bases(answered(fetch(broker))[0]) == [0, 1]


# -- what is wrong


@pytest.mark.parametrize("offset", [-1, 5, 2**40])
def test_an_offset_outside_of_the_log_is_out_of_range(broker: SimBroker, offset: int) -> None:
    fill(broker)
    found = answered(fetch(broker, part(offset), wait_ms=1000))[0]
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("version", "code"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_an_unknown_topic_is_told_by_what_it_was_named_with(broker: SimBroker, version: int, code: ErrorCode) -> None:
    asked = fetch(broker, topic="nobody", version=version, wait_ms=1000)
    assert answered(asked)[0].error_code == code


@pytest.mark.parametrize("index", [3, -1])
def test_an_unknown_partition_is_told_beside_the_others(broker: SimBroker, index: int) -> None:
    fill(broker, 1)
    found = answered(fetch(broker, part(), part(partition=index), wait_ms=1000))
    assert [one.error_code for one in found] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, 0), (0, ErrorCode.FENCED_LEADER_EPOCH), (1, 0), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_the_leader_epoch_is_checked(broker: SimBroker, epoch: int, code: int) -> None:
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader_epoch=1))
    asked = fetch(broker, part(current_leader_epoch=epoch))
    found = answered(asked)[0]
    assert found.error_code == code
    hint = (found.current_leader.leader_id, found.current_leader.leader_epoch)
    endpoints = [(node.node_id, node.host, node.port) for node in asked.response.node_endpoints]
    fenced = code == ErrorCode.FENCED_LEADER_EPOCH
    assert (hint, endpoints) == (((1, 1), [(1, "localhost", 9092)]) if fenced else ((-1, -1), []))


@pytest.mark.parametrize("version", [4, 12, 15, 16, 18])
def test_who_asks_the_wrong_broker_is_told_the_right_one_from_version_16_on(broker: SimBroker, version: int) -> None:
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader=5, leader_epoch=3))
    asked = fetch(broker, version=version)
    found = answered(asked)[0]
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    hint = (found.current_leader.leader_id, found.current_leader.leader_epoch)
    assert hint == ((5, 3) if version >= 16 else (-1, -1))
    assert bool(asked.response.node_endpoints) == (version >= 16)


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_an_offline_log_is_a_storage_error_that_old_clients_are_spared(
    broker: SimBroker, version: int, code: ErrorCode
) -> None:
    broker.partition("tide").log.go_offline("a test")
    assert answered(fetch(broker, version=version))[0].error_code == code


def test_a_replica_that_is_none_is_refused(broker: SimBroker) -> None:
    fill(broker, 1)
    for replica_id in (1, 9):  # the leader itself is no follower
        asked = fetch(broker, version=12, replica_id=replica_id)
        assert answered(asked)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    forged = fetch(broker, version=16, replica_state={"replica_id": 9})
    assert answered(forged)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- diverging epochs


@pytest.mark.parametrize(
    ("last_epoch", "offset", "expected"),
    [
        (-1, 3, None),
        (0, 2, None),
        (0, 3, (0, 2)),  # epoch 0 ended at 2: what the client has from there on isn't ours
        (3, 4, None),
        (3, 5, (3, 4)),
        (1, 3, (0, 2)),  # no leader wrote in epoch 1
    ],
)
def test_a_log_that_parted_from_ours_is_told_where(
    broker: SimBroker, last_epoch: int, offset: int, expected: tuple[int, int] | None
) -> None:
    fill(broker, 2)
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader_epoch=3))
    fill(broker, 2)
    found = answered(fetch(broker, part(offset, last_fetched_epoch=last_epoch), wait_ms=0))[0]
    diverging = (found.diverging_epoch.epoch, found.diverging_epoch.end_offset)
    assert diverging == (expected or (-1, -1))
    assert found.error_code == 0
    if expected:
        assert not found.records


def test_an_epoch_that_the_log_never_had_is_out_of_range(broker: SimBroker) -> None:
    fill(broker, 2)
    found = answered(fetch(broker, part(1, last_fetched_epoch=7)))[0]
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- parked


def test_a_fetch_without_data_is_parked_until_its_time_is_over(broker: SimBroker) -> None:
    asked = fetch(broker, wait_ms=500)
    broker.pass_time(0.49)
    assert not asked.done
    broker.pass_time(0.02)
    assert (bases(answered(asked)[0]), answered(asked)[0].high_watermark) == ([], 0)
    assert_nobody_parked(broker)


def test_nobody_is_parked_for_longer_than_a_minute(broker: SimBroker) -> None:
    asked = fetch(broker, wait_ms=2**31 - 1)
    broker.pass_time(59)
    assert not asked.done
    broker.pass_time(2)
    assert bases(answered(asked)[0]) == []
    assert_nobody_parked(broker)


def test_what_a_look_at_many_partitions_made_is_let_go_of_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    freed = 0

    class Counted(PartitionData):
        def __del__(self) -> None:
            nonlocal freed
            freed += 1

    monkeypatch.setattr("tidelog.apis.fetch.reading.PartitionData", Counted)
    broker = SimBroker()
    broker.make_topic("tide")
    monkeypatch.setattr(broker.loop, "steps_a_slice", lambda: 4)
    asked = fetch(broker, *(part(partition=index) for index in range(5000)), version=12, wait_ms=60_000)
    freed_by_event = [0]

    def all_freed() -> bool:
        freed_by_event.append(freed - sum(freed_by_event))
        return freed == 5000

    assert broker.timeline.run_until(all_freed, broker.timeline.now + 30)
    assert not asked.done, "it waits for the one that is there"
    assert max(freed_by_event) <= 4 * ELEMENTS_A_STEP


def assert_nobody_parked(broker: SimBroker) -> None:
    assert [partition for partition in broker.services.replicas if partition.waiting_fetches] == []


def test_data_wakes_a_parked_fetch(broker: SimBroker) -> None:
    asked = fetch(broker, part(), part(partition=1), wait_ms=10_000)
    broker.hold_syncs()
    broker.send(ApiKey.PRODUCE, 9, produce_fields("tide", batch(), acks=1, partition=1))
    broker.settle()
    assert not asked.done, "what isn't durable is no data yet"
    broker.let_sync()
    assert [bases(found) for found in answered(asked)] == [[], [0]]
    assert_nobody_parked(broker)


def test_less_than_min_bytes_does_not_wake_it(broker: SimBroker) -> None:
    asked = fetch(broker, part(), part(partition=1), wait_ms=10_000, min_bytes=3 * SIZE)
    fill(broker, 1)
    fill(broker, 1, partition=1)
    assert not asked.done
    fill(broker, 1)
    broker.settle()
    assert [bases(found) for found in answered(asked)] == [[0, 1], [0]]


def test_when_its_time_is_over_it_gets_less_than_min_bytes(broker: SimBroker) -> None:
    fill(broker, 1)
    asked = fetch(broker, wait_ms=200, min_bytes=PLENTY)
    assert not asked.done
    broker.pass_time(0.3)
    assert bases(answered(asked)[0]) == [0]


def test_more_than_max_bytes_is_never_waited_for(broker: SimBroker) -> None:
    fill(broker, 3)
    assert fetch(broker, wait_ms=10_000, min_bytes=PLENTY, max_bytes=2 * SIZE).done


@pytest.mark.parametrize(("wait_ms", "min_bytes"), [(0, 1), (-5, 1), (10_000, 0), (10_000, -1)])
def test_who_does_not_want_to_wait_is_answered_at_once(broker: SimBroker, wait_ms: int, min_bytes: int) -> None:
    assert fetch(broker, wait_ms=wait_ms, min_bytes=min_bytes).done


def test_a_fetch_of_nothing_is_answered_at_once(broker: SimBroker) -> None:
    asked = broker.send(ApiKey.FETCH, 16, {"max_wait_ms": 10_000, "min_bytes": 1, "topics": []})
    assert asked.response.responses == []


def test_a_deleted_topic_wakes_who_is_parked_there(broker: SimBroker) -> None:
    asked = fetch(broker, wait_ms=10_000)
    by_name = fetch(broker, wait_ms=10_000, version=12)
    broker.delete_topic("tide")
    broker.settle()
    assert answered(asked)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert answered(by_name)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_log_that_goes_offline_wakes_who_is_parked_there(broker: SimBroker) -> None:
    asked = fetch(broker, part(), part(partition=1), wait_ms=10_000)
    broker.partition("tide", 1).log.go_offline("a test")
    broker.settle()
    assert [found.error_code for found in answered(asked)] == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    assert_nobody_parked(broker)


def test_a_new_leader_wakes_who_is_parked_there(broker: SimBroker) -> None:
    asked = fetch(broker, wait_ms=10_000)
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader=2, leader_epoch=1))
    broker.settle()
    found = answered(asked)[0]
    assert (found.error_code, found.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


def test_a_client_that_left_leaves_nothing_behind(broker: SimBroker) -> None:
    asked = fetch(broker, part(), part(partition=1), wait_ms=10_000)
    asked.late.abandon()
    assert_nobody_parked(broker)
    fill(broker, 1)
    broker.pass_time(20)
    assert not asked.done


def test_a_partition_that_is_named_twice_is_answered_once_as_it_was_named_last(broker: SimBroker) -> None:
    fill(broker, 2)
    asked = fetch(broker, part(0), part(partition=1), part(1), wait_ms=10_000)
    assert [(found.partition_index, bases(found)) for found in answered(asked)] == [(0, [1]), (1, [])]
    asked = fetch(broker, part(2), part(2), wait_ms=10_000)
    fill(broker, 1)
    broker.settle()
    assert [bases(found) for found in answered(asked)] == [[2]]
    assert_nobody_parked(broker)


def test_a_partition_that_is_named_by_the_hundred_thousand_closes_the_connection(broker: SimBroker) -> None:
    broker.make_topic("ebb")
    wanted = [FetchPartition(partition=0, partition_max_bytes=PLENTY)] * 16_000
    both = [FetchTopic(topic_id=broker.partition(name).topic_id, partitions=wanted) for name in ("tide", "ebb")]
    request = FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=both * 8)
    asked = broker.send_frame(request_header(ApiKey.FETCH, 16, 1, "tester") + encoder(FetchRequest, 16)(request))
    broker.pass_time(5)  # it is read in steps
    assert asked.outcome == (True, None, True), "it has more elements than a request may have"
    assert_nobody_parked(broker)


def test_many_parked_fetches_are_all_woken(broker: SimBroker) -> None:
    waiting = [fetch(broker, wait_ms=10_000) for _ in range(20)]
    fill(broker, 1)
    broker.settle()
    assert all(bases(answered(asked)[0]) == [0] for asked in waiting)


def test_when_the_broker_stops_parked_fetches_are_answered(broker: SimBroker) -> None:
    asked = fetch(broker, wait_ms=10_000)
    broker.broker.stop()  # the controller lets it go first
    broker.pass_time(1)
    assert asked.done


def test_a_client_that_disconnects_while_parked_is_noticed(broker: SimBroker) -> None:
    """Its patience may be endless; the sweep looks every five seconds."""
    client = ClientConnection("client", SimLoop(broker.timeline, SimRandom("c")), broker.network, lambda: None)
    wanted = FetchPartition(partition=0, partition_max_bytes=PLENTY)
    topics = [FetchTopic(topic="tide", partitions=[wanted])]
    request = FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, topics=topics)
    client.ask(request, FetchResponse, 1, 11, lambda _: None, timeout_s=1e6)
    broker.pass_time(1)
    partition = broker.partition("tide")
    assert partition.waiting_fetches == 1
    client.close()
    broker.pass_time(12)
    assert partition.waiting_fetches == 0
    assert broker.broker.connections == 0


# -- transactions


def in_order(broker: SimBroker, *steps: bytes) -> list[int]:
    return [broker.append_own("tide", step) for step in steps]


def aborted(partition: Any) -> Sequence[tuple[int, int]] | None:
    found = partition.aborted_transactions
    return None if found is None else [(one.producer_id, one.first_offset) for one in found]


def test_read_committed_stops_before_an_open_transaction(broker: SimBroker) -> None:
    fill(broker, 1)
    in_order(broker, in_transaction(b"a", producer_id=7))
    fill(broker, 1)
    found = answered(fetch(broker, isolation_level=COMMITTED))[0]
    assert (bases(found), found.high_watermark, found.last_stable_offset) == ([0], 3, 1)
    assert aborted(found) == []
    found = answered(fetch(broker))[0]
    assert (bases(found), found.last_stable_offset, aborted(found)) == ([0, 1, 2], 1, None)


def test_of_a_batch_that_is_larger_than_the_limit_no_aborted_transactions_are_told(broker: SimBroker) -> None:
    for partition in range(3):
        fill(broker, 1, partition)
    parts = [part(), part(partition=1, max_bytes=SIZE - 1), part(partition=2, max_bytes=0), part(1)]
    found = answered(fetch(broker, *parts[:3], isolation_level=COMMITTED))
    assert [(len(one.records), aborted(one)) for one in found] == [(SIZE, []), (0, None), (0, [])]
    found = answered(fetch(broker, *parts[1:], isolation_level=COMMITTED))
    assert [(len(one.records), aborted(one)) for one in found] == [(SIZE, []), (0, []), (0, [])]


def test_what_was_deleted_of_an_open_transaction_is_not_where_read_committed_stops(broker: SimBroker) -> None:
    """Else a consumer would be sent below the log's start, and from there back, until the transaction ends."""
    in_order(broker, in_transaction(b"a", producer_id=7))
    fill(broker, 3)
    broker.delete_records("tide", 2)
    for parts in ([part(2)], [part(2), part(partition=1)]):
        found = answered(fetch(broker, *parts, isolation_level=COMMITTED))[0]
        assert (found.error_code, bases(found), found.log_start_offset, found.last_stable_offset) == (0, [], 2, 2)
    topics = [{"name": "tide", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    latest = broker.ask(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "isolation_level": COMMITTED, "topics": topics})
    assert latest.topics[0].partitions[0].offset == 2


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_wakes_who_reads_committed(broker: SimBroker, commit: bool) -> None:
    in_order(broker, in_transaction(b"a", b"b", producer_id=7))
    fill(broker, 1)
    asked = fetch(broker, isolation_level=COMMITTED, wait_ms=10_000)
    fill(broker, 1)
    assert not asked.done, "the transaction is still open"
    in_order(broker, marker(7, commit=commit))
    broker.settle()
    found = answered(asked)[0]
    assert (bases(found), found.last_stable_offset) == ([0, 2, 3, 4], 5)
    assert aborted(found) == ([] if commit else [(7, 0)])


def test_the_aborted_list_names_those_whose_records_are_in_the_answer(broker: SimBroker) -> None:
    first, _, second, *_ = in_order(
        broker,
        in_transaction(b"a", producer_id=7),
        marker(7, commit=False),
        in_transaction(b"b", producer_id=8),
        in_transaction(b"c", producer_id=9),
        marker(9, commit=True),
        marker(8, commit=False),
    )
    assert (first, second) == (0, 2)
    assert aborted(answered(fetch(broker, isolation_level=COMMITTED))[0]) == [(7, 0), (8, 2)]
    found = answered(fetch(broker, part(2), isolation_level=COMMITTED))[0]
    assert aborted(found) == [(8, 2)]
    found = answered(fetch(broker, part(6), isolation_level=COMMITTED))[0]
    assert (found.error_code, aborted(found)) == (0, [])


@pytest.mark.parametrize("fast", [True, False])
def test_a_damaged_transaction_index_is_a_storage_error_for_who_needs_it(fast: bool) -> None:
    broker = SimBroker()
    broker.make_topic("tide", 2)
    in_order(broker, in_transaction(b"a", producer_id=7), marker(7, commit=False))
    broker.wait(broker.broker.stop())
    broker.disk.release_locks()
    path = "/data/tide-0/00000000000000000000.txnindex"
    broker.disk.write_whole(path, b"\0\x07" + broker.disk.read_whole(path)[2:])
    broker = SimBroker(disk=broker.disk, fast=fast)
    broker.open(("tide", 0))
    for parts in ([part()], [part(), part(partition=1)]):
        found = answered(fetch(broker, *parts, isolation_level=COMMITTED))[0]
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bases(answered(fetch(broker))[0]) == [0, 1], "who reads everything doesn't need it"


def test_a_marker_that_is_not_durable_yet_ends_nothing(broker: SimBroker) -> None:
    in_order(broker, in_transaction(b"a", producer_id=7))
    broker.hold_syncs()
    in_order(broker, marker(7, commit=False))
    found = answered(fetch(broker, isolation_level=COMMITTED))[0]
    assert (bases(found), found.high_watermark, found.last_stable_offset) == ([], 1, 0)
    broker.let_sync()
    found = answered(fetch(broker, isolation_level=COMMITTED))[0]
    assert (bases(found), found.last_stable_offset, aborted(found)) == ([0, 1], 2, [(7, 0)])
