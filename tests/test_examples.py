"""The programs of examples/ run as they stand there, and print what they promise."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.testing import Broker

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTS = {
    "produce_and_consume.py": {"hello, Ada", "hello, Grace", "hello, Edsger"},
    "asyncio_worker.py": {f"done: job {number}" for number in range(5)},
    "exactly_once.py": {"20 receipts, 20 different ones"},
    "client.py": {"acknowledged: 100", "read: 100 sum: 4950"},
    "orders_by_country.py": {"FR 8183", "GB 8167", "NO 8150"},
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_promises(name: str, bootstrap: str) -> None:
    if name == "orders_by_country.py":
        pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")
    lines = {re.sub(r"^\d+:\d+ ", "", line) for line in run(str(EXAMPLES / name), bootstrap).splitlines()}
    assert PRINTS[name] <= lines


def test_the_example_of_a_test_passes() -> None:
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_orders.py"))


def test_every_example_is_run_and_listed() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == {*PRINTS, "test_orders.py"}
    page = (EXAMPLES / "README.md").read_text()
    assert [name for name in sorted(programs) if f"({name})" not in page] == []
