"""A client that was told its record is written finds it: acks=1 is answered before the sync that lets others see it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.served import Tidelog

ROUNDS = 100
"""Most of them ask while the sync still runs."""


@pytest.fixture
def tidelog(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path) as tidelog:
        admin = AdminClient({"bootstrap.servers": tidelog.bootstrap})
        admin.create_topics([NewTopic("tide", 1, 1)])["tide"].result(30)
        yield tidelog


def written(tidelog: Tidelog) -> Iterator[int]:
    """Offsets of records, one after the other, each as soon as its producer was told it."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": tidelog.bootstrap, "acks": "1", "linger.ms": 0})
    for _ in range(ROUNDS):
        producer.produce("tide", b"x" * 10_000, partition=0, on_delivery=lambda _, told: offsets.append(told.offset()))
        assert producer.flush(30) == 0
        yield offsets[-1]


def test_the_end_is_behind_it(tidelog: Tidelog) -> None:
    consumer = Consumer({"bootstrap.servers": tidelog.bootstrap, "group.id": "g"})
    ends = [(consumer.get_watermark_offsets(TopicPartition("tide", 0))[1], offset) for offset in written(tidelog)]
    consumer.close()
    assert [(end, offset) for end, offset in ends if end != offset + 1] == []


def test_it_can_be_deleted(tidelog: Tidelog) -> None:
    admin = AdminClient({"bootstrap.servers": tidelog.bootstrap})
    for offset in written(tidelog):
        asked = TopicPartition("tide", 0, offset + 1)
        assert admin.delete_records([asked])[asked].result(30).low_watermark == offset + 1
