"""What a batch was made from, by the checkpoint of its query."""

import json
from pathlib import Path

import pytest

from tidelog.spark.sink.fingerprint import UNKNOWN, Fingerprint, batch_input, fingerprint

OFFSETS = 'v1\n{"batchTimestampMs":%d}\n{"in":{"0":%d}}\n-\n'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkpoint"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": "query"}))
    (folder / "offsets" / "0").write_text(OFFSETS % (1, 10))
    (folder / "offsets" / "1").write_text(OFFSETS % (2, 10))
    (folder / "offsets" / "2").write_text(OFFSETS % (2, 11))
    (folder / "offsets" / "3").write_text("v9\n{}\n{}\n")
    return folder


def test_what_is_read_and_when_that_was_planned_are_told_apart(checkpoint: Path) -> None:
    first, second, third = (batch_input(str(checkpoint), "query", batch) for batch in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert first == batch_input(checkpoint.as_uri(), "query", 0)
    assert first.offsets == second.offsets != third.offsets
    assert first.planned != second.planned == third.planned


@pytest.mark.parametrize("batch", [3, 4])
def test_what_cannot_be_understood_is_not_known(checkpoint: Path, batch: int) -> None:
    assert batch_input(str(checkpoint), "query", batch) is None


@pytest.mark.parametrize(
    "place", [None, "", "s3a://bucket/state", "hdfs://host/state", "file://host/state", "/nowhere"]
)
def test_a_checkpoint_that_lies_elsewhere_is_not_known(place: str | None) -> None:
    assert batch_input(place, "query", 0) is None


def test_the_checkpoint_of_another_query_is_not_known(checkpoint: Path) -> None:
    assert batch_input(str(checkpoint), "other", 0) is None


def test_what_is_not_known_makes_no_difference() -> None:
    whole = Fingerprint(2, 7, "input", "out", "id")
    assert fingerprint(whole.to_json()) == whole
    assert whole.difference(UNKNOWN) is UNKNOWN.difference(whole) is whole.difference(whole) is None
    assert whole.difference(Fingerprint(3, 8, "input", "out", "id")) is None
    assert whole.difference(Fingerprint(3, 8, None, "out", "id")) == "this one has 2 rows and that one had 3"


def test_rows_count_where_a_batch_was_planned_anew() -> None:
    whole = Fingerprint(2, 7, "input", "out", "id", planned="monday")
    assert fingerprint(whole.to_json()) == whole
    assert whole.difference(Fingerprint(3, 8, "input", "out", "id")) is None  # as an earlier version wrote it
    assert whole.difference(Fingerprint(3, 8, "input", "out", "id", planned="monday")) is None
    assert whole.difference(Fingerprint(2, 7, "input", "out", "id", planned="tuesday")) is None
    difference = whole.difference(Fingerprint(3, 8, "input", "out", "id", planned="tuesday"))
    assert difference == "this one was planned anew, and has 2 rows and that one had 3"
