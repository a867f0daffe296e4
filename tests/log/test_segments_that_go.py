"""Segments that go, or become one: nothing of them stays behind in memory, among the open files, or in the folder."""

import errno
from collections.abc import Callable

import pytest
from tests.batches import Producer
from tests.log.harness import EPOCH, NOW_MS, CountingDisk, LogHarness, append, batch, send, values
from tests.log.keyed import clean, compacted, put, roll

from tidelog.log.checkpoints import LOG_START, read_offsets
from tidelog.log.log import Log
from tidelog.log.names import SNAPSHOT
from tidelog.sim.world.disk import SimFile
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "200", "file_delete_delay_ms": "0"}


def bases(log: Log) -> list[int]:
    return [segment.base for segment in log.segments]


def snapshots(harness: LogHarness, log: Log) -> list[int]:
    """Those that are in the folder: the log knows no others."""
    found = [int(name[:20]) for name in harness.disk.list_folder(log.folder) if name.endswith(SNAPSHOT)]
    assert list(log.snapshots) == found
    return found


def check_open_files(harness: LogHarness, log: Log) -> None:
    assert len(harness.store.files) == sum(1 for segment in log.segments if segment.file is not None)


def sent(log: Log, count: int) -> None:
    """Batches of one idempotent producer, which goes on where it was."""
    for number in range(log.log_end, log.log_end + count):
        send(log, batch(b"%d" % number, producer=Producer(9, 0, number)))


def delete_before(harness: LogHarness, log: Log, offset: int) -> None:
    log.high_watermark = log.log_end
    log.delete_before(offset)
    harness.settle()
    harness.retain(log, harness.now_ms())
    harness.settle()


