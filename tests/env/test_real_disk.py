"""The real disk keeps what the protocol promises."""

import os
import socket
from pathlib import Path

import pytest

from tidelog.env.real_disk import REMAP_BYTES, RealDisk


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_what_is_appended_is_read_back(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append(b"one")
    file.append(b"two")
    file.append(memoryview(b"three"))
    assert file.size() == 11
    assert file.read(3, 3) == b"two"
    assert file.read(6, 100) == b"three"
    assert bytes(file.view(0, 11)) == b"onetwothree"


def test_a_missing_file_is_not_made_by_opening_it(disk, tmp_path):
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "missing"))


def test_a_view_follows_a_file_that_grows(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append(b"x" * REMAP_BYTES)
    mapped = file.view(0, REMAP_BYTES)
    file.append(b"tail")
    assert bytes(file.view(REMAP_BYTES, 4)) == b"tail"
    file.append(b"y" * REMAP_BYTES)
    assert bytes(file.view(REMAP_BYTES, 6)) == b"tailyy"
    assert bytes(mapped[:2]) == b"xx"


def test_a_view_beyond_the_end_is_refused(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append(b"abc")
    with pytest.raises(OSError, match="bytes 1 to 5, but it has 3"):
        file.view(1, 4)


def test_after_a_truncation_appending_goes_on_at_the_new_end(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append(b"x" * REMAP_BYTES)
    file.view(0, 10)
    file.truncate(2)
    file.append(b"yz")
    assert file.read(0, 10) == b"xxyz"


def test_a_file_is_closed_with_its_last_reference(disk, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    file = disk.open(str(tmp_path / "a"), create=True)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del file
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_sends_itself(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append(b"0123456789")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert file.send(ours, 2, 5) == 5
        assert theirs.recv(100) == b"23456"


def test_a_whole_file_is_replaced(disk, tmp_path):
    path = str(tmp_path / "a")
    disk.write_whole(path, b"old")
    disk.write_whole(path, b"new")
    assert disk.read_whole(path) == b"new"
    assert disk.list_folder(str(tmp_path)) == ["a"]


def test_a_folder_is_locked_against_other_processes(disk, tmp_path):
    held = disk.lock_folder(str(tmp_path))
    child = os.fork()
    if not child:
        try:
            disk.lock_folder(str(tmp_path))
        except BlockingIOError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    del held
    assert disk.lock_folder(str(tmp_path)) is not None


def test_syncfs_takes_any_path_on_the_file_system(disk, tmp_path):
    disk.sync_all(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        disk.sync_all(str(tmp_path / "missing"))


def test_a_locked_folder_is_synced_by_what_was_opened_with_the_lock(tmp_path: Path) -> None:
    """A descriptor that was opened later might miss the error of a write that failed before."""
    disk, folder = RealDisk(), tmp_path / "data"
    folder.mkdir()
    disk.sync_all(str(folder))
    lock = disk.lock_folder(str(folder))
    folder.rename(tmp_path / "elsewhere")
    disk.sync_all(str(folder))
    assert lock is not None
    with pytest.raises(FileNotFoundError):
        RealDisk().sync_all(str(folder))


def test_what_is_written_over_keeps_what_is_around_it(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "file")
    file = disk.open(path, create=True)
    file.append(b"abcdef")
    disk.write_at(path, 2, b"XY")
    assert disk.read_whole(path) == b"abXYef"
    disk.write_at(path, 5, b"123")
    file.append(b"end")
    assert disk.read_whole(path) == b"abXYe123end"


def test_a_sync_that_was_begun_leaves_the_file_as_it_is(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append(b"high")
    file.start_sync()
    file.append(b" water")
    file.start_sync()
    file.sync()
    assert file.read(0, 100) == b"high water"
