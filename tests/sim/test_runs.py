"""Whole runs: every promise is kept, the same seed gives the same run, and broken brokers and disks are found out."""

import os
import subprocess
import sys

import pytest

from tidelog.env.disk import Disk
from tidelog.log import commit, producers, recovery
from tidelog.log.producers import Producers
from tidelog.sim.__main__ import main
from tidelog.sim.checkers import Violation
from tidelog.sim.scenario import Run

POWER = (("power", 1.0),)
SYNCS = (("sync", 3.0), ("kill", 1.0), ("power", 1.0))
SEEDS = range(40)


class LyingDiskRun(Run):
    """From the moment the clients come, the disk says that it synced, and didn't."""

    def clients_come(self) -> None:
        self.world.disk.lying = True
        super().clients_come()


def first_violation(run: type[Run], faults: tuple[tuple[str, float], ...], seeds: range = SEEDS) -> str:
    for seed in seeds:
        try:
            run(seed, faults).go()
        except Violation as violation:
            return str(violation)
    return f"none in {len(seeds)} seeds"


@pytest.mark.parametrize("seed", range(10))
def test_every_promise_is_kept(seed: int) -> None:
    outcome = Run(seed).go()
    assert outcome.acknowledged > 0
    assert outcome.fetched > 0


@pytest.mark.parametrize("seed", [0, 3, 4, 9])
def test_failed_syncs_break_no_promise(seed: int) -> None:
    """Each of these did: two syncs at the same time, or a tail that stood in the page cache only."""
    assert Run(seed, SYNCS).go().acknowledged > 0


def test_a_start_that_only_syncs_what_a_failed_sync_left_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_sync(disk: Disk, path: str, start: int, *, durable: bool) -> bool:
        disk.open(path).sync()
        return True

    monkeypatch.setattr(recovery, "write_again", only_sync)
    assert "none" not in first_violation(Run, SYNCS)


def test_the_same_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    here = Run(3).go()
    assert Run(3).go().trace == here.trace
    code = "import sys; from tidelog.sim.scenario import Run; print(Run(3).go().fingerprint)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == here.fingerprint


def test_another_seed_gives_another_run() -> None:
    assert Run(1).go().fingerprint != Run(2).go().fingerprint


def test_a_disk_that_lies_about_its_syncs_is_found_out() -> None:
    assert "none" not in first_violation(LyingDiskRun, POWER)


def test_a_commit_that_syncs_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit.Syncing, "run", lambda _: None)
    assert "none" not in first_violation(Run, POWER)


def test_duplicates_that_are_written_again_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producers, "check", lambda *_: None)
    assert "comes next" in first_violation(Run, (("drop", 1.0),))


def test_a_window_of_two_batches_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "WINDOW", 2)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in first_violation(Run, (("drop", 1.0),))


def test_the_command_says_that_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    assert "seed 3: " in capsys.readouterr().out
    assert main(["--seed", "3", "--seeds", "2"]) == 0
    assert "seeds 3 to 4: every promise was kept" in capsys.readouterr().out


def test_the_command_says_what_broke_and_how_to_repeat_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "WINDOW", 2)
    assert main(["--seed", "0", "--seeds", "40"]) == 1
    shown = capsys.readouterr().out
    assert "virtual seconds: Violation: " in shown
    assert "repeat it with: python -m tidelog.sim --seed" in shown
