"""The transaction index: what a reader of committed records must skip."""

import pytest

from tidelog.log.aborted import ENTRY, Aborted, AbortedIndex, AbortedIndexError
from tidelog.log.producers import Completed
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom

PATH = "/t-0/00000000000000000000.txnindex"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(SimRandom(1))
    disk.make_folders("/t-0")
    return disk


@pytest.fixture
def index(disk: SimDisk) -> AbortedIndex:
    index = AbortedIndex(disk, PATH)
    for producer_id, first, last, stable in ((0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)):
        index.append(Completed(producer_id, first, last, True, stable))
    return index


def test_the_file_is_made_when_something_is_aborted(disk: SimDisk) -> None:
    index = AbortedIndex(disk, PATH)
    assert index.entries() == []
    index.truncate_to(0)
    index.reset()
    assert not disk.exists(PATH)
    index.append(Completed(1, 0, 5, True, 6))
    assert disk.read_whole(PATH) == bytes.fromhex("0000000000000000000100000000000000000000000000000005") + (
        6
    ).to_bytes(8)
    assert ENTRY.size == 34


@pytest.mark.parametrize(
    ("start", "end", "producers", "complete"),
    [
        (0, 100, [0, 1, 2, 3], False),
        (0, 32, [0, 1, 2], True),
        (0, 35, [0, 1, 2, 3], True),
        (10, 35, [0, 1, 2, 3], True),
        (11, 35, [1, 2, 3], True),
        (20, 41, [2, 3], False),
        (20, 40, [2, 3], True),
    ],
)
def test_those_that_touch_a_range_are_collected(
    index: AbortedIndex, start: int, end: int, producers: list[int], complete: bool
) -> None:
    found, done = index.collect(start, end)
    assert ([entry.producer_id for entry in found], done) == (producers, complete)


def test_entries_come_back_from_the_file(disk: SimDisk, index: AbortedIndex) -> None:
    assert AbortedIndex(disk, PATH).entries() == index.entries()
    assert AbortedIndex(disk, PATH).entries()[1] == Aborted(1, 5, 15, 13)


def test_truncation_forgets_later_markers(disk: SimDisk, index: AbortedIndex) -> None:
    index.truncate_to(51)
    assert len(index.entries()) == 4
    index.truncate_to(35)
    assert [entry.producer_id for entry in index.entries()] == [0, 1]
    assert disk.size(PATH) == 68
    index.append(Completed(9, 30, 36, True, 37))
    assert AbortedIndex(disk, PATH).entries()[-1].producer_id == 9
    index.reset()
    assert disk.size(PATH) == 0


def test_a_torn_entry_is_cut_off(disk: SimDisk, index: AbortedIndex) -> None:
    disk.open(PATH).append(b"torn")
    assert len(AbortedIndex(disk, PATH).entries()) == 4
    assert disk.size(PATH) == 4 * 34


def test_an_index_that_does_not_fit_its_segment_is_told(disk: SimDisk, index: AbortedIndex) -> None:
    index.check(10)
    with pytest.raises(AbortedIndexError, match="ended at offset 10"):
        index.check(11)
    disk.open("/t-0/zeros", create=True).append(bytes(ENTRY.size))  # a power loss kept the length, not the contents
    with pytest.raises(AbortedIndexError, match="begun at 0 and ended at offset 0"):
        AbortedIndex(disk, "/t-0/zeros").check(0)
    disk.open("/t-0/new", create=True).append(ENTRY.pack(1, 0, 0, 0, 0))
    with pytest.raises(AbortedIndexError, match="version 1"):
        AbortedIndex(disk, "/t-0/new").entries()
