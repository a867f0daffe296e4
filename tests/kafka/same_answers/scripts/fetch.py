"""Fetch: every version, offsets everywhere, size limits, epochs, incremental sessions."""

from random import Random
from typing import Any

from tests.batches import Batch, Sent
from tests.kafka.same_answers.scripts.produce import some_records
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey

INT_MAX = 2**31 - 1


def filled(side: Side, rng: Random, name: str, partitions: int = 1, count: int = 6) -> str:
    """A topic with some batches of several records in each partition."""
    topic = side.create(f"{name}-{rng.getrandbits(32):08x}", partitions)
    for partition in range(partitions):
        for _ in range(count):
            side.produce(topic, Batch(some_records(rng, 3)).encode(), partition=partition, note="to be fetched")
    return topic


def every_version_and_offset(side: Side, rng: Random) -> None:
    topic = filled(side, rng, "fetched")
    side.normaliser.learn("missing", rng.randbytes(16))
    for version in versions(ApiKey.FETCH):
        for offset in (0, 1, 3, 4, 17, 18, 19, 1000, -1, -2, 2**62):
            side.fetch(topic, offset, version=version, note=f"from {offset}")
        side.fetch(topic, 0, version=version, isolation=1, note="read committed")
        side.fetch(topic, 0, version=version, isolation=7, note="isolation level 7")
        side.fetch(topic, 0, version=version, partition=3, note="a partition that isn't there")
        side.fetch("missing", 0, version=version, note="a topic that isn't there")
        side.fetch(topic, 18, version=version, wait_ms=30, note="at the end, waiting")
        side.fetch(topic, 18, version=version, wait_ms=30, min_bytes=0, note="at the end, min bytes 0")


def limits(side: Side, rng: Random) -> None:
    topic = filled(side, rng, "limited", 2)
    large = side.create(f"large-{rng.getrandbits(32):08x}")
    for size in (10, 5000, 10, 5000, 10):
        side.produce(large, Batch([Sent(b"x" * size)]).encode(), note=f"{size} bytes")
    for version in (4, 11, 13, 18):
        for limit in (-1, 0, 1, 11, 12, 60, 61, 100, 300, 1000, 5100, 10_300, INT_MAX):
            side.fetch(topic, 4, version=version, partition_max_bytes=limit, note=f"partition max {limit}")
            side.fetch(topic, 4, version=version, max_bytes=limit, note=f"max {limit}")
            side.fetch(large, 0, version=version, max_bytes=limit, note=f"large, max {limit}")
            side.fetch(large, 1, version=version, partition_max_bytes=limit, note=f"large, partition max {limit}")
        for limit in (1, 200, 800, 3000):
            fields = side.fetch_fields(topic, 0, version=version, max_bytes=limit)
            first = fields["topics"][0]["partitions"][0]
            fields["topics"][0]["partitions"].append(first | {"partition": 1})
            fields["topics"].append(
                side.named(large, ApiKey.FETCH, version) | {"partitions": [dict(first)]},
            )
            side.ask(ApiKey.FETCH, version, fields, f"three partitions, max {limit}")
            fields["topics"][0]["partitions"].append(first | {"fetch_offset": 6})
            fields["topics"].append(fields["topics"][0])
            side.ask(ApiKey.FETCH, version, fields, f"some of them named twice, max {limit}")


def leader_epochs(side: Side, rng: Random) -> None:
    topic = filled(side, rng, "led")
    for version in (9, 11, 12, 13, 18):
        for epoch in (-1, 0, 1, 5, -3):
            side.fetch(topic, 0, version=version, leader_epoch=epoch, note=f"current epoch {epoch}")
            if version >= 12:
                side.fetch(topic, 3, version=version, last_fetched_epoch=epoch, note=f"last fetched epoch {epoch}")
                side.fetch(topic, 30, version=version, last_fetched_epoch=epoch, note=f"beyond, last epoch {epoch}")
                side.fetch(
                    topic,
                    3,
                    version=version,
                    leader_epoch=0,
                    last_fetched_epoch=epoch,
                    note=f"both, last epoch {epoch}",
                )


