"""The ends of a log: what moves them, what they promise, and that nobody else writes them."""

import ast
from pathlib import Path

import pytest

import tidelog
from tidelog.config.setting import LONG_MAX
from tidelog.log.ends import Ends

SOURCE = Path(tidelog.__file__).parent
NAMES = {*Ends.__slots__} - {"generation"}  # groups have generations, too


def ends(end: int, *, unsynced_max: int = 0) -> Ends:
    made = Ends()
    made.count_unsynced(unsynced_max, all_at_once=False)
    made.wrote(end)
    made.check_invariants()
    return made


def test_what_is_written_is_durable_when_it_was_synced() -> None:
    log = ends(10)
    assert (log.log_end, log.durable_end) == (10, 0)
    assert log.synced(7), "more is durable than was"
    assert not log.synced(5), "an older sync that ends later takes nothing back"
    assert (log.durable_end, log.synced_end, log.recovery_point) == (7, 7, 0)


def test_where_the_page_cache_counts_what_is_written_is_durable() -> None:
    log = ends(10, unsynced_max=LONG_MAX)
    assert (log.durable_end, log.synced_end) == (10, 0)
    assert not log.synced(10), "nobody has to be told"


def test_a_sync_is_due_when_too_many_records_are_not_synced() -> None:
    log = ends(1, unsynced_max=3)
    assert not log.wrote(2)
    assert log.durable_end == 2
    assert log.wrote(3)
    assert log.durable_end == 2, "the third waits"
    assert log.synced(2)
    assert log.durable_end == 3


def test_what_is_behind_a_sync_by_as_many_as_may_be_unsynced_waits_for_the_next() -> None:
    log = ends(2, unsynced_max=3)
    assert log.wrote(5)
    assert not log.synced(2)
    assert log.durable_end == 2
    assert log.synced(3)
    assert log.durable_end == 5


def test_each_record_is_synced_where_none_may_be_unsynced() -> None:
    log = Ends()
    log.count_unsynced(1, all_at_once=False)
    assert log.wrote(1)
    assert log.durable_end == 0


def test_a_flush_moves_the_recovery_point_and_never_back() -> None:
    log = ends(10)
    assert log.flushed(8)
    assert not log.flushed(6)
    assert (log.recovery_point, log.durable_end) == (8, 8)


def test_until_it_is_told_how_many_may_be_unsynced_none_may() -> None:
    log = Ends()
    assert not log.wrote(1), "nobody counts them"
    assert log.durable_end == 0


def test_batches_are_counted_that_a_start_after_a_crash_would_read_again() -> None:
    log = Ends()
    assert log.batches == 0
    log.found_batches(5)
    log.wrote(10)
    assert log.batches == 6
    log.begin_flush()
    log.wrote(11)
    assert log.batches == 1, "what comes while the flush is under way is not in it"


@pytest.mark.parametrize(("offset", "rest_end", "fell"), [(9, 9, False), (8, 8, False), (6, 5, True), (0, 0, True)])
def test_a_cut_takes_every_end_back_that_is_above_it(offset: int, rest_end: int, fell: bool) -> None:
    log = ends(10)
    log.flushed(8)
    before = log.generation
    assert log.fall_back(offset, rest_end) is fell, "then it is made durable before anything is cut"
    log.cut(offset)
    log.check_invariants()
    assert log.generation == before + 1
    assert (log.log_end, log.durable_end, log.recovery_point) == (offset, min(8, offset), min(8, rest_end))


def test_a_cut_below_the_start_takes_the_start_back() -> None:
    log = ends(10)
    log.synced(10)
    log.move_start(6)
    log.fall_back(4, 4)
    log.cut(4)
    log.check_invariants()
    assert log.log_start == 4


def test_a_start_is_never_behind_the_end() -> None:
    with pytest.raises(AssertionError):
        ends(10).move_start(11)


def assigned(tree: ast.AST) -> list[str]:
    """Attributes that are assigned, whoever's they are."""
    return [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]


def test_nobody_else_assigns_them() -> None:
    for folder in ("log", "replica", "apis", "coordinator", "server"):
        for path in (SOURCE / folder).rglob("*.py"):
            written = NAMES.intersection(assigned(ast.parse(path.read_text())))
            assert not written or path.name == "ends.py", f"{path} assigns {written}"
