"""Consume, transform, produce by librdkafka: each record of a topic becomes one of another, with the group's offsets in
the same transaction. A member that can't go on is replaced by a new one."""

from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tools.chaos.clients.diary import Ending, Pen, options
from tools.chaos.clients.reader import GROUP_SETTINGS, polled, settings
from tools.chaos.clients.transactions import CALL_S, Transactions


class Copier:
    def __init__(self, pen: Pen, wanted: dict[str, Any], transactions: Transactions) -> None:
        self._pen = pen
        self._target: str = wanted["target"]
        self._transactions = transactions
        given = settings(wanted["bootstrap"], group=wanted["group"], read_committed=True)
        self._consumer: Any = Consumer({**given, **GROUP_SETTINGS["classic"]})
        self._consumer.subscribe(
            wanted["topics"],
            on_assign=lambda _, parts: pen.given(_places(parts)),
            on_revoke=lambda _, parts: pen.taken(_places(parts)),
            on_lost=lambda _, parts: pen.taken(_places(parts)),
        )

    def copy_until(self, ending: Ending) -> None:
        while not ending:
            messages: list[Any] = []
            for one in polled(self._pen, self._consumer):
                messages.append(one)
                self._pen.read(one.topic(), one.partition(), one.offset(), one.value().decode())
            if messages and not self._copy(messages, ending):
                self._go_back()
            self._pen.flush()

    def close(self) -> None:
        self._consumer.close()

    def _copy(self, messages: list[Any], ending: Ending) -> bool:
        """Whether they were copied, for all that is known."""
        transactions, done = self._transactions, dict[tuple[str, int], int]()
        while not transactions.begin():
            if ending:
                return False
        try:
            for one in messages:
                topic, partition, offset = one.topic(), one.partition(), one.offset()
                value = f"{self._pen.name}:{transactions.number}:{topic}-{partition}:{offset}"
                transactions.send(self._target, partition, value, source=[topic, partition, offset])
                done[topic, partition] = offset + 1
        except KafkaException as error:
            transactions.give_up(error)
            return False
        offsets = [TopicPartition(*place, offset) for place, offset in done.items()]
        metadata = self._consumer.consumer_group_metadata()
        if transactions.end(commit=True, offsets=offsets, metadata=metadata) != "committed":
            return False
        self._pen.moved(done)
        return True

    def _go_back(self) -> None:
        """To what is committed: what was read and not copied is to be read again."""
        held = self._consumer.assignment()
        self._pen.given(_places(held))
        for place in self._consumer.committed(held, CALL_S):
            self._consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


def _places(parts: list[Any]) -> list[tuple[str, int]]:
    return [(part.topic, part.partition) for part in parts]


def main() -> None:
    wanted, ending = options(), Ending()
    with Pen(wanted["diary"], wanted["name"], group=wanted["group"], read_committed=True) as pen:
        transactions = Transactions(pen, wanted["bootstrap"], wanted["transactional_id"], ending)
        while not ending:
            copier = Copier(pen, wanted, transactions)
            try:
                copier.copy_until(ending)
            except KafkaException as error:
                pen.trouble(error)
            finally:
                copier.close()


if __name__ == "__main__":
    main()
