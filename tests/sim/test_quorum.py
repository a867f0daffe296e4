"""The scenario `quorum`: clusters live through faults, safeguards that are left out are missed, runs are repeatable."""

import os
import subprocess
import sys

import pytest

from tidelog.sim.__main__ import main
from tidelog.sim.breaks import SAFEGUARDS
from tidelog.sim.cluster.aims import AIMS
from tidelog.sim.cluster.faults import FAULTS, ClusterFaults
from tidelog.sim.safeguard import QUORUM
from tidelog.sim.scenarios.quorum import QuorumRun

BROKEN = [name for name, safeguard in SAFEGUARDS.items() if safeguard.scenario == QUORUM]
FOUND_WITHIN = 50


@pytest.mark.parametrize("seed", range(4))
def test_cluster_keeps_every_promise(seed: int) -> None:
    outcome = QuorumRun(seed).go()
    assert outcome.acknowledged > 0
    assert outcome.fetched > 0


def test_the_same_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    here = QuorumRun(5).go().fingerprint
    code = "from tidelog.sim.scenarios.quorum import QuorumRun; print(QuorumRun(5).go().fingerprint)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == here


def test_another_seed_gives_another_run() -> None:
    assert QuorumRun(1).go().fingerprint != QuorumRun(2).go().fingerprint


def test_each_fault_has_its_method_and_each_safeguard_of_a_cluster_its_aim() -> None:
    assert all(hasattr(ClusterFaults, f"_{kind}") for kind in FAULTS)
    assert set(AIMS) == set(BROKEN)
    assert all(set(aim.faults) == set(FAULTS) for aim in AIMS.values())


def test_command_tells_hours_and_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "quorum", "--seeds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "seeds 0 to 1: every promise was kept" in shown
    assert "virtual hours" in shown
    assert "\nfaults: " in shown


def test_command_stops_when_its_time_is_over_and_says_where_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "quorum", "--seed", "7", "--seeds", "100", "--minutes", "0"]) == 0
    assert "the time is over: go on with --seed 8 --seeds 99" in capsys.readouterr().out


def test_failure_tells_the_last_events_of_each_node_and_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Found by what nodes say of their epochs, with the exact faults that it takes."""
    assert main(["--break", "vote-fsync", "--aim", "vote-fsync", "--seeds", str(FOUND_WITHIN)]) == 1
    shown = capsys.readouterr().out
    assert "node 1 (" in shown
    assert "node 3 (" in shown
    assert "virtual seconds: Violation: " in shown
    assert "--scenario quorum --break vote-fsync --aim vote-fsync --trace" in shown


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", BROKEN)
def test_safeguard_that_is_switched_off_is_found_out(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By what somebody could see; and the same seeds keep every promise with it."""
    assert main(["--break", name, "--aim", name, "--seeds", str(FOUND_WITHIN)]) == 1
    shown = capsys.readouterr().out.splitlines()
    found = next(line for line in shown if "virtual seconds: Violation: " in line)
    seeds = int(found.split()[1]) + 1
    assert main(["--aim", name, "--seeds", str(seeds)]) == 0
