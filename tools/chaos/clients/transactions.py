"""Transactions over two topics by librdkafka: three in four are committed, the others aborted."""

from random import Random
from typing import Any

from confluent_kafka import KafkaException, Producer
from tools.chaos.clients.diary import Ending, Pen, options

CALL_S = 10.0
TRANSACTION_MS = 10_000
RECORDS_MAX = 4
ABORTED = 0.25
LONG = 0.1
"""How many stay open for a while, so that faults meet them in the middle."""


def settings(bootstrap: str, transactional_id: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TRANSACTION_MS,
        "linger.ms": 1,
        "socket.timeout.ms": 5000,
        "reconnect.backoff.max.ms": 500,
        # By default librdkafka 2.16 may give up brokers that go down, and a call in a transaction that still holds on
        # to one never ends, whatever its timeout.
        "metadata.recovery.strategy": "none",
        "log_level": 0,
    }


class Transactions:
    """One producer's, with what becomes of each in the diary. Where its library can't go on, another one of the same
    transactional id does: that ends what the first left open."""

    def __init__(self, pen: Pen, bootstrap: str, transactional_id: str, ending: Ending) -> None:
        self.number = 0
        self._ending = ending
        self._pen = pen
        self._settings = settings(bootstrap, transactional_id)
        self._producer: Any = None

    def begin(self) -> bool:
        """Whether there is a transaction now."""
        try:
            if self._producer is None:
                self._producer = Producer(self._settings)
                self._again(self._producer.init_transactions, begins=True)
            self._producer.begin_transaction()
        except KafkaException as error:
            self._pen.trouble(error)
            self._producer = None
            return False
        self.number += 1
        return True

    def send(self, topic: str, partition: int, value: str, **more: Any) -> None:
        self._pen.sent(topic, partition, value, transaction=self.number, **more)
        self._producer.produce(topic, value, partition=partition, on_delivery=self._told)
        self._producer.poll(0)

    def end(self, *, commit: bool, offsets: list[Any] | None = None, metadata: Any = None) -> str:
        """What became of it. With offsets of a group, if they are given."""
        try:
            if offsets is not None:
                self._again(lambda timeout: self._producer.send_offsets_to_transaction(offsets, metadata, timeout))
            self._pen.write("ending", transaction=self.number, commit=commit)
            self._again(self._producer.commit_transaction if commit else self._producer.abort_transaction)
            return self._ended("committed" if commit else "aborted")
        except KafkaException as error:
            return self.give_up(error)

    def give_up(self, error: KafkaException) -> str:
        """After an error in the middle: abort it, if that can be done."""
        self._pen.trouble(error)
        try:
            if error.args[0].txn_requires_abort():
                self._again(self._producer.abort_transaction)
                return self._ended("aborted")
        except KafkaException as second:
            self._pen.trouble(second)
        self._producer = None
        return self._ended("unknown")

    def _ended(self, outcome: str) -> str:
        self._pen.write("ended", transaction=self.number, outcome=outcome)
        self._pen.flush()
        return outcome

    def _again(self, call: Any, *, begins: bool = False) -> None:
        """As often as it takes: after a timeout only the same may be asked. What only begins may be left at the end."""
        while True:
            try:
                call(CALL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or (begins and self._ending):
                    raise
                self._pen.trouble(error)

    def _told(self, error: Any, message: Any) -> None:
        value = message.value().decode()
        if error is None:
            self._pen.acked(message.topic(), message.partition(), message.offset(), value)
        else:
            self._pen.write("failed", value=value, why=str(error))


def pay(pen: Pen, bootstrap: str, topics: dict[str, int], per_second: float, seed: int) -> None:
    ending, dice, count = Ending(), Random(seed), 0
    transactions = Transactions(pen, bootstrap, pen.name, ending)
    while not ending.wait(dice.uniform(0, 2 / per_second)):
        if not transactions.begin():
            continue
        try:
            for topic, partitions in topics.items():
                for _ in range(dice.randint(1, RECORDS_MAX)):
                    count += 1
                    transactions.send(topic, dice.randrange(partitions), f"{pen.name}:{count}")
        except KafkaException as error:
            transactions.give_up(error)
            continue
        if dice.random() < LONG:
            ending.wait(dice.uniform(0, 2))
        transactions.end(commit=dice.random() >= ABORTED)


if __name__ == "__main__":
    wanted = options()
    with Pen(wanted["diary"], wanted["name"]) as pen:
        pay(pen, wanted["bootstrap"], wanted["topics"], wanted["per_second"], wanted["seed"])
