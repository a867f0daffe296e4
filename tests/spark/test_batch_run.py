"""Runs of pipelines without streams that fail halfway: repeated, each sink has its rows once; mended, the new ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, Producer, read
from tidelog.spark.pipeline.file.model import Pipeline, load
from tidelog.spark.pipeline.run.batch_run import begin_still
from tidelog.spark.pipeline.run.runner import run
from tidelog.testing import Broker

FILE = """
name = "still"
state = "state"

[source.orders]
topics = ["still-orders"]
stream = false

[[step]]
name = "good"
sql = "select {good} as said from orders"

[[step]]
name = "checked"
sql = "select {checked} as said from orders"

[[sink]]
from = "good"
topic = "still-good"

[[sink]]
from = "good"
name = "lake"
path = "lake"

[[sink]]
from = "checked"
topic = "still-checked"
"""

GOOD = {"good": "'good-1'", "checked": "raise_error('no good')"}


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[..., Pipeline]:
    def write(**told: str) -> Pipeline:
        (tmp_path / "still.toml").write_text(FILE.format(**{**GOOD, **told}))
        made = load(tmp_path / "still.toml")
        made.take_state()
        return made

    return write


def numbers(pipeline: Pipeline, now: float) -> dict[str, int]:
    return {name: begin_still(pipeline, now).number(name) for name, _ in pipeline.sinks}


def test_a_run_that_is_merely_repeated_has_the_numbers_that_it_had(pipeline: Callable[..., Pipeline]) -> None:
    first = numbers(pipeline(), 1000.5)
    assert first == dict.fromkeys(("still-good", "lake", "still-checked"), 1000)
    assert numbers(pipeline(), 2000) == first


def test_a_topic_whose_rows_are_made_otherwise_since_has_a_number_of_its_own(pipeline: Callable[..., Pipeline]) -> None:
    """A folder keeps its: what a repeated run writes takes the place there of what was written."""
    numbers(pipeline(), 1000)
    mended = numbers(pipeline(good="'good-2'", checked="'checked'"), 2000)
    assert mended == {"still-good": 2000, "lake": 1000, "still-checked": 2000}
    assert numbers(pipeline(good="'good-2'", checked="'checked'"), 3000) == mended
    assert numbers(pipeline(good="'good-2'", checked="'other'"), 1500)["still-checked"] == 2001  # a clock set back


def test_a_step_that_a_sink_does_not_read_makes_it_no_other(pipeline: Callable[..., Pipeline]) -> None:
    numbers(pipeline(), 1000)
    assert numbers(pipeline(checked="'mended'"), 2000) == {"still-good": 1000, "lake": 1000, "still-checked": 2000}


def test_the_next_run_has_a_higher_number_whatever_the_clock_says(pipeline: Callable[..., Pipeline]) -> None:
    numbers(pipeline(), 1000)
    begin_still(pipeline(good="'good-2'"), 1000).end()
    assert set(numbers(pipeline(good="'good-2'"), 1000).values()) == {1002}


def test_letters_of_a_source_that_is_decoded_otherwise_since_have_a_number_of_their_own(
    pipeline: Callable[..., Pipeline],
) -> None:
    given: list[tuple[str, dict[str, str]]] = [("bad-rows", {"from": "orders", "topic": "dead"})]
    assert begin_still(pipeline(), 1000, given).number("bad-rows") == 1000
    made = pipeline(good="'good-2'")
    assert begin_still(made, 2000, given).number("bad-rows") == 1000
    made.sources["orders"]["schema"] = "id long"
    assert begin_still(made, 3000, given).number("bad-rows") == 3000


def test_a_run_that_an_earlier_version_left_halfway_is_repeated(pipeline: Callable[..., Pipeline]) -> None:
    made = pipeline()
    (made.state / "still.json").write_text("1000")
    assert set(numbers(made, 2000).values()) == {1000}


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(JVM_TIMEOUT_S)
def test_rows_of_a_step_that_was_mended_after_half_a_run_are_written(
    spark: Any, broker: Broker, pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    for topic in ("still-orders", "still-good", "still-checked"):
        Admin(broker.bootstrap).create_topic(topic, 1)
    with Producer(broker.bootstrap) as producer:
        producer.send("still-orders", b"1")
    said: list[str] = []

    def go(**told: str) -> None:
        run(load(pipeline(**told).file, broker.bootstrap), spark, tell=said.append)

    for _ in range(2):  # the second time as it was: nothing is there twice
        with pytest.raises(Exception, match="no good"):
            go()
    assert seen(broker, "still-good") == ["good-1"]
    go(good="'good-2'", checked="'checked'")
    assert (seen(broker, "still-good"), seen(broker, "still-checked")) == (["good-1", "good-2"], ["checked"])
    assert [row["said"] for row in spark.read.parquet(str(tmp_path / "lake")).collect()] == ["good-2"]
    assert "still-good was written before, by a run that was cut short" in " ".join(said)


def seen(broker: Broker, topic: str) -> list[str]:
    found = read(broker.bootstrap, topic, stop_at_end=True, isolation_level="read_committed")
    return [json.loads(message.value or b"null")["said"] for message in found]
