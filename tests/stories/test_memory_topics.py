"""Topics in memory as one would have them: with transactions, as the default, beside topics on disk."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.served import Tidelog

MEMORY = {"tidelog.storage": "memory"}


def admin(tidelog: Tidelog) -> AdminClient:
    return AdminClient({"bootstrap.servers": tidelog.bootstrap})


def make(tidelog: Tidelog, name: str, config: dict[str, str] | None = None) -> None:
    client = admin(tidelog)
    client.create_topics([NewTopic(name, 1, 1, config=config or {})])[name].result(30)


def set_config(tidelog: Tidelog, kind: ResourceType, name: str, value: str | None) -> None:
    """Give `tidelog.storage` another value, or take it away."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry("tidelog.storage", value or "", incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    client = admin(tidelog)
    client.incremental_alter_configs([resource])[resource].result(30)


def described(tidelog: Tidelog, topic: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = admin(tidelog)
    return client.describe_configs([resource])[resource].result(30)["tidelog.storage"].value


def send(tidelog: Tidelog, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": tidelog.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


@contextmanager
def reading(tidelog: Tidelog, **settings: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": tidelog.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def values(tidelog: Tidelog, topic: str, **settings: Any) -> list[bytes]:
    """Everything that a reader gets up to the end."""
    found: list[bytes] = []
    with reading(tidelog, **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                return found
            found.append(message.value() or b"")
    raise AssertionError(f"{topic} has no end; {found} came")


def test_an_aborted_transaction_leaves_the_topic_and_its_producer_well(tidelog: Tidelog) -> None:
    make(tidelog, "ticks", MEMORY)
    producer = Producer({"bootstrap.servers": tidelog.bootstrap, "transactional.id": "one"})
    producer.init_transactions(30)
    for number, commit in enumerate((False, True, False, True)):
        producer.begin_transaction()
        producer.produce("ticks", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    assert values(tidelog, "ticks", **{"isolation.level": "read_committed"}) == [b"1", b"3"]
    assert values(tidelog, "ticks", **{"isolation.level": "read_uncommitted"}) == [b"0", b"1", b"2", b"3"]


def test_its_name_is_free_once_it_was_deleted(tidelog: Tidelog) -> None:
    make(tidelog, "ticks", MEMORY)
    send(tidelog, "ticks", b"1")
    admin = AdminClient({"bootstrap.servers": tidelog.bootstrap})
    admin.delete_topics(["ticks"])["ticks"].result(30)
    make(tidelog, "ticks", {"tidelog.storage": "disk"})
    send(tidelog, "ticks", b"2")
    assert values(tidelog, "ticks") == [b"2"]


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data", MEMORY) as broker:
        yield broker


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_whose_topics_are_in_memory_keeps_what_it_needs_on_disk(in_memory: Tidelog, end: str) -> None:
    make(in_memory, "ticks")
    make(in_memory, "table", {"cleanup.policy": "compact"})
    make(in_memory, "kept", {"tidelog.storage": "disk"})
    storages = {topic: described(in_memory, topic) for topic in ("ticks", "table", "kept")}
    assert storages == {"ticks": "memory", "table": "disk", "kept": "disk"}
    send(in_memory, "ticks", b"1", b"2")
    send(in_memory, "kept", b"3", b"4")
    with reading(in_memory) as consumer:
        consumer.commit(offsets=[TopicPartition("kept", 0, 1)], asynchronous=False)
    getattr(in_memory, end)()
    in_memory.start()
    assert values(in_memory, "kept") == [b"3", b"4"]
    assert values(in_memory, "ticks") == []
    with reading(in_memory) as consumer:
        assert consumer.committed([TopicPartition("kept", 0)], timeout=30)[0].offset == 1
    assert described(in_memory, "ticks") == "memory"


def test_another_default_is_for_new_topics(tidelog: Tidelog) -> None:
    make(tidelog, "before")
    send(tidelog, "before", b"1")
    with reading(tidelog) as consumer:
        consumer.commit(offsets=[TopicPartition("before", 0, 1)], asynchronous=False)
    broker = str(next(iter(admin(tidelog).list_topics(timeout=30).brokers)))
    set_config(tidelog, ResourceType.BROKER, broker, "memory")
    make(tidelog, "after")
    send(tidelog, "before", b"2")
    send(tidelog, "after", b"3")
    assert [described(tidelog, topic) for topic in ("before", "after")] == ["disk", "memory"]
    tidelog.stop()
    tidelog.start()
    assert values(tidelog, "before") == [b"1", b"2"]
    assert values(tidelog, "after") == []
    set_config(tidelog, ResourceType.BROKER, broker, None)
    tidelog.stop()
    tidelog.start()
    assert [described(tidelog, topic) for topic in ("before", "after")] == ["disk", "memory"]
    with reading(tidelog) as consumer:
        assert consumer.committed([TopicPartition("before", 0)], timeout=30)[0].offset == 1


@pytest.mark.parametrize(("before", "after"), [("disk", "memory"), ("memory", "disk"), ("memory", None)])
def test_a_topic_stays_where_it_was_made(tidelog: Tidelog, before: str, after: str | None) -> None:
    make(tidelog, "ticks", {"tidelog.storage": before})
    send(tidelog, "ticks", b"1")
    with pytest.raises(KafkaException) as refused:
        set_config(tidelog, ResourceType.TOPIC, "ticks", after)
    assert refused.value.args[0].name() == "INVALID_CONFIG"
    assert "decided when a topic is made" in refused.value.args[0].str()
    set_config(tidelog, ResourceType.TOPIC, "ticks", before)  # says nothing new
    send(tidelog, "ticks", b"2")
    assert values(tidelog, "ticks") == [b"1", b"2"]


def test_what_a_coordinator_keeps_is_never_in_memory(tidelog: Tidelog) -> None:
    for topic in ("__consumer_offsets", "__transaction_state"):
        with pytest.raises(KafkaException) as refused:
            make(tidelog, topic, MEMORY)
        assert refused.value.args[0].name() == "INVALID_CONFIG"
