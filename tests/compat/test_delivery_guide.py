"""The examples of docs/delivery.md do what the page says they do."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.compat.test_transactions import read_confluent
from tidelog.client import Admin
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
        for topic in ("clicks", "orders", "payments", "totals"):
            Admin(broker.bootstrap).create_topic(topic, 1)
        yield broker.bootstrap


def run(example: str, bootstrap: str) -> str:
    program = EXAMPLES[example].replace("127.0.0.1:9092", bootstrap)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_short(example: str) -> None:
    lines = [line for line in EXAMPLES[example].splitlines() if line.strip()]
    assert len(lines) <= 22


@pytest.mark.parametrize("example", ["at most once", "at least once"])
def test_what_was_produced_is_consumed(bootstrap: str, example: str) -> None:
    assert run(example, bootstrap) == "10"


def test_results_and_places_are_committed_together(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce("payments", str(number))
        if number == 9:
            assert producer.flush(30) == 0
            assert run("exactly once", bootstrap) == "10"
    assert producer.flush(30) == 0
    assert run("exactly once", bootstrap) == "10", "it goes on where the first run ended"
    assert read_confluent(bootstrap, "totals", 0) == [str(number).encode() for number in range(20)]
