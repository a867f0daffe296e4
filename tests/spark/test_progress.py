"""What a stream tells of its micro-batches: from the tasks' own words, and nothing where those can't be heard."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.spark.source import progress as module
from tidelog.spark.source.progress import Progress, task_done

END = {"orders": {"0": 9}}


def progress_file(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "progress.json").read_text())


def test_rows_and_bytes_are_those_of_the_tasks(tmp_path: Path) -> None:
    progress = Progress(str(tmp_path))
    progress.planned(9, 2, 5, END)
    progress.planned(9, 2, 5, END)  # Spark plans a batch twice at times
    for name, rows in (("a", 4), ("b", 3), ("b", 5)):  # an attempt that is repeated
        task_done(str(tmp_path), name * 400, rows, 10 * rows)
    progress.committed(END)
    report = progress_file(tmp_path)
    assert (report["rows"], report["bytes"], report["batches"], report["lag"]) == (9, 90, 1, 5)


def test_rows_that_were_counted_elsewhere_are_not_said_to_be_none(tmp_path: Path) -> None:
    progress = Progress(str(tmp_path))
    progress.planned(9, 2, 0, END)
    task_done(str(tmp_path), "a", 4, 40)
    task_done(str(tmp_path / "on another host"), "b", 5, 50)
    progress.committed(END)
    assert progress_file(tmp_path)["rows"] is None


def test_what_an_earlier_run_left_is_not_counted(tmp_path: Path) -> None:
    Progress(str(tmp_path)).planned(9, 1, 0, END)
    task_done(str(tmp_path), "a", 4, 40)
    progress = Progress(str(tmp_path))
    progress.planned(5, 1, 0, {"orders": {"0": 14}})
    task_done(str(tmp_path), "b", 5, 50)
    progress.committed({"orders": {"0": 14}})
    assert progress_file(tmp_path)["rows"] == 5


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrote: list[Path] = []
    monkeypatch.setattr(module, "write_file", lambda file, text: wrote.append(file))
    progress = Progress(None)
    progress.planned(9, 1, 0, END)
    task_done(None, "a", 4, 40)
    progress.committed(END)
    assert (wrote, list(tmp_path.iterdir())) == ([], [])
