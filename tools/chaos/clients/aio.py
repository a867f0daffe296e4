"""An idempotent producer and a member of a classic group by aiokafka, in one process and two diaries."""

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from tools.chaos.clients.diary import PRODUCER_PATIENCE_MS, Ending, Pen, options

COMMIT_EVERY_S = 0.3
IN_FLIGHT_MAX = 2000


async def produce(pen: Pen, ending: Ending, bootstrap: str, topic: str, partitions: int, per_second: float) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        request_timeout_ms=PRODUCER_PATIENCE_MS,  # what waits for longer is given up
        metadata_max_age_ms=2000,
        retry_backoff_ms=100,
    )
    await producer.start()
    number, due, waiting = 0, time.monotonic(), set[Any]()
    while not ending:
        value, partition = f"{pen.name}:{number}", number % partitions
        pen.sent(topic, partition, value)
        future = await producer.send(topic, value.encode(), partition=partition)
        waiting.add(future)
        future.add_done_callback(lambda done, value=value: told(pen, done, value, waiting))
        number += 1
        due = max(due + 1 / per_second, time.monotonic() - 1)
        await asyncio.sleep(max(due - time.monotonic(), 0))
        if len(waiting) > IN_FLIGHT_MAX:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not number % 100:
            pen.flush()
    await producer.stop()


def told(pen: Pen, done: Any, value: str, waiting: set[Any]) -> None:
    waiting.discard(done)
    if done.cancelled() or done.exception() is not None:
        pen.write("failed", value=value, why="cancelled" if done.cancelled() else repr(done.exception()))
    else:
        result = done.result()
        pen.acked(result.topic, result.partition, result.offset, value)


class Assignments(ConsumerRebalanceListener):
    def __init__(self, pen: Pen, commit: Any) -> None:
        self._pen = pen
        self._commit = commit

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._commit()
        self._pen.taken((one.topic, one.partition) for one in revoked)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._pen.given((one.topic, one.partition) for one in assigned)


async def consume(pen: Pen, ending: Ending, bootstrap: str, group: str, topics: list[str]) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        request_timeout_ms=10_000,
        metadata_max_age_ms=2000,
        retry_backoff_ms=100,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    done: dict[tuple[str, int], int] = {}

    async def commit() -> None:
        if not done:
            return
        offsets = dict(done)
        done.clear()
        try:
            await consumer.commit({TopicPartition(*place): offset for place, offset in offsets.items()})
        except KafkaError as error:
            pen.trouble(repr(error))
        else:
            pen.moved(offsets)

    await consumer.start()
    consumer.subscribe(topics, listener=Assignments(pen, commit))
    committed_s = time.monotonic()
    while not ending:
        for part, records in (await consumer.getmany(timeout_ms=100)).items():
            for record in records:
                pen.read(part.topic, part.partition, record.offset, (record.value or b"").decode())
                done[part.topic, part.partition] = record.offset + 1
        if time.monotonic() - committed_s > COMMIT_EVERY_S:
            await commit()
            committed_s = time.monotonic()
            pen.flush()
    await commit()
    await asyncio.wait_for(consumer.stop(), 30)


async def run(wanted: dict[str, Any]) -> None:
    ending, bootstrap, reads = Ending(), wanted["bootstrap"], wanted["reads"]
    with (
        Pen(wanted["diary"], wanted["name"]) as writes,
        Pen(reads["diary"], reads["name"], group=reads["group"]) as pen,
    ):
        await asyncio.gather(
            produce(writes, ending, bootstrap, wanted["topic"], wanted["partitions"], wanted["per_second"]),
            consume(pen, ending, bootstrap, reads["group"], reads["topics"]),
        )


if __name__ == "__main__":
    asyncio.run(run(options()))
