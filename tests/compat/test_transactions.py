"""Transactional producers and read-committed consumers of other people's libraries."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import aiokafka
import confluent_kafka
import pytest

import kafka
from tests.compat.clients import DEADLINE_S

Step = tuple[str, list[bytes]]
"""How a transaction ends, and what was sent in it."""


def confluent_producer(bootstrap: str, name: str, **more: Any) -> confluent_kafka.Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, **more}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(DEADLINE_S)
    return producer


def run_confluent(bootstrap: str, topic: str, name: str, steps: list[Step]) -> None:
    producer = confluent_producer(bootstrap, name)
    for end, values in steps:
        producer.begin_transaction()
        for place, value in enumerate(values):
            producer.produce(topic, value, partition=place % 2)
        if end == "commit":
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.flush(DEADLINE_S)
            producer.abort_transaction(DEADLINE_S)


def run_aiokafka(bootstrap: str, topic: str, name: str, steps: list[Step]) -> None:
    async def go() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await producer.start()
        try:
            for end, values in steps:
                await producer.begin_transaction()
                sent = [await producer.send(topic, value, partition=at % 2) for at, value in enumerate(values)]
                await asyncio.gather(*sent)
                await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
        finally:
            await producer.stop()

    run(go())


def run_kafka_python(bootstrap: str, topic: str, name: str, steps: list[Step]) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    producer.init_transactions()
    for end, values in steps:
        producer.begin_transaction()
        sent = [producer.send(topic, value, partition=at % 2) for at, value in enumerate(values)]
        for each in sent:
            each.get(DEADLINE_S)
        if end == "commit":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


PRODUCERS = {"aiokafka": run_aiokafka, "confluent-kafka": run_confluent, "kafka-python": run_kafka_python}


def read_confluent(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """Everything that is committed now, up to the last stable offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            break
        found.append(message.value() or b"")
    consumer.close()
    return found


def read_aiokafka(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    async def go() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            place = aiokafka.TopicPartition(topic, partition)
            consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            await consumer.seek_to_beginning(place)
            found: list[bytes] = []
            while await consumer.position(place) < end:
                for batch in (await consumer.getmany(place, timeout_ms=500)).values():
                    found += [record.value for record in batch]
            return found
        finally:
            await consumer.stop()

    return run(go())


def read_kafka_python(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    place = kafka.TopicPartition(topic, partition)
    consumer.assign([place])
    end = consumer.end_offsets([place])[place]
    consumer.seek_to_beginning(place)
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while consumer.position(place) < end and time.monotonic() < deadline:
        for batch in consumer.poll(500).values():
            found += [record.value for record in batch]
    consumer.close()
    return found


READERS = {"aiokafka": read_aiokafka, "confluent-kafka": read_confluent, "kafka-python": read_kafka_python}


@pytest.mark.parametrize("reader", sorted(READERS))
@pytest.mark.parametrize("producer", sorted(PRODUCERS))
def test_committed_records_are_read_and_aborted_ones_are_not(
    bootstrap: str, make_topic: Callable[..., str], producer: str, reader: str
) -> None:
    topic = make_topic(2)
    steps: list[Step] = [
        ("commit", [b"a", b"b", b"c"]),
        ("abort", [b"x", b"y"]),
        ("commit", [b"d"]),
        ("abort", [b"z", b"zz"]),
        ("commit", [b"e", b"f"]),
    ]
    PRODUCERS[producer](bootstrap, topic, f"txn-{uuid.uuid4()}", steps)
    assert READERS[reader](bootstrap, topic, 0) == [b"a", b"c", b"d", b"e"]
    assert READERS[reader](bootstrap, topic, 1) == [b"b", b"f"]


def test_the_second_producer_of_a_transactional_id_fences_the_first(bootstrap: str, topic: str) -> None:
    name = f"txn-{uuid.uuid4()}"
    first = confluent_producer(bootstrap, name)
    first.begin_transaction()
    first.produce(topic, b"of the first", partition=0)
    first.flush(DEADLINE_S)
    second = confluent_producer(bootstrap, name)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        first.commit_transaction(DEADLINE_S)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    second.begin_transaction()
    second.produce(topic, b"of the second", partition=0)
    second.commit_transaction(DEADLINE_S)
    assert read_confluent(bootstrap, topic, 0) == [b"of the second"]


def test_an_aborted_producer_goes_on(bootstrap: str, topic: str) -> None:
    producer = confluent_producer(bootstrap, f"txn-{uuid.uuid4()}")
    for number in range(20):
        producer.begin_transaction()
        producer.produce(topic, str(number).encode(), partition=0)
        if number % 2:
            producer.abort_transaction(DEADLINE_S)  # also what was never sent
        else:
            producer.commit_transaction(DEADLINE_S)
    assert read_confluent(bootstrap, topic, 0) == [str(number).encode() for number in range(0, 20, 2)]


def transform_confluent(bootstrap: str, source: str, target: str, group: str, count: int) -> None:
    """Consume, transform, produce: records and offsets in one transaction, a few at a time."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = confluent_producer(bootstrap, f"{group}-txn")
    done = 0
    deadline = time.monotonic() + DEADLINE_S
    while done < count and time.monotonic() < deadline:
        messages = [message for message in consumer.consume(5, 1.0) if not message.error()]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, (message.value() or b"").upper(), partition=0)
        places = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), DEADLINE_S)
        producer.commit_transaction(DEADLINE_S)
        done += len(messages)
    consumer.close()


def transform_aiokafka(bootstrap: str, source: str, target: str, group: str, count: int) -> None:
    async def go() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{group}-txn")
        await consumer.start()
        await producer.start()
        done = 0
        while done < count:
            batches = await consumer.getmany(timeout_ms=500, max_records=5)
            if not batches:
                continue
            async with producer.transaction():
                offsets: dict[Any, int] = {}
                for place, records in batches.items():
                    for record in records:
                        await producer.send(target, record.value.upper(), partition=0)
                        offsets[place] = record.offset + 1
                        done += 1
                await producer.send_offsets_to_transaction(offsets, group)
        await producer.stop()
        await consumer.stop()

    run(go())


TRANSFORMERS = {"aiokafka": transform_aiokafka, "confluent-kafka": transform_confluent}


@pytest.mark.parametrize("library", sorted(TRANSFORMERS))
def test_consume_transform_produce_goes_on_where_the_last_one_committed(
    bootstrap: str, make_topic: Callable[..., str], library: str
) -> None:
    source, target = make_topic(1), make_topic(1)
    group = f"group-{uuid.uuid4()}"
    run_confluent(bootstrap, source, f"{group}-source", [("commit", [])])
    values = [f"word {number}".encode() for number in range(30)]
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(source, value, partition=0)
    producer.flush(DEADLINE_S)
    TRANSFORMERS[library](bootstrap, source, target, group, 12)
    TRANSFORMERS[library](bootstrap, source, target, group, 15)
    found = read_confluent(bootstrap, target, 0)
    assert 27 <= len(found) <= 30
    assert found == [value.upper() for value in values[: len(found)]]
