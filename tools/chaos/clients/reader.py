"""Readers by librdkafka: a member of a group, of either protocol, or one that reads everything without a group.

A member commits what it read every now and then, and leaves for a moment after a while, so that the others take over.
"""

import time
from collections.abc import Iterator
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tools.chaos.clients.diary import Ending, Pen, options

COMMIT_EVERY_S = 0.3
POLL_S = 0.1
RECORDS_MAX = 200
GROUP_SETTINGS = {
    "classic": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
    "consumer": {"group.protocol": "consumer"},
}


def settings(bootstrap: str, *, group: str, read_committed: bool) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "socket.timeout.ms": 5000,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }


def polled(pen: Pen, consumer: Any) -> Iterator[Any]:
    """Records, one by one, as long as there are some and not too many: what is told of assignments in between stands
    in the diary at its place."""
    timeout_s = POLL_S
    for _ in range(RECORDS_MAX):
        message = consumer.poll(timeout_s)
        if message is None:
            return
        if message.error() is None:
            timeout_s = 0
            yield message
        else:
            pen.trouble(message.error())


class Member:
    """One stay in the group."""

    def __init__(self, pen: Pen, consumer: Any, topics: list[str]) -> None:
        self._pen = pen
        self._consumer = consumer
        self._done: dict[tuple[str, int], int] = {}
        consumer.subscribe(topics, on_assign=self._given, on_revoke=self._revoked, on_lost=self._lost)

    def read(self, until_s: float, ending: Ending) -> None:
        committed_s = time.monotonic()
        while not ending and time.monotonic() < until_s:
            for message in polled(self._pen, self._consumer):
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                self._pen.read(topic, partition, offset, message.value().decode())
                self._done[topic, partition] = offset + 1
            if time.monotonic() - committed_s > COMMIT_EVERY_S:
                self.commit()
                committed_s = time.monotonic()

    def commit(self) -> None:
        if not self._done:
            return
        offsets = [TopicPartition(*place, offset) for place, offset in self._done.items()]
        try:
            told = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._pen.trouble(error)
            return
        self._pen.moved({(one.topic, one.partition): one.offset for one in told if one.error is None})
        self._done = {}

    def _given(self, _: Any, parts: list[Any]) -> None:
        self._pen.given(_places(parts))

    def _revoked(self, _: Any, parts: list[Any]) -> None:
        self.commit()
        self._lost(_, parts)

    def _lost(self, _: Any, parts: list[Any]) -> None:
        self._pen.taken(_places(parts))
        for place in _places(parts):
            self._done.pop(place, None)


def _places(parts: list[Any]) -> list[tuple[str, int]]:
    return [(part.topic, part.partition) for part in parts]


def take_part(pen: Pen, given: dict[str, Any], topics: list[str], *, protocol: str, stay_s: float, seed: int) -> None:
    """Be a member, and a new one every `stay_s` or so (0: for ever)."""
    ending, dice = Ending(), Random(seed)
    while not ending:
        consumer: Any = Consumer({**given, **GROUP_SETTINGS[protocol]})
        until_s = time.monotonic() + (dice.uniform(0.5, 1.5) * stay_s if stay_s else 1e9)
        try:
            member = Member(pen, consumer, topics)
            member.read(until_s, ending)
            member.commit()
        finally:
            consumer.close()
            pen.flush()
        ending.wait(dice.uniform(0, 2))


def read_all(pen: Pen, given: dict[str, Any], topics: dict[str, int]) -> None:
    """Every partition from its start, without a group."""
    ending = Ending()
    consumer: Any = Consumer({**given, **GROUP_SETTINGS["classic"]})
    places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
    pen.given(places)
    consumer.assign([TopicPartition(*place, 0) for place in places])
    while not ending:
        for message in polled(pen, consumer):
            pen.read(message.topic(), message.partition(), message.offset(), message.value().decode())
        pen.flush()
    consumer.close()


def main() -> None:
    wanted = options()
    group, committed = wanted.get("group"), wanted["read_committed"]
    given = settings(wanted["bootstrap"], group=group or wanted["name"], read_committed=committed)
    with Pen(wanted["diary"], wanted["name"], group=group, read_committed=committed) as pen:
        if group is None:
            read_all(pen, given, wanted["topics"])
        else:
            topics = list(wanted["topics"])
            stay_s: float = wanted["stay_s"]
            take_part(pen, given, topics, protocol=wanted["protocol"], stay_s=stay_s, seed=wanted["seed"])


if __name__ == "__main__":
    main()
