"""The same with aiokafka: `python -m ... BOOTSTRAP GROUP WORKER BATCH NUMBER WORKERS`. A failed transaction ends it.

aiokafka can't ask for stable offsets only, nor say in a transaction which member of the group it is (KIP-447), so that
a group that shares its partitions out isn't exactly once with it, whatever the broker: a member that is given a
partition may read the offset from before a transaction that is just being committed. Each worker has its own
partitions instead, and a transactional id that goes with them: once the producer has started, what an earlier one left
is ended, and offsets are stable.
"""

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.stories.exactly_once.chaos import PARTITIONS


async def run(bootstrap: str, group: str, name: str, batch: str, number: str, workers: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=f"{group}-{name}",
        transaction_timeout_ms=5000,
        retry_backoff_ms=50,
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=50,
    )
    await producer.start()  # before the consumer: only now the offsets are stable
    await consumer.start()
    consumer.assign([TopicPartition("input", index) for index in range(int(number), PARTITIONS, int(workers))])
    while True:
        batches = await consumer.getmany(timeout_ms=200, max_records=int(batch))
        if not batches:
            continue
        async with producer.transaction():
            offsets: dict[Any, int] = {}
            for place, records in batches.items():
                for record in records:
                    value = b"<" + record.value + b">"
                    await producer.send("output", value, key=record.key, partition=place.partition)
                offsets[place] = records[-1].offset + 1
            await producer.send_offsets_to_transaction(offsets, group)


if __name__ == "__main__":
    try:
        asyncio.run(run(*sys.argv[1:7]))
    except (KafkaError, OSError) as error:
        print(repr(error), file=sys.stderr)
        sys.exit(1)
