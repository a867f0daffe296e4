"""Journals that somebody damaged, or that a disk has no room for: what is told, and what isn't taken for ours."""

import pytest
from tests.log.harness import CountingDisk, LogHarness, append, values
from tests.log.test_journal import JOURNAL_BYTES, journal_files, lose_power, made, ready

from tidelog.log.journal import AGAIN_S, JOURNAL
from tidelog.log.journal_blocks import ALIGNMENT
from tidelog.sim.world.random import SimRandom


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk(SimRandom(5))


@pytest.fixture
def harness(disk: CountingDisk) -> LogHarness:
    return made(disk)


def commit_each(harness: LogHarness, *each: bytes) -> None:
    for value in each:
        append(harness.log(), value)
        harness.commit(harness.log())


def test_a_damaged_block_with_sound_ones_behind_it_is_told(
    harness: LogHarness, disk: CountingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """A torn write has nothing newer behind it: here records that were acknowledged are gone."""
    commit_each(harness, b"a", b"b", b"c", b"d")
    path = f"{harness.root}/{journal_files(harness)[0]}"
    data = bytearray(disk.read_whole(path))
    data[ALIGNMENT + 100] ^= 1
    disk.put(path, bytes(data))
    lose_power(harness)
    assert values(harness.log()) == [(0, b"a")]
    assert f"{path} byte 4096: a block is damaged, and sound ones are behind it" in caplog.text


def test_a_journal_that_begins_with_a_damaged_block_is_told(
    harness: LogHarness, disk: CountingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    commit_each(harness, b"a", b"b")
    path = f"{harness.root}/{journal_files(harness)[0]}"
    disk.put(path, b"\xff" * ALIGNMENT + disk.read_whole(path)[ALIGNMENT:])
    lose_power(harness)
    assert f"{path} byte 0: a block is damaged, and sound ones are behind it" in caplog.text


def test_a_journal_that_somebody_made_shorter_is_told(
    harness: LogHarness, disk: CountingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    commit_each(harness, b"a", b"b")
    path = f"{harness.root}/{journal_files(harness)[0]}"
    disk.put(path, disk.read_whole(path)[: ALIGNMENT + 60])
    lose_power(harness)
    assert values(harness.log()) == [(0, b"a")]
    assert f"{path} byte 4096: a block goes on behind the end of the file" in caplog.text


def test_what_an_earlier_use_of_the_file_left_is_no_damage(
    disk: CountingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    harness = made(disk, 8 * ALIGNMENT)
    for _ in range(3):  # of 4 blocks a file: the third turn is in the middle of the first file
        commit_each(harness, b"a", b"b", b"c")
        harness.settle()
    for name in journal_files(harness):
        blocks = [
            disk.read_whole(f"{harness.root}/{name}")[at : at + ALIGNMENT] for at in range(0, 4 * ALIGNMENT, ALIGNMENT)
        ]
        newest = max(range(4), key=lambda at: blocks[at][8:16])
        blocks[newest] = blocks[newest][:100] + b"\xff" * 50 + blocks[newest][150:]  # torn
        disk.put(f"{harness.root}/{name}", b"".join(blocks))
        break
    lose_power(harness)
    assert "damaged" not in caplog.text


def test_a_journal_leaves_as_much_room_as_it_takes(disk: CountingDisk, caplog: pytest.LogCaptureFixture) -> None:
    """Made on a disk that is nearly full it would take the room that records need."""
    harness = LogHarness(disk, tidelog_journal_bytes=str(JOURNAL_BYTES))
    disk.capacity = disk.used_bytes() + 2 * JOURNAL_BYTES - 1
    log = harness.log()
    for _ in range(3):
        append(log, b"a")
        harness.commit(log)
        harness.settle(AGAIN_S + 1)
    assert not journal_files(harness)
    assert disk.free_bytes(harness.root) > JOURNAL_BYTES
    assert caplog.text.count("making a journal failed") == 1
    disk.capacity += JOURNAL_BYTES
    ready(harness)


def test_files_of_other_names_are_nobodys(harness: LogHarness, disk: CountingDisk) -> None:
    """A colleague's copy is neither read nor removed."""
    commit_each(harness, b"a")
    copies = [f"{harness.root}/{JOURNAL}{name}" for name in ("0.bak", "\u00b2")]
    for path in copies:
        disk.put(path, b"mine")
    lose_power(harness)
    assert values(harness.log()) == [(0, b"a")]
    harness.stop()
    assert [disk.read_whole(path) for path in copies] == [b"mine", b"mine"]


def test_what_came_back_is_in_the_summary(harness: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    """Without it a cut whose records all came back reads as a loss, and a loss as one of these."""
    caplog.set_level("INFO", "tidelog.log")
    commit_each(harness, b"a", b"b", b"c")
    lose_power(harness)
    harness.log()
    harness.store.recoveries.finish(0)
    assert "nothing was cut; 3 records of 1 partition came back from the journal" in caplog.text


def test_a_cut_says_what_came_back_in_its_place(harness: LogHarness, disk: CountingDisk) -> None:
    commit_each(harness, b"a", b"b", b"c")
    path = harness.log().segments[0].path
    harness.kill()
    disk.put(path, disk.read_whole(path)[:-1])
    harness.start()
    assert values(harness.log()) == [(0, b"a"), (1, b"b"), (2, b"c")]
    (cut,) = harness.store.recoveries.cuts
    assert str(cut).endswith("bytes from offset 2 on, where 1 record came back from the journal")
