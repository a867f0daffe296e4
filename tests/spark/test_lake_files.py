"""The files of a lake: whatever file operation a crash comes before, the repeated batch leaves each row once."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.spark.pipeline import lake_files
from tidelog.spark.pipeline.lake_files import (
    RolledBack,
    Writer,
    current_version,
    land,
    replace_by_merged,
    replace_version,
    small_files,
)

OPERATIONS = ("replace", "unlink", "fsync", "mkdir")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of operations is looked at, not the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Crash(Exception):
    pass


class Crashing:
    """Lets so many file operations through, then raises; -1 lets all through, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.done = 0
        for name in OPERATIONS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name), after))

    def _counted(self, call: Callable[..., Any], after: int) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            if self.done == after:
                raise Crash
            self.done += 1
            return call(*args, **named)

        return counted


def stage(writer: Writer, rows: dict[str, list[str]]) -> None:
    """What Spark leaves: files in the folders of partitions. A row is a line here."""
    shutil.rmtree(writer.staging, ignore_errors=True)
    for folder, lines in rows.items():
        (writer.staging / folder).mkdir(parents=True, exist_ok=True)
        (writer.staging / folder / "part-0.parquet").write_text("\n".join(lines) + "\n")


def held(path: Path) -> list[str]:
    files = [file for file in path.rglob("*.parquet") if lake_files.STAGING not in file.parts]
    return sorted(line for file in files for line in file.read_text().splitlines())


def merge(writer: Writer, folder: Path, batch: int, least: int) -> None:
    """Compaction with plain files in place of Spark."""
    merged, single = small_files(writer, folder, batch)
    if len(single) >= least:
        stage(writer, {".": [line for file in [*merged, *single] for line in file.read_text().splitlines()]})
        replace_by_merged(writer, folder, [*merged, *single])


def write(writer: Writer, batch: int) -> None:
    stage(writer, {"day=1": [f"{batch}a", f"{batch}b"], f"day={batch + 10}": [f"{batch}c"]})
    for folder in land(writer, batch):
        merge(writer, folder, batch, 2)


def expected(batches: int) -> list[str]:
    return sorted(f"{batch}{row}" for batch in range(batches) for row in "abc")


@pytest.mark.parametrize("crashed", [0, 3])
def test_a_batch_that_crashed_anywhere_is_there_once_after_it_was_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashed: int
) -> None:
    after = 0
    while True:
        path = tmp_path / str(after)
        writer = Writer(path, "w1")
        for batch in range(crashed):
            write(writer, batch)
        with monkeypatch.context() as patch:
            crashing = Crashing(patch, after)
            with contextlib.suppress(Crash):
                write(writer, crashed)
        finished = crashing.done < after
        write(writer, crashed)
        assert held(path) == expected(crashed + 1), f"crashed before operation {after} of batch {crashed}"
        write(writer, crashed + 1)
        write(writer, crashed + 2)
        assert held(path) == expected(crashed + 3), f"later, after a crash before operation {after}"
        after += 1
        if finished:
            break
    assert after > 5


def test_another_writer_of_the_same_folder_is_left_alone(tmp_path: Path) -> None:
    first, second = Writer(tmp_path, "w1"), Writer(tmp_path, "w2")
    for batch in range(3):
        write(first, batch)
    stage(second, {"day=1": ["x"]})
    land(second, 0)
    write(first, 3)
    assert held(tmp_path) == sorted([*expected(4), "x"])


def test_a_checkpoint_older_than_the_lake_is_refused(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "w1")
    for batch in range(3):
        write(writer, batch)
    with pytest.raises(RolledBack, match=r"batch 1 was to be written, but batch 2 .* the checkpoint was rolled back"):
        land(writer, 1)
    assert held(tmp_path) == expected(3)


def test_a_bucket_is_the_old_or_the_new_wherever_it_crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(folder: Path, text: str) -> None:
        staged = folder.parent / "_staging"
        staged.mkdir(parents=True, exist_ok=True)
        (staged / "part-0.parquet").write_text(text)
        replace_version(staged, folder)

    after = 0
    while True:
        folder = tmp_path / str(after) / "tidelog_bucket=1"
        put(folder, "old")
        with monkeypatch.context() as patch:
            crashing = Crashing(patch, after)
            with contextlib.suppress(Crash):
                put(folder, "new")
        found = current_version(folder)
        assert found is not None
        assert found.read_text() in ("old", "new")
        assert len(list(folder.glob("*.parquet"))) == 1
        for file in (folder.parent / "_staging").glob("*.parquet"):
            file.unlink()
        put(folder, "new")
        found = current_version(folder)
        assert found is not None
        assert found.read_text() == "new"
        if crashing.done < after:
            break
        after += 1
    assert after > 3
