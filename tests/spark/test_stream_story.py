"""A stream's reader through a long life: batches, crashes between any two steps, more partitions, aborted transactions.

Spark's part is played here as it plays it: the log of ends is written before a batch runs, and a batch that was not
committed is planned again by a reader that knows nothing but the checkpoint.
"""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tidelog.client import Admin
from tidelog.spark.source.options import read_options
from tidelog.spark.source.stream import TopicStreamReader
from tidelog.testing import Broker

STEPS = 80


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.state.log.num.partitions": 1}) as broker:
        yield broker


class Crash(Exception):
    pass


class Query:
    """One streaming query and its checkpoint; `rows` is what a sink that counts each batch once has."""

    def __init__(self, given: dict[str, str], chance: random.Random, begins: Callable[[], None]) -> None:
        self._given = given
        self._chance = chance
        self._begins = begins
        self._ends: list[str] = []
        self._committed = 0
        self.rows: dict[int, list[tuple[int, int, int]]] = {}
        self._reader: TopicStreamReader | None = None

    def reader(self) -> TopicStreamReader:
        if self._reader is None:
            self._reader = TopicStreamReader(read_options(self._given, streaming=True))
            if not self._ends:
                self._reader.initialOffset()
                self._begins()
        return self._reader

    def crash(self) -> None:
        if self._reader is not None:
            self._reader.stop()
        self._reader = None

    def trigger(self) -> bool:
        """One turn of Spark's loop: a batch that was left, or else a new one; whether there was one."""
        if len(self._ends) == self._committed:
            start = json.loads(self._ends[-1]) if self._ends else self.reader().initialOffset()
            end = json.dumps(self.reader().latestOffset(start, self._limit()))
            if self._ends and end == self._ends[-1]:
                return False
            self._maybe_crash()
            self._ends.append(end)
        self._maybe_crash()
        batch = self._committed
        start = json.loads(self._ends[batch - 1]) if batch else self.reader().initialOffset()
        tasks = self.reader().partitions(start, json.loads(self._ends[batch]))
        rows = [row for task in tasks for made in self.reader().read(task) for row in _rows(made)]
        assert self.rows.setdefault(batch, rows) == rows, "a batch that is repeated is the same"
        self._maybe_crash()
        self._committed += 1
        self.reader().commit(json.loads(self._ends[batch]))
        return True

    def _limit(self) -> Any:
        return ReadMaxRows(max_rows=self._chance.randint(1, 20)) if self._chance.random() < 0.5 else ReadAllAvailable()

    def _maybe_crash(self) -> None:
        if self._chance.random() < 0.15:
            self.crash()
            raise Crash


def _rows(made: Any) -> list[tuple[int, int, int]]:
    rows = made.to_pylist()
    return [(int(row["value"]), row["partition"], row["offset"]) for row in rows]


@pytest.mark.parametrize("seed", [6, 9])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_every_record_is_in_one_batch(broker: Broker, seed: int, start: str) -> None:
    chance = random.Random(f"{seed}-{start}")
    topic = f"story-{seed}-{start}"
    admin = Admin(broker.bootstrap)
    admin.create_topic(topic, 1)
    numbers, written, missed, partitions = iter(range(10**6)), set[int](), set[int](), 1

    def opened() -> Producer:
        made = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "linger.ms": 0})
        made.init_transactions(30)
        return made

    def write() -> None:
        producer.begin_transaction()
        sent = [next(numbers) for _ in range(chance.randint(1, 15))]
        for number in sent:
            producer.produce(topic, b"%d" % number, partition=chance.randrange(partitions))
        producer.flush()
        if chance.random() < 0.3:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            written.update(sent)

    def begins() -> None:
        if start == "latest":
            missed.update(written)

    producer = opened()
    write()
    given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": start, "commitOffsetsTo": topic}
    given |= {"subscribePattern": topic} if seed % 2 else {"subscribe": topic}
    query = Query(given, chance, begins)
    for _ in range(STEPS):
        try:
            what = chance.random()
            if what < 0.4:
                write()
            elif what < 0.43 and partitions < 5:
                partitions += 1
                admin.add_partitions(topic, partitions)
                producer = opened()  # the one that there is would learn of it in minutes
            elif what < 0.48:
                query.crash()
            else:
                query.trigger()
        except Crash:
            pass
        query.reader()  # begins at once, if it hasn't; more may be written before its first batch
    while True:
        try:
            if not query.trigger():
                break
        except Crash:
            continue
    rows = [number for batch in query.rows.values() for number, _, _ in batch]
    assert len(rows) == len(set(rows))
    assert set(rows) == written - missed
    query.crash()
