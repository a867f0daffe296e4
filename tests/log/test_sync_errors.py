"""A sync of many logs: whom an error concerns, and what is no error at all."""

import errno

import pytest
from tests.log.harness import TOPIC_ID, CountingDisk, LogHarness, append, values

from tidelog.env.real_disk import RealDisk
from tidelog.log.commit import Syncing, mark_of
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk, SimFile
from tidelog.sim.world.random import SimRandom


class Crowded(CountingDisk):
    """Has no descriptor left for the next few files."""

    refusals = 0

    def open(self, path: str, *, create: bool = False) -> SimFile:
        if self.refusals and path.endswith("partition.metadata"):
            self.refusals -= 1
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, create=create)


def test_a_failed_sync_concerns_the_log_whose_file_it_was(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    first, second = sim.log("tide", 0), sim.log("tide", 1)
    for log in (first, second):
        append(log, b"a")
        sim.commit(log)
    for log in (first, second):
        append(log, b"b")
        sim.store.commit.request(log)
    sim.disk.failing_syncs = 1
    sim.run(lambda: sim.store.commit.idle)
    failed, sound = (first, second) if first.offline else (second, first)  # they are synced beside each other
    assert failed.offline is not None
    assert failed.durable_end == 1
    assert (sound.offline, sound.durable_end) == (None, 2)


def test_a_failed_sync_of_everything_concerns_everyone(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    logs = [sim.log("tide", n) for n in range(20)]
    for log in logs:
        append(log, b"a")
        sim.store.commit.request(log)
    sim.disk.failing_syncs = 1
    sim.run(lambda: sim.store.commit.idle)
    assert all(log.offline is not None and log.durable_end == 0 for log in logs)


def test_a_topic_that_is_deleted_during_a_sync_harms_no_other(harness: LogHarness) -> None:
    harness.store.files.limit = 16
    logs = [harness.log("tide", n) for n in range(3)]
    for log in logs:
        append(log, b"a")
        harness.store.commit.request(log)
    harness.run(lambda: all(map(harness.store.commit.syncs, logs)))
    harness.store.delete("tide", 1, TOPIC_ID)
    harness.run(lambda: harness.store.commit.idle)
    assert [(log.offline, log.durable_end) for log in (logs[0], logs[2])] == [(None, 1), (None, 1)]


def test_a_truncation_during_a_sync_is_synced_again(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    append(log, b"b")
    harness.store.commit.request(log)
    harness.run(lambda: harness.store.commit.syncs(log))
    log.truncate_to(1)
    append(log, b"c")
    harness.run(lambda: harness.store.commit.idle)
    assert (log.durable_end, values(log)) == (2, [(0, b"a"), (1, b"c")])


def test_without_a_free_descriptor_the_sync_is_tried_again() -> None:
    disk = Crowded(SimRandom(5))
    sim = LogHarness(disk)
    log = sim.log()
    append(log, b"a")
    disk.refusals = 2
    sim.commit(log)
    assert (log.offline, log.durable_end, disk.refusals) == (None, 1, 0)
    assert sim.store.files.limit < sim.config.tidelog_open_files_max, "fewer files are kept open from now on"
    sim.power_loss()
    assert values(sim.log()) == [(0, b"a")]
    sim.loop.kill()


def test_closed_files_are_opened_for_the_sync(real: LogHarness) -> None:
    assert isinstance(real.disk, RealDisk)
    log = real.log()
    append(log, b"a")
    real.store.files.forget(log.segments[0])
    real.commit(log)
    assert log.durable_end == 1


def under_way(sim: LogHarness, log: Log) -> None:
    """The group commit and the flush sync the log at the same time."""
    sim.store.commit.request(log)
    sim.store.flush_soon(log)
    sim.run(lambda: sim.store.commit.syncs(log) and sim.store.upkeep.saving(log.folder))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("keeps_cache", [False, True])
def test_of_two_syncs_at_the_same_time_the_failed_one_counts(seed: int, keeps_cache: bool) -> None:
    disk = SimDisk(SimRandom(seed))
    disk.failed_sync_keeps_cache = keeps_cache
    sim = LogHarness(disk, seed=seed)
    log = sim.log()
    append(log, b"a")
    sim.commit(log)
    sim.flush(log)
    append(log, b"b")
    under_way(sim, log)
    disk.failing_syncs = 1
    sim.settle()
    assert log.offline is not None
    assert (log.durable_end, log.recovery_point) == (1, 1)
    sim.power_loss()
    assert values(sim.log())[:1] == [(0, b"a")]
    sim.loop.kill()


def test_of_two_syncs_at_the_same_time_both_count_when_both_end_well(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    under_way(harness, log)
    harness.run(lambda: harness.store.commit.idle and harness.store.upkeep.idle)
    assert (log.offline, log.durable_end, log.recovery_point) == (None, 1, 1)


def test_a_log_that_is_not_flushed_does_not_wait_for_the_flush_of_another(sim: LogHarness) -> None:
    flushed, other = sim.log("tide", 0), sim.log("tide", 1)
    for log in (flushed, other):
        append(log, b"a")
        sim.store.commit.request(log)
    sim.store.flush_soon(flushed)
    sim.run(lambda: other.durable_end == 1)
    assert flushed.recovery_point == 0, "the flush was over before: this shows nothing"
    sim.run(lambda: flushed.recovery_point == 1)
    assert (flushed.durable_end, flushed.offline) == (1, None)


def test_a_failed_sync_of_everything_concerns_logs_that_did_not_ask_for_it(sim: LogHarness) -> None:
    """It may have dropped what they had in memory, and their own sync would succeed."""
    bystander, done = sim.log("ebb", 0), sim.log("ebb", 1)
    append(done, b"a")
    sim.commit(done)
    sim.flush(done)
    append(bystander, b"a")
    for log in [sim.log("tide", n) for n in range(20)]:
        append(log, b"a")
        sim.store.commit.request(log)
    assert isinstance(sim.disk, CountingDisk)
    sim.disk.failing_syncs = 1
    sim.run(lambda: sim.store.commit.idle)
    assert bystander.offline is not None
    assert done.offline is None


def test_a_failed_sync_of_everything_concerns_a_log_whose_last_flush_found_no_room(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log("ebb")
    append(log, b"a")
    sim.disk.capacity = sim.disk.used_bytes()
    sim.store.flush_soon(log)
    sim.settle(0.1)
    assert (log.offline, log.recovery_point) == (None, 0)
    sim.disk.capacity = None
    sim.store.upkeep.stop()  # it isn't tried again
    for other in [sim.log("tide", n) for n in range(20)]:
        append(other, b"a")
        sim.store.commit.request(other)
    sim.disk.failing_syncs = 1
    sim.run(lambda: sim.store.commit.idle)
    assert log.offline is not None


def test_a_lack_of_descriptors_does_not_hide_a_failed_sync() -> None:
    disk = Crowded(SimRandom(5))
    sim = LogHarness(disk)
    log = sim.log()
    append(log, b"a")
    disk.refusals = 2
    disk.failing_syncs = 1
    sim.commit(log)
    sim.settle()
    assert log.offline is not None
    sim.loop.kill()


def test_what_a_truncation_took_during_a_sync_is_not_missed_where_its_name_is_used_again(sim: LogHarness) -> None:
    log = sim.log(internal_segment_bytes="1000")
    for _ in range(20):
        append(log, bytes(100))
    base = log.segments[-1].base
    for segment in log.segments:
        sim.store.files.forget(segment)
    syncing = Syncing(sim.disk, [mark_of(log)], whole=False)
    log.truncate_to(base - 1)
    syncing.run()
    assert any(isinstance(error, FileNotFoundError) for error in syncing.errors.values())
    append(log, bytes(100))
    append(log, bytes(100))
    assert log.segments[-1].base == base
    assert syncing.error_of(syncing.marks[0]) is None
