"""What to read: limits, ranges and tasks, and what counts as lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.source.plan import (
    Loss,
    OffsetRange,
    available,
    began,
    from_json,
    lag,
    limited,
    other_ids,
    ranges,
    shared,
    split,
    to_json,
    topic_ids,
)

A, B, C = ("a", 0), ("a", 1), ("b", 0)
sizes = st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), st.integers(0, 1000), max_size=8)


def test_offsets_stand_in_the_checkpoint_as_sparks_own_source_writes_them() -> None:
    assert to_json({B: 5, A: 3, C: 0}) == {"a": {"0": 3, "1": 5}, "b": {"0": 0}}
    assert from_json(to_json({A: 3, C: 0})) == {A: 3, C: 0}


def test_offsets_tell_which_topics_are_meant() -> None:
    ten = ("a", 10)
    offsets = to_json({ten: 9, B: 5, C: 0}, {ten: 2}, {"a": 77, "b": 88, "c": 99})
    assert offsets == {"a": {"001": 77, "1": 5, "010": 2, "10": 9}, "b": {"000": 88, "0": 0}}
    assert list(offsets["a"])[-1] == "10"  # the end comes last: Spark's own source takes it
    assert (from_json(offsets), began(offsets)) == ({ten: 9, B: 5, C: 0}, {ten: 2})
    assert topic_ids(offsets) == {"a": 77, "b": 88}
    assert topic_ids(to_json({A: 1})) == {}
    assert other_ids({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 7, "d": 4}) == {"b"}


def test_the_end_of_a_first_batch_tells_where_that_began() -> None:
    ten = ("a", 10)
    first = to_json({A: 3, B: 4, ten: 9, C: 1}, {A: 1, B: 4, ten: 2})
    assert json.dumps(first) == '{"a": {"00": 1, "0": 3, "01": 4, "1": 4, "010": 2, "10": 9}, "b": {"0": 1}}'
    assert from_json(first) == {A: 3, B: 4, ten: 9, C: 1}
    assert began(first) == {A: 1, B: 4, ten: 2}


@given(sizes, st.integers(1, 2000))
def test_a_limit_is_kept_and_everyone_gets_on(end: dict[tuple[str, int], int], limit: int) -> None:
    start = dict.fromkeys(end, 0)
    ends = limited(start, end, limit)
    with_records = sum(1 for offset in end.values() if offset)
    assert sum(ends.values()) == min(max(limit, with_records), sum(end.values()))
    assert all(min(1, end[place]) <= ends[place] <= end[place] for place in end)


def test_small_partitions_get_on_beside_one_that_always_has_more() -> None:
    assert limited({A: 0, B: 0, C: 0}, {A: 1000, B: 1, C: 1}, 3) == {A: 1, B: 1, C: 1}
    assert limited({A: 0, B: 0, C: 0}, {A: 1000, B: 1, C: 1}, 1) == {A: 1, B: 1, C: 1}


def test_a_limit_does_not_hold_a_partition_where_it_was_before_it_was_made_anew() -> None:
    assert limited({A: 500, B: 0}, {A: 3, B: 100}, 10) == {A: 3, B: 10}


@given(sizes, st.integers(1, 20), st.integers(1, 300))
def test_split_ranges_cover_the_same_offsets(
    end: dict[tuple[str, int], int], min_partitions: int, max_records: int
) -> None:
    whole = ranges({}, end)
    parts = split(whole, min_partitions, max_records)
    assert all(0 < part.count <= max_records for part in parts)
    offsets = [(part.topic, part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert offsets == [(r.topic, r.partition, offset) for r in whole for offset in range(r.start, r.end)]
    assert [part for task in shared(parts, 100) for part in task] == parts


def test_large_partitions_are_split_for_more_tasks_and_small_ones_share_one() -> None:
    parts = split([OffsetRange("a", 0, 0, 900), OffsetRange("a", 1, 0, 100)], 10, None)
    assert len([part for part in parts if part.partition == 0]) == 9
    small = [OffsetRange("a", index, 0, 10) for index in range(5)]
    assert [len(task) for task in shared(small, 30)] == [3, 2]
    assert shared([OffsetRange("a", 0, 0, 10**9)], 30) == [(OffsetRange("a", 0, 0, 10**9),)]


@pytest.mark.parametrize(
    ("sizes", "least", "parts"),
    [
        ([10, 10, 1], 6, [3, 3, 1]),
        ([100, 150, 200], 9, [2, 3, 4]),
        ([5, 120, 151], 6, [1, 2, 3]),
        ([1, 1, 10_000], 6, [1, 1, 4]),
        ([1] * 9 + [1000], 20, [1] * 9 + [11]),
        ([4], 9, [4]),
    ],
)
def test_small_ranges_count_among_the_tasks_that_are_asked_for(sizes: list[int], least: int, parts: list[int]) -> None:
    """As in Spark's own source, where the large ones alone were once cut into as many."""
    whole = [OffsetRange("a", index, 5, 5 + size) for index, size in enumerate(sizes)]
    pieces = split(whole, least, None)
    assert [sum(1 for part in pieces if part.partition == index) for index in range(len(sizes))] == parts


