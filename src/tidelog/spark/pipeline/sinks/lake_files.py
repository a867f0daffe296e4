"""The files of a lake: moved in and removed in such an order that a crash anywhere is mended by repeating the batch.

A file that was appended is named after its batch and its writer (a sink of a pipeline with its state): a repeated batch
takes the place of its first try, and a pipeline that begins anew touches nothing of what it wrote before. Before files
are moved in, a note says into which folders, so that a repetition finds them without looking through the whole lake.
"""

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.spark.source.progress import write_file

STAGING = "_staging"
SMALL_BYTES = 32 * 1024 * 1024
"""What is merged. It may not be raised: larger files of lakes that stand would be taken for merged ones' leavings."""
_NAME = re.compile(r"(batch|upto)-(\d+)-([0-9a-z]+)-\d+\.parquet")
_VERSION = re.compile(r"version-(\d+)\.parquet")


class RolledBack(RuntimeError):
    """A later batch of this writer is in the lake already: the checkpoint is older than the lake."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes into a lake: a sink, with the state of its pipeline. `options` are those of Spark's writer."""

    path: Path
    name: str
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def staging(self) -> Path:
        return self.path / STAGING / self.name

    @property
    def note(self) -> Path:
        """The last batch that was moved in, and the folders it touched."""
        return self.path / STAGING / f"{self.name}.json"


@contextmanager
def alone(path: Path) -> Generator[None]:
    """Nobody else changes the table meanwhile: of two that write one bucket anew, one would lose its rows.

    A mounted file system may have no locks: there it is up to who runs the pipelines.
    """
    (path / STAGING).mkdir(parents=True, exist_ok=True)
    with (path / STAGING / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        yield


def land(writer: Writer, batch: int) -> list[Path]:
    """Move a staged batch in, in place of its first try if it had one; the folders that it touches."""
    last, known = _last(writer)
    if last > batch:
        raise RolledBack(
            f"batch {batch} was to be written, but batch {last} of this pipeline is in {writer.path} already: the "
            "checkpoint was rolled back or copied. Go on from the newest one, or begin anew with another state folder"
        )
    if last == batch:
        for folder in known:
            for file in _of(writer, folder, "batch"):
                if _number(file) == batch:
                    file.unlink(missing_ok=True)
    staged = sorted(writer.staging.rglob("*.parquet"))
    touched = {writer.path / file.parent.relative_to(writer.staging) for file in staged}
    folders = sorted(touched | set(known if last == batch else ()))
    names = [str(folder.relative_to(writer.path)) for folder in folders]
    write_file(writer.note, json.dumps({"batch": batch, "folders": names}), durable=True)
    for index, file in enumerate(staged):
        folder = writer.path / file.parent.relative_to(writer.staging)
        _put(file, folder / f"batch-{batch:09d}-{writer.name}-{index:05d}.parquet")
    there = [folder for folder in folders if folder.is_dir()]
    for folder in there:
        _sync_up(folder, writer.path, to_the_top=last < 0)
        _remove_merged(writer, folder)
    shutil.rmtree(writer.staging, ignore_errors=True)
    return there


def small_files(writer: Writer, folder: Path, batch: int) -> tuple[list[Path], list[Path]]:
    """This writer's small files in a folder from before a batch: merged ones, and those that are not merged yet."""
    merged = _of(writer, folder, "upto")
    upto = max(map(_number, merged), default=-1)
    single = [file for file in _of(writer, folder, "batch") if upto < _number(file) < batch]
    return [file for file in merged if _number(file) == upto and _is_small(file)], list(filter(_is_small, single))


def _remove_merged(writer: Writer, folder: Path) -> None:
    """What a merged file holds already, left by a crash."""
    merged = _of(writer, folder, "upto")
    upto = max(map(_number, merged), default=-1)
    single = [file for file in _of(writer, folder, "batch") if _number(file) <= upto]
    for file in [file for file in merged if _number(file) < upto] + single:
        if _is_small(file):
            file.unlink(missing_ok=True)


def replace_by_merged(writer: Writer, folder: Path, inputs: list[Path]) -> None:
    """One staged file takes the place of those that it was made of."""
    [made] = writer.staging.rglob("*.parquet")
    upto = max(_number(file) for file in inputs)
    _put(made, folder / f"upto-{upto:09d}-{writer.name}-00000.parquet")
    _sync(folder)
    for file in inputs:
        file.unlink(missing_ok=True)
    shutil.rmtree(writer.staging, ignore_errors=True)


def versions(folder: Path) -> list[Path]:
    """The files of a bucket; the last one counts. Earlier ones were replaced, though a crash may have left them."""
    return sorted(file for file in folder.glob("version-*.parquet") if _VERSION.fullmatch(file.name))


def replace_version(staged: Path, folder: Path) -> None:
    """A staged bucket becomes the next version of its folder, at once; then the earlier ones go."""
    [made] = staged.glob("*.parquet")
    earlier = versions(folder)
    number = int(earlier[-1].stem.partition("-")[2]) + 1 if earlier else 0
    _put(made, folder / f"version-{number:09d}.parquet")
    _sync_up(folder, folder.parent, to_the_top=not earlier)
    for file in earlier:
        file.unlink(missing_ok=True)


def _last(writer: Writer) -> tuple[int, list[Path]]:
    try:
        note = json.loads(writer.note.read_text())
    except FileNotFoundError:
        writer.note.parent.mkdir(parents=True, exist_ok=True)
        return -1, []
    return note["batch"], [writer.path / folder for folder in note["folders"]]


def _of(writer: Writer, folder: Path, kind: str) -> list[Path]:
    files = sorted(folder.glob(f"{kind}-*-{writer.name}-*.parquet"))
    return [file for file in files if _NAME.fullmatch(file.name)]


def _number(file: Path) -> int:
    match = _NAME.fullmatch(file.name)
    assert match, f"{file} is no file of a batch"
    return int(match[2])


def _is_small(file: Path) -> bool:
    return file.stat().st_size < SMALL_BYTES


def _put(file: Path, place: Path) -> None:
    """Move a file in at once, whole and durable."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _sync(file)
    os.replace(file, place)


def _sync_up(folder: Path, lake: Path, *, to_the_top: bool) -> None:
    """Make a folder durable, and those that it lies in: a new folder is an entry of the one above it.

    Up to the lake's; to the top where the lake itself may be new, as far as those may be read.
    """
    above = [folder, *folder.parents]
    for each in above[: above.index(lake) + 1]:
        _sync(each)
    for each in lake.parents if to_the_top else ():
        with suppress(PermissionError):
            _sync(each)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
