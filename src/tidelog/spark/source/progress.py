"""What each micro-batch did: rows, bytes, lag. A line in the log, and a small file that others may look at."""

import hashlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

logger = logging.getLogger("tidelog.spark")


class Progress:
    """The driver's side: `progress.json` in a folder, replaced at once, with what tasks left beside it summed up."""

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            (self._folder / "tasks").mkdir(parents=True, exist_ok=True)
            self._gathered()  # what a run before this one left would be counted to this one's first batch
        self._began = time.time()
        self._batches = 0
        self._tasks = 0
        self._planned: dict[str, dict[str, int]] | None = None

    def planned(self, records: int, tasks: int, lag: int, end: dict[str, dict[str, int]]) -> None:
        """A micro-batch was planned: `records` offsets in `tasks` tasks, `lag` more are waiting behind it."""
        if end != self._planned:  # Spark may plan a batch more than once
            self._batches, self._planned = self._batches + 1, end
        self._tasks = tasks
        logger.info("micro-batch of %d offsets in %d tasks, %d behind", records, tasks, lag)
        self._write({"planned": records, "tasks": tasks, "lag": lag, "end": end})

    def committed(self, end: dict[str, dict[str, int]]) -> None:
        """Spark is done with everything before `end`."""
        report: dict[str, Any] = {"committed": end, "rows": None, "bytes": None}
        tasks = self._gathered()
        if self._folder is None:
            return
        if end == self._planned and len(tasks) >= self._tasks:  # else some ran where the folder can't be seen
            report |= {"rows": sum(rows for rows, _ in tasks), "bytes": sum(size for _, size in tasks)}
            logger.info("micro-batch done: %d rows, %d bytes", report["rows"], report["bytes"])
        self._write(report)

    def _gathered(self) -> list[tuple[int, int]]:
        """Rows and bytes of each task that left word, which is taken away."""
        tasks: list[tuple[int, int]] = []
        for file in [] if self._folder is None else list((self._folder / "tasks").glob("*.json")):
            try:
                report = json.loads(file.read_text())
                tasks.append((report["rows"], report["bytes"]))
                file.unlink()
            except (OSError, ValueError, KeyError):
                continue
        return tasks

    def _write(self, report: dict[str, Any]) -> None:
        if self._folder is None:
            return
        file = self._folder / "progress.json"
        try:
            known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
            known |= {**report, "batches": self._batches, "since": self._began, "at": time.time()}
            write_file(file, json.dumps(known))
        except (OSError, ValueError) as error:
            logger.warning("the progress file %s can't be written: %s", file, error)


def task_done(folder: str | None, name: str, rows: int, size: int) -> None:
    """A task's side: what it read, where the folder can be seen from here. Attempts overwrite each other."""
    if folder is None:
        return
    place = Path(folder, "tasks")
    file = hashlib.sha256(name.encode()).hexdigest()[:32]  # two topics' names are more than a file's may have
    try:
        if place.is_dir():
            write_file(place / f"{file}.json", json.dumps({"rows": rows, "bytes": size}))
    except OSError:
        return


def write_file(file: Path, text: str, *, durable: bool = False) -> None:
    """Replace a file at once: a reader sees the old or the new; a `durable` one is still there after a power cut."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    with beside.open("w") as writing:
        writing.write(text)
        if durable:
            writing.flush()
            os.fsync(writing.fileno())
    os.replace(beside, file)
    if durable:
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
