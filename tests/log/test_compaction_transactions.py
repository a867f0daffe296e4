"""Compaction and transactions: what was aborted goes, markers outlive their data, readers of committed records too."""

from tests.batches import Producer
from tests.log.harness import LogHarness
from tests.log.keyed import clean, compacted, contents, end, headers, pairs, put, roll

from tidelog.log.log import Log
from tidelog.log.names import TXN_INDEX
from tidelog.wire.batch import BatchHeader, iterate, records

ONE, TWO = Producer(1, 0, 0), Producer(2, 5, 0)


def committed(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a consumer with read_committed is given: it is told of aborted transactions and skips them by itself."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    at = log.log_start
    stable = log.producers.first_unstable
    limit = log.log_end if stable < 0 else stable
    while (piece := log.read(at, 200, limit)) is not None:
        aborted = sorted(log.aborted(at, piece), key=lambda entry: entry.first_offset)
        skipping: set[int] = set()
        view = piece.view()
        for header in iterate(view):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipping.add(aborted.pop(0).producer_id)
            if header.control:
                if header.record_count:
                    skipping.discard(header.producer_id)
            elif not (header.transactional and header.producer_id in skipping):
                found += [(r.offset, r.key, r.value) for r in records(view, header) if r.offset >= at]
            at = header.next_offset
    return found


def markers(log: Log) -> list[BatchHeader]:
    return headers(log, lambda header: header.control)


def later(harness: LogHarness, log: Log, value: bytes = b"x") -> None:
    """Something more, so that there is something to clean."""
    put(log, (b"later", value))
    roll(harness, log)
    clean(harness, log)


def test_aborted_records_go_and_supersede_nothing(harness: LogHarness) -> None:
    log = compacted(harness)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"never"), (b"c", b"never"), producer=ONE, transactional=True)
    put(log, (b"b", b"2"), producer=TWO, transactional=True)
    end(log, ONE, commit=False)
    end(log, TWO, commit=True)
    roll(harness, log)
    before = committed(log)
    assert before == [(0, b"a", b"1"), (1, b"b", b"1"), (4, b"b", b"2")]
    clean(harness, log)
    assert pairs(log) == [(0, b"a", b"1"), (4, b"b", b"2")]
    assert committed(log) == pairs(log)
    harness.restart()
    log = compacted(harness)
    assert committed(log) == [(0, b"a", b"1"), (4, b"b", b"2")]


def test_markers_go_when_their_data_is_gone_and_their_time_has_come(harness: LogHarness) -> None:
    log = compacted(harness, delete_retention_ms="60000")
    put(log, (b"a", b"never"), producer=ONE, transactional=True)
    end(log, ONE, commit=False)
    put(log, (b"a", b"1"), producer=TWO, transactional=True)
    end(log, TWO, commit=True)
    # Both go on, so that nothing of these transactions is kept for the sake of a sequence.
    put(log, (b"p", b"1"), producer=Producer(1, 0, 1))
    put(log, (b"q", b"1"), producer=Producer(2, 5, 1))
    roll(harness, log)
    clean(harness, log)
    assert [(m.base_offset, m.delete_horizon) for m in markers(log)] == [(1, None), (3, None)]
    assert [entry.first_offset for segment in log.segments for entry in segment.aborted(harness.disk).entries()] == [0]
    put(log, (b"a", b"2"))
    later(harness, log)
    # Nothing is left of the aborted one: its marker has a time now, and no reader needs to be told of it.
    assert markers(log)[0].delete_horizon is not None
    assert markers(log)[1].delete_horizon is None
    assert not [entry for segment in log.segments for entry in segment.aborted(harness.disk).entries()]
    later(harness, log, b"y")
    assert [m.base_offset for m in markers(log)] == [1, 3]
    assert markers(log)[1].delete_horizon is not None
    harness.settle(61.0)
    later(harness, log, b"z")
    assert markers(log) == []
    assert [key for _, key, _ in committed(log)] == [b"p", b"q", b"a", b"later"]


