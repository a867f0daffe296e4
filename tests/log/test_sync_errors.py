"""A sync of many logs: whom an error concerns, and what is no error at all."""

import errno

from tests.log.shore import TOPIC_ID, CountingDisk, Shore, append, values

from tidelog.env.real_disk import RealDisk
from tidelog.sim.disk import SimFile
from tidelog.sim.random import SimRandom


class Crowded(CountingDisk):
    """Has no descriptor left for the next few files."""

    refusals = 0

    def open(self, path: str, *, create: bool = False) -> SimFile:
        if self.refusals and path.endswith("partition.metadata"):
            self.refusals -= 1
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, create=create)


def test_a_failed_sync_concerns_the_log_whose_file_it_was(sim: Shore) -> None:
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
    assert first.offline is not None
    assert (second.offline, second.durable_end) == (None, 2)


def test_a_failed_sync_of_everything_concerns_everyone(sim: Shore) -> None:
    assert isinstance(sim.disk, CountingDisk)
    logs = [sim.log("tide", n) for n in range(20)]
    for log in logs:
        append(log, b"a")
        sim.store.commit.request(log)
    sim.disk.failing_syncs = 1
    sim.run(lambda: sim.store.commit.idle)
    assert all(log.offline is not None and log.durable_end == 0 for log in logs)


def test_a_topic_that_is_deleted_during_a_sync_harms_no_other(shore: Shore) -> None:
    shore.store.files.limit = 16
    logs = [shore.log("tide", n) for n in range(3)]
    for log in logs:
        append(log, b"a")
        shore.store.commit.request(log)
    shore.timeline.run_until(lambda: shore.store.commit._syncing, shore.timeline.now + 1)
    shore.store.delete("tide", 1, TOPIC_ID)
    shore.run(lambda: shore.store.commit.idle)
    assert [(log.offline, log.durable_end) for log in (logs[0], logs[2])] == [(None, 1), (None, 1)]


def test_a_truncation_during_a_sync_is_synced_again(shore: Shore) -> None:
    log = shore.log()
    append(log, b"a")
    append(log, b"b")
    shore.store.commit.request(log)
    shore.timeline.run_until(lambda: shore.store.commit._syncing, shore.timeline.now + 1)
    log.truncate_to(1)
    append(log, b"c")
    shore.run(lambda: shore.store.commit.idle)
    assert (log.durable_end, values(log)) == (2, [(0, b"a"), (1, b"c")])


def test_without_a_free_descriptor_the_sync_is_tried_again() -> None:
    disk = Crowded(SimRandom(5))
    sim = Shore(disk)
    log = sim.log()
    append(log, b"a")
    disk.refusals = 2
    sim.commit(log)
    assert (log.offline, log.durable_end, disk.refusals) == (None, 1, 0)
    sim.power_loss()
    assert values(sim.log()) == [(0, b"a")]
    sim.loop.kill()


def test_closed_files_are_opened_for_the_sync(real: Shore) -> None:
    assert isinstance(real.disk, RealDisk)
    log = real.log()
    append(log, b"a")
    real.store.files.forget(log.segments[0])
    real.commit(log)
    assert log.durable_end == 1
