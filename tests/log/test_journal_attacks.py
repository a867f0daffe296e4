"""The journal, under attack: moments at which an acknowledged record was lost, or one that was cut off came back."""

import pytest
from tests.batches import Producer
from tests.log.harness import EPOCH, NOW_MS, TOPIC_ID, CountingDisk, LogHarness, append, values
from tests.log.keyed import clean, compacted, end, pairs, put, roll
from tests.log.test_journal import JOURNAL_BYTES, forgetful, journal_files, lose_power, made

from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk(SimRandom(5))


@pytest.fixture
def harness(disk: CountingDisk) -> LogHarness:
    return made(disk)


def lose_file(harness: LogHarness, path: str) -> None:
    """The power goes, and takes all that was in this one, or its name."""
    disk = harness.disk
    assert isinstance(disk, SimDisk)
    harness.loop.kill()
    for seed in range(100):
        disk.random = SimRandom(seed)
        node = disk.root
        disk.crash()
        if not disk.exists(path) or not disk.size(path):
            break
        disk.root = node
    else:
        pytest.fail(f"{path} was durable")
    harness.start()


def test_what_is_before_it_was_compacted(harness: LogHarness) -> None:
    """The batch that the journal knows right before a record was written anew: its checksum is another one."""
    log = compacted(harness)
    put(log, (b"a", b"1"), (b"a", b"2"))
    harness.commit(log)
    roll(harness, log)
    clean(harness, log)
    put(log, (b"b", b"3"))
    harness.commit(log)
    assert (log.durable_end, log.ends.synced_end) == (3, 2)
    lose_file(harness, log.segments[-1].path)
    assert pairs(compacted(harness)) == [(1, b"a", b"2"), (2, b"b", b"3")]


def test_what_is_before_it_is_found_by_time_and_not_older_than_it_is(harness: LogHarness) -> None:
    log = harness.log(retention_ms="100000")
    append(log, b"a", now_ms=NOW_MS)
    roll(harness, log)
    append(log, b"b", now_ms=NOW_MS)
    harness.commit(log)
    lose_file(harness, log.segments[-1].path)
    log = harness.log(retention_ms="100000")
    assert values(log) == [(0, b"a"), (1, b"b")]
    assert log.find_by_time(NOW_MS, log.log_end) == (NOW_MS, 0, EPOCH)
    assert harness.retain(log, NOW_MS) == 0


def test_what_only_the_page_cache_has_goes_with_what_is_committed(harness: LogHarness) -> None:
    """The topic was one of the page cache a moment ago, and the flush that its new setting asks for has to wait."""
    other, log = harness.log(partition=1), harness.log(tidelog_durability="os")
    append(other, b"o")
    append(log, b"a")
    harness.store.flush_soon(other)
    harness.run(lambda: not harness.store.upkeep.idle)
    log.configure(harness.topic({}))
    append(log, b"b")
    harness.commit(log)
    assert (log.durable_end, log.ends.synced_end) == (2, 0)
    lose_file(harness, log.segments[-1].path)
    assert values(harness.log()) == [(0, b"a"), (1, b"b")]


def test_what_was_aborted_stays_so(harness: LogHarness) -> None:
    log, producer = harness.log(), Producer(7, 0, 0)
    put(log, (b"k", b"v"), producer=producer, transactional=True)
    harness.commit(log)
    end(log, producer, commit=False)
    harness.commit(log)
    aborted = log.segments[0].aborted(harness.disk).entries()
    assert aborted
    lose_power(harness)
    for _ in range(2):
        log = harness.log()
        assert (log.log_end, log.first_unstable) == (2, -1)
        assert log.segments[0].aborted(harness.disk).entries() == aborted
        harness.power_loss()


def test_a_block_whose_sync_failed_may_be_there_and_is_void_after_a_cut(
    harness: LogHarness, disk: CountingDisk
) -> None:
    log = harness.log()
    append(log, b"a")
    harness.flush(log)
    append(log, b"b")
    disk.failing_syncs, disk.failed_sync_keeps_cache = 1, True
    harness.commit(log)
    assert log.offline is None
    log.truncate_to(1)
    harness.kill()
    assert values(harness.log()) == [(0, b"a")]


def test_files_that_hold_nothing_are_not_kept(disk: CountingDisk) -> None:
    """As of a broker that is killed again and again before its journal is written to."""
    harness = LogHarness(disk, tidelog_journal_bytes=str(JOURNAL_BYTES))
    for _ in range(10):
        log = harness.log()
        append(log, b"a")
        harness.commit(log)  # synced: the files are made meanwhile
        harness.settle()
        assert len(journal_files(harness)) == 2
        harness.kill()


def test_a_topic_that_is_deleted_while_its_log_is_opened_needs_no_journal(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    harness.kill()
    opened = harness.store.open("tide", 0, TOPIC_ID, harness.topic({}))
    harness.store.delete("tide", 0, TOPIC_ID)
    harness.run(lambda: opened.done)
    harness.settle()
    assert not journal_files(harness)


def test_a_topic_that_is_deleted_after_its_log_could_not_be_opened_needs_no_journal(
    harness: LogHarness, disk: CountingDisk
) -> None:
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    append(log, b"not in the journal")
    harness.kill()
    disk.failing_syncs = 1
    assert harness.log().offline is not None
    harness.store.delete("tide", 0, TOPIC_ID)
    harness.settle()
    assert not journal_files(harness)


def test_without_a_journal_from_now_on_what_one_had_counts(harness: LogHarness, disk: CountingDisk) -> None:
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    harness.loop.kill()
    forgetful(disk)
    harness = LogHarness(disk, tidelog_journal_bytes="0")
    assert values(harness.log()) == [(0, b"a")]
    harness.settle()
    assert not journal_files(harness)
