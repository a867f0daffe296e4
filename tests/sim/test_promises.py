"""What the simulator takes for promised of replicated partitions, and how it finds that a promise was broken."""

from collections.abc import Callable

import pytest

from tidelog.sim.replicated.pacts import Fate, Pact, check_pacts
from tidelog.sim.replicated.promises import Promises
from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.batch import build
from tidelog.wire.markers import marker_record
from tidelog.wire.record import Record

PLACE = ("tide", 0)
OTHER = ("tide", 1)


def batch(offset: int, *values: bytes, epoch: int = 0) -> bytes:
    return bytes(build([Record(timestamp=1, value=value) for value in values], base_offset=offset, leader_epoch=epoch))


def marker(offset: int) -> bytes:
    return bytes(build([marker_record(0, 1, commit=True)], base_offset=offset, leader_epoch=0, control=True))


def shown(*batches: bytes, end: int = 1 << 62) -> Promises:
    promises = Promises()
    for one in batches:
        promises.saw_batches(PLACE, "node 1", one, end)
    return promises


def broken(call: Callable[[], object]) -> str:
    with pytest.raises(Violation) as found:
        call()
    return str(found.value)


# ---- batches ----


def test_what_all_replicas_show_alike_is_as_promised() -> None:
    promises = shown(batch(0, b"a", b"b"), batch(2, b"c"))
    promises.saw_batches(PLACE, "node 2", batch(0, b"a", b"b") + batch(2, b"c"), 3)
    promises.saw_acknowledged(PLACE, 2, [b"c"])
    promises.saw_acknowledged(PLACE, 3, [b"d"])
    promises.check_whole(PLACE, 0, 4)
    assert promises.of(PLACE).values == {0: b"a", 1: b"b", 2: b"c"}


def test_another_batch_below_a_high_watermark_is_found() -> None:
    promises = shown(batch(0, b"a"))
    assert "node 2 has a batch of leader epoch 0 where node 1" in broken(
        lambda: promises.saw_batches(PLACE, "node 2", batch(0, b"b"), 1)
    )


def test_the_same_records_under_another_leader_epoch_are_another_batch() -> None:
    promises = shown(batch(0, b"a", epoch=3))
    assert "of leader epoch 4 where" in broken(
        lambda: promises.saw_batches(PLACE, "node 2", batch(0, b"a", epoch=4), 1)
    )


def test_a_batch_that_overlaps_one_that_was_shown_is_found() -> None:
    promises = shown(batch(0, b"a", b"b"))
    assert "offsets 1 to 1" in broken(lambda: promises.saw_batches(PLACE, "node 2", batch(1, b"b"), 2))


def test_a_batch_above_the_high_watermark_promises_nothing() -> None:
    promises = shown(batch(0, b"a") + batch(1, b"b"), end=1)
    promises.saw_batches(PLACE, "node 2", batch(1, b"c"), 2)
    assert promises.of(PLACE).values == {0: b"a", 1: b"c"}


def test_a_batch_with_a_flipped_bit_is_found() -> None:
    damaged = bytearray(batch(0, b"a"))
    damaged[-1] ^= 1
    assert "can't be read" in broken(lambda: shown(bytes(damaged)))


@pytest.mark.parametrize("record", [batch(0, b"b"), marker(0)], ids=["another record", "a marker"])
def test_an_acknowledged_record_that_is_another_one_is_found(record: bytes) -> None:
    promises = Promises()
    promises.saw_acknowledged(PLACE, 0, [b"a"])
    assert "offset 0" in broken(lambda: promises.saw_batches(PLACE, "node 1", record, 1))
    later = shown(record)
    assert "offset 0" in broken(lambda: later.saw_acknowledged(PLACE, 0, [b"a"]))


def test_a_log_that_ends_before_what_was_acknowledged_is_found() -> None:
    promises = Promises()
    promises.saw_acknowledged(PLACE, 4, [b"a", b"b"])
    assert "ends at 5, but 6 was" in broken(lambda: promises.check_whole(PLACE, 0, 5))