def test_nothing_is_lost_where_everything_is_there() -> None:
    assert available({A: 5}, {A: 9, B: 3}, {A: 0, B: 0}, {A: 20, B: 3}) == ({A: 5}, {A: 9, B: 3}, [])


def test_retention_took_the_beginning() -> None:
    low, high, losses = available({A: 5}, {A: 9}, {A: 7}, {A: 20})
    assert (low, high) == ({A: 7}, {A: 9})
    assert losses == [Loss("the offsets 5 to 6 of a-0 are gone: it begins at 7")]


def test_retention_took_all_of_it() -> None:
    low, high, losses = available({A: 5}, {A: 9}, {A: 15}, {A: 20})
    assert ranges(low, high) == []
    assert losses == [Loss("the offsets 5 to 8 of a-0 are gone: it begins at 15")]


def test_a_topic_made_anew_is_noticed() -> None:
    low, high, losses = available({A: 500}, {A: 600}, {A: 0}, {A: 10})
    assert ranges(low, high) == []
    assert "ends at offset 10, before 500" in losses[0].what


def test_a_topic_made_anew_is_read_from_its_beginning_where_loss_is_ignored() -> None:
    low, high, losses = available({A: 500}, {A: 10}, {A: 2}, {A: 12})
    assert ranges(low, high) == [OffsetRange("a", 0, 2, 10)]
    assert [loss.what.partition(",")[0] for loss in losses] == ["a-0 ends at offset 12"]


def test_where_a_query_was_told_to_start_nothing_else_is_read() -> None:
    for end, latest in ((10, 12), (600, 12), (400, 900)):
        low, high, losses = available({A: 500}, {A: end}, {A: 2}, {A: latest}, by_option={A})
        assert ranges(low, high) == []
        assert f"ends at offset {min(latest, 400)}, before 500 where it was to start" in losses[0].what


def test_only_the_first_part_of_a_range_starts_wherever_the_partition_does() -> None:
    parts = split(ranges({A: 0, B: 5}, {A: 9, B: 9}, floating={A}), None, 3)
    assert [(part.partition, part.start, part.floating) for part in parts] == [
        (0, 0, True),
        (0, 3, False),
        (0, 6, False),
        (1, 5, False),
        (1, 7, False),
    ]


def test_a_deleted_topic_is_noticed() -> None:
    low, high, losses = available({A: 5, B: 1}, {A: 9}, {}, {})
    assert ranges(low, high) == []
    assert [loss.what for loss in losses] == ["a-0 is gone, and with it the offsets 5 to 8", "a-1 is gone"]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    low, high, losses = available({A: 5}, {A: 5, B: 3}, {A: 0, B: 0}, {A: 5, B: 3})
    assert (ranges(low, high), losses) == ([OffsetRange("a", 1, 0, 3)], [])


def test_lag_counts_over_all_partitions() -> None:
    assert lag({A: 5}, {A: 7, B: 10}) == 12
