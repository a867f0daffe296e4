"""Whole runs: every promise is kept, the same seed gives the same run, and broken brokers and disks are found out."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tidelog.apis.shared.high_watermark_wait import Written
from tidelog.config.topic import TopicConfig
from tidelog.env.disk import Disk
from tidelog.log import commit, producers, recovery
from tidelog.log.log import Log
from tidelog.log.producers import Producers
from tidelog.replica.partition import Partition
from tidelog.sim.__main__ import main
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.scenario import Run

POWER = (("power", 1.0),)
FULL = (("full", 1.0),)
SYNCS = (("sync", 3.0), ("kill", 1.0), ("power", 1.0))
DEATHS = ("append", "truncate", "sync", "create")
IO = (("read", 3.0), ("append", 1.0), *((f"death {at}", 1.0) for at in DEATHS))
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


@pytest.mark.parametrize("seed", [9, 34])
def test_a_full_disk_breaks_no_promise(seed: int) -> None:
    """Each of these did: what was behind a new producer's first batch, which found no room, was taken without it."""
    assert Run(seed, FULL).go().acknowledged > 0


def test_a_partition_that_takes_what_is_behind_a_failed_batch_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "expect_again", lambda *_: None)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in first_violation(Run, FULL)


def test_a_start_that_only_syncs_what_a_failed_sync_left_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_sync(disk: Disk, path: str, start: int) -> bool:
        disk.open(path).sync()
        return True

    monkeypatch.setattr(recovery, "write_again", only_sync)
    assert "none" not in first_violation(Run, SYNCS)


def test_the_same_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    here = Run(3).go()
    assert Run(3).go().trace == here.trace
    code = "import sys; from tidelog.sim.scenarios.scenario import Run; print(Run(3).go().fingerprint)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == here.fingerprint


def test_another_seed_gives_another_run() -> None:
    assert Run(1).go().fingerprint != Run(2).go().fingerprint


def test_an_end_that_is_told_before_what_was_written_is_shown_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Written, "note", lambda *_: None)
    assert "says ListOffsets" in first_violation(Run, (("drop", 1.0),))


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
    shown = capsys.readouterr().out
    assert "seeds 3 to 4: every promise was kept" in shown
    assert "\nfaults: " in shown
    assert "power loss " in shown, "each run ends with one"


def test_settings_that_do_not_change_what_is_synced_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    configure = Log.configure

    def configure_but_sync_as_before(log: Log, config: TopicConfig) -> None:
        before = log.ends.unsynced_max
        configure(log, config)
        if before:
            log.ends.count_unsynced(before, all_at_once=False)

    monkeypatch.setattr(Log, "configure", configure_but_sync_as_before)
    assert "swell-0" in first_violation(Run, POWER)


def test_faults_of_reads_sends_and_appends_and_deaths_break_no_promise() -> None:
    counted: Counter[str] = Counter()
    for seed in range(3):
        run = Run(seed, IO)
        assert run.go().acknowledged > 0
        assert run.switcher.switches > 0
        counted += run.world.faults
    assert counted["EIO on read"] > 0
    assert sum(counted[f"death at {at}"] for at in DEATHS) > 0


def test_faults_are_counted_where_they_happen() -> None:
    run = Run(9, FULL)
    run.go()
    assert run.world.faults["no space"] > 0
    assert run.world.faults["power loss"] == sum("the power is gone" in line for line in run.world.trace)
    assert run.world.faults["failed sync"] == 0


def test_the_command_says_what_broke_and_how_to_repeat_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "WINDOW", 2)
    assert main(["--seed", "0", "--seeds", "40"]) == 1
    shown = capsys.readouterr().out
    assert "virtual seconds: Violation: " in shown
    assert "repeat it with: python -m tidelog.sim --seed" in shown
