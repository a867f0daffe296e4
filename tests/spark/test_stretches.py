"""What a micro-batch reads, by its checkpoint, and which of its rows were set aside."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tidelog.spark.pipeline import stretches, unfit
from tidelog.spark.pipeline.unfit import Row
from tidelog.spark.plan import OffsetRange


def test_halves_are_of_one_length_and_leave_nothing_out() -> None:
    ranges = [OffsetRange("a", 0, 5, 8), OffsetRange("b", 3, 0, 6)]
    assert stretches.halves(ranges) == (
        [OffsetRange("a", 0, 5, 8), OffsetRange("b", 3, 0, 1)],
        [OffsetRange("b", 3, 1, 6)],
    )
    assert stretches.halves([OffsetRange("a", 0, 5, 7)]) == ([OffsetRange("a", 0, 5, 6)], [OffsetRange("a", 0, 6, 7)])


def test_rows_lie_in_one_stretch_of_each_partition() -> None:
    rows = [Row("a", 0, 9), Row("b", 1, 4), Row("a", 0, 3)]
    assert stretches.around(rows) == [OffsetRange("a", 0, 3, 10), OffsetRange("b", 1, 4, 5)]


def test_what_a_micro_batch_reads_stands_in_the_checkpoint(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    assert stretches.unfinished(tmp_path) is None

    def offsets(batch: int, *sources: Any, version: str = "v1") -> None:
        lines = [version, "{}", *(json.dumps(each) for each in sources)]
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))

    def found(batch: int) -> list[OffsetRange]:
        return stretches.read_by(tmp_path, batch, tmp_path / "initial", {"a", "b"}.__contains__)

    offsets(0, {"a": {"0": 10, "00": 4, "1": 7, "01": 7}}, {"other": {"0": 9}})
    assert stretches.unfinished(tmp_path) == 0
    assert found(0) == [OffsetRange("a", 0, 4, 10)]
    offsets(0, {"a": {"0": 10}})
    (tmp_path / "initial").write_text(json.dumps({"a": {"0": 3}}))
    assert found(0) == [OffsetRange("a", 0, 3, 10)]
    (tmp_path / "commits" / "0").touch()
    assert stretches.unfinished(tmp_path) is None
    offsets(1, {"a": {"0": 12, "1": 5}, "b": {"10": 3}}, {"a": {"0": 15}})
    assert stretches.unfinished(tmp_path) == 1
    assert found(1) == [OffsetRange("a", 0, 10, 15), OffsetRange("a", 1, 0, 5), OffsetRange("b", 10, 0, 3)]
    offsets(1, {"a": {"0": 12}}, version="v2")
    assert found(1) == []


def test_rows_are_noted_by_batch_and_known_to_other_queries(tmp_path: Path) -> None:
    first, second, third = Row("a", 0, 1), Row("a", 0, 2), Row("b", 1, 1)
    assert unfit.aside(tmp_path, "lake") == []
    assert unfit.note(tmp_path, "lake", 4, [second]) == 1
    assert unfit.note(tmp_path, "lake", 4, [first, second]) == 2
    assert unfit.aside(tmp_path, "lake") == [first, second]
    assert unfit.known(tmp_path, ("lake", 4)) == set()
    assert unfit.known(tmp_path, ("other", 4)) == {first, second}
    assert unfit.note(tmp_path, "lake", 5, [third]) == 1
    assert unfit.aside(tmp_path, "lake") == [third]
    assert unfit.known(tmp_path, ("lake", 5)) == {first, second}
