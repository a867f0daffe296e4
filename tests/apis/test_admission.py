"""Batches that are looked into aside before they are appended: in order, judged when they are appended, bounded."""

from collections import deque
from typing import Any

import pytest

from tests.apis.sim_broker import Asked, SimBroker, batch, produce_fields
from tests.apis.test_pipelined_transactions import CLASSIC, JOINS, Pipe, begun
from tests.apis.txn import read_all, read_committed
from tests.batches import GZIP, Producer
from tests.raw import build
from tidelog.env.child_processes import ChildProcessesError
from tidelog.env.promise import Promise
from tidelog.log import looks, record_check
from tidelog.log.looks import NONE_AT_ONCE, Looks
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.produce import ProduceRequest, ProduceResponse


class Beside:
    """Whoever looks aside, driven by hand: nothing is answered before `go_on`."""

    def __init__(self) -> None:
        self.asked: deque[tuple[bytearray, Promise[bytearray]]] = deque()

    def ask(self, module: str, question: bytearray) -> Promise[bytearray]:
        assert module == "tidelog.log.record_check"
        promise: Promise[bytearray] = Promise()
        self.asked.append((question, promise))
        return promise

    def start(self, *_: Any) -> Any:
        raise AssertionError("nothing is compacted here")

    def close(self) -> None: ...

    def go_on(self) -> None:
        """Answer all that was asked, in order."""
        while self.asked:
            question, promise = self.asked.popleft()
            promise.resolve(record_check.answer(question))

    def fail(self) -> None:
        self.asked.popleft()[1].fail(ChildProcessesError("it was killed"))


@pytest.fixture
def sim_broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("accounts", 3, {"tidelog.validate": "records"})
    made.services.store.looks.budget = NONE_AT_ONCE  # every batch is looked into aside
    return made


@pytest.fixture
def beside(sim_broker: SimBroker) -> Beside:
    made = Beside()
    sim_broker.services.store.looks = Looks(made, sim_broker.loop, sim_broker.timeline, NONE_AT_ONCE)
    return made


def codes(asked: Asked) -> list[int]:
    return [one.error_code for topic in asked.response.responses for one in topic.partition_responses]


def end(sim_broker: SimBroker, index: int = 0) -> int:
    return sim_broker.partition("accounts", index).log.log_end


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("versions", [CLASSIC, JOINS, {"produce": 13, "end": 5}], ids=["classic", "joins", "ids"])
def test_batches_in_one_write_are_taken_in_order(sim_broker: SimBroker, acks: int, versions: dict[str, int]) -> None:
    txn = begun(sim_broker, versions)
    pipe = Pipe(sim_broker, topic_id=sim_broker.partition("accounts").topic_id)
    if versions is CLASSIC:
        assert txn.add("accounts", 0) == 0
    for sequence in range(20):
        pipe.produce(txn, (0, sequence), acks=acks)
    assert pipe.wait(20) == [[0]] * 20
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"0:%d" % sequence for sequence in range(20)]


@pytest.mark.parametrize("version", [9, 12, 13])
def test_what_comes_behind_waits_until_it_is_looked_into(sim_broker: SimBroker, beside: Beside, version: int) -> None:
    pipe = Pipe(sim_broker, topic_id=sim_broker.partition("accounts").topic_id)
    for sequence in range(3):
        _produce_plainly(pipe, sequence, version)
    sim_broker.pass_time(1.0)
    assert len(beside.asked) == 1
    assert end(sim_broker) == 0
    beside.go_on()
    sim_broker.pass_time(1.0)
    assert (len(beside.asked), end(sim_broker)) == (1, 1)
    beside.go_on()
    sim_broker.pass_time(1.0)
    beside.go_on()
    assert pipe.wait(3) == [[0]] * 3
    assert read_all(sim_broker, "accounts") == [b"0", b"1", b"2"]


def _produce_plainly(pipe: Pipe, sequence: int, version: int) -> None:
    made = batch(b"%d" % sequence, producer=Producer(4000, 0, sequence))
    fields = produce_fields("accounts", made, timeout_ms=60_000)
    if version >= 13:
        fields["topic_data"][0] = {"topic_id": pipe.topic_id, "partition_data": [{"index": 0, "records": made}]}
    pipe.connection.ask(build(ProduceRequest, fields), ProduceResponse, ApiKey.PRODUCE, version, pipe.answered, 60.0)


def test_a_transaction_that_ended_during_the_look_gets_nothing_more(sim_broker: SimBroker, beside: Beside) -> None:
    """Its client gave up on the batch and aborted, in the same epoch: whether it is part of a transaction is asked
    after the look, or it would hang in the log."""
    txn = begun(sim_broker, CLASSIC)
    assert txn.add("accounts", 0) == 0
    fields = txn.produce_fields("accounts", txn.batch(b"late", sequence=0))
    asked = sim_broker.send(ApiKey.PRODUCE, 9, fields)
    assert len(beside.asked) == 1
    assert txn.abort() == 0
    beside.go_on()
    sim_broker.settle()
    assert codes(asked) == [ErrorCode.INVALID_TXN_STATE]
    partition = sim_broker.partition("accounts")
    assert partition.last_stable_offset == partition.high_watermark == partition.log.log_end


