"""Produce requests that name so many partitions that they are handled part by part: told as if at once."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.apis.sim_broker import Asked, SimBroker, batch, in_transaction
from tests.apis.txn import SECOND, Txn
from tests.batches import Producer
from tidelog.apis.produce import PARTITIONS_AT_ONCE, takes_long
from tidelog.apis.shared.produce_parts import PARTITIONS_A_PART
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

MANY = PARTITIONS_AT_ONCE + 3 * PARTITIONS_A_PART + 5


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide", MANY)
    made.make_topic("other", 2)
    return made


def send(
    broker: SimBroker,
    topics: Mapping[str, Mapping[int, bytes | None]],
    *,
    acks: int = -1,
    version: int = 9,
    transactional_id: str | None = None,
) -> Asked:
    data = [
        {"name": name, "partition_data": [{"index": index, "records": records} for index, records in parts.items()]}
        for name, parts in topics.items()
    ]
    fields = {"acks": acks, "timeout_ms": 30_000, "topic_data": data, "transactional_id": transactional_id}
    return broker.send(ApiKey.PRODUCE, version, fields)


def told(asked: Asked) -> list[tuple[str, int, int, int]]:
    return [
        (topic.name, one.index, one.error_code, one.base_offset)
        for topic in asked.response.responses
        for one in topic.partition_responses
    ]


def test_each_partition_is_told_in_the_order_of_the_request_what_became_of_it(broker: SimBroker) -> None:
    many: dict[int, bytes | None] = {index: batch(b"%d" % index) for index in reversed(range(MANY))}
    many[7], many[MANY + 9] = b"no batch", batch(b"nowhere")
    asked = send(broker, {"tide": many, "nobody's": {0: batch(b"x")}, "other": {1: batch(b"y"), 0: None}})
    assert not asked.late.runs_ahead
    broker.pass_time(5)
    expected = [("tide", index, 0, 0) for index in reversed(range(MANY))]
    expected[MANY - 1 - 7] = ("tide", 7, ErrorCode.INVALID_RECORD, -1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    expected += [("tide", MANY + 9, unknown, -1), ("nobody's", 0, unknown, -1)]
    expected += [("other", 1, 0, 0), ("other", 0, ErrorCode.INVALID_RECORD, -1)]
    assert told(asked) == expected
    assert {broker.partition("tide", index).log.log_end for index in range(MANY) if index != 7} == {1}


def test_a_partition_that_is_named_twice_is_written_twice_in_order(broker: SimBroker) -> None:
    first = {index: batch(b"%d" % index) for index in range(MANY)}
    fields = [
        {"name": "tide", "partition_data": [{"index": index, "records": records} for index, records in first.items()]},
        {"name": "tide", "partition_data": [{"index": 0, "records": batch(b"again")}]},
    ]
    asked = broker.send(ApiKey.PRODUCE, 9, {"acks": 1, "timeout_ms": 1000, "topic_data": fields})
    broker.pass_time(5)
    assert told(asked)[0] == ("tide", 0, 0, 0)
    assert told(asked)[-1] == ("tide", 0, 0, 1)


def test_it_is_answered_when_all_are_durable(broker: SimBroker) -> None:
    send(broker, {"tide": {index: batch(b"first") for index in range(MANY)}})
    broker.pass_time(5)
    broker.hold_syncs()
    asked = send(broker, {"tide": {index: batch(b"x") for index in range(MANY)}})
    broker.pass_time(5)
    assert {broker.partition("tide", index).log.log_end for index in range(MANY)} == {2}
    assert not asked.done
    broker.let_sync()
    broker.pass_time(5)
    assert {offset for _, _, _, offset in told(asked)} == {1}


def test_with_acks_0_nothing_is_answered_and_an_error_closes_the_connection_when_all_were_tried(
    broker: SimBroker,
) -> None:
    asked = send(broker, {"tide": {index: batch(b"x") for index in range(MANY)}}, acks=0)
    broker.pass_time(5)
    assert (asked.done, asked.frame, asked.closed) == (True, None, None)
    wrong: dict[int, bytes | None] = {index: batch(b"x") for index in range(MANY)}
    wrong[3] = b"no batch"
    asked = send(broker, {"tide": wrong}, acks=0)
    broker.pass_time(5)
    assert "tide-3" in (asked.closed or "")
    assert {broker.partition("tide", index).log.log_end for index in range(MANY) if index != 3} == {2}


@pytest.mark.parametrize(
    ("acks", "last", "transactional_id", "code"),
    [
        (2, batch(b"x"), None, ErrorCode.INVALID_REQUIRED_ACKS),
        (1, in_transaction(b"x", producer_id=7), None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (1, in_transaction(b"x", producer_id=7), "cargo", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_is_wrong_with_all_of_it_is_found_before_anything_is_written(
    broker: SimBroker, acks: int, last: bytes, transactional_id: str | None, code: ErrorCode
) -> None:
    first = batch(b"x") if transactional_id is None else in_transaction(b"x", producer_id=8)
    many = dict.fromkeys(range(MANY - 1), first)
    asked = send(broker, {"tide": {**many, MANY - 1: last}}, acks=acks, transactional_id=transactional_id)
    broker.pass_time(5)
    assert {one[2] for one in told(asked)} == {code}
    assert {broker.partition("tide", index).log.log_end for index in range(MANY)} == {0}


@pytest.mark.parametrize("count", [2, MANY])
@pytest.mark.parametrize("acks", [1, 2])
def test_what_is_wrong_with_all_of_it_is_told_in_words(broker: SimBroker, count: int, acks: int) -> None:
    sent = {index: in_transaction(b"x", producer_id=7 + index % 2) for index in range(count)}
    for transactional_id in (None, "cargo"):
        asked = send(broker, {"tide": dict(sent)}, version=12, acks=acks, transactional_id=transactional_id)
        broker.pass_time(5)
        answers = [part for topic in asked.response.responses for part in topic.partition_responses]
        assert len(answers) == count
        assert all(part.error_code and part.error_message for part in answers)


def test_idempotent_batches_of_two_large_requests_come_in_order(broker: SimBroker) -> None:
    for sequence in range(2):
        sent = batch(b"x", producer=Producer(7, 0, sequence))
        asked = send(broker, {"tide": dict.fromkeys(range(MANY), sent)})
        broker.pass_time(5)
        assert {one[2:] for one in told(asked)} == {(0, sequence)}


def test_a_transaction_that_joins_many_partitions_by_writing_to_them() -> None:
    broker = SimBroker({"transaction.state.log.num.partitions": "1"})
    broker.make_topic("tide", MANY)
    broker.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["cargo"]})
    fields = {"transactional_id": "cargo", "transaction_timeout_ms": 10_000}
    producer = broker.ask(ApiKey.INIT_PRODUCER_ID, 4, fields)
    assert producer.error_code == 0
    sent = in_transaction(b"x", producer_id=producer.producer_id)
    asked = send(broker, {"tide": dict.fromkeys(range(MANY), sent)}, version=12, transactional_id="cargo")
    broker.pass_time(10)
    assert {one[2:] for one in told(asked)} == {(0, 0)}
    ended = {"transactional_id": "cargo", "producer_id": producer.producer_id, "producer_epoch": 0, "committed": True}
    assert broker.ask(ApiKey.END_TXN, 5, ended).error_code == 0
    broker.pass_time(10)
    assert {broker.partition("tide", index).last_stable_offset for index in range(MANY)} == {2}


def test_small_requests_that_name_much_are_handled_in_parts_too(broker: SimBroker) -> None:
    """Such that fit into a buffer that isn't theirs."""
    asked = send(broker, {"tide": dict.fromkeys(range(PARTITIONS_AT_ONCE + 1))})
    broker.pass_time(5)
    assert {one[2] for one in told(asked)} == {ErrorCode.INVALID_RECORD}


def test_few_partitions_do_not_take_long(broker: SimBroker) -> None:
    def request(count: int) -> Any:
        from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

        parts = [PartitionProduceData(index=index) for index in range(count)]
        return ProduceRequest(topic_data=[TopicProduceData(name="tide", partition_data=parts)])

    assert not takes_long(request(PARTITIONS_AT_ONCE))
    assert takes_long(request(PARTITIONS_AT_ONCE + 1))


@pytest.mark.parametrize("epoch", [0, 7])
def test_without_acks_an_error_of_a_part_that_had_to_wait_closes_the_connection_too(
    broker: SimBroker, epoch: int
) -> None:
    txn = Txn(broker, "bank", versions=SECOND)
    assert txn.init() == 0
    many = {index: txn.batch(b"x", sequence=0, epoch=epoch) for index in range(MANY)}
    asked = send(broker, {"tide": many}, acks=0, version=12, transactional_id="bank")
    broker.pass_time(5)
    assert (asked.done, asked.closed is not None, asked.frame) == (True, epoch != txn.epoch, None)
    assert broker.partition("tide").log.log_end == (1 if epoch == txn.epoch else 0)
