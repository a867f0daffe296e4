"""Consume, transform, produce with confluent-kafka: `python -m ... BOOTSTRAP GROUP WORKER BATCH`.

Ends with code 1 where only a new process can go on, as a program under a supervisor does.
"""

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_S = 20.0


def transform(value: bytes) -> bytes:
    return b"<" + value + b">"


class Worker:
    def __init__(self, bootstrap: str, group: str, name: str, batch: str) -> None:
        self.batch = int(batch)
        common = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
            # By default librdkafka 2.16 gives up its only broker when that goes down, and a call in a transaction that
            # still holds on to it never ends, whatever its timeout.
            "metadata.recovery.strategy": "none",
        }
        self.consumer = Consumer(
            {
                **common,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 2000,
                "heartbeat.interval.ms": 300,
            }
        )
        self.producer = Producer(
            {**common, "transactional.id": f"{group}-{name}", "transaction.timeout.ms": 5000, "linger.ms": 1}
        )
        self.producer.init_transactions(TIMEOUT_S)
        self.consumer.subscribe(["input"])

    def run(self) -> None:
        while True:
            messages: list[Any] = [each for each in self.consumer.consume(self.batch, 0.2) if not each.error()]
            if messages:
                self.copy(messages)

    def copy(self, messages: list[Any]) -> None:
        try:
            self.producer.begin_transaction()
            for message in messages:
                self.producer.produce(
                    "output", transform(message.value()), key=message.key(), partition=message.partition()
                )
            places = self.consumer.position(self.consumer.assignment())
            done = [place for place in places if place.offset >= 0]
            self.producer.send_offsets_to_transaction(done, self.consumer.consumer_group_metadata(), TIMEOUT_S)
            self.commit()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.producer.abort_transaction(TIMEOUT_S)
            self.go_back()

    def commit(self) -> None:
        while True:
            try:
                self.producer.commit_transaction(TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def go_back(self) -> None:
        """To what is committed: the aborted batch is to be read again."""
        held = self.consumer.assignment()
        for place in self.consumer.committed(held, TIMEOUT_S):
            self.consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


if __name__ == "__main__":
    try:
        Worker(*sys.argv[1:5]).run()
    except KafkaException as error:
        print(error, file=sys.stderr)
        sys.exit(1)
