"""Compacted topics, retention, fetch sessions, topics made again: promises are kept, and broken brokers found out."""

from typing import Any

import pytest

from tidelog.apis.fetch.sessions import Session
from tidelog.log import leftovers, retention
from tidelog.log.compaction import rewriting, walking
from tidelog.log.compaction.rewriting import NOTHING, Kept, Rewriting
from tidelog.log.compaction.source import Found
from tidelog.log.log import Log
from tidelog.log.names import CLEANED
from tidelog.log.points import Points
from tidelog.log.store import Store
from tidelog.sim.again import AgainRun
from tidelog.sim.checkers import Violation
from tidelog.sim.compacted import CompactedRun
from tidelog.sim.disk import SimDisk
from tidelog.sim.inode import FileNode
from tidelog.sim.kept import KeptRun
from tidelog.sim.scenarios import SCENARIOS, make, of_seed

POWER = (("power", 1.0),)
KILL = (("kill", 1.0),)
DROP = (("drop", 1.0),)


def first_violation(
    run: type[CompactedRun | KeptRun | AgainRun], faults: tuple[tuple[str, float], ...], seeds: int = 40
) -> str:
    for seed in range(seeds):
        try:
            run(seed, faults).go()
        except Violation as violation:
            return str(violation)
    return f"none in {seeds} seeds"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("run", [CompactedRun, KeptRun, AgainRun])
def test_every_promise_is_kept(run: type[CompactedRun | KeptRun | AgainRun], seed: int) -> None:
    outcome = run(seed).go()
    assert outcome.acknowledged > 0
    assert outcome.fetched > 0


@pytest.mark.parametrize("run", [CompactedRun, KeptRun, AgainRun])
def test_the_same_seed_gives_the_same_run(run: type[CompactedRun | KeptRun | AgainRun]) -> None:
    assert run(7).go().trace == run(7).go().trace


def test_each_seed_has_its_scenario() -> None:
    assert [of_seed(seed) for seed in range(len(SCENARIOS))] == list(SCENARIOS)
    assert of_seed(len(SCENARIOS)) == of_seed(0)
    assert isinstance(make("kept", 3), KeptRun)


def test_a_cleaning_that_loses_a_batch_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Rewriting._data

    def careless(self: Rewriting, found: Found) -> Kept:
        kept = data(self, found)
        return kept if found.fields[0] % 7 else NOTHING

    monkeypatch.setattr(Rewriting, "_data", careless)
    assert "lost record" in first_violation(CompactedRun, DROP)


def test_tombstones_that_go_too_early_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    survivors = rewriting.survivors

    def hasty(*args: Any, **_: bool) -> walking.Survivors:
        return survivors(*args, deletes=True)

    monkeypatch.setattr(rewriting, "survivors", hasty)
    assert "tombstone, too young to go" in first_violation(CompactedRun, DROP)


def test_cleaned_segments_that_are_not_synced_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = SimDisk.sync_node

    def lazy(self: SimDisk, node: FileNode, path: str) -> None:
        if not path.endswith(CLEANED):
            sync(self, node, path)

    monkeypatch.setattr(SimDisk, "sync_node", lazy)
    assert "none" not in first_violation(CompactedRun, POWER)


def test_a_swap_that_a_crash_undoes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def undo(disk: SimDisk, folder: str, _: list[str], swaps: list[str]) -> None:
        for name in swaps:
            disk.remove(f"{folder}/{name}")

    monkeypatch.setattr(leftovers, "_swap_in", undo)
    assert "none" not in first_violation(CompactedRun, (("swap", 1.0),))


def test_retention_that_takes_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    too_old = retention._too_old

    def greedy(log: Log, retention_ms: int, now_ms: int) -> int:
        return too_old(log, retention_ms * 2 // 3, now_ms)

    monkeypatch.setattr(retention, "_too_old", greedy)
    assert "let go of offset" in first_violation(KeptRun, DROP)
    monkeypatch.setattr(retention, "_too_old", too_old)
    too_large = retention._too_large
    monkeypatch.setattr(retention, "_too_large", lambda log, limit: too_large(log, limit // 4))
    assert "was let go of down to" in first_violation(KeptRun, DROP)


def test_a_fetch_session_that_keeps_silent_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    news = Session.news
    monkeypatch.setattr(
        Session, "news", lambda self, key, answered, first: news(self, key, answered, first=first) and key[1] != 1
    )
    assert "fetch sessions to see it all" in first_violation(KeptRun, DROP, 1)


def test_offsets_of_a_deleted_topic_that_count_for_the_next_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Points, "claim", lambda *_: None)
    monkeypatch.setattr(Points, "drop", lambda *_: None)
    assert "none" not in first_violation(AgainRun, KILL)


def test_records_of_a_deleted_topic_under_its_name_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_belongs_to_another", lambda *_: False)
    monkeypatch.setattr(Store, "_put_away", lambda *_: True)
    assert "none" not in first_violation(AgainRun, KILL)
