"""What every Kafka client must be able to do: told once, lived by confluent-kafka, kafka-python and aiokafka."""

import random
import time
from collections.abc import Callable

import pytest

from tests.compat.clients import Client, Sent

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOON_MS = (time.time_ns() // 60_000_000_000 - 60) * 60_000
"""An hour ago, in whole minutes: what is older than `retention.ms` may go at any time."""


def test_records_come_back_as_they_were_sent(client: Client, topic: str) -> None:
    sent = [
        Sent(b"plain"),
        Sent(b"keyed", key=b"k"),
        Sent(b"with headers", key=b"k", headers=[("a", b"1"), ("b", b"\x00\xff"), ("a", b"again"), ("empty", b"")]),
        Sent(b"", key=b""),
        Sent(None, key=b"tombstone"),
        Sent("tide \N{WATER WAVE}".encode(), key="k\N{WATER WAVE}".encode(), headers=[("\N{WATER WAVE}", b"wave")]),
        Sent(bytes(range(256)), key=bytes(range(256))),
    ]
    assert client.send(topic, sent) == list(range(len(sent)))
    read = client.read(topic, len(sent))
    assert [(r.offset, r.key, r.value, r.headers) for r in read] == [
        (offset, s.key, s.value, s.headers) for offset, s in enumerate(sent)
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_round_trips(client: Client, topic: str, compression: str) -> None:
    sent = [Sent(b"the same words again and again " * 20 + b"%d" % n, key=b"%d" % n) for n in range(300)]
    assert client.send(topic, sent, compression=compression) == list(range(300))
    assert [(r.offset, r.key, r.value) for r in client.read(topic, 300)] == [
        (n, s.key, s.value) for n, s in enumerate(sent)
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_reading_starts_at_any_offset_also_inside_a_batch(client: Client, topic: str, compression: str) -> None:
    client.send(topic, [Sent(b"%d" % n) for n in range(40)], compression=compression)
    for offset in (0, 1, 17, 38, 39):
        read = client.read(topic, 40 - offset, offset=offset)
        assert [(r.offset, r.value) for r in read] == [(n, b"%d" % n) for n in range(offset, 40)]


def test_an_offset_is_found_by_time(client: Client, topic: str) -> None:
    for minute in range(5):
        client.send(topic, [Sent(b"%d" % minute, timestamp_ms=NOON_MS + minute * 60_000 + n) for n in range(3)])
    assert client.offset_at(topic, 0, 0) == 0
    assert client.offset_at(topic, 0, NOON_MS) == 0
    assert client.offset_at(topic, 0, NOON_MS + 1) == 1
    assert client.offset_at(topic, 0, NOON_MS + 3) == 3
    assert client.offset_at(topic, 0, NOON_MS + 60_000) == 3
    assert client.offset_at(topic, 0, NOON_MS + 4 * 60_000 + 2) == 14
    assert client.offset_at(topic, 0, NOON_MS + 5 * 60_000) is None
    first = client.read(topic, 1, offset=client.offset_at(topic, 0, NOON_MS + 2 * 60_000) or 0)[0]
    assert (first.offset, first.timestamp_ms, first.value) == (6, NOON_MS + 2 * 60_000, b"2")


def test_the_range_of_a_partition_is_told(client: Client, topic: str) -> None:
    assert client.range(topic, 0) == (0, 0)
    client.send(topic, [Sent(b"x")] * 7)
    assert client.range(topic, 0) == (0, 7)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_writes(client: Client, topic: str, acks: str) -> None:
    client.send(topic, [Sent(b"%d" % n) for n in range(25)], acks=acks)
    assert [r.value for r in client.read(topic, 25)] == [b"%d" % n for n in range(25)]


def test_an_idempotent_producer_writes_once_and_in_order(client: Client, topic: str) -> None:
    sent = [Sent(b"%d" % n) for n in range(2000)]
    assert client.send(topic, sent, idempotent=True) == list(range(2000))
    assert [r.value for r in client.read(topic, 2000)] == [s.value for s in sent]
    assert client.range(topic, 0) == (0, 2000)


def test_many_partitions_are_written_and_read_at_once(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=50)
    client.send(topic, [Sent(b"%d" % n, partition=n % 50) for n in range(500)])
    read = client.read(topic, 500, partitions=tuple(range(50)))
    by_partition: dict[int, list[tuple[int, bytes | None]]] = {}
    for record in read:
        by_partition.setdefault(record.partition, []).append((record.offset, record.value))
    assert by_partition == {p: [(n, b"%d" % (p + 50 * n)) for n in range(10)] for p in range(50)}


def test_a_topic_of_ten_thousand_partitions_serves(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=10_000)
    chosen = (*tuple(range(0, 10000, 97)), 9999)
    client.send(topic, [Sent(b"%d" % partition, partition=partition) for partition in chosen])
    read = client.read(topic, len(chosen), partitions=chosen)
    assert sorted((r.partition, r.offset, r.value) for r in read) == [(p, 0, b"%d" % p) for p in chosen]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_message_of_ten_megabytes_passes_by_default(client: Client, topic: str, compression: str) -> None:
    big = random.Random(7).randbytes(10_000_000)
    client.send(topic, [Sent(b"before"), Sent(big, key=b"big"), Sent(b"after")], compression=compression)
    assert [r.value for r in client.read(topic, 3)] == [b"before", big, b"after"]


def test_append_time_replaces_the_clients(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    client.send(topic, [Sent(b"x", timestamp_ms=NOON_MS)] * 3)
    read = client.read(topic, 3)
    assert len({r.timestamp_ms for r in read}) <= 3
    assert all(r.timestamp_ms > NOON_MS for r in read)


def test_a_topic_in_memory_serves_like_any_other(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(tidelog_storage="memory")
    assert client.send(topic, [Sent(b"%d" % n) for n in range(100)]) == list(range(100))
    assert [r.value for r in client.read(topic, 60, offset=40)] == [b"%d" % n for n in range(40, 100)]
