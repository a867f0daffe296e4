"""The first use of partitions: after a stop, after kill -9, and of new ones. However many a request names, nobody else
waits for it: no turn of the loop is long, and none syncs."""

import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from tests.batches import Batch, Producer, Sent
from tests.nodes import wait_for
from tests.raw import Connection
from tests.served import Tidelog
from tests.turns import WatchedBroker
from tidelog.log.checkpoint_files import FALLEN
from tidelog.wire.keys import ApiKey

CRC_AT, ATTRIBUTES_AT, SEQUENCE_AT = 17, 21, 53
PRODUCER_ID = 5
TIMEOUT_MS = 60_000


def one_record(producer: Producer | None = None) -> bytes:
    return Batch([Sent(b"value")], **({} if producer is None else {"producer": producer})).encode()


def make_topic(client: Connection, partitions: int) -> None:
    topic = {"name": "tide", "num_partitions": partitions, "replication_factor": 1}
    answer = client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": TIMEOUT_MS})
    assert answer.topics[0].error_code == 0


def produce(client: Connection, records: bytes, partitions: Sequence[int], acks: int = -1) -> list[int]:
    """One request for all of them; the base offsets."""
    data = [{"index": index, "records": records} for index in partitions]
    fields = {"acks": acks, "timeout_ms": TIMEOUT_MS, "topic_data": [{"name": "tide", "partition_data": data}]}
    answer = client.ask(ApiKey.PRODUCE, 9, fields)
    assert {one.error_code for one in answer.responses[0].partition_responses} == {0}
    return [one.base_offset for one in answer.responses[0].partition_responses]


def fetch(client: Connection, offset: int, partitions: Sequence[int]) -> list[Any]:
    asked = [{"partition": index, "fetch_offset": offset, "partition_max_bytes": 1000} for index in partitions]
    fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1}
    answer = client.ask(ApiKey.FETCH, 12, {**fields, "topics": [{"topic": "tide", "partitions": asked}]})
    assert {one.error_code for one in answer.responses[0].partitions} == {0}
    return answer.responses[0].partitions


def latest(client: Connection, partitions: Sequence[int]) -> list[int]:
    asked = [{"partition_index": index, "timestamp": -1} for index in partitions]
    fields = {"replica_id": -1, "topics": [{"name": "tide", "partitions": asked}]}
    answer = client.ask(ApiKey.LIST_OFFSETS, 5, fields)
    assert {one.error_code for one in answer.topics[0].partitions} == {0}
    return [one.offset for one in answer.topics[0].partitions]


def fill(broker: WatchedBroker, partitions: int, batches: int) -> None:
    """Many small batches of an idempotent producer, written as its requests would be."""
    made = bytearray(one_record(Producer(PRODUCER_ID, 0, 0)))
    now_ms = time.time_ns() // 1_000_000

    def write() -> None:
        for index in range(partitions):
            partition = broker.broker.services.replicas.get("tide", index)
            for sequence in range(batches):
                data = bytearray(made)
                struct.pack_into(">i", data, SEQUENCE_AT, sequence)
                struct.pack_into(">I", data, CRC_AT, crc32c(data[ATTRIBUTES_AT:]))
                partition.append(memoryview(data), 0, len(data), 1, now_ms)

    broker.call(write)


@pytest.mark.parametrize("use", ["fetch", "produce"])
def test_partitions_with_many_batches_of_idempotent_producers_after_a_stop(tmp_path: Path, use: str) -> None:
    settings = {"tidelog.durability": "os"}
    partitions, batches = range(4), 25_000
    with WatchedBroker(tmp_path, settings) as broker:
        with Connection(broker.bootstrap) as client:
            make_topic(client, len(partitions))
        fill(broker, len(partitions), batches)
    with (
        WatchedBroker(tmp_path, settings) as broker,
        Connection(broker.bootstrap, timeout_s=TIMEOUT_MS / 1000) as client,
        broker.watching() as seen,
    ):
        if use == "fetch":
            found = fetch(client, batches, partitions)
            assert [(one.high_watermark, one.last_stable_offset) for one in found] == [(batches, batches)] * 4
        else:
            again = one_record(Producer(PRODUCER_ID, 0, batches))
            assert produce(client, again, partitions) == [batches] * 4
            assert produce(client, again, partitions) == [batches] * 4, "a duplicate is known as one"
    seen.check()


