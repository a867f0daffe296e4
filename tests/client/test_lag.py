"""Lag: what is unknown isn't zero, what was deleted can't be consumed, what is open holds readers up."""

import pytest

from tidelog.client.lag import Lag, Progress


def progress(committed: int | None, start: int = 0, end: int = 10, stable_end: int | None = None) -> Progress:
    return Progress("tides", 0, committed, start, end if stable_end is None else stable_end, end, behind_ms=7)


@pytest.mark.parametrize(
    ("committed", "start", "lag"),
    [(0, 0, 10), (4, 0, 6), (10, 0, 0), (4, 6, 4), (None, 0, 10), (None, 6, 4), (11, 0, None)],
)
def test_lag_counts_from_where_consumers_go_on(committed: int | None, start: int, lag: int | None) -> None:
    assert progress(committed, start).lag == lag


def test_an_offset_beyond_the_end_is_told_as_such() -> None:
    assert [progress(committed).beyond_end for committed in (None, 9, 10, 11)] == [False, False, False, True]


@pytest.mark.parametrize(("stable_end", "behind"), [(10, 0), (8, 2), (4, 6), (2, 6)])
def test_what_is_behind_an_open_transaction_is_counted(stable_end: int, behind: int) -> None:
    assert progress(4, stable_end=stable_end).behind_open_transaction == behind


def test_a_partition_without_a_leader_makes_the_lag_of_its_group_unknown() -> None:
    unknown = Progress("tides", 1, 4)
    assert (unknown.lag, unknown.begins, unknown.behind_open_transaction) == (None, None, None)
    assert Lag.of([progress(4), unknown]) == Lag(None, None, None, 0)


def test_a_group_has_the_lag_of_its_partitions_and_those_that_are_gone_have_none() -> None:
    gone = Progress("tides", 1, 4, gone=True)
    assert Lag.of([progress(4), progress(None), gone]) == Lag(16, 7, 0, 1)
    assert Lag.of([gone]) == Lag(0, 0, 0, 0)
    assert Lag.of([progress(4), progress(11)]) == Lag(None, 7, None, 0, 1)


def test_of_a_group_without_offsets_nothing_is_known() -> None:
    assert Lag.of([]) == Lag(None, None, None, 0)
