"""Connections by the thousand, that claim, flood, stall, vanish and use up descriptors: others are served meanwhile."""

import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.batches import Batch, Sent
from tests.raw import Connection, build, request_class
from tests.reading import create_topic, fetch, list_offset
from tests.served import Tidelog
from tests.stories.test_attack_requests import resident_mb
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

CONNECTIONS = 400
MEGABYTE = bytes(1 << 20)


@contextmanager
def crowd(broker: Tidelog, count: int = CONNECTIONS) -> Iterator[list[socket.socket]]:
    peers = [socket.create_connection(("127.0.0.1", broker.port), timeout=10) for _ in range(count)]
    try:
        yield peers
    finally:
        for peer in peers:
            peer.close()


def produce(connection: Connection, topic: str, value: bytes, partition: int = 0) -> int:
    """The error code."""
    data = {"index": partition, "records": Batch([Sent(value)]).encode()}
    fields = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": [data]}]}
    return connection.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0].error_code


def framed(key: ApiKey, version: int, fields: dict) -> bytes:
    cls = request_class(key)
    head = struct.pack(">hhih", key, version, 1, -1)
    body = head + encoder(cls, version)(build(cls, fields))
    return struct.pack(">i", len(body)) + body


def fetching(offset: int, wait_ms: int, min_bytes: int) -> bytes:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 50 << 20}
    sizes = {"max_wait_ms": wait_ms, "min_bytes": min_bytes, "max_bytes": 50 << 20, "session_epoch": -1}
    return framed(ApiKey.FETCH, 11, {**sizes, "topics": [{"topic": "t", "partitions": [part]}]})


@pytest.fixture
def stocked(tidelog: Tidelog) -> Tidelog:
    """A topic with a few megabytes."""
    create_topic(tidelog.bootstrap, "t")
    with Connection(tidelog.bootstrap) as connection:
        for _ in range(8):
            assert produce(connection, "t", MEGABYTE) == 0
    return tidelog


def test_who_claims_large_requests_takes_no_memory_and_keeps_nobody_out(stocked: Tidelog) -> None:
    before = resident_mb(stocked.pid)
    with crowd(stocked) as peers, Connection(stocked.bootstrap) as connection:
        for peer in peers:
            peer.sendall(struct.pack(">i", 100_000_000) + b"\0\3")
        assert produce(connection, "t", MEGABYTE) == 0
        assert resident_mb(stocked.pid) < before + 60


def test_who_takes_no_answers_is_given_no_more(stocked: Tidelog) -> None:
    before = resident_mb(stocked.pid)
    with crowd(stocked, 50) as peers, Connection(stocked.bootstrap) as connection:
        for peer in peers:
            peer.setblocking(False)
            with suppress(BlockingIOError):
                peer.send(fetching(0, 0, 1) * 500 + framed(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": []}) * 500)
        assert produce(connection, "t", MEGABYTE) == 0
        assert resident_mb(stocked.pid) < before + 100


def test_requests_behind_a_parked_fetch_wait_in_bounded_memory(stocked: Tidelog) -> None:
    before = resident_mb(stocked.pid)
    with Connection(stocked.bootstrap) as connection, crowd(stocked, 100) as peers:
        end = list_offset(connection, "t", -1)
        behind = framed(ApiKey.API_VERSIONS, 0, {}) * 100_000
        for peer in peers:
            peer.setblocking(False)
            with suppress(BlockingIOError):
                peer.send(fetching(end, 50_000, 1 << 30) + behind)
        assert produce(connection, "t", b"meanwhile") == 0
        assert resident_mb(stocked.pid) < before + 80


def test_producers_that_vanish_before_their_acknowledgement_leave_nothing_behind(stocked: Tidelog) -> None:
    data = {"index": 0, "records": Batch([Sent(b"x")]).encode()}
    fields = {"acks": -1, "timeout_ms": 2**31 - 1, "topic_data": [{"name": "t", "partition_data": [data]}]}
    frame = framed(ApiKey.PRODUCE, 9, fields)
    with Connection(stocked.bootstrap) as connection:
        before = list_offset(connection, "t", -1)
        for _ in range(50):
            with crowd(stocked, 1) as (peer,):
                peer.sendall(frame * 5)
        assert produce(connection, "t", b"last") == 0
        assert before < list_offset(connection, "t", -1) <= before + 251


def test_descriptors_run_out_and_come_back(stocked: Tidelog) -> None:
    create_topic(stocked.bootstrap, "wide", 60)
    with Connection(stocked.bootstrap) as connection:
        for partition in range(20):
            assert produce(connection, "wide", b"before", partition) == 0
        resource.prlimit(stocked.pid, resource.RLIMIT_NOFILE, (60, 60))
        with crowd(stocked, 60):
            time.sleep(0.2)  # it accepts as many as it can meanwhile
            codes = {produce(connection, "wide", b"meanwhile", partition) for partition in range(60)}
            assert codes <= {0, ErrorCode.KAFKA_STORAGE_ERROR}
            codes = {fetch(connection, "wide", 0, partition).error_code for partition in range(20)}
            assert codes <= {0, ErrorCode.KAFKA_STORAGE_ERROR}
            # Files that are used no more were closed by now, so that whoever tries again succeeds.
            assert {produce(connection, "wide", b"again", partition) for partition in range(60)} == {0}
        create_topic(stocked.bootstrap, "after")
        assert produce(connection, "after", b"x") == 0
        assert {fetch(connection, "wide", 0, partition).error_code for partition in range(60)} == {0}
    stocked.stop()
    stocked.start()
    assert "offline" not in stocked.said(1000)
