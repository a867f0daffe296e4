"""Consume-transform-produce while clients and broker are killed -9: the output holds each input once, in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.jars import JarsMissingError, find_jars
from tests.served import Tidelog
from tests.stories.exactly_once.chaos import Command, check_output, copy_through_chaos, java_worker, python_worker
from tests.stories.groups.band import QUICK_GROUPS

SETTINGS = {**QUICK_GROUPS, "transaction.state.log.num.partitions": "5", "tidelog.durability": "os"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data", SETTINGS) as tidelog:
        yield tidelog


def command_of(library: str) -> Command:
    if library != "java":
        return python_worker(library)
    try:
        return java_worker(find_jars())
    except JarsMissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("library", ["confluent", "aiokafka", "java"])
def test_a_killed_copy_holds_each_record_once_and_in_order(broker: Tidelog, library: str) -> None:
    count = 20_000
    copy = copy_through_chaos(broker, command_of(library), count, seed=1, workers=2, kills=4, batch=50)
    check_output(broker.bootstrap, count)
    assert copy.kills == 4


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("library", ["confluent", "aiokafka", "java"])
def test_a_million_records_are_copied_exactly_once(broker: Tidelog, library: str) -> None:
    count = 1_000_000
    copy = copy_through_chaos(broker, command_of(library), count, seed=2, workers=3, kills=50, batch=200)
    check_output(broker.bootstrap, count)
    assert copy.kills == 50
