"""Transactions of Java's client, which sends the next batch before the last one is answered, at the default durability.

`PIPELINED_RECORDS` is how many records the long one writes.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.jars import kafka_jars
from tests.reading import create_topic
from tests.served import Tidelog
from tests.stories.exactly_once.pipelined import PARTITIONS, TOPIC, Work, check, write

IN_FLIGHT = "max.in.flight.requests.per.connection=5"
RECORDS = int(os.environ.get("PIPELINED_RECORDS", "1000000"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data", {"tidelog.durability": "fsync"}) as tidelog:
        create_topic(tidelog.bootstrap, TOPIC, PARTITIONS)
        yield tidelog


@pytest.fixture
def jars() -> Path:
    return kafka_jars()


def test_many_small_batches_commit_at_once(broker: Tidelog, jars: Path) -> None:
    """Each record is a batch of its own."""
    outcome = write(broker, jars, Work(50, records=30, bytes=900), "batch.size=1000", IN_FLIGHT)
    assert outcome == (50, [], 0)
    check(broker.bootstrap, 50 * 30)


def test_a_killed_broker_keeps_them_exact(broker: Tidelog, jars: Path) -> None:
    work = Work(60, records=200, bytes=100, tries=10)
    outcome = write(broker, jars, work, "batch.size=1024", IN_FLIGHT, kills=2, seed=1)
    assert (outcome.committed, outcome.kills) == (60, 2), outcome.failed
    check(broker.bootstrap, 60 * 200)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_records_are_exact_while_the_broker_is_killed(broker: Tidelog, jars: Path) -> None:
    work = Work(RECORDS // 1000, records=1000, bytes=100, tries=10)
    outcome = write(broker, jars, work, "batch.size=1024", IN_FLIGHT, kills=10, seed=2)
    assert (outcome.committed, outcome.kills) == (work.transactions, 10), outcome.failed
    check(broker.bootstrap, work.transactions * work.records)
    print(f"{work.transactions} transactions, {len(outcome.failed)} of their tries failed: {outcome.failed[:5]}")
