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
{source}

[bad_rows]
topic = "still-dead"
partitions = 1

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

GOOD = {"source": "", "good": "'good-1'", "checked": "raise_error('no good')"}


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[..., Pipeline]:
    def write(**given: str) -> Pipeline:
        (tmp_path / "still.toml").write_text(FILE.format(**{**GOOD, **given}))
        made = load(tmp_path / "still.toml")
        made.take_state()
        return made

    return write


def numbers(pipeline: Pipeline, now: float) -> dict[str, int]:
    return {sink.name: begin_still(pipeline, now).number(sink.name) for sink in pipeline.sinks}


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
    def number(made: Pipeline, now: float) -> int:
        return begin_still(made, now, [made.bad_rows_sink("orders")]).number("bad-rows")

    assert number(pipeline(), 1000) == 1000
    assert number(pipeline(good="'good-2'"), 2000) == 1000
    assert number(pipeline(good="'good-2'", source='decode = "json"\nschema = "id long"'), 3000) == 3000


def test_what_a_version_before_kept_of_a_run_still_tells_that_the_file_is_the_same(
    pipeline: Callable[..., Pipeline],
) -> None:
    """By a hash of the tables as they stand in the file, whatever is made of them: it may never come out otherwise."""
    made = pipeline()
    kept = {
        "still-good": [1000, "b1137481410fee190e2bccd3682a7353", True],
        "lake": [1000, "e995e9c77af96e7585f8eca54b58158e", True],
        "still-checked": [1000, "2df42eca01ecde902b3652ee4277cc5a", False],
        "bad-rows": [1000, "5865c74f8c62c3e635c8419961318074", False],
    }
    (made.state / "still.json").write_text(json.dumps({"run": 1000, "sinks": kept}))
    begin_still(made, 2000, [made.bad_rows_sink("orders")])
    assert json.loads((made.state / "still.json").read_text()) == {"run": 1000, "sinks": kept}


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

    def go(**given: str) -> None:
        run(load(pipeline(**given).file, broker.bootstrap), spark, tell=said.append)

    for _ in range(2):  # the second time as it was: nothing is there twice
        with pytest.raises(Exception, match="no good"):
            go()
    assert seen(broker, "still-good") == ["good-1"]
    go(good="'good-2'", checked="'checked'")
    assert (seen(broker, "still-good"), seen(broker, "still-checked")) == (["good-1", "good-2"], ["checked"])
    assert [row["said"] for row in spark.read.parquet(str(tmp_path / "lake")).collect()] == ["good-2"]
    assert "still-good was written before, by a run that was cut short" in " ".join(said)


def seen(broker: Broker, topic: str) -> list[str]:
    messages = read(broker.bootstrap, topic, stop_at_end=True, isolation_level="read_committed")
    return [json.loads(message.value or b"null")["said"] for message in messages]