def sessions(side: Side, rng: Random) -> None:
    topic = filled(side, rng, "session", 3)
    other = filled(side, rng, "joins")
    for version in range(7, 19):
        fields = side.fetch_fields(topic, 18, version=version, session=(0, 0))
        part = fields["topics"][0]["partitions"][0]
        fields["topics"][0]["partitions"] += [part | {"partition": 1}, part | {"partition": 2, "fetch_offset": 0}]
        opened = side.ask(ApiKey.FETCH, version, fields, "a new session")
        if opened is None or not opened.session_id:
            continue
        session = Session(side, opened.session_id, version)
        session.ask("unchanged, nothing moved")
        session.ask("partition 2 caught up", {topic: [part | {"partition": 2, "fetch_offset": 18}]})
        session.ask("nothing")
        side.produce(topic, Batch([Sent(b"new")]).encode(), partition=1, note="while a session is open")
        session.ask("one new record")
        session.ask("a topic joins", {other: [part | {"fetch_offset": 18}]})
        session.ask("an unknown partition joins", {other: [part | {"partition": 9, "fetch_offset": 0}]})
        session.ask("the unknown partition is still there")
        session.ask("partitions are forgotten", forget={other: [0, 9], topic: [1]})
        session.ask("out of range", {topic: [part | {"partition": 0, "fetch_offset": 4000}]})
        session.ask("back in range", {topic: [part | {"partition": 0, "fetch_offset": 18}]})
        session.ask("a wrong epoch", epoch=77)
        session.ask("closed", epoch=-1)
        session.ask("after it was closed", epoch=session.epoch)
        # The offsets stay the same for the next version.
        side.quietly(
            ApiKey.DELETE_RECORDS,
            2,
            {"topics": [{"name": topic, "partitions": [{"partition_index": 1, "offset": 0}]}], "timeout_ms": 1000},
        )
    Session(side, 1234567, 12).ask("a session nobody opened")
    Session(side, 1234567, 18).ask("a session nobody opened")


class Session:
    """An incremental fetch session from the client's side."""

    def __init__(self, side: Side, session_id: int, version: int) -> None:
        self.side = side
        self.id = session_id
        self.version = version
        self.epoch = 1

    def ask(
        self,
        note: str,
        topics: dict[str, list[dict[str, Any]]] | None = None,
        forget: dict[str, list[int]] | None = None,
        epoch: int | None = None,
    ) -> None:
        named = self.side.named
        fields: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": INT_MAX,
            "isolation_level": 0,
            "session_id": self.id,
            "session_epoch": self.epoch if epoch is None else epoch,
            "topics": [
                named(name, ApiKey.FETCH, self.version) | {"partitions": parts}
                for name, parts in (topics or {}).items()
            ],
            "forgotten_topics_data": [
                named(name, ApiKey.FETCH, self.version) | {"partitions": parts}
                for name, parts in (forget or {}).items()
            ],
        }
        if self.version < 15:
            fields["replica_id"] = -1
        self.side.ask(ApiKey.FETCH, self.version, fields, note)
        if epoch is None:
            self.epoch += 1


def a_topic_made_again(side: Side, rng: Random) -> None:
    """The old id is unknown, in a fetch and in a session; the name is a new, empty topic."""
    name = f"again-{rng.getrandbits(32):08x}"
    side.create(name)
    side.produce(name, Batch([Sent(b"old")]).encode())
    old = side.topic_id(name)
    opened = side.fetch(name, 0, version=16, session=(0, 0), note="a session on the first")
    removal = {"topics": [{"name": name}], "timeout_ms": 10_000}
    side.ask(ApiKey.DELETE_TOPICS, 6, removal)
    side.create(name)
    new = side.topic_id(name)
    side.note("the new topic has an id of its own", old != new)
    side.normaliser.learn("the old one", old)
    side.normaliser.learn(name, new)
    for version in (12, 13, 16, 18):
        side.fetch(name, 0, version=version, note="the new one")
    for version in (13, 16, 18):
        side.fetch("the old one", 0, version=version, note="the old one")
    if opened is not None and opened.session_id:
        Session(side, opened.session_id, 16).ask("the session on the first")
    side.produce("the old one", Batch([Sent()]).encode(), version=13, note="to the old one")
    side.produce(name, Batch([Sent(b"new")]).encode(), version=13, note="to the new one")
    side.look(name)


SCRIPTS = (every_version_and_offset, limits, leader_epochs, sessions, a_topic_made_again)
