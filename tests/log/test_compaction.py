"""A compacted log keeps the last value of each key, at its offset."""

from tests.batches import Producer
from tests.log.harness import NOW_MS, LogHarness
from tests.log.keyed import clean, compacted, contents, headers, pairs, put, roll, table


def test_the_last_value_of_each_key_stays_at_its_offset(harness: LogHarness) -> None:
    log = compacted(harness)
    put(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    put(log, (b"c", b"4"))
    roll(harness, log)
    put(log, (b"c", b"5"))
    put(log, (b"b", b"6"))
    roll(harness, log)
    put(log, (b"a", b"7"))
    clean(harness, log)
    # What is written now isn't cleaned, nor does it supersede anything yet.
    assert pairs(log) == [(2, b"a", b"3"), (4, b"c", b"5"), (5, b"b", b"6"), (6, b"a", b"7")]
    assert [segment.base for segment in log.segments] == [0, 6]
    assert harness.store.clean_end(log) == 6
    assert [header.last_offset_delta for header in headers(log)] == [2, 0, 0, 0]
    harness.restart()
    log = compacted(harness)
    assert pairs(log) == [(2, b"a", b"3"), (4, b"c", b"5"), (5, b"b", b"6"), (6, b"a", b"7")]
    assert harness.store.clean_end(log) == 6


def test_a_second_cleaning_supersedes_what_was_clean(harness: LogHarness) -> None:
    log = compacted(harness)
    for generation in range(5):
        for key in (b"a", b"b", b"c"):
            put(log, (key, b"%d" % generation), now_ms=NOW_MS + generation)
        roll(harness, log)
        clean(harness, log)
    assert table(log) == {b"a": b"4", b"b": b"4", b"c": b"4"}
    assert [record.offset for record in contents(log)] == [12, 13, 14]
    assert len(log.segments) == 2


def test_what_a_producer_wrote_last_stays_and_its_sequence_goes_on(harness: LogHarness) -> None:
    log = compacted(harness)
    for sequence in range(0, 10, 2):
        put(log, (b"k", b"x"), (b"k", b"y"), producer=Producer(9, 3, sequence))
    put(log, (b"k", b"z"))
    roll(harness, log)
    clean(harness, log)
    assert pairs(log) == [(10, b"k", b"z")]
    [kept] = headers(log, lambda header: header.producer_id == 9)
    assert (kept.base_offset, kept.last_offset_delta, kept.base_sequence, kept.record_count) == (8, 1, 8, 0)
    harness.restart()
    log = compacted(harness)
    put(log, (b"k", b"again"), producer=Producer(9, 3, 10))
    assert put(log, (b"k", b"x"), (b"k", b"y"), producer=Producer(9, 3, 8)) == 8
    assert table(log) == {b"k": b"again"}
