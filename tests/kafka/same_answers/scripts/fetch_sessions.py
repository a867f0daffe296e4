"""Incremental fetch sessions at random: partitions come, move, are forgotten and named twice, epochs slip, limits bite,
records come and go meanwhile.

Kafka tells first of partitions that it doesn't know, so that a topic may come twice: the order isn't compared."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.batches import Batch, Sent
from tests.kafka.same_answers.scripts.fetch import filled
from tests.kafka.same_answers.side import Side
from tidelog.wire.keys import ApiKey

TURNS = 80
PARTITIONS = 3
SOME_OFFSETS = (0, 4, 17, 18, 18, 18, 19, 20, 40, -1)
LIMITS = (1, 150, 700, 50_000_000, 50_000_000)


class Play:
    """One session at a time, on two topics."""

    def __init__(self, side: Side, rng: Random) -> None:
        self.side = side
        self.rng = rng
        self.topics = [filled(side, rng, name, PARTITIONS) for name in ("one", "two")]
        self.version = rng.choice((7, 9, 12, 13, 15, 18))
        self.id = self.epoch = 0

    def some_topics(self, most: int) -> list[dict[str, Any]]:
        named = [self.rng.choice(self.topics) for _ in range(self.rng.randint(0, most))]
        return [
            self.side.named(name, ApiKey.FETCH, self.version) | {"partitions": [self.part() for _ in range(count)]}
            for name in named
            if (count := self.rng.randint(1, 3))
        ]

    def part(self) -> dict[str, Any]:
        part = {"partition": self.rng.choice((0, 0, 1, 1, 2, 2, 7)), "fetch_offset": self.rng.choice(SOME_OFFSETS)}
        part["partition_max_bytes"] = self.rng.choice(LIMITS)
        if self.version >= 9:
            part["current_leader_epoch"] = self.rng.choice((-1, -1, -1, 0, 5))
        if self.version >= 12:
            part["last_fetched_epoch"] = -1
        return part

    def ask(self, note: str, topics: list[dict[str, Any]], forget: list[dict[str, Any]], epoch: int) -> None:
        fields: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": self.rng.choice(LIMITS),
            "isolation_level": self.rng.choice((0, 1)),
            "session_id": self.id,
            "session_epoch": epoch,
            "topics": topics,
            "forgotten_topics_data": forget,
        }
        if self.version < 15:
            fields["replica_id"] = -1
        answer = self.side.quietly(ApiKey.FETCH, self.version, fields)
        told = self.side.normaliser.response(ApiKey.FETCH, answer)
        told["responses"] = sorted(
            ((topic["topic"], topic["topic_id"], part["partition_index"]), part)
            for topic in told["responses"]
            for part in topic["partitions"]
        )
        self.side.note(f"FETCH v{self.version} {note}", told, ApiKey.FETCH)
        if answer.error_code == 0:
            self.id, self.epoch = (answer.session_id, max(epoch, 0) + 1) if answer.session_id else (0, 0)

    def open(self) -> None:
        self.ask("a new session", self.some_topics(3), [], 0)

    def go_on(self) -> None:
        slip = self.rng.choice([0] * 12 + [1, -1])
        self.ask(f"goes on, slip {slip}", self.some_topics(2), [], max(self.epoch + slip, 0))

    def nothing(self) -> None:
        self.ask("nothing new", [], [], self.epoch)

    def forget(self) -> None:
        name = self.side.named(self.rng.choice(self.topics), ApiKey.FETCH, self.version)
        self.ask("forgets", self.some_topics(1), [name | {"partitions": [self.rng.choice((0, 1, 2, 7))]}], self.epoch)

    def close(self) -> None:
        self.ask("closes", self.some_topics(1), [], -1)

    def produce(self) -> None:
        topic, partition = self.rng.choice(self.topics), self.rng.randrange(PARTITIONS)
        self.side.produce(topic, Batch([Sent(b"x" * self.rng.choice((1, 300)))]).encode(), partition=partition)
        self.side.wait_until_shown(topic, partition)

    def trim(self) -> None:
        part = {"partition_index": self.rng.randrange(PARTITIONS), "offset": self.rng.choice((1, 5, 18))}
        topics = [{"name": self.rng.choice(self.topics), "partitions": [part]}]
        self.side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 5000})


def turns(side: Side, rng: Random) -> None:
    play = Play(side, rng)
    play.open()
    plays: list[Callable[[], None]] = [play.go_on] * 8 + [play.nothing] * 4 + [play.produce] * 3 + [play.forget] * 3
    plays += [play.open, play.close, play.trim]
    for _ in range(TURNS):
        rng.choice(plays)()


SCRIPTS = (turns,)
