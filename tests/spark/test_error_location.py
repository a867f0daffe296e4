"""Which step and line an error of Spark's is about, when a row ended a query."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tidelog.spark.pipeline.file.model import Pipeline, load
from tidelog.spark.pipeline.tables.error_location import REASON_CHARS, RowFailure, row_failure

FILE = """
name = "pointing"
state = "state"

[source.orders]
topics = ["orders"]

[[step]]
name = "first"
sql = "select cast(a as int) as a, cast(b as int) as b from orders"

[[step]]
name = "second"
sql = '''
select 'two
  lines', -- cast(a as int)
  cast(a as int) as a
from first'''

[[step]]
name = "third"
sql = "select cast(a as int) as a, 1 / 0 as b from second"

[[sink]]
from = "third"
console = true
"""
CAST = "[STREAM_FAILED] Query [id = 1] ended: [CAST_INVALID_INPUT] The value '{}' is none. SQLSTATE: 22018"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    file = tmp_path / "pointing.toml"
    file.write_text(FILE)
    return load(file, "127.0.0.1:1")


def failure_at(
    pipeline: Pipeline, line: int, position: int, shown: str, before: int, marked: int, value: str = "x"
) -> RowFailure | None:
    spot = f"== SQL (line {line}, position {position}) ==\n{shown}\n{' ' * before}{'^' * marked}\n"
    return row_failure(pipeline, RuntimeError(f"{CAST.format(value)}\n{spot}"))


def test_the_step_is_known_by_its_words_and_where_they_stand(pipeline: Pipeline) -> None:
    reason = "[CAST_INVALID_INPUT] The value 'x' is none."
    first = "select cast(a as int) as a, cast(b as int) as b f..."
    assert failure_at(pipeline, 1, 29, first, 28, 14) == RowFailure((0,), 1, reason)
    assert failure_at(pipeline, 3, 3, "  cast(a as int) as a", 2, 14) == RowFailure((1,), 3, reason)
    assert failure_at(pipeline, 1, 29, "select cast(a as int) as a, 1 / 0 as b from second", 28, 5) == RowFailure(
        (2,), 1, reason
    )
    assert failure_at(pipeline, 9, 1, "select", 0, 6) is None


def test_the_same_words_in_two_steps_may_be_of_either(pipeline: Pipeline) -> None:
    failure = failure_at(pipeline, 1, 8, "select cast(a as int) as a, ...", 7, 14)
    assert failure is not None
    assert (failure.step, failure.steps) == (0, (0, 2))


def test_a_value_of_several_lines_is_part_of_the_reason_and_not_all_of_a_long_one(pipeline: Pipeline) -> None:
    failure = failure_at(pipeline, 3, 3, "  cast(a as int) as a", 2, 14, value="x\n SQLSTATE y\nz")
    assert failure is not None
    assert failure.reason == "[CAST_INVALID_INPUT] The value 'x SQLSTATE y z' is none."
    failure = failure_at(pipeline, 3, 3, "  cast(a as int) as a", 2, 14, value="x" * 10_000)
    assert failure is not None
    assert len(failure.reason) == REASON_CHARS + len("...")


def test_what_is_not_about_a_step_is_none_of_a_row(pipeline: Pipeline) -> None:
    assert row_failure(pipeline, RuntimeError("[STREAM_FAILED] Query terminated: no broker")) is None
    assert row_failure(pipeline, RuntimeError(CAST.format("x"))) is None
