"""The simulated disk keeps what was made durable, and nothing else is certain."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom


def new_disk(seed: int = 1) -> SimDisk:
    disk = SimDisk(SimRandom(seed))
    disk.make_folders("/data")
    disk.sync_folder("/")
    return disk


@given(seed=st.integers(0, 10_000))
def test_synced_bytes_of_a_synced_name_survive_a_crash(seed: int) -> None:
    disk = new_disk(seed)
    file = disk.open("/data/a", create=True)
    disk.sync_folder("/data")
    file.append(b"durable" * 100)
    file.sync()
    file.append(b"perhaps" * 200)
    disk.crash()
    found = disk.read_whole("/data/a")
    assert found[:700] == b"durable" * 100
    assert len(found) <= 2100


def outcomes(seeds: int, name: str) -> set[str]:
    seen: set[str] = set()
    for seed in range(seeds):
        disk = new_disk(seed)
        disk.open("/data/a", create=True).append(b"x" * 2000)
        disk.sync_folder("/data")
        disk.crash()
        found = disk.read_whole(name)
        if not found:
            seen.add("forgotten")
        elif found == b"x" * 2000:
            seen.add("kept")
        elif b"\0" in found:
            seen.add("holes")
        else:
            seen.add("cut")
    return seen


def test_unsynced_bytes_are_forgotten_kept_cut_or_riddled_with_holes() -> None:
    assert outcomes(60, "/data/a") == {"forgotten", "kept", "cut", "holes"}


def test_a_name_whose_folder_was_not_synced_may_go_though_its_bytes_were_synced() -> None:
    found: set[bool] = set()
    for seed in range(20):
        disk = new_disk(seed)
        file = disk.open("/data/a", create=True)
        file.append(b"1")
        file.sync()
        disk.crash()
        found.add(disk.exists("/data/a"))
    assert found == {True, False}


def test_a_rename_is_all_or_nothing_and_a_later_change_never_survives_an_earlier_one() -> None:
    seen: set[tuple[str, ...]] = set()
    for seed in range(40):
        disk = new_disk(seed)
        disk.open("/data/a", create=True)
        disk.sync_folder("/data")
        disk.rename("/data/a", "/data/b")
        disk.open("/data/c", create=True)
        disk.crash()
        seen.add(tuple(disk.list_folder("/data")))
    assert seen == {("a",), ("b",), ("b", "c")}


@given(seed=st.integers(0, 10_000))
def test_write_whole_leaves_the_old_or_the_new(seed: int) -> None:
    disk = new_disk(seed)
    disk.write_whole("/data/a", b"old")
    disk.crash()
    assert disk.read_whole("/data/a") == b"old"
    disk.write_whole("/data/a", b"new")
    disk.crash()
    assert disk.read_whole("/data/a") == b"new"


@pytest.mark.parametrize("keeps_cache", [True, False])
def test_what_a_failed_sync_lost_stays_lost_though_the_next_sync_succeeds(keeps_cache: bool) -> None:
    lost = 0
    for seed in range(20):
        disk = new_disk(seed)
        disk.failed_sync_keeps_cache = keeps_cache
        file = disk.open("/data/a", create=True)
        disk.sync_folder("/data")
        file.append(b"abc" * 500)
        disk.failing_syncs = 1
        with pytest.raises(OSError) as failure:
            file.sync()
        assert failure.value.errno == errno.EIO
        if keeps_cache:
            assert file.read(0, 1500) == b"abc" * 500
        file.sync()
        file.append(b"later")
        file.sync()
        disk.crash()
        lost += not disk.read_whole("/data/a").startswith(b"abc" * 500)
        assert disk.read_whole("/data/a").endswith(b"later")
    assert lost > 5


def test_a_full_disk_writes_a_part_and_says_so() -> None:
    disk = new_disk()
    disk.capacity = 100
    file = disk.open("/data/a", create=True)
    file.append(b"x" * 60)
    with pytest.raises(OSError) as failure:
        file.append(b"y" * 60)
    assert failure.value.errno == errno.ENOSPC
    assert 60 <= file.size() <= 100
    disk.remove("/data/a")
    assert disk.free_bytes("/data") == 100


def test_a_lying_disk_reports_success_and_keeps_nothing_for_sure() -> None:
    lost = 0
    for seed in range(20):
        disk = new_disk(seed)
        file = disk.open("/data/a", create=True)
        disk.sync_folder("/data")
        disk.lying = True
        file.append(b"x" * 100)
        file.sync()
        disk.crash()
        lost += disk.read_whole("/data/a") != b"x" * 100
    assert lost > 5


def test_a_truncated_file_may_come_back_whole_until_it_is_synced() -> None:
    sizes: set[int] = set()
    for seed in range(40):
        disk = new_disk(seed)
        disk.write_whole("/data/a", b"x" * 100)
        disk.open("/data/a").truncate(10)
        disk.crash()
        sizes.add(disk.size("/data/a"))
    assert sizes == {10, 100}


def test_sync_all_makes_everything_durable() -> None:
    disk = new_disk()
    disk.make_folders("/data/t-0")
    disk.open("/data/t-0/0.log", create=True).append(b"1")
    disk.sync_all("/data")
    disk.crash()
    assert disk.read_whole("/data/t-0/0.log") == b"1"


def test_a_folder_is_locked_once_until_the_lock_or_its_process_goes() -> None:
    disk = new_disk()
    lock = disk.lock_folder("/data")
    with pytest.raises(BlockingIOError):
        disk.lock_folder("/data")
    del lock
    kept = disk.lock_folder("/data")
    disk.release_locks()
    again = disk.lock_folder("/data")
    assert kept is not again


def test_a_flipped_bit_shows_in_cache_and_on_the_platter() -> None:
    disk = new_disk()
    disk.write_whole("/data/a", bytes(100))
    pos = disk.flip_bit("/data/a", 10, 50)
    assert 10 <= pos < 50
    disk.crash()
    assert sum(byte.bit_count() for byte in disk.read_whole("/data/a")) == 1


def test_files_from_before_a_crash_belong_to_the_past() -> None:
    disk = new_disk()
    disk.write_whole("/data/a", b"1")
    zombie = disk.open("/data/a")
    disk.crash()
    zombie.append(b"2")
    zombie.sync()
    assert disk.read_whole("/data/a") == b"1"


def test_what_is_written_over_is_the_old_or_the_new_sector_by_sector_until_it_is_synced() -> None:
    found: set[bytes] = set()
    for seed in range(40):
        disk = SimDisk(SimRandom(seed))
        file = disk.open("/file", create=True)
        file.append(b"a" * 1024)
        file.sync()
        disk.sync_folder("/")
        disk.write_at("/file", 0, b"b" * 1024)
        assert disk.read_whole("/file") == b"b" * 1024
        if seed == 0:
            file.sync()
        disk.crash()
        data = disk.read_whole("/file")
        assert len(data) == 1024
        found.add(bytes((data[0], data[511], data[512], data[1023])))
        if seed == 0:
            assert data == b"b" * 1024
    assert found == {b"aaaa", b"aabb", b"bbaa", b"bbbb"}
