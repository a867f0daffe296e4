"""Idempotent producers that send a batch again right after a restart: they are told the offset of the original."""

from typing import Any

import pytest

from tests.apis.sim_broker import NOW_MS, SimBroker, batch, produce_fields
from tests.batches import Producer
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey


def sent(sequence: int) -> bytes:
    return batch(b"%d" % sequence, producer=Producer(7, 0, sequence))


def told(asked: Any) -> list[tuple[int, int]]:
    return [(one.error_code, one.base_offset) for one in asked.response.responses[0].partition_responses]


@pytest.fixture(params=[True, False], ids=["fast", "general"])
def restarted(request: pytest.FixtureRequest) -> SimBroker:
    """After ten batches of a producer and a clean stop; the log is open, its producers' windows weren't read."""
    broker = SimBroker()
    broker.make_topic("tide", 2)
    for partition in (0, 1):
        for sequence in range(10):
            broker.ask(ApiKey.PRODUCE, 9, produce_fields("tide", sent(sequence), partition=partition))
    broker.wait(broker.broker.stop())
    broker = SimBroker(disk=broker.kill(), fast=request.param)
    broker.open(("tide", 0), ("tide", 1))
    return broker


@pytest.mark.parametrize("sequence", range(5, 10))
def test_any_of_its_last_five_batches_gets_its_first_offset(restarted: SimBroker, sequence: int) -> None:
    asked = restarted.send(ApiKey.PRODUCE, 9, produce_fields("tide", sent(sequence)))
    restarted.settle()
    assert told(asked) == [(0, sequence)]
    assert restarted.partition("tide").log.log_end == 10


def test_the_last_one_and_the_next_one_need_no_look_at_the_log(restarted: SimBroker) -> None:
    restarted.hold_syncs()
    for sequence in (9, 10):
        asked = restarted.send(ApiKey.PRODUCE, 9, produce_fields("tide", sent(sequence), acks=1))
        assert told(asked) == [(0, sequence)]


def test_an_older_one_waits_off_the_loop_and_what_is_behind_it_on_its_connection_too(restarted: SimBroker) -> None:
    restarted.hold_syncs()
    data = [{"index": 0, "records": batch(b"plain")}, {"index": 1, "records": sent(6)}]
    fields = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "tide", "partition_data": data}]}
    asked = restarted.send(ApiKey.PRODUCE, 9, fields)
    restarted.pass_time(1)
    assert not asked.done
    assert not asked.late.runs_ahead
    assert restarted.partition("tide").log.log_end == 10, "nothing of the request is done yet"
    restarted.let_sync()
    assert told(asked) == [(0, 10), (0, 6)]


def test_one_that_is_older_than_its_last_five_is_out_of_order(restarted: SimBroker) -> None:
    asked = restarted.send(ApiKey.PRODUCE, 9, produce_fields("tide", sent(4)))
    restarted.settle()
    assert told(asked) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


def test_several_that_were_in_flight_are_all_known_and_in_order(restarted: SimBroker) -> None:
    restarted.hold_syncs()
    asked = [
        restarted.send(ApiKey.PRODUCE, 9, produce_fields("tide", sent(sequence), acks=1)) for sequence in range(5, 8)
    ]
    restarted.pass_time(1)
    assert not any(one.done for one in asked)
    restarted.let_sync()
    assert [told(one) for one in asked] == [[(0, sequence)] for sequence in range(5, 8)]


def test_where_the_files_went_meanwhile_the_client_is_told_that_it_is_there(restarted: SimBroker) -> None:
    restarted.hold_syncs()
    asked = restarted.send(ApiKey.PRODUCE, 9, produce_fields("tide", sent(6), acks=1))
    log = restarted.partition("tide").log
    restarted.disk.rename(log.segments[0].stem + ".log", log.segments[0].stem + ".gone")
    restarted.let_sync()
    assert told(asked) == [(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)]


@pytest.mark.parametrize("meanwhile", ["a while", "stop", "kill", "stop twice"])
@pytest.mark.parametrize("age_days", [0, 400])
def test_a_producer_of_old_records_is_remembered_for_as_long_as_any_other(meanwhile: str, age_days: int) -> None:
    """Whoever copies last year's records sends timestamps that say nothing about when the producer was last there."""
    settings = {"log.retention.ms": "-1", "producer.id.expiration.ms": "3000000"}
    broker = SimBroker(settings)
    broker.make_topic("tide")

    def send(sequence: int) -> tuple[int, int]:
        at_ms = NOW_MS - age_days * 24 * 3600 * 1000
        records = batch(b"%d" % sequence, at_ms=at_ms, producer=Producer(70, 0, sequence))
        answer = broker.ask(ApiKey.PRODUCE, 9, produce_fields("tide", records)).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    assert [send(sequence) for sequence in range(3)] == [(0, 0), (0, 1), (0, 2)]
    if meanwhile == "a while":
        broker.pass_time(1200.0)
    for _ in range({"a while": 0, "stop twice": 2}.get(meanwhile, 1)):
        if meanwhile != "kill":
            broker.wait(broker.broker.stop())
        broker = SimBroker(settings, disk=broker.kill())
        broker.pass_time(1200.0)
    assert send(2) == (0, 2)
    broker.pass_time(3 * 1200.0)
    assert broker.partition("tide").log.producers.get(70) is None
