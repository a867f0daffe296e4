"""What a micro-batch reads, by its checkpoint, and which of its rows were set aside."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from tidelog.spark import checkpoint
from tidelog.spark.pipeline.quarantine import notes, offset_ranges
from tidelog.spark.pipeline.quarantine.notes import Row, Unfit
from tidelog.spark.source.plan import OffsetRange


def test_halves_are_of_one_length_and_leave_nothing_out() -> None:
    ranges = [OffsetRange("a", 0, 5, 8), OffsetRange("b", 3, 0, 6)]
    assert offset_ranges.halves(ranges) == (
        [OffsetRange("a", 0, 5, 8), OffsetRange("b", 3, 0, 1)],
        [OffsetRange("b", 3, 1, 6)],
    )
    assert offset_ranges.halves([OffsetRange("a", 0, 5, 7)]) == (
        [OffsetRange("a", 0, 5, 6)],
        [OffsetRange("a", 0, 6, 7)],
    )


def test_rows_lie_in_one_stretch_of_each_partition() -> None:
    rows = [("a", 0, 9), ("b", 1, 4), ("a", 0, 3)]
    assert offset_ranges.around(rows) == [OffsetRange("a", 0, 3, 10), OffsetRange("b", 1, 4, 5)]


def test_what_a_micro_batch_reads_stands_in_the_checkpoint(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    assert checkpoint.unfinished(tmp_path) is None

    def offsets(batch: int, *sources: Any, version: str = "v1") -> None:
        lines = [version, "{}", *(json.dumps(each) for each in sources)]
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))

    def ranges_of(batch: int) -> list[OffsetRange]:
        return offset_ranges.read_by(tmp_path, batch, tmp_path / "initial", {"a", "b"}.__contains__)

    offsets(0, {"a": {"0": 10, "00": 4, "1": 7, "01": 7}}, {"other": {"0": 9}})
    assert checkpoint.unfinished(tmp_path) == 0
    assert ranges_of(0) == [OffsetRange("a", 0, 4, 10)]
    offsets(0, {"a": {"0": 10}})
    (tmp_path / "initial").write_text(json.dumps({"a": {"0": 3}}))
    assert ranges_of(0) == [OffsetRange("a", 0, 3, 10)]
    (tmp_path / "commits" / "0").touch()
    assert checkpoint.unfinished(tmp_path) is None
    offsets(1, {"a": {"0": 12, "1": 5}, "b": {"10": 3}}, {"a": {"0": 15}})
    assert checkpoint.unfinished(tmp_path) == 1
    assert ranges_of(1) == [OffsetRange("a", 0, 10, 15), OffsetRange("a", 1, 0, 5), OffsetRange("b", 10, 0, 3)]
    offsets(1, {"a": 7}, {"a": {"0": 12}})  # what another kind of source keeps there
    assert ranges_of(1) == [OffsetRange("a", 0, 10, 12)]
    offsets(1, {"a": {"0": 2}})  # it was made anew
    assert ranges_of(1) == [OffsetRange("a", 0, 0, 2)]
    offsets(1, {"a": {"0": 12}}, version="v2")
    assert ranges_of(1) == []


def test_rows_are_noted_by_batch_and_known_to_other_queries(tmp_path: Path) -> None:
    first, second, third = (Unfit(Row(*place, 0), "a", "bad") for place in (("a", 0, 1), ("a", 0, 2), ("b", 1, 1)))
    assert notes.aside(tmp_path, "lake", 4) == []
    notes.add(tmp_path, "lake", 4, [second])
    notes.close(tmp_path, "lake")
    notes.add(tmp_path, "lake", 4, [second, first])
    assert notes.aside(tmp_path, "lake", 4) == [first.row, second.row]
    assert notes.read(tmp_path, "lake").owed == [first]
    assert notes.aside(tmp_path, "lake", 5) == notes.aside(tmp_path, "lake", None) == []
    notes.close(tmp_path, "lake")
    notes.add(tmp_path, "lake", 5, [third])
    assert notes.aside(tmp_path, "lake", 5) == [third.row]
    assert notes.known(tmp_path) == {first.row, second.row, third.row}
    notes.add(tmp_path, "other", 0, [first, third])
    assert [(note.open, note.owed) for note in notes.notes(tmp_path).values()] == [(True, [third]), (True, [])]


def test_the_number_of_a_note_grows_also_where_the_one_before_was_removed(tmp_path: Path) -> None:
    row = Unfit(Row("a", 0, 1, 0), "a", "bad")
    notes.add(tmp_path, "lake", 4, [row])
    first = notes.read(tmp_path, "lake").number
    notes.add(tmp_path, "lake", 4, [row])
    assert notes.read(tmp_path, "lake").number == first + 1
    (tmp_path / "unfit" / "lake.json").unlink()
    assert notes.read(tmp_path, "lake").number == 0
    notes.add(tmp_path, "lake", 0, [row])
    assert notes.read(tmp_path, "lake").number >= first


def test_a_row_lies_in_a_stretch_or_in_none() -> None:
    ranges = [OffsetRange("a", 0, 5, 8), OffsetRange("b", 3, 0, 6)]
    answers = [offset_ranges.lying_in(ranges, row) for row in (("a", 0, 5), ("a", 0, 8), ("a", 1, 6), ("b", 3, 0))]
    assert answers == [True, False, False, True]
