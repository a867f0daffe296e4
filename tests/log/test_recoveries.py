"""What is told of recoveries: each, where they are few; a summary with the worst, where they are thousands."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.log.recoveries import TOLD_MAX, WORST, Cut, Recoveries


def opening(number: int, *, cut: int = 0, clean: bool = False) -> Any:
    found = Cut(f"orders-{number}", 100, cut, 3) if cut else None
    reports = [f"orders-{number}: cut {cut} bytes"] if cut else []
    place = SimpleNamespace(clean=clean, key=("orders", number))
    return cast(Any, SimpleNamespace(log_folder=place, seconds=0.01, cut=found, restored=0, reports=reports))


def test_thousands_of_cut_partitions_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    recoveries = Recoveries()
    recoveries.begin(5000, clean=False)
    with caplog.at_level(logging.INFO, "tidelog.log"):
        for number in range(5000):
            recoveries.add(opening(number, cut=number))
        recoveries.finish(2)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == TOLD_MAX + 1
    assert told[-1].startswith(
        "recovery is done: 5,000 partitions checked in 50.0 s, 4,999 of 5,000 partitions cut, 12,497,500 bytes in all, "
        "most off these: orders-4999, 4,999 bytes with 3 whole records from offset 100 on; orders-4998, "
    )
    assert told[-1].count("from offset") == WORST
    assert told[-1].endswith("2 partitions offline, `tidelog status` says why")


def test_it_is_told_once_and_only_after_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    recoveries = Recoveries()
    recoveries.begin(1, clean=False)
    with caplog.at_level(logging.INFO, "tidelog.log"):
        recoveries.add(opening(0))
        recoveries.finish(0)
        recoveries.finish(0)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert caplog.records[0].getMessage() == "recovery is done: 1 partition checked in 0.0 s, nothing was cut"
    caplog.clear()
    clean = Recoveries()
    clean.begin(1, clean=True)
    clean.add(opening(0, clean=True))
    clean.finish(0)
    assert caplog.records == []


def test_a_partition_that_was_tried_again_counts_once() -> None:
    """While the process may open no more files, each is tried now and then."""
    recoveries = Recoveries()
    recoveries.begin(3, clean=False)
    for _ in range(13):
        for number in range(3):
            recoveries.add(opening(number))
    assert recoveries.checked == 3
    assert recoveries.summary(0).startswith("3 partitions checked in 0.4 s")
