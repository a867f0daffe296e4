"""One face for three Kafka clients, so that each story is told once and lived through by all of them.

Reading uses assigned partitions, no groups. Everything has a deadline, so that a broken broker fails a test instead of
hanging it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiokafka
import confluent_kafka

import kafka

DEADLINE_S = 30.0
FETCH_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sent:
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    partition: int = 0
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A record that was read."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class Client(Protocol):
    name: str

    def send(
        self, topic: str, records: list[Sent], *, acks: str = "all", compression: str = "none", idempotent: bool = False
    ) -> list[int]:
        """The records' offsets, in order; with acks=0 whatever the client makes of it."""
        ...

    def read(self, topic: str, count: int, *, offset: int = 0, partitions: tuple[int, ...] = (0,)) -> list[Read]:
        """`count` records from `offset` of each of the partitions."""
        ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is as late as that; None where there is none."""
        ...

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        """First and next offset."""
        ...


class Confluent:
    """confluent-kafka: librdkafka."""

    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 10_000}

    def send(
        self, topic: str, records: list[Sent], *, acks: str = "all", compression: str = "none", idempotent: bool = False
    ) -> list[int]:
        producer = confluent_kafka.Producer(
            {
                **self._common,
                "acks": acks,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "message.max.bytes": FETCH_BYTES_MAX,
                "linger.ms": 2,
            }
        )
        offsets = [-1] * len(records)
        errors: list[Any] = []

        def delivered(index: int) -> Callable[[Any, Any], None]:
            def done(error: Any, message: Any) -> None:
                offsets[index] = message.offset()
                if error is not None:
                    errors.append(error)

            return done

        for index, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                delivered(index),
                timestamp=record.timestamp_ms or 0,
                headers=record.headers,
            )
        left = producer.flush(DEADLINE_S)
        assert not left, f"{left} records were not acknowledged within {DEADLINE_S} s"
        if errors:
            raise confluent_kafka.KafkaException(errors[0])
        return offsets

    def read(self, topic: str, count: int, *, offset: int = 0, partitions: tuple[int, ...] = (0,)) -> list[Read]:
        consumer = self._consumer()
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset) for partition in partitions])
            found: list[Read] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(found), 0.2):
                    if message.error():
                        raise confluent_kafka.KafkaException(message.error())
                    found.append(_from_confluent(message))
            return found
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        try:
            asked = confluent_kafka.TopicPartition(topic, partition, timestamp_ms)
            (found,) = consumer.offsets_for_times([asked], timeout=DEADLINE_S)
            return found.offset if found.offset >= 0 else None
        finally:
            consumer.close()

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            return consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), timeout=DEADLINE_S)
        finally:
            consumer.close()

    def _consumer(self) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                **self._common,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": FETCH_BYTES_MAX,
                "fetch.max.bytes": FETCH_BYTES_MAX,
                "receive.message.max.bytes": FETCH_BYTES_MAX * 2,
            }
        )


def _from_confluent(message: Any) -> Read:
    return Read(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )


class KafkaPython:
    """kafka-python: pure Python."""

    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {"bootstrap_servers": bootstrap}

    def send(
        self, topic: str, records: list[Sent], *, acks: str = "all", compression: str = "none", idempotent: bool = False
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            **self._common,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            max_request_size=FETCH_BYTES_MAX,
            linger_ms=2,
        )
        try:
            answers = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(DEADLINE_S)
            return [answer.get(DEADLINE_S).offset for answer in answers]
        finally:
            producer.close(DEADLINE_S)

    def read(self, topic: str, count: int, *, offset: int = 0, partitions: tuple[int, ...] = (0,)) -> list[Read]:
        consumer = self._consumer()
        try:
            places = [kafka.TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, offset)
            found: list[Read] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < count and time.monotonic() < deadline:
                for batch in consumer.poll(200, max_records=count - len(found)).values():
                    found += [_from_python(record) for record in batch]
            return found
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        try:
            place = kafka.TopicPartition(topic, partition)
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
            return None if found is None else found.offset
        finally:
            consumer.close()

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            place = kafka.TopicPartition(topic, partition)
            return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
        finally:
            consumer.close()

    def _consumer(self) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            **self._common,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=FETCH_BYTES_MAX,
            fetch_max_bytes=FETCH_BYTES_MAX,
        )


class Aiokafka:
    """aiokafka: asyncio."""

    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {"bootstrap_servers": bootstrap}

    def send(
        self, topic: str, records: list[Sent], *, acks: str = "all", compression: str = "none", idempotent: bool = False
    ) -> list[int]:
        async def go() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                **self._common,
                acks=acks if acks == "all" else int(acks),
                compression_type=None if compression == "none" else compression,
                enable_idempotence=idempotent,
                max_request_size=FETCH_BYTES_MAX,
                linger_ms=2,
            )
            await producer.start()
            try:
                answers: list[Awaitable[Any]] = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=record.headers,
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                await producer.flush()
                sent = [await answer for answer in answers]
                return [-1 if one is None else one.offset for one in sent]
            finally:
                await producer.stop()

        return _run(go())

    def read(self, topic: str, count: int, *, offset: int = 0, partitions: tuple[int, ...] = (0,)) -> list[Read]:
        async def go(consumer: aiokafka.AIOKafkaConsumer) -> list[Read]:
            places = [aiokafka.TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, offset)
            found: list[Read] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < count and time.monotonic() < deadline:
                for batch in (await consumer.getmany(timeout_ms=200, max_records=count - len(found))).values():
                    found += [_from_python(record) for record in batch]
            return found

        return self._consume(go)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def go(consumer: aiokafka.AIOKafkaConsumer) -> int | None:
            place = aiokafka.TopicPartition(topic, partition)
            found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
            return None if found is None else found.offset

        return self._consume(go)

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        async def go(consumer: aiokafka.AIOKafkaConsumer) -> tuple[int, int]:
            place = aiokafka.TopicPartition(topic, partition)
            return (await consumer.beginning_offsets([place]))[place], (await consumer.end_offsets([place]))[place]

        return self._consume(go)

    def _consume(self, work: Callable[[aiokafka.AIOKafkaConsumer], Coroutine[Any, Any, Any]]) -> Any:
        async def go() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                **self._common,
                enable_auto_commit=False,
                auto_offset_reset="none",
                max_partition_fetch_bytes=FETCH_BYTES_MAX,
                fetch_max_bytes=FETCH_BYTES_MAX,
            )
            await consumer.start()
            try:
                return await work(consumer)
            finally:
                await consumer.stop()

        return _run(go())


def _from_python(record: Any) -> Read:
    return Read(record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers))


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S * 2))


CLIENTS: dict[str, Callable[[str], Client]] = {client.name: client for client in (Confluent, KafkaPython, Aiokafka)}
