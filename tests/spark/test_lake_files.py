"""The files of a lake: whatever file operation a crash comes before, the repeated batch leaves each row once."""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.spark.pipeline.sinks import lake_files
from tidelog.spark.pipeline.sinks.lake_files import (
    RolledBack,
    Writer,
    alone,
    land,
    replace_by_merged,
    replace_version,
    small_files,
    versions,
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


def test_what_a_crash_left_beside_a_merged_file_goes_also_where_nothing_is_merged_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path, "w1")
    for batch in range(2):
        stage(writer, {"day=1": [str(batch)]})
        land(writer, batch)
    stage(writer, {"day=1": ["2"]})
    [folder] = land(writer, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", lambda path: (_ for _ in ()).throw(Crash))
        with pytest.raises(Crash):
            merge(writer, folder, 2, 2)
    assert len(held(tmp_path)) == 5
    stage(writer, {"day=1": ["2"]})
    land(writer, 2)  # the batch is repeated, and compact_files was taken out of the file
    assert held(tmp_path) == ["0", "1", "2"]


def test_every_new_folder_is_durable_in_the_one_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    monkeypatch.setattr(os, "fsync", lambda handle: synced.add(os.readlink(f"/proc/self/fd/{handle}")))
    lake = tmp_path / "lakes" / "orders"
    stage(Writer(lake, "w1"), {"day=1/hour=2": ["a"]})
    land(Writer(lake, "w1"), 0)
    inner = lake / "day=1" / "hour=2"
    assert {str(each) for each in (inner, inner.parent, lake, lake.parent, tmp_path)} <= synced
    synced.clear()
    stage(Writer(lake, "w1"), {"day=2": ["b"]})
    land(Writer(lake, "w1"), 1)
    assert {str(lake / "day=2"), str(lake)} <= synced
    assert str(tmp_path) not in synced


def test_one_at_a_time_changes_a_table(tmp_path: Path) -> None:
    order: list[str] = []

    def change() -> None:
        with alone(tmp_path):
            order.append("second")

    with alone(tmp_path):
        other = threading.Thread(target=change)
        other.start()
        other.join(0.2)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"]


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
        assert versions(folder)[-1].read_text() in ("old", "new")
        for file in (folder.parent / "_staging").glob("*.parquet"):
            file.unlink()
        put(folder, "new")
        assert [file.read_text() for file in versions(folder)] == ["new"]
        if crashing.done < after:
            break
        after += 1
    assert after > 3