def test_a_log_that_begins_where_nobody_deleted_is_found() -> None:
    promises = shown(batch(0, b"a"))
    promises.of(PLACE).start_max = 1
    promises.check_whole(PLACE, 1, 2)
    assert "nobody deleted beyond 1" in broken(lambda: promises.check_whole(PLACE, 2, 2))


# ---- ends ----


def test_high_watermark_may_fall_with_the_leader_epoch_only() -> None:
    promises = Promises()
    promises.saw_high_watermark(PLACE, 1, 10, 0)
    promises.saw_high_watermark(PLACE, 2, 8, 0)
    assert "fell from 8 to 7 in leader epoch 2" in broken(lambda: promises.saw_high_watermark(PLACE, 2, 7, 8))


def test_end_is_never_before_what_an_earlier_leader_has_shown() -> None:
    promises = Promises()
    promises.saw_high_watermark(PLACE, 1, 10, 0)
    promises.saw_high_watermark(PLACE, 3, 20, 0)
    assert [promises.floor(PLACE, epoch) for epoch in (0, 1, 2, 3)] == [0, 10, 10, 20]
    promises.saw_end(PLACE, 2, 10, 10)
    assert "after 10 was shown" in broken(lambda: promises.saw_end(PLACE, 2, 9, 10))


def test_two_leaders_of_one_epoch_are_found() -> None:
    promises = Promises()
    promises.saw_leader(PLACE, 1, 3)
    promises.saw_leader(PLACE, 2, 1)
    assert "two leaders in leader epoch 1" in broken(lambda: promises.saw_leader(PLACE, 1, 2))


def test_what_is_excused_is_looked_at_no_more() -> None:
    promises = shown(batch(0, b"a"))
    promises.excuse(PLACE)
    promises.saw_batches(PLACE, "node 2", batch(0, b"b"), 1)
    promises.saw_end(PLACE, 1, 0, 5)
    promises.saw_acknowledged(PLACE, 0, [b"c"])
    assert promises.acknowledged == 1


# ---- transactions ----


def pact(fate: Fate, number: int = 0) -> Pact:
    first, second = (f"{number}.{part}".encode() for part in "ab")
    return Pact("p", number, {PLACE: [first], OTHER: [second]}, fate)


WHOLE = {PLACE: [b"0.a"], OTHER: [b"0.b"]}
NOTHING: dict[tuple[str, int], list[bytes]] = {PLACE: [], OTHER: []}
TORN = {PLACE: [b"0.a"], OTHER: []}


@pytest.mark.parametrize(
    ("fate", "seen"),
    [
        (Fate.COMMITTED, WHOLE),
        (Fate.ABORTED, NOTHING),
        (Fate.OPEN, NOTHING),
        (Fate.UNKNOWN, WHOLE),
        (Fate.UNKNOWN, NOTHING),
    ],
)
def test_transactions_are_there_whole_or_not_at_all(fate: Fate, seen: dict[tuple[str, int], list[bytes]]) -> None:
    check_pacts([pact(fate)], seen)


@pytest.mark.parametrize(
    ("fate", "seen", "said"),
    [
        (Fate.COMMITTED, NOTHING, "was committed, and tide-0 hasn't"),
        (Fate.COMMITTED, TORN, "was committed, and tide-1 hasn't"),
        (Fate.ABORTED, WHOLE, "was never committed"),
        (Fate.UNKNOWN, TORN, "is torn: 1 of its 2"),
        (Fate.COMMITTED, {**WHOLE, PLACE: [b"0.a", b"0.a"]}, "tide-0 has b'0.a' twice"),
    ],
)
def test_transaction_that_is_lost_torn_or_doubled_is_found(
    fate: Fate, seen: dict[tuple[str, int], list[bytes]], said: str
) -> None:
    assert said in broken(lambda: check_pacts([pact(fate)], seen))


def test_transactions_of_a_producer_come_in_order() -> None:
    both = [pact(Fate.COMMITTED), pact(Fate.COMMITTED, 1)]
    check_pacts(both, {PLACE: [b"0.a", b"1.a"], OTHER: [b"0.b", b"1.b"]})
    seen = {PLACE: [b"0.a", b"1.a"], OTHER: [b"1.b", b"0.b"]}
    assert "before what p wrote earlier" in broken(lambda: check_pacts(both, seen))
