"""Leader epochs answer as Kafka's cache does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.checkpoints import write_epochs
from tidelog.log.epochs import UNDEFINED, LeaderEpochs
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(list(entries))


@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, UNDEFINED),
        (0, (0, 10)),  # older than all known: ends where the first known begins
        (2, (2, 20)),
        (3, (2, 20)),  # never wrote: the one before it
        (5, (5, 50)),
        (7, (7, 99)),  # the current one ends at the log's end
        (8, UNDEFINED),
    ],
)
def test_the_end_of_an_epoch(requested: int, answer: tuple[int, int]) -> None:
    assert epochs((2, 10), (5, 20), (7, 50)).end_offset_for(requested, 99) == answer


def test_an_empty_log_knows_no_epoch() -> None:
    assert epochs().end_offset_for(0, 0) == UNDEFINED
    assert epochs().latest == -1
    assert epochs().epoch_for(0) == -1
    assert epochs().earliest is None


def test_an_epoch_is_assigned_once() -> None:
    known = epochs((0, 0))
    known.assign(0, 5)
    assert not known.dirty
    known.assign(1, 5)
    known.assign(1, 7)
    assert known.dirty
    assert known.entries() == [(0, 0), (1, 5)]


def test_what_contradicts_a_new_entry_goes() -> None:
    known = epochs((0, 0), (1, 5), (3, 9))
    known.assign(2, 7)
    assert known.entries() == [(0, 0), (1, 5), (2, 7)]
    known.assign(4, 5)
    assert known.entries() == [(0, 0), (4, 5)]
    known.assign(4, 3)
    assert known.entries() == [(0, 0), (4, 3)]


def test_truncation_at_the_end_forgets_epochs_that_wrote_nothing_left() -> None:
    known = epochs((0, 0), (1, 5), (2, 9))
    known.truncate_from_end(10)
    assert not known.dirty
    known.truncate_from_end(9)
    assert known.dirty
    assert known.entries() == [(0, 0), (1, 5)]
    known.truncate_from_end(0)
    assert known.entries() == []


def test_truncation_at_the_start_moves_the_epoch_that_wrote_it() -> None:
    known = epochs((0, 0), (1, 5), (2, 9))
    known.truncate_from_start(0)
    assert not known.dirty
    known.truncate_from_start(7)
    assert known.entries() == [(1, 7), (2, 9)]
    known.truncate_from_start(9)
    assert known.entries() == [(2, 9)]
    known.truncate_from_start(50)
    assert known.entries() == [(2, 50)]
    known.clear()
    assert known.entries() == []


def test_the_epoch_of_an_offset() -> None:
    known = epochs((2, 10), (5, 20))
    assert [known.epoch_for(offset) for offset in (9, 10, 19, 20, 1000)] == [-1, 2, 2, 5, 5]


def test_saved_epochs_come_back() -> None:
    disk = SimDisk(SimRandom(1))
    disk.make_folders("/t-0")
    disk.sync_folder("/")
    known = epochs((0, 0))
    known.assign(1, 5)
    write_epochs(disk, "/t-0/leader-epoch-checkpoint", known.entries())
    disk.crash()
    assert LeaderEpochs.load(disk, "/t-0/leader-epoch-checkpoint").entries() == [(0, 0), (1, 5)]
    assert LeaderEpochs.load(disk, "/t-0/none").entries() == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=20), st.integers(0, 30), st.integers(0, 30))
def test_epochs_and_starts_always_rise(assigned: list[tuple[int, int]], start: int, end: int) -> None:
    known = epochs()
    for epoch, offset in assigned:
        known.assign(epoch, offset)
        assert known.entries()[-1][0] == epoch
    known.truncate_from_start(start)
    known.truncate_from_end(end)
    entries = known.entries()
    assert entries == sorted(set(entries))
    assert len({offset for _, offset in entries}) == len({epoch for epoch, _ in entries}) == len(entries)