def test_a_commit_marker_stays_while_a_record_of_its_transaction_does(sim: LogHarness) -> None:
    log = compacted(sim, delete_retention_ms="1")
    put(log, (b"a", b"1"), (b"b", b"1"), producer=ONE, transactional=True)
    end(log, ONE, commit=True)
    put(log, (b"p", b"1"), producer=Producer(1, 0, 2))
    roll(sim, log)
    clean(sim, log)
    for value in (b"1", b"2", b"3"):
        put(log, (b"a", value))
        later(sim, log, value)
    assert [(m.base_offset, m.delete_horizon) for m in markers(log)] == [(2, None)]
    assert (1, b"b", b"1") in committed(log)


def test_nothing_is_cleaned_from_an_open_transaction_on(harness: LogHarness) -> None:
    log = compacted(harness)
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(harness, log)
    put(log, (b"b", b"1"), producer=ONE, transactional=True)
    roll(harness, log)
    put(log, (b"a", b"3"), (b"b", b"2"))
    roll(harness, log)
    clean(harness, log)
    assert harness.store.clean_end(log) == 2
    assert [offset for offset, _, _ in pairs(log)] == [1, 2, 3, 4]
    end(log, ONE, commit=False)
    roll(harness, log)
    clean(harness, log)
    assert [offset for offset, _, _ in pairs(log)] == [3, 4]
    assert committed(log) == [(3, b"a", b"3"), (4, b"b", b"2")]


def test_a_transaction_that_ends_in_a_later_segment(harness: LogHarness) -> None:
    """Its marker isn't cleaned yet, its records are: whether they were aborted stands in a later index."""
    log = compacted(harness, min_compaction_lag_ms="60000")
    put(log, (b"a", b"1"), now_ms=harness.now_ms())
    put(log, (b"a", b"never"), producer=ONE, transactional=True, now_ms=harness.now_ms())
    roll(harness, log)
    harness.settle(60.0)
    end(log, ONE, commit=False, now_ms=harness.now_ms())
    roll(harness, log)
    clean(harness, log)
    assert harness.store.clean_end(log) == 2
    assert pairs(log) == [(0, b"a", b"1")]
    assert committed(log) == [(0, b"a", b"1")]


def test_the_epoch_of_a_fenced_producer_survives(harness: LogHarness) -> None:
    """A marker of a new epoch is all that is known of it; a batch of the old one is refused after a restart too."""
    log = compacted(harness, delete_retention_ms="0")
    put(log, (b"a", b"1"), producer=Producer(1, 0, 0), transactional=True)
    end(log, Producer(1, 1, 0), commit=False)
    roll(harness, log)
    clean(harness, log)
    later(harness, log)
    harness.settle(2.0)
    later(harness, log, b"2")
    [marker] = markers(log)
    assert (marker.producer_epoch, marker.base_offset) == (1, 1)
    harness.restart()
    log = compacted(harness)
    producer = log.producers.get(1)
    assert producer is not None
    assert producer.epoch == 1


def test_an_index_without_entries_takes_the_place_of_the_old_one(harness: LogHarness) -> None:
    log = compacted(harness, delete_retention_ms="0")
    put(log, (b"a", b"never"), producer=ONE, transactional=True)
    end(log, ONE, commit=False)
    put(log, (b"p", b"1"), producer=Producer(1, 0, 1))
    roll(harness, log)
    clean(harness, log)
    assert harness.disk.size(log.segments[0].stem + TXN_INDEX) == 34
    later(harness, log)
    assert harness.disk.size(log.segments[0].stem + TXN_INDEX) == 0
    # A later transaction of the same producer is not taken for the aborted one.
    put(log, (b"q", b"2"), producer=Producer(1, 0, 2), transactional=True)
    end(log, Producer(1, 0, 2), commit=True)
    roll(harness, log)
    harness.settle(1.0)
    later(harness, log, b"2")
    assert (b"q", b"2") in [(key, value) for _, key, value in committed(log)]
    assert all(record.key != b"a" for record in contents(log))
