"""What happens around producing and consuming: waiting readers, restarts, topics that go, limits, old clients."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

import kafka
from tests.compat.clients import Client, Confluent, Sent
from tidelog.client import Admin, Producer, read
from tidelog.testing import Broker

DEADLINE_S = 20.0


@pytest.fixture
def make_consumer(bootstrap: str) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        plain = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        made.append(Consumer({**plain, **{name.replace("_", "."): value for name, value in settings.items()}}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def poll(consumer: Consumer) -> Any:
    """The next record; fails after a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            return message
    raise AssertionError(f"no record came within {DEADLINE_S} s")


def test_a_waiting_reader_gets_a_record_at_once(
    make_consumer: Callable[..., Consumer], client: Client, topic: str
) -> None:
    consumer = make_consumer(fetch_wait_max_ms=10_000, fetch_min_bytes=1, enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    while (message := consumer.poll(0.1)) is None or message.error().code() != KafkaError._PARTITION_EOF:
        pass
    began = time.monotonic()
    client.send(topic, [Sent(b"now")])
    assert poll(consumer).value() == b"now"
    assert time.monotonic() - began < 5, "the long poll did not wake on data"


def test_a_reader_waits_for_the_bytes_it_asked_for(
    make_consumer: Callable[..., Consumer], bootstrap: str, topic: str
) -> None:
    consumer = make_consumer(fetch_wait_max_ms=60_000, fetch_min_bytes=5_000)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert consumer.poll(0.5) is None
    sender = Confluent(bootstrap)
    sender.send(topic, [Sent(b"small")])
    assert consumer.poll(0.5) is None, "a few bytes came although 5,000 were asked for"
    sender.send(topic, [Sent(b"x" * 10_000)])
    assert poll(consumer).value() == b"small"


def test_a_restart_is_seen_by_nobody() -> None:
    """A producer and a consumer go on over a clean restart and a kill: nothing lost, nothing twice, in order."""
    count = 3000
    with Broker() as broker:
        Admin(broker.bootstrap).create_topic("t", 1, 1)
        producer = Producer(broker.bootstrap, enable_idempotence=True, linger_ms=1, reconnect_backoff_max_ms=200)

        def send() -> None:
            for number in range(count):
                producer.send("t", b"%d" % number)
                time.sleep(0.0005)
            producer.flush()

        sender = threading.Thread(target=send)
        sender.start()
        try:
            for restart in (broker.restart, broker.kill, broker.start, broker.restart):
                time.sleep(0.2)
                restart()
        finally:
            sender.join(60)
        assert producer.written == count
        found = [message.value for message in read(broker.bootstrap, "t", stop_at_end=True)]
        assert found == [b"%d" % number for number in range(count)]


def test_auto_creation_makes_the_topic_on_the_first_send(client: Client, bootstrap: str) -> None:
    name = f"auto-{client.name}-{time.time_ns()}"
    client.send(name, [Sent(b"first")])
    assert [record.value for record in client.read(name, 1)] == [b"first"]


def test_too_large_is_refused_and_the_next_goes_through(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(max_message_bytes="1000")
    client = Confluent(bootstrap)
    with pytest.raises(KafkaException) as refused:
        client.send(topic, [Sent(b"x" * 2000)])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    client.send(topic, [Sent(b"fits")])
    assert [record.value for record in client.read(topic, 1)] == [b"fits"]


def test_an_offset_out_of_range_resets_where_the_client_says(
    make_consumer: Callable[..., Consumer], bootstrap: str, topic: str
) -> None:
    Confluent(bootstrap).send(topic, [Sent(b"%d" % n) for n in range(5)])
    consumer = make_consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0, 1000)])
    assert poll(consumer).offset() == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topics_own_compression_replaces_the_producers(
    client: Client, make_topic: Callable[..., str], codec: str
) -> None:
    topic = make_topic(compression_type=codec)
    sent = [Sent(b"again and again " * 10 + b"%d" % n, key=b"%d" % n, headers=[("h", b"v")]) for n in range(50)]
    assert client.send(topic, sent, compression="gzip") == list(range(50))
    assert [(r.key, r.value, r.headers) for r in client.read(topic, 50)] == [(s.key, s.value, s.headers) for s in sent]


