"""The examples of docs/delivery.md do what the page says they do."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.test_transactions import read_confluent
from tidelog.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "delivery.md"
EXAMPLES = dict(
    zip(
        ("at most once", "at least once", "exactly once"),
        re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL),
        strict=True,
    )
)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap


def run(example: str, bootstrap: str) -> str:
    program = EXAMPLES[example].replace("127.0.0.1:9092", bootstrap)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_short(example: str) -> None:
    lines = [line for line in EXAMPLES[example].splitlines() if line.strip()]
    assert len(lines) <= 25


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_printed_and_says_nothing_else(bootstrap: str, example: str) -> None:
    assert run(example, bootstrap) == "10"


def test_results_and_places_are_committed_together(bootstrap: str) -> None:
    """It goes on where the run before it ended, and copies each payment once."""
    for _ in range(2):
        assert run("exactly once", bootstrap) == "10"
    copied = read_confluent(bootstrap, "totals", 0)
    assert len(copied) >= 20
    assert copied == [str(number % 10).encode() for number in range(len(copied))]