def test_the_partitions_of_a_request_are_appended_when_the_last_one_is_looked_into(
    sim_broker: SimBroker, beside: Beside
) -> None:
    parts = [{"index": index, "records": batch(b"%d" % index, codec=GZIP * (index == 1))} for index in range(3)]
    fields = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "accounts", "partition_data": parts}]}
    asked = sim_broker.send(ApiKey.PRODUCE, 9, fields)
    assert len(beside.asked) == 3
    assert not asked.done
    beside.go_on()
    assert codes(asked) == [0, 0, 0]
    sim_broker.pass_time(1.0)
    assert [read_all(sim_broker, "accounts", index) for index in range(3)] == [[b"0"], [b"1"], [b"2"]]


def test_a_topic_deleted_during_the_look_is_told(sim_broker: SimBroker, beside: Beside) -> None:
    asked = sim_broker.send(ApiKey.PRODUCE, 9, produce_fields("accounts", batch(b"a")))
    sim_broker.delete_topic("accounts")
    beside.go_on()
    assert codes(asked) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_where_nobody_can_look_the_client_tries_again_in_order(sim_broker: SimBroker, beside: Beside) -> None:
    """What it sent behind it must not come before it, though the log doesn't know the producer."""

    def send(sequence: int) -> Asked:
        made = batch(b"%d" % sequence, producer=Producer(4000, 0, sequence))
        return sim_broker.send(ApiKey.PRODUCE, 9, produce_fields("accounts", made))

    first = send(0)
    beside.fail()
    assert codes(first) == [ErrorCode.REQUEST_TIMED_OUT]
    second = send(1)
    beside.go_on()
    assert codes(second) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    for sequence in (0, 1):
        again = send(sequence)
        beside.go_on()
        sim_broker.settle()
        assert codes(again) == [0]


def test_a_refused_batch_that_asks_for_no_answer_ends_the_connection(sim_broker: SimBroker, beside: Beside) -> None:
    broken = batch(b"a", count=2, last_offset_delta=1)
    asked = sim_broker.send(ApiKey.PRODUCE, 9, produce_fields("accounts", broken, acks=0))
    assert not asked.done
    beside.go_on()
    assert asked.closed is not None
    assert "INVALID_RECORD" in asked.closed


def test_batches_that_wait_for_a_look_are_bounded(
    sim_broker: SimBroker, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = len(batch(bytes(1000)))
    monkeypatch.setattr(looks, "WAITING_BYTES_MAX", 3 * (one + 300))
    asked = [
        sim_broker.send(ApiKey.PRODUCE, 9, produce_fields("accounts", batch(bytes(1000)), acks=1)) for _ in range(5)
    ]
    assert [each.done for each in asked] == [False, False, False, True, True]
    assert codes(asked[3]) == [ErrorCode.REQUEST_TIMED_OUT]
    beside.go_on()
    assert [codes(each) for each in asked[:3]] == [[0]] * 3
    assert sim_broker.services.store.looks.waiting_bytes == 0
    again = sim_broker.send(ApiKey.PRODUCE, 9, produce_fields("accounts", batch(bytes(1000)), acks=1))
    beside.go_on()
    assert codes(again) == [0]


def test_the_time_of_the_append_is_that_of_the_append(sim_broker: SimBroker, beside: Beside) -> None:
    sim_broker.make_topic("dated", 1, {"tidelog.validate": "records", "message.timestamp.type": "LogAppendTime"})
    asked = sim_broker.send(ApiKey.PRODUCE, 9, produce_fields("dated", batch(b"a"), acks=1))
    sim_broker.pass_time(5.0)
    now_ms = sim_broker.services.env.clock.now_ms()
    beside.go_on()
    assert asked.response.responses[0].partition_responses[0].log_append_time_ms == now_ms
    assert sim_broker.partition("dated").log.segments[0].max_timestamp == now_ms


def test_settings_that_changed_during_the_look_hold_for_the_next_batch(sim_broker: SimBroker, beside: Beside) -> None:
    asked = sim_broker.send(ApiKey.PRODUCE, 9, produce_fields("accounts", batch(b"a"), acks=1))
    resource = {
        "resource_type": 2,
        "resource_name": "accounts",
        "configs": [{"name": "compression.type", "config_operation": 0, "value": "zstd"}],
    }
    sim_broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    beside.go_on()
    assert codes(asked) == [0]
    sim_broker.pass_time(1.0)
    assert read_all(sim_broker, "accounts") == [b"a"]


@pytest.mark.parametrize("producer", [None, Producer(4000, 0, 0)], ids=["plain", "idempotent"])
def test_a_setting_that_changes_during_the_look_has_the_client_try_again(
    sim_broker: SimBroker, beside: Beside, producer: Producer | None
) -> None:
    """What was no reason to look into a batch when it came is one when it is appended."""
    sim_broker.make_topic("plain")
    made = batch(b"1", producer=producer) if producer else batch(b"1")
    topics = [
        {"name": "accounts", "partition_data": [{"index": 0, "records": batch(b"0")}]},
        {"name": "plain", "partition_data": [{"index": 0, "records": made}]},
    ]
    asked = sim_broker.send(ApiKey.PRODUCE, 9, {"acks": 1, "timeout_ms": 1000, "topic_data": topics})
    change = {"name": "tidelog.validate", "config_operation": 0, "value": "records"}
    resources = [{"resource_type": 2, "resource_name": "plain", "configs": [change]}]
    altered = sim_broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False})
    assert altered.responses[0].error_code == 0
    beside.go_on()
    sim_broker.settle()
    assert codes(asked) == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    again = sim_broker.send(ApiKey.PRODUCE, 9, {"acks": 1, "timeout_ms": 1000, "topic_data": topics[1:]})
    beside.go_on()
    sim_broker.settle()
    assert codes(again) == [0]
    assert read_all(sim_broker, "plain") == [b"1"]