def test_a_deleted_topic_made_again_starts_afresh(client: Client, bootstrap: str) -> None:
    admin = Admin(bootstrap)
    name = f"again-{client.name}-{time.time_ns()}"
    for life in (b"first", b"second"):
        admin.create_topic(name, 1, 1)
        assert client.send(name, [Sent(life)] * 3) == [0, 1, 2]
        assert [record.value for record in client.read(name, 3)] == [life] * 3
        admin.delete_topic(name)


def test_a_reader_follows_a_topic_that_is_made_again(
    make_consumer: Callable[..., Consumer], bootstrap: str, topic: str
) -> None:
    sender = Confluent(bootstrap)
    sender.send(topic, [Sent(b"old")])
    consumer = make_consumer(auto_offset_reset="earliest", topic_metadata_refresh_interval_ms=200)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert poll(consumer).value() == b"old"
    admin = Admin(bootstrap)
    admin.delete_topic(topic)
    admin.create_topic(topic, 1, 1)
    sender.send(topic, [Sent(b"new 0"), Sent(b"new 1"), Sent(b"new 2")])
    deadline = time.monotonic() + DEADLINE_S
    seen: list[bytes] = []
    while b"new 2" not in seen and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen.append(message.value())
    assert seen[-1:] == [b"new 2"]
    assert b"old" not in seen


def test_new_partitions_are_used_by_a_producer_that_runs(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, topic_metadata_refresh_interval_ms=200)
    producer.send(topic, b"before", partition=0)
    producer.flush()
    Admin(bootstrap).add_partitions(topic, 3)
    Confluent(bootstrap).send(topic, [Sent(b"after", partition=2)])
    assert [record.value for record in Confluent(bootstrap).read(topic, 1, partitions=(2,))] == [b"after"]


def test_a_hundred_readers_of_one_partition_read_the_same(
    make_consumer: Callable[..., Consumer], bootstrap: str, topic: str
) -> None:
    Confluent(bootstrap).send(topic, [Sent(b"%d" % n) for n in range(20)])
    consumers = [make_consumer() for _ in range(100)]
    for consumer in consumers:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    for consumer in consumers:
        assert [poll(consumer).value() for _ in range(20)] == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize("version", [(2, 1), (2, 3), (2, 6), (2, 8), (3, 5), (3, 9), (4, 0)], ids=str)
def test_clients_that_speak_like_older_ones_are_served(bootstrap: str, topic: str, version: tuple[int, int]) -> None:
    common = {"bootstrap_servers": bootstrap, "api_version": version}
    first_ms = time.time_ns() // 1_000_000 - 60_000
    producer = kafka.KafkaProducer(**common, compression_type="gzip", acks="all")
    try:
        sent = [producer.send(topic, b"%d" % n, headers=[("v", b"1")], timestamp_ms=first_ms + n) for n in range(10)]
        producer.flush(DEADLINE_S)
        assert [answer.get(DEADLINE_S).offset for answer in sent] == list(range(10))
    finally:
        producer.close(DEADLINE_S)
    consumer = kafka.KafkaConsumer(**common, enable_auto_commit=False)
    try:
        place = kafka.TopicPartition(topic, 0)
        consumer.assign([place])
        assert consumer.end_offsets([place]) == {place: 10}
        assert consumer.offsets_for_times({place: first_ms + 4})[place].offset == 4
        consumer.seek(place, 3)
        found: list[Any] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < 7 and time.monotonic() < deadline:
            found += [record for batch in consumer.poll(200).values() for record in batch]
        assert [(record.offset, record.value, list(record.headers)) for record in found] == [
            (n, b"%d" % n, [("v", b"1")]) for n in range(3, 10)
        ]
    finally:
        consumer.close()


def test_a_producers_callback_names_the_error_of_a_missing_partition(bootstrap: str, topic: str) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 3000})
    producer.produce(topic, b"x", partition=7, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert errors[0].code() == KafkaError._UNKNOWN_PARTITION