def test_of_segments_that_were_deleted_no_snapshot_and_no_open_file_is_left(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    for count in (3, 57):
        sent(log, count)
        harness.flush(log)
    assert len(values(log)) == 60
    assert snapshots(harness, log) == [3, *bases(log)[1:], 60]
    kept = bases(log)[2:]
    delete_before(harness, log, kept[0] + 1)
    assert bases(log) == kept
    assert snapshots(harness, log) == [*kept, 60]
    check_open_files(harness, log)


def test_of_segments_that_became_one_no_snapshot_and_no_open_file_is_left(harness: LogHarness) -> None:
    log = compacted(harness, internal_segment_bytes="2000", file_delete_delay_ms="0")
    for number in range(12):
        put(log, (b"%d" % number if number % 4 == 3 else b"again and again", b"x" * 300))
        if number % 2:
            roll(harness, log)
    before = snapshots(harness, log)
    assert before == [*bases(log)[1:]]
    clean(harness, log)
    assert len(bases(log)) < len(before)
    assert len(values(log)) == 4
    assert snapshots(harness, log) == [base for base in bases(log) if base]
    check_open_files(harness, log)


def test_of_segments_that_were_cut_off_no_open_file_is_left(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    sent(log, 60)
    assert len(values(log)) == 60
    log.truncate_to(20)
    assert len(log.segments) == 2, "the one that was cut goes on"
    check_open_files(harness, log)
    log.truncate_fully_and_start_at(5, NOW_MS)
    check_open_files(harness, log)


def test_a_log_that_is_cut_to_its_first_segment_s_base_still_knows_who_wrote_before(harness: LogHarness) -> None:
    """What went before it was deleted, not cut: a record that is sent again is known."""
    log = harness.log(**SMALL)
    sent(log, 40)
    harness.flush(log)
    oldest = bases(log)[1]
    delete_before(harness, log, oldest)
    assert log.segments.oldest == oldest
    assert log.truncate_to(oldest)
    again = batch(b"%d" % (oldest - 1), producer=Producer(9, 0, oldest - 1))
    assert send(log, again)[:2] == (oldest - 1, oldest)
    sent(log, 1)
    assert values(log) == [(oldest, b"%d" % oldest)]


def test_indexes_of_sealed_segments_are_in_memory_until_they_are_flushed(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    sent(log, 60)
    assert all(segment.offsets is not None for segment in log.segments)
    sim.flush(log)
    assert [segment.base for segment in log.segments if segment.offsets is not None] == bases(log)[-1:]


def test_what_is_written_after_a_flush_is_flushed_in_its_turn(sim: LogHarness) -> None:
    log = sim.log()
    for round_number in range(1, 4):
        append(log, b"x")
        append(log, b"y")
        assert log.ends.batches == 2
        sim.settle(70)
        assert (log.recovery_point, log.ends.batches) == (2 * round_number, 0)


def test_retention_that_finds_nothing_to_delete_flushes_nothing(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log()
    append(log, b"x")
    before = sim.disk.syncs
    log.apply_retention(NOW_MS)
    sim.settle(0.5)
    assert (log.recovery_point, sim.disk.syncs) == (0, before)


def test_of_a_log_that_is_offline_nothing_goes(sim: LogHarness) -> None:
    log = sim.log(**SMALL, retention_ms="1")
    assert log.retained_from(NOW_MS) == 0
    sent(log, 40)
    log.go_offline("its disk is gone")
    assert log.retained_from(NOW_MS + 10**9) == 0


def test_a_producer_that_was_idle_for_too_long_is_forgotten(sim: LogHarness) -> None:
    log = sim.log()
    sent(log, 1)
    log.expire_producers(NOW_MS)
    assert 9 in dict(log.producers.items())
    log.expire_producers(NOW_MS + sim.store.producer_expiration_ms + 1)
    assert dict(log.producers.items()) == {}


class Refusing(CountingDisk):
    """Renames nothing to what `refused` says, so often; where that is "new", it makes no segments."""

    refused = ""
    times = 0

    def rename(self, old: str, new: str) -> None:
        if self.refused and self.refused in new and self.times:
            self.times -= 1
            raise OSError(errno.EIO, "Input/output error", new)
        super().rename(old, new)

    def open(self, path: str, *, create: bool = False) -> SimFile:
        if create and self.refused == "new" and path.endswith(".log"):
            raise OSError(errno.EIO, "Input/output error", path)
        return super().open(path, create=create)


def test_where_the_start_could_not_be_saved_before_segments_went_it_is_saved_afterwards() -> None:
    disk = Refusing(SimRandom(1))
    sim = LogHarness(disk)
    log = sim.log(**SMALL, retention_ms="1000")
    sent(log, 40)
    sim.flush(log)
    disk.refused, disk.times = LOG_START, 1
    log.apply_retention(NOW_MS + 10**9)
    sim.settle()
    assert (log.log_start, disk.times) == (40, 0)
    assert read_offsets(disk, f"{sim.root}/{LOG_START}") == {("tide", 0): 40}
    sim.loop.kill()


@pytest.mark.parametrize(
    ("refused", "change"),
    [
        (".deleted", lambda log: log.truncate_to(3)),
        (".deleted", lambda log: log.truncate_fully_and_start_at(100, NOW_MS)),
        (".deleted", lambda log: log.delete_segments(log.segments[1].base)),
        ("new", lambda log: log.retained_from(NOW_MS + 10**9)),
    ],
    ids=["cut", "start anew", "delete", "roll"],
)
def test_a_log_whose_segments_can_t_be_changed_goes_offline(refused: str, change: Callable[[Log], object]) -> None:
    """Half of it may be done: the disk doesn't say."""
    disk = Refusing(SimRandom(1))
    sim = LogHarness(disk)
    log = sim.log(**SMALL, retention_ms="1000")
    sent(log, 40)
    sim.flush(log)
    disk.refused, disk.times = refused, 1
    with pytest.raises(KafkaError) as caught:
        change(log)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is not None
    sim.loop.kill()


def test_leaders_of_what_retention_deleted_are_forgotten(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    for epoch in (EPOCH, EPOCH + 1):
        for _ in range(30):
            append(log, b"x", epoch=epoch)
    harness.flush(log)
    assert log.epochs.entries() == [(EPOCH, 0), (EPOCH + 1, 30)]
    log.delete_segments(bases(log)[3])
    assert log.epochs.entries() == [(EPOCH + 1, bases(log)[0])]
