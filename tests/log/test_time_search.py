"""Searches by time in compacted logs: the answer is a record that is there, the next one where others are gone."""

import pytest
from tests.batches import Batch, Producer, Sent
from tests.log.harness import EPOCH, NOW_MS, LogHarness, send
from tests.log.keyed import clean, compacted, contents, put, roll


@pytest.mark.parametrize("emptied", [1, 3, 5])
def test_batches_that_compaction_emptied_are_passed_over(sim: LogHarness, emptied: int) -> None:
    """Each stays for its producer's sequence."""
    log = compacted(sim)
    for n in range(emptied):
        put(log, (b"k", b"old"), producer=Producer(n, 0, 0), now_ms=NOW_MS + 100)
    put(log, (b"k", b"new"), now_ms=NOW_MS + 200)
    put(log, (b"other", b"new"), now_ms=NOW_MS + 300)
    roll(sim, log)
    clean(sim, log)
    assert [record.offset for record in contents(log)] == [emptied, emptied + 1]
    assert log.find_by_time(NOW_MS + 50, log.log_end) == (NOW_MS + 200, emptied, EPOCH)


def test_segments_with_only_emptied_batches_of_that_time_are_passed_over(sim: LogHarness) -> None:
    log = compacted(sim)
    put(log, (b"k", b"old"), producer=Producer(1, 0, 0), now_ms=NOW_MS + 300)
    put(log, (b"other", b"stays"), now_ms=NOW_MS)
    roll(sim, log)
    put(log, (b"k", b"new"), now_ms=NOW_MS + 400)
    roll(sim, log)
    clean(sim, log)
    assert [record.offset for record in contents(log)] == [1, 2]
    assert log.find_by_time(NOW_MS + 200, log.log_end) == (NOW_MS + 400, 2, EPOCH)


def test_emptied_batches_do_not_make_a_lie_of_the_next(sim: LogHarness) -> None:
    log = compacted(sim)
    for n in range(5):
        put(log, (b"k", b"old"), producer=Producer(n, 0, 0), now_ms=NOW_MS + 100)
    put(log, (b"k", b"new"), now_ms=NOW_MS)
    roll(sim, log)
    clean(sim, log)
    assert log.find_by_time(NOW_MS + 50, log.log_end) is None


def test_a_record_that_compaction_took_out_of_a_batch_dated_at_the_append_is_no_answer(sim: LogHarness) -> None:
    log = compacted(sim, message_timestamp_type="LogAppendTime")
    made = Batch([Sent(b"old", key=b"a"), Sent(b"stays", key=b"b")], base_timestamp=NOW_MS)
    send(log, made, now_ms=NOW_MS + 100)
    put(log, (b"a", b"new"), now_ms=NOW_MS + 200)
    roll(sim, log)
    clean(sim, log)
    assert [record.offset for record in contents(log)] == [1, 2]
    assert log.find_by_time(NOW_MS + 50, log.log_end) == (NOW_MS + 100, 1, EPOCH)
    assert log.find_by_time(NOW_MS + 150, log.log_end) == (NOW_MS + 200, 2, EPOCH)


def test_the_newest_record_is_one_that_is_there(sim: LogHarness) -> None:
    log = compacted(sim)
    put(log, (b"k", b"old"), producer=Producer(1, 0, 0), now_ms=NOW_MS + 500)
    put(log, (b"k", b"new"), now_ms=NOW_MS + 500)
    roll(sim, log)
    clean(sim, log)
    assert log.max_timestamp() == (NOW_MS + 500, 1, EPOCH)


def test_of_records_without_a_timestamp_the_first_is_the_newest(sim: LogHarness) -> None:
    """As in Kafka: none of them is newer than another, and the log isn't empty."""
    log = sim.log()
    for _ in range(3):
        send(log, Batch([Sent(b"undated")], base_timestamp=-1))
    assert log.max_timestamp() == (-1, 0, EPOCH)
    assert log.find_by_time(0, log.log_end) is None
