"""After a kill nobody waits for what the journal has to be durable elsewhere: it is kept until a flush saw to it."""

import pytest
from tests.log.harness import TOPIC_ID, CountingDisk, LogHarness, append, values
from tests.log.test_journal import OTHER_ID, journal_files, lose_power, made, ready

from tidelog.log.checkpoints import PARTITION_METADATA, partition_metadata
from tidelog.sim.world.random import SimRandom


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk(SimRandom(5))


@pytest.fixture
def harness(disk: CountingDisk) -> LogHarness:
    return made(disk)


def killed(harness: LogHarness, logs: int = 1, records: int = 1) -> None:
    """After small commits to so many logs."""
    for number in range(logs):
        log = harness.log(partition=number)
        for record in range(records):
            append(log, b"%d" % record)
            harness.commit(log)
    harness.kill()


def test_logs_that_the_journal_has_are_opened_without_a_sync(harness: LogHarness, disk: CountingDisk) -> None:
    killed(harness, logs=20)
    before = disk.syncs
    logs = [harness.log(partition=number) for number in range(20)]
    assert disk.syncs == before
    assert [(log.durable_end, log.ends.synced_end) for log in logs] == [(1, 0)] * 20
    lose_power(harness)
    assert all(values(harness.log(partition=number)) == [(0, b"0")] for number in range(20))


def test_the_last_block_is_made_durable_before_anything_rests_on_it(harness: LogHarness, disk: CountingDisk) -> None:
    """Its sync failed, and that of the segment after it: both are in the page cache only, and nobody was told of it."""
    log = harness.log()
    append(log, b"acknowledged")
    harness.commit(log)
    append(log, b"perhaps")
    disk.failing_syncs, disk.failed_sync_keeps_cache = 2, True
    harness.store.commit.request(log)
    harness.run(lambda: log.offline is not None)
    harness.kill()
    log = harness.log()
    assert [log.durable_end, log.log_end] == [2, 2]
    lose_power(harness)
    assert values(harness.log()) == [(0, b"acknowledged"), (1, b"perhaps")]


def test_where_the_journal_cannot_be_written_again_logs_are_synced(harness: LogHarness, disk: CountingDisk) -> None:
    for value in (b"a", b"b"):
        append(harness.log(), value)
        harness.commit(harness.log())
    harness.loop.kill()
    disk.failing_appends, disk.failing_suffix = 1, "0"
    harness.start()
    log = harness.log()
    assert log.ends.synced_end == 2
    assert values(log) == [(0, b"a"), (1, b"b")]


def test_its_files_go_when_all_is_flushed(harness: LogHarness) -> None:
    killed(harness, logs=3)
    before = set(journal_files(harness))
    for number in range(3):
        harness.settle()
        log = harness.log(partition=number)
        assert log.ends.synced_end == 0
        assert before <= set(journal_files(harness))
    harness.settle()
    assert not before & set(journal_files(harness))
    lose_power(harness)
    assert all(values(harness.log(partition=number)) == [(0, b"0")] for number in range(3))


def test_what_comes_after_goes_on_behind_it(harness: LogHarness) -> None:
    """Through several lives, only the first of which flushed anything."""
    append(harness.log(), b"flushed")
    harness.flush(harness.log())
    for value in (b"a", b"b", b"c"):
        ready(harness)
        append(harness.log(), value)
        harness.commit(harness.log())
        harness.kill()
    assert harness.log().ends.synced_end == 1
    harness.power_loss()
    assert values(harness.log()) == [(0, b"flushed"), (1, b"a"), (2, b"b"), (3, b"c")]


def test_what_the_segment_has_beyond_the_journal_is_made_durable(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    append(log, b"never committed")
    harness.kill()
    log = harness.log()
    assert [log.log_end, log.ends.synced_end] == [2, 2]
    lose_power(harness)
    assert values(harness.log()) == [(0, b"a"), (1, b"never committed")]


def test_other_bytes_than_the_journals_are_made_durable(harness: LogHarness, disk: CountingDisk) -> None:
    """Somebody else wrote to the segment meanwhile, up to the same offset."""
    log = harness.log()
    append(log, b"mine")
    harness.commit(log)
    harness.loop.kill()
    other = made(CountingDisk(SimRandom(7))).log()
    append(other, b"his.")
    disk.put(log.segments[0].path, other.segments.file_of(other.segments[0]).read(0, 1 << 10))
    harness.start()
    log = harness.log()
    assert values(log) == [(0, b"his.")]
    assert log.ends.synced_end == 1


def test_what_is_cut_before_the_flush_does_not_come_back(harness: LogHarness) -> None:
    killed(harness, records=3)
    harness.log().truncate_to(1)
    lose_power(harness)
    log = harness.log()
    assert values(log) == [(0, b"0")]
    ready(harness)
    append(log, b"new")
    harness.commit(log)
    lose_power(harness)
    assert values(harness.log()) == [(0, b"0"), (1, b"new")]


def test_a_topic_that_is_deleted_before_the_flush_leaves_nothing(harness: LogHarness) -> None:
    killed(harness)
    before = set(journal_files(harness))
    harness.log()
    harness.store.delete("tide", 0, TOPIC_ID)
    harness.settle()
    assert not before & set(journal_files(harness))
    ready(harness)
    log = harness.log(topic_id=OTHER_ID)
    append(log, b"new")
    harness.commit(log)
    lose_power(harness)
    assert values(harness.log(topic_id=OTHER_ID)) == [(0, b"new")]


def test_whose_folder_it_is_is_durable_after_the_flush(harness: LogHarness, disk: CountingDisk) -> None:
    killed(harness)
    log = harness.log()
    harness.flush(log)
    harness.settle()
    harness.loop.kill()
    disk.crash()
    assert disk.read_whole(f"{log.folder}/{PARTITION_METADATA}") == partition_metadata(TOPIC_ID)
    harness.start()
    assert values(harness.log()) == [(0, b"0")]


def test_a_clean_stop_before_the_flush_leaves_no_journal(harness: LogHarness) -> None:
    killed(harness, logs=2)
    for number in range(2):
        harness.log(partition=number)
    harness.stop()
    assert not journal_files(harness)
    harness.start()
    assert all(values(harness.log(partition=number)) == [(0, b"0")] for number in range(2))