def test_partitions_that_are_recovered_after_kill_9_are_named_in_one_request(tmp_path: Path) -> None:
    partitions = range(300)
    with Tidelog(tmp_path / "data") as killed, Connection(killed.bootstrap, timeout_s=TIMEOUT_MS / 1000) as client:
        make_topic(client, len(partitions))
        produce(client, one_record(), partitions)
        killed.kill()
    with (
        WatchedBroker(tmp_path / "data") as broker,
        Connection(broker.bootstrap, timeout_s=TIMEOUT_MS / 1000) as client,
        broker.watching() as seen,
    ):
        assert latest(client, partitions) == [1] * len(partitions)
    seen.check()


def test_a_stop_with_many_partitions_that_were_just_written(tmp_path: Path) -> None:
    partitions = range(1000)
    with (
        WatchedBroker(tmp_path, {"tidelog.durability": "os"}) as broker,
        Connection(broker.bootstrap, timeout_s=TIMEOUT_MS / 1000) as client,
    ):
        make_topic(client, len(partitions))
        produce(client, one_record(), partitions)
        with broker.watching() as seen:
            broker.stop()
    seen.check()


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_the_first_writes_to_many_new_partitions_in_one_request(tmp_path: Path, durability: str) -> None:
    partitions = range(1000)
    with (
        WatchedBroker(tmp_path, {"tidelog.durability": durability}) as broker,
        Connection(broker.bootstrap, timeout_s=TIMEOUT_MS / 1000) as client,
    ):
        make_topic(client, len(partitions))
        with broker.watching() as seen:
            assert produce(client, one_record(), partitions) == [0] * len(partitions)
    seen.check()


def test_the_first_writes_to_many_new_partitions_one_after_the_other_on_one_connection(tmp_path: Path) -> None:
    with (
        WatchedBroker(tmp_path) as broker,
        Connection(broker.bootstrap, timeout_s=TIMEOUT_MS / 1000) as client,
    ):
        make_topic(client, 1000)
        with broker.watching() as seen:
            data = {"records": one_record()}
            topics = [[{"name": "tide", "partition_data": [{"index": index, **data}]}] for index in range(1000)]
            fields = [{"acks": -1, "timeout_ms": TIMEOUT_MS, "topic_data": topic} for topic in topics]
            asked = [client.send(ApiKey.PRODUCE, 9, one) for one in fields]
            answers = [client.answer(ApiKey.PRODUCE, 9, correlation_id) for correlation_id in asked]
    assert {answer.responses[0].partition_responses[0].error_code for answer in answers} == {0}
    seen.check()


def test_a_topic_that_is_made_again_with_records_deleted_before(tmp_path: Path) -> None:
    """The checkpoints of the deleted one still say where it began."""
    partitions = range(20)
    with (
        WatchedBroker(tmp_path) as broker,
        Connection(broker.bootstrap, timeout_s=TIMEOUT_MS / 1000) as client,
    ):
        make_topic(client, len(partitions))
        produce(client, one_record(), partitions)
        deleted = [{"partition_index": index, "offset": 1} for index in partitions]
        fields = {"topics": [{"name": "tide", "partitions": deleted}], "timeout_ms": TIMEOUT_MS}
        answer = client.ask(ApiKey.DELETE_RECORDS, 2, fields)
        assert {one.error_code for one in answer.topics[0].partitions} == {0}
        wait_for(lambda: not (tmp_path / FALLEN).exists(), "the checkpoints to hold what was deleted")
        broker.call(lambda: None)  # what removed that file has ended
        with broker.watching() as seen:
            client.ask(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "tide"}], "timeout_ms": TIMEOUT_MS})
            make_topic(client, len(partitions))
            assert produce(client, one_record(), partitions) == [0] * len(partitions)
    seen.check()
