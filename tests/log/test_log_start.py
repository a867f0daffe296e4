"""Records deleted by a client: gone once that is written down, and there again where it can't be."""

import pytest
from tests.log.harness import NOW_MS, CountingDisk, LogHarness, append, values

from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom

SMALL = {"internal_segment_bytes": "1000"}


def full(harness: LogHarness) -> CountingDisk:
    assert isinstance(harness.disk, CountingDisk)
    harness.disk.capacity = harness.disk.used_bytes()
    return harness.disk


def test_on_a_full_disk_the_start_of_the_log_stays_where_it_was(sim: LogHarness) -> None:
    log = sim.log()
    for epoch in range(6):
        append(log, b"a", epoch=epoch)
    sim.commit(log)
    log.delete_before(2)
    first = sim.store.starts.saved(log)
    sim.run(lambda: first.done)
    disk = full(sim)
    log.delete_before(5)
    saved = sim.store.starts.saved(log)
    sim.run(lambda: saved.done)
    assert isinstance(saved.error, OSError)
    assert (log.log_start, [offset for offset, _ in values(log)]) == (2, [2, 3, 4, 5])
    assert log.epochs.epoch_for(2) == 2
    disk.capacity = None
    log.delete_before(4)
    saved = sim.store.starts.saved(log)
    sim.run(lambda: saved.done)
    assert (saved.error, log.log_start, log.epochs.earliest) == (None, 4, (4, 4))
    sim.power_loss()
    assert sim.log().log_start == 4


def test_a_later_deletion_decides_for_an_earlier_one(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"a", b"b", b"c", b"d")
    sim.commit(log)
    disk = full(sim)
    log.delete_before(1)
    first = sim.store.starts.saved(log)
    log.delete_before(3)
    second = sim.store.starts.saved(log)
    sim.run(lambda: first.done)
    disk.capacity = None
    sim.run(lambda: second.done)
    assert (first.error is None, second.error, log.log_start) == (False, None, 3)


def test_when_no_deletion_can_be_written_down_all_are_taken_back(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"a", b"b", b"c", b"d")
    sim.commit(log)
    full(sim)
    log.delete_before(1)
    log.delete_before(3)
    saved = sim.store.starts.saved(log)
    sim.run(lambda: saved.done)
    assert (log.log_start, len(values(log))) == (0, 4)


def test_retention_leaves_alone_what_may_not_be_deleted_after_all(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    for _ in range(40):
        append(log, b"x" * 100)
    sim.flush(log)
    disk = full(sim)
    log.delete_before(30)
    log.apply_retention(NOW_MS)
    saved = sim.store.starts.saved(log)
    sim.run(lambda: saved.done)
    sim.settle()
    assert (log.log_start, len(values(log))) == (0, 40)
    disk.capacity = None
    log.delete_before(30)
    sim.settle()
    assert sim.retain(log, NOW_MS) > 0
    assert log.log_start == 30 >= log.segments[0].base > 0


def test_the_start_does_not_fall_behind_segments_that_are_gone(sim: LogHarness) -> None:
    log = sim.log(**SMALL, retention_bytes="2000")
    for _ in range(40):
        append(log, b"x" * 100)
    sim.flush(log)
    full(sim).capacity = 0  # snapshots that go meanwhile make no room
    log.apply_retention(NOW_MS)
    log.delete_before(39)
    sim.settle()
    assert log.log_start == log.segments[0].base > 0
    log.check_invariants()
    sim.power_loss()
    log = sim.log(**SMALL)
    assert (log.offline, log.log_end) == (None, 40)


@pytest.mark.parametrize("seed", range(5))
def test_a_log_that_is_switched_to_fsync_after_a_deletion_survives_a_power_loss(seed: int) -> None:
    """What was deleted was durable in the page cache only: it is flushed with the switch."""
    sim = LogHarness(SimDisk(SimRandom(seed)))
    log = sim.log(tidelog_durability="os")
    for n in range(5):
        append(log, b"%d" % n)
    sim.flush(log)
    for n in range(5, 10):
        append(log, b"%d" % n)
    log.high_watermark = log.log_end
    log.delete_before(10)
    sim.settle(0.2)
    log.configure(sim.topic({"tidelog_durability": "fsync"}))
    sim.settle(1)
    sim.power_loss()
    log = sim.log(tidelog_durability="fsync")
    assert (log.offline, log.log_start, log.log_end) == (None, 10, 10)
