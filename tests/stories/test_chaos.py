"""The chaos run, as short as can be: its faults by namespaces, by proxies, and a run that must fail."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools.chaos.inside import way_inside

TOP = Path(__file__).parents[2]
SECONDS = 900
"""A hung run is ended; on the busiest machine a short one takes a few minutes."""


def chaos(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tools.chaos", "--session-timeout-ms", "3000", *options]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 60)
def test_one_fault_of_every_kind_loses_nothing() -> None:
    done = chaos("--minutes", "0.5")
    assert (done.returncode, "the checker found nothing" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 60)
def test_so_does_one_behind_proxies() -> None:
    done = chaos("--minutes", "0.5", "--without-namespaces", "--without-java")
    assert (done.returncode, "the checker found nothing" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "proxies before every listener" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.skipif(way_inside() is None, reason="takes network namespaces")
def test_what_is_acknowledged_by_a_leader_alone_is_missed() -> None:
    """A leader that is cut off goes on to acknowledge, and what it has is cut when it comes back."""
    done = chaos("--minutes", "0.2", "--only", "SPLIT_BOTH", "--seed", "8", "--module", "tests.stories.hasty_acks")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lost: " in done.stdout or "gave up: " in done.stdout, done.stdout
