"""The scenario `cluster`: replicated data lives through faults, safeguards that are left out are missed."""

import os
import subprocess
import sys

import pytest

from tidelog.sim.__main__ import main
from tidelog.sim.breaks import SAFEGUARDS
from tidelog.sim.replicated.aims import REPLICA_AIMS
from tidelog.sim.replicated.faults import REPLICA_FAULTS, ReplicaFaults
from tidelog.sim.safeguard import CLUSTER
from tidelog.sim.scenarios.cluster import ClusterRun

BROKEN = [name for name, safeguard in SAFEGUARDS.items() if safeguard.scenario == CLUSTER]
FOUND_WITHIN = 50


@pytest.mark.parametrize("seed", range(3))
def test_replicated_topics_keep_every_promise(seed: int) -> None:
    outcome = ClusterRun(seed).go()
    assert outcome.acknowledged > 0
    assert outcome.fetched > 0


def test_the_same_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    here = ClusterRun(1).go().fingerprint
    code = "from tidelog.sim.scenarios.cluster import ClusterRun; print(ClusterRun(1).go().fingerprint)"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == here


def test_each_fault_has_its_method_and_each_safeguard_of_replication_its_aim() -> None:
    assert all(hasattr(ReplicaFaults, f"_{kind}") for kind in REPLICA_FAULTS)
    assert set(REPLICA_AIMS) == set(BROKEN)
    assert all(set(aim.faults) == set(REPLICA_FAULTS) for aim in REPLICA_AIMS.values())


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", BROKEN)
def test_safeguard_that_is_switched_off_is_found_out(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By what somebody could see; and the same seeds keep every promise with it."""
    assert main(["--break", name, "--aim", name, "--seeds", str(FOUND_WITHIN)]) == 1
    shown = capsys.readouterr().out.splitlines()
    found = next(line for line in shown if "virtual seconds: Violation: " in line)
    seeds = int(found.split()[1]) + 1
    assert main(["--aim", name, "--seeds", str(seeds)]) == 0
