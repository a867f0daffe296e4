"""The same with aiokafka: `python -m ... BOOTSTRAP GROUP WORKER BATCH`. Any failed transaction ends the process."""

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


async def run(bootstrap: str, group: str, name: str, batch: str) -> None:
    consumer = AIOKafkaConsumer(
        "input",
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=2000,
        heartbeat_interval_ms=300,
        retry_backoff_ms=50,
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=f"{group}-{name}",
        transaction_timeout_ms=5000,
        retry_backoff_ms=50,
    )
    await consumer.start()
    await producer.start()
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
        asyncio.run(run(*sys.argv[1:5]))
    except (KafkaError, OSError) as error:
        print(repr(error), file=sys.stderr)
        sys.exit(1)
