"""Writing: what is acknowledged is counted, and what fails is told, with the number that the caller gave it."""

import pytest

from tidelog.client import ClientError, Producer, read
from tidelog.client.configs import alter


def test_everything_is_acknowledged_when_the_block_is_left(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=number % 2)
    assert (producer.written, producer.last_offsets, producer.failed) == (100, {0: 49, 1: 49}, None)
    assert producer.failure() is None
    assert producer.written_bytes == sum(len(b"%d" % number) for number in range(100))
    found = [each.value for each in read(bootstrap, topic, partitions=[1], stop_at_end=True)]
    assert found == [b"%d" % number for number in range(1, 100, 2)]


def test_records_arrive_as_they_were_sent(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, compression_type="zstd") as producer:
        producer.send(topic, None, key=b"gone", partition=0, timestamp_ms=1234)
        producer.send(topic, b"", headers=[("a", b"1"), ("a", None)], partition=0, timestamp_ms=5678)
    first, second = read(bootstrap, topic, partitions=[0], stop_at_end=True)
    assert (first.key, first.value, first.timestamp_ms, first.timestamp_type) == (b"gone", None, 1234, "create")
    assert (second.key, second.value, second.headers) == (None, b"", [("a", b"1"), ("a", None)])


def test_records_of_one_key_go_to_one_partition(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, key=b"k%d" % (number % 5))
    places: dict[bytes | None, set[int]] = {}
    for each in read(bootstrap, topic, stop_at_end=True):
        places.setdefault(each.key, set()).add(each.partition)
    assert len(places) == 5
    assert all(len(found) == 1 for found in places.values())


def send_all(producer: Producer, topic: str, value: bytes, partition: int, *numbers: int) -> None:
    for number in numbers:
        producer.send(topic, value, partition=partition, number=number)
        producer.flush()


def test_a_partition_that_is_not_there_is_told_with_the_number_of_its_record(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, message_timeout_ms=5000)
    producer.send(topic, b"fine", partition=0, number=6)
    with pytest.raises(ClientError, match=f"cannot write to {topic}: _UNKNOWN_PARTITION") as told:
        send_all(producer, topic, b"x", 9, 7, 8)
    assert (producer.failed, producer.first_unwritten, producer.unanswered) == (7, 7, 0)
    assert told.value.hint is not None
    with pytest.raises(ClientError, match="_UNKNOWN_PARTITION"):
        producer.flush()
    assert producer.written == 1


def test_a_record_that_is_too_large_for_the_topic_is_told_with_what_to_do(bootstrap: str, topic: str) -> None:
    alter(bootstrap, "topic", topic, {"max.message.bytes": "5000"}, ())
    with pytest.raises(ClientError, match="MSG_SIZE_TOO_LARGE") as told:
        send_all(Producer(bootstrap), topic, bytes(6000), 0, 1)
    assert told.value.hint is not None
    assert "max.message.bytes" in told.value.hint


def test_an_error_in_the_block_is_not_hidden_by_waiting(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap)

    def fail() -> None:
        with producer:
            producer.send(topic, b"x")
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    producer.flush()
    assert producer.written == 1


def test_what_is_given_up_is_no_failure(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, linger_ms=60_000)
    producer.send(topic, b"x", partition=0, number=3)
    producer.give_up()
    assert (producer.failed, producer.unanswered, producer.first_unwritten, producer.written) == (None, 1, 3, 0)
