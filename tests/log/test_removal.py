"""Removing deleted files: when each goes, off the loop, and at a cost that doesn't grow with how many wait."""

from collections.abc import Callable

import pytest
from tests.log.harness import LogHarness

from tidelog.env.promise import Promise
from tidelog.log.removal import REMOVALS_TOGETHER


class Path(str):
    """Counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Path.compared += 1
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        Path.compared += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


def made(harness: LogHarness, count: int) -> list[Path]:
    paths = [Path(f"{harness.root}/{number}.deleted") for number in range(count)]
    for path in paths:
        harness.disk.open(path, create=True)
    return paths


def left(harness: LogHarness) -> list[str]:
    return [name for name in harness.disk.list_folder(harness.root) if name.endswith(".deleted")]


def test_thousands_that_go_at_once_are_each_looked_at_a_few_times(sim: LogHarness) -> None:
    paths = made(sim, 4000)
    Path.compared = 0
    for path in paths:
        sim.store.upkeep.remove(path, 1000)
    sim.settle(10)
    assert left(sim) == []
    assert Path.compared <= 20 * len(paths)


def test_one_that_is_due_sooner_does_not_wait_for_the_others(sim: LogHarness) -> None:
    late, soon = made(sim, 2)
    sim.store.upkeep.remove(late, 60_000)
    sim.store.upkeep.remove(soon, 0)
    sim.settle(1)
    assert left(sim) == ["0.deleted"]
    sim.settle(58)
    assert left(sim) == ["0.deleted"]
    sim.settle(2)
    assert left(sim) == []


def test_one_that_cannot_be_removed_keeps_no_other(sim: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    folder, *paths = made(sim, 20)
    sim.disk.remove(folder)
    sim.disk.make_folders(folder)
    for path in (folder, *paths):
        sim.store.upkeep.remove(path, 0)
    sim.settle(1)
    assert left(sim) == ["0.deleted"]
    assert "removing deleted files failed" in caplog.text


def test_they_are_removed_by_one_thread_at_a_time(sim: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way = most = 0
    run_blocking = sim.loop.run_blocking

    def counted(work: Callable[[], object]) -> Promise[object]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)

        def done(_: Promise[object]) -> None:
            nonlocal under_way
            under_way -= 1

        promise = run_blocking(work)
        promise.on_done(done)
        return promise

    monkeypatch.setattr(sim.loop, "run_blocking", counted)
    for path in made(sim, 5 * REMOVALS_TOGETHER):
        sim.store.upkeep.remove(path, 0)
    sim.settle(5)
    assert left(sim) == []
    assert most == 1
