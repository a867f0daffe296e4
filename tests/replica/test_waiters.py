"""Producers that wait for the high watermark: each is told once, in the order of offsets."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.replica.waiters import AckQueue
from tidelog.wire.errors import ErrorCode


def test_whoever_the_high_watermark_has_passed_is_told() -> None:
    queue, told = AckQueue(), []
    for offset in (3, 5, 5, 9):
        queue.add(offset, lambda code, offset=offset: told.append((offset, code)))
    queue.rise(2)
    assert told == []
    queue.rise(5)
    assert told == [(3, ErrorCode.NONE), (5, ErrorCode.NONE), (5, ErrorCode.NONE)]
    queue.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert told[3:] == [(9, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert len(queue) == 0


def test_a_producer_that_comes_back_while_others_are_told_is_not_lost() -> None:
    queue, told = AckQueue(), []

    def again(code: ErrorCode) -> None:
        told.append(("first", code))
        queue.add(12, lambda code: told.append(("again", code)))

    queue.add(1, again)
    queue.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert len(queue) == 1
    queue.rise(12)
    assert told == [("first", ErrorCode.NOT_LEADER_OR_FOLLOWER), ("again", ErrorCode.NONE)]


@given(st.lists(st.integers(0, 20), max_size=30), st.lists(st.integers(0, 20), max_size=10))
def test_everyone_is_told_once_and_never_too_early(offsets: list[int], marks: list[int]) -> None:
    queue, told, reached = AckQueue(), [], -1
    for offset in offsets:
        queue.add(offset, lambda code, offset=offset: told.append((offset, reached)))
    for mark in sorted(marks):
        reached = mark
        queue.rise(mark)
        assert sorted(offset for offset, _ in told) == sorted(o for o in offsets if o <= reached)
    assert all(offset <= mark for offset, mark in told)
