"""A worker on asyncio: it commits an offset once the work is done, so that nothing is lost and little is done twice.

python examples/asyncio_worker.py [HOST:PORT]
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = "examples.jobs"
JOBS = 5


async def submit() -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for number in range(JOBS):
            await producer.send_and_wait(TOPIC, f"job {number}".encode())


async def work() -> None:
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id="examples-workers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        done = 0
        while done < JOBS:
            message = await consumer.getone()
            await asyncio.sleep(0)  # the work
            await consumer.commit()  # a crash before this line repeats the job
            done += 1
            print("done:", message.value.decode())


async def main() -> None:
    await submit()
    await work()


asyncio.run(main())
