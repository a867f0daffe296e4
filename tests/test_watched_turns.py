"""The harness of tests about long turns: one that is long each time is found, one that was so once isn't."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.turns import LONG_TURN_S, TRIES, WatchedBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WatchedBroker]:
    with WatchedBroker(tmp_path) as broker:
        yield broker


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_what_is_long_each_time_fails(broker: WatchedBroker) -> None:
    done: list[int] = []

    def hold() -> None:
        done.append(len(done))
        broker.call(lambda: work(2 * LONG_TURN_S))

    with pytest.raises(AssertionError, match="the longest turn took"):
        broker.unheld(hold)
    assert len(done) == TRIES


def test_what_was_long_once_does_not(broker: WatchedBroker) -> None:
    times = [2 * LONG_TURN_S, 0.0]

    def hold_first() -> int:
        broker.call(lambda: work(times.pop(0)))
        return len(times)

    assert broker.unheld(hold_first) == 0
