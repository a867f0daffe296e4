"""Groups in the simulated world: what they promise holds through every fault, and broken coordinators are found out."""

import os
import subprocess
import sys
from typing import Any

import pytest

from tidelog.coordinator.group import fencing
from tidelog.coordinator.group.classic import departures
from tidelog.log import commit
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.group_history import SESSION_S, GroupHistory
from tidelog.sim.scenarios.groups import GroupsRun

POWER = (("power", 1.0),)
REPEATED = (3, 4, 5)


def first_violation(faults: tuple[tuple[str, float], ...], seeds: range = range(40)) -> str:
    for seed in seeds:
        try:
            GroupsRun(seed, faults).go()
        except Violation as violation:
            return str(violation)
    return f"none in {len(seeds)} seeds"


@pytest.mark.parametrize("seed", range(12))
def test_what_groups_promise_is_kept(seed: int) -> None:
    assert GroupsRun(seed).go().acknowledged > 0


@pytest.mark.parametrize("seed", range(100, 106))
def test_no_committed_offset_goes_back_when_the_power_goes_again_and_again(seed: int) -> None:
    assert GroupsRun(seed, POWER).go().acknowledged > 0


@pytest.mark.parametrize("seed", [4, 744, 869])
def test_a_broker_that_waits_or_stops_lets_time_pass(seed: int) -> None:
    """An alarm that rang too early, and shards to load after the end, kept it busy; a failed sync ended its start."""
    assert GroupsRun(seed).go().acknowledged > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, 400))
def test_what_groups_promise_is_kept_for_long(seed: int) -> None:
    assert GroupsRun(seed).go().acknowledged > 0


def test_the_same_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    here = [GroupsRun(seed).go().fingerprint for seed in REPEATED]
    code = (
        "from tidelog.sim.scenarios.groups import GroupsRun; "
        f"print(*(GroupsRun(s).go().fingerprint for s in {REPEATED}))"
    )
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.split() == here


def test_commits_that_are_not_synced_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit.Syncing, "run", lambda _: None)
    assert "none" not in first_violation(POWER)


def test_a_coordinator_that_lets_everybody_commit_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.coordinator.group.commit.check_commit", lambda *_, **__: None)
    assert fencing.check_commit is not None
    found = first_violation((("drop", 1.0),), range(120))
    assert "commit" in found or "went back" in found


def test_sessions_that_end_at_once_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that live are put out, and their partitions given to others."""
    real = departures.expire

    def too_soon(group: Any, limits: Any, now: Any) -> Any:
        for member in group.members.values():
            if member.deadline_ms < float("inf"):
                member.deadline_ms -= SESSION_S * 950
        return real(group, limits, now)

    monkeypatch.setattr("tidelog.coordinator.group.classic.shell.expire", too_soon)
    assert "none" not in first_violation((("drop", 1.0),), range(60))


@pytest.fixture
def history() -> GroupHistory:
    history = GroupHistory()
    history.saw_given("g", 1, 0, "first", 1.0, 1.0)
    return history


def test_two_owners_in_a_generation_are_found(history: GroupHistory) -> None:
    with pytest.raises(Violation, match="both in generation 1"):
        history.saw_given("g", 1, 0, "second", 100.0, 100.0)


def test_a_second_living_owner_is_found(history: GroupHistory) -> None:
    with pytest.raises(Violation, match="while it was first's"):
        history.saw_given("g", 2, 0, "second", 1.0 + SESSION_S / 2, 1.0 + SESSION_S / 2)


def test_an_owner_that_gave_back_or_was_not_heard_of_is_followed(history: GroupHistory) -> None:
    history.gave_back("g", "first")
    history.saw_given("g", 2, 0, "second", 1.1, 1.1)
    history.saw_given("g", 3, 0, "third", 1.2 + SESSION_S, 1.2 + SESSION_S)
    assert history.handovers == 3


def test_a_former_owners_commit_is_found(history: GroupHistory) -> None:
    history.gave_back("g", "first")
    history.saw_given("g", 2, 0, "second", 2.0, 2.0)
    number = history.next_number("g", 0)
    history.saw_committed("g", 0, number, "first", sent_at=1.5)
    with pytest.raises(Violation, match="let first commit 1 in 0, second's"):
        history.saw_committed("g", 0, number, "first", sent_at=2.5)


def test_an_offset_that_goes_back_is_found(history: GroupHistory) -> None:
    for _ in range(3):
        number = history.next_number("g", 0)
    history.saw_committed("g", 0, number, "first", sent_at=1.5)
    history.saw_fetched("g", 0, 3, floor=3)
    with pytest.raises(Violation, match="went back to 2"):
        history.saw_fetched("g", 0, 2, floor=3)
    with pytest.raises(Violation, match="which nobody committed"):
        history.saw_fetched("g", 0, 4, floor=3)
