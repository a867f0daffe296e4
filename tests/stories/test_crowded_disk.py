"""Writes that find no room now and then, the first of each producer too: what clients send stays whole and in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.kafka.jars import kafka_jars
from tests.reading import create_topic, stored
from tests.served import Tidelog
from tests.stories.exactly_once.pipelined import PARTITIONS, TOPIC, Work, check, write

COUNT = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data", module="tests.stories.crowded_disk") as tidelog:
        create_topic(tidelog.bootstrap, TOPIC, PARTITIONS)
        yield tidelog


def test_an_idempotent_producer_of_librdkafka(broker: Tidelog) -> None:
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 20,
        }
    )
    for number in range(COUNT):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert errors == []
    for index in range(PARTITIONS):
        found = [int(value or b"") for _, value in stored(broker.bootstrap, TOPIC, index)]
        assert found == list(range(index, COUNT, PARTITIONS))


def test_a_broker_that_is_killed_meanwhile(broker: Tidelog) -> None:
    """What it waited for is forgotten with it: the first write of each partition fails after each start, too."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 20,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )
    for number in range(COUNT):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS, on_delivery=delivered)
        if number % 100 == 99:
            producer.poll(0.05)
            broker.kill()
            broker.start()
    assert producer.flush(60) == 0
    assert errors == []
    for index in range(PARTITIONS):
        found = [int(value or b"") for _, value in stored(broker.bootstrap, TOPIC, index)]
        assert found == list(range(index, COUNT, PARTITIONS))


def test_transactions_of_java(broker: Tidelog) -> None:
    outcome = write(broker, kafka_jars(), Work(20, records=30, bytes=900), "batch.size=1000", "retry.backoff.ms=10")
    assert outcome == (20, [], 0)
    check(broker.bootstrap, 20 * 30)
