"""How a failed micro-batch is told to Spark."""

import traceback

import pytest

from tidelog.spark.pipeline.run.callback import each_batch
from tidelog.spark.pipeline.run.runner import reason_of

PATTERN = "py4j.protocol.Py4JJavaError: An error occurred while calling"


class Py4JJavaError(Exception):
    __module__ = "py4j.protocol"


def failure_text(text: str) -> str:
    def write(rows: object, batch: int) -> None:
        raise Py4JJavaError(text)

    with pytest.raises(RuntimeError) as caught:
        each_batch(write)(None, 0)
    return "".join(traceback.format_exception(caught.value))


def test_a_long_failure_is_told_without_the_words_that_spark_recurses_on() -> None:
    text = (
        f"An error occurred while calling o1.save.\n{PATTERN} o2.save.\n: tidelog.spark.sink.outbound.RowError: row 7\n"
    )
    said = failure_text(text + "\tat org.apache.spark\n" * 1000)
    assert PATTERN not in said
    assert "RowError: row 7" in said


def test_an_interruption_is_told_as_spark_looks_for_it() -> None:
    said = failure_text("An error occurred while calling o1.save.\n: java.lang.InterruptedException\n\tat java.base")
    assert f"{PATTERN} a batch: java.lang.InterruptedException" in said


def test_a_pipeline_that_fails_in_java_says_what_java_said() -> None:
    said = failure_text(
        "An error occurred while calling o425.save.\n: org.apache.spark.SparkException: Python worker exited "
        "unexpectedly (crashed).\n\tat org.apache.spark\nCaused by: java.io.EOFException\n"
    )
    assert reason_of(said) == "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)."


def test_an_error_of_ours_is_told_in_its_own_words() -> None:
    from tidelog.spark.pipeline.sinks.lake_files import RolledBack

    def write(rows: object, batch: int) -> None:
        raise RolledBack("batch 1 was to be written, but batch 2 is there already")

    with pytest.raises(RuntimeError) as caught:
        each_batch(write)(None, 0)
    said = "".join(traceback.format_exception(caught.value))
    assert reason_of(said) == "batch 1 was to be written, but batch 2 is there already"
