"""Runs over two data folders, short of descriptors, with settings that change; what breaks on them is found out."""

import pytest

from tidelog.coordinator.shard_states import ShardState
from tidelog.coordinator.shards import Shards
from tidelog.log.opening import LogFolder
from tidelog.raft import folder
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.folders import FoldersRun
from tidelog.sim.scenarios.transactions import TransactionsRun

Kinds = tuple[tuple[str, float], ...]


def first_violation(run: type[FoldersRun | TransactionsRun], faults: Kinds, seeds: int = 40) -> str:
    for seed in range(seeds):
        try:
            run(seed, faults).go()
        except Violation as violation:
            return str(violation)
    return f"none in {seeds} seeds"


@pytest.mark.parametrize("seed", [2, 10, 55, 68])
def test_every_promise_is_kept(seed: int) -> None:
    """In the last of these, what came behind a batch that was refused while its log couldn't be opened was taken."""
    run = FoldersRun(seed)
    assert run.go().acknowledged > 0
    assert run.world.faults["setting changed"] > 0


@pytest.mark.parametrize(
    ("kind", "counted"),
    [
        ("away", "folder away"),
        ("readonly", "read-only folder"),
        ("slow", "slow sync"),
        ("descriptors", "EMFILE"),
    ],
)
def test_each_kind_of_fault_happens_and_is_counted(kind: str, counted: str) -> None:
    run = FoldersRun(3, ((kind, 1.0),))
    run.go()
    assert run.world.faults[counted] > 0


def test_a_missing_folder_that_is_taken_for_a_new_one_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "check_directories", lambda *_: None)
    assert "serves without /more" in first_violation(FoldersRun, (("away", 1.0),))


def test_folders_of_a_partition_in_the_order_of_their_listing_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def last(_: object, folders: list[LogFolder], *__: object) -> str:
        return folders[-1].root

    monkeypatch.setattr("tidelog.log.store.choose", last)
    assert "none" not in first_violation(FoldersRun, (("readonly", 1.0),))


def test_a_coordinator_that_is_never_loaded_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shards, "_rest", lambda self, slot: slot.to(ShardState.RESTING))
    assert "waited 60.0 s" in first_violation(TransactionsRun, (("descriptors", 1.0),))
