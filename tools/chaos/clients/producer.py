"""Idempotent records at a steady rate by librdkafka, to each partition in turn."""

import time
from typing import Any

from confluent_kafka import Producer
from tools.chaos.clients.diary import PRODUCER_PATIENCE_MS, Ending, Pen, options

FLUSH_S = PRODUCER_PATIENCE_MS / 1000 + 10
SILENCE_MS = 3000
"""A broker that doesn't answer for so long is asked no more: one that stands still refuses nothing."""


def produce(pen: Pen, bootstrap: str, topic: str, partitions: int, per_second: float) -> None:
    ending = Ending()
    producer: Any = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            "message.timeout.ms": PRODUCER_PATIENCE_MS,
            "socket.timeout.ms": SILENCE_MS,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            "error_cb": pen.trouble,
        }
    )

    def told(error: Any, message: Any) -> None:
        value = message.value().decode()
        if error is None:
            pen.acked(message.topic(), message.partition(), message.offset(), value)
        else:
            pen.write("failed", value=value, why=str(error))

    number, due = 0, time.monotonic()
    while not ending:
        value, partition = f"{pen.name}:{number}", number % partitions
        pen.sent(topic, partition, value)
        while True:
            try:
                producer.produce(topic, value, partition=partition, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        number += 1
        due = max(due + 1 / per_second, time.monotonic() - 1)  # what was held up for longer isn't made up for
        while True:
            producer.poll(max(due - time.monotonic(), 0))
            if time.monotonic() >= due:
                break
        if not number % 100:
            pen.flush()
    if producer.flush(FLUSH_S):
        pen.write("gave-up", why="not all was acknowledged or failed in time")


if __name__ == "__main__":
    wanted = options()
    with Pen(wanted["diary"], wanted["name"]) as pen:
        produce(pen, wanted["bootstrap"], wanted["topic"], wanted["partitions"], wanted["per_second"])
