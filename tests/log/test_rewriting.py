"""The tail of a log is written again after a crash: at no moment may the power take what was durable."""

import errno

import pytest
from tests.log.harness import CountingDisk, LogHarness, append, values

from tidelog.env.network import Buffer
from tidelog.log import recovery, rewriting
from tidelog.log.names import AGAIN
from tidelog.sim.world.disk import SimDisk, SimFile
from tidelog.sim.world.inode import FileNode
from tidelog.sim.world.random import SimRandom

STEPS = 40


class Interrupted(Exception):
    """The process was killed, or the power went."""


class Interruptible(SimDisk):
    """After so many changes it makes no more."""

    left = 1 << 30

    def step(self) -> None:
        if self.left == 0:
            raise Interrupted
        self.left -= 1

    def _opened(self, node: FileNode, path: str) -> SimFile:
        return InterruptibleFile(self, node, path)

    def write_at(self, path: str, pos: int, data: Buffer) -> None:
        if self.left == 0:
            super().write_at(path, pos, memoryview(data)[: len(data) // 2])
        self.step()
        super().write_at(path, pos, data)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def sync_node(self, node: FileNode, path: str) -> None:
        self.step()
        super().sync_node(node, path)

    def sync_folder(self, path: str) -> None:
        self.step()
        super().sync_folder(path)


class InterruptibleFile(SimFile):
    def append(self, data: Buffer) -> None:
        disk = self._disk
        assert isinstance(disk, Interruptible)
        if disk.left == 0:
            super().append(memoryview(data)[: len(data) // 2])
        disk.step()
        super().append(data)

    def truncate(self, size: int) -> None:
        assert isinstance(self._disk, Interruptible)
        self._disk.step()
        super().truncate(size)


def written(harness: LogHarness) -> list[tuple[int, bytes | None]]:
    """A log with a recovery point in the middle of its first segment, more segments behind it, and all durable."""
    log = harness.log(internal_segment_bytes="3000")
    for number in range(30):
        append(log, bytes([number]) * 200)
        if number == 5:
            harness.commit(log)
            harness.store.flush_soon(log)
            harness.run(lambda: log.recovery_point == 6)
    harness.store.upkeep.stop()
    harness.commit(log)
    return values(log)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("powerless", [False, True])
@pytest.mark.parametrize("small", [False, True])
def test_whenever_the_start_is_interrupted_nothing_is_lost(
    seed: int, powerless: bool, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(rewriting, "SMALL_BYTES", 0)
    interrupted = 0
    for steps in range(STEPS):
        disk = Interruptible(SimRandom(seed))
        sim = LogHarness(disk)
        known = written(sim)
        sim.kill()
        disk.left = steps
        try:
            sim.log(internal_segment_bytes="3000")
        except Interrupted:
            interrupted += 1
        disk.left = 1 << 30
        if powerless:
            sim.power_loss()
        else:
            sim.kill()
        log = sim.log(internal_segment_bytes="3000")
        assert (log.offline, log.durable_end, values(log)) == (None, 30, known)
        assert not [name for name in disk.list_folder(log.folder) if AGAIN in name]
        sim.loop.kill()
    assert interrupted > 5


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_what_a_failed_sync_left_in_the_cache_is_made_durable_at_the_next_start(
    seed: int, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(rewriting, "SMALL_BYTES", 0)
    disk = SimDisk(SimRandom(seed))
    disk.failed_sync_keeps_cache = True
    sim = LogHarness(disk)
    log = sim.log()
    append(log, b"a")
    sim.commit(log)
    if seed % 2:
        sim.flush(log)
    append(log, b"b" * 1000)
    disk.failing_syncs = 1
    sim.commit(log)
    assert log.offline is not None
    sim.kill()
    log = sim.log()
    shown = values(log)
    assert (log.durable_end, [len(value or b"") for _, value in shown]) == (2, [1, 1000])
    sim.power_loss()
    assert values(sim.log()) == shown
    sim.loop.kill()


@pytest.mark.parametrize("seed", range(30))
def test_where_the_page_cache_counts_a_later_flush_passes_over_nothing_lost(seed: int) -> None:
    disk = SimDisk(SimRandom(seed))
    disk.failed_sync_keeps_cache = True
    sim = LogHarness(disk)
    log = sim.log(tidelog_durability="os")
    append(log, b"a" * 1000)
    disk.failing_syncs = 1
    sim.store.flush_soon(log)
    sim.settle(1)
    assert log.offline is not None
    sim.kill()
    log = sim.log(tidelog_durability="os")
    assert len(values(log)) == 1
    sim.flush(log)
    sim.power_loss()
    log = sim.log(tidelog_durability="os")
    assert (log.offline, len(values(log))) == (None, 1)
    sim.loop.kill()


def test_on_a_full_disk_the_log_is_served_as_it_is(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log()
    append(log, b"a" * 1000)
    sim.disk.capacity = sim.disk.used_bytes() + 10
    sim.kill()
    log = sim.log()
    assert (log.offline, log.durable_end, len(values(log))) == (None, 1, 1)
    assert not [name for name in sim.disk.list_folder(log.folder) if AGAIN in name]


def test_a_disk_that_still_fails_keeps_the_log_offline(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log()
    append(log, b"a" * 1000)
    sim.kill()
    sim.disk.failing_syncs = 1
    log = sim.log()
    assert log.offline is not None
    assert str(errno.EIO) in log.offline
    sim.kill()
    assert len(values(sim.log())) == 1


def test_nothing_is_written_again_below_the_recovery_point(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log()
    append(log, b"a" * 1000)
    sim.flush(log)
    sim.kill()
    before = sim.disk.syncs
    assert sim.log().durable_end == 1
    assert sim.disk.syncs == before + 1, "of its last segment, which may have been cut"


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_where_the_page_cache_counts_a_start_takes_nothing_from_the_platter(
    seed: int, killed: bool, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records were synced. One start after a crash later the power goes again."""
    if not small:
        monkeypatch.setattr(rewriting, "SMALL_BYTES", 0)
    sim = LogHarness(SimDisk(SimRandom(seed)))
    topic = {"tidelog_durability": "os", "flush_ms": "1000"}
    log = sim.log(**topic)
    for n in range(20):
        append(log, bytes([n]) * 200)
    sim.settle(3)
    known = values(log)
    assert (log.ends.synced_end, log.recovery_point) == (20, 0)
    for _ in range(3):
        if killed:
            sim.kill()
        else:
            sim.power_loss()
        log = sim.log(**topic)
        assert (log.offline, values(log)) == (None, known)
        sim.power_loss()
        log = sim.log(**topic)
        assert (log.offline, values(log)) == (None, known)
    sim.loop.kill()


@pytest.mark.parametrize("seed", range(10))
def test_a_tail_that_was_cut_does_not_come_back_after_a_kill_between_cut_and_sync(seed: int) -> None:
    """A follower drops what its leader doesn't have; the next start shows that it is gone."""
    for steps in range(STEPS):
        disk = Interruptible(SimRandom(seed))
        sim = LogHarness(disk)
        log = sim.log(internal_segment_bytes="3000")
        for number in range(30):
            append(log, bytes([number]) * 200)
        sim.flush(log)
        disk.left = steps
        interrupted = False
        try:
            log.truncate_to(23)
        except Interrupted:
            interrupted = True
        disk.left = 1 << 30
        sim.kill()
        shown = values(sim.log(internal_segment_bytes="3000"))
        assert len(shown) in (23, 28, 30)
        sim.power_loss()
        assert values(sim.log(internal_segment_bytes="3000")) == shown, f"killed after {steps} steps"
        sim.loop.kill()
        if not interrupted:
            assert len(shown) == 23
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize(("tail", "again"), [(0, True), (10, True), (40, False)], ids=["none", "small", "large"])
def test_where_the_page_cache_counts_a_small_tail_is_written_again_and_a_large_one_is_not(
    sim: LogHarness, monkeypatch: pytest.MonkeyPatch, tail: int, again: bool
) -> None:
    """What counts is how much is behind the recovery point. Where nothing is, a cut is synced that may be there."""
    assert isinstance(sim.disk, CountingDisk)
    monkeypatch.setattr(recovery, "UNNOTICED_BYTES", 3000)
    log = sim.log(tidelog_durability="os")
    for _ in range(50):
        append(log, b"x" * 100)
    sim.flush(log)
    for _ in range(tail):
        append(log, b"x" * 100)
    sim.kill()
    before = sim.disk.syncs
    log = sim.log(tidelog_durability="os")
    assert (log.log_end, log.durable_end) == (50 + tail, 50 + tail)
    assert (sim.disk.syncs > before) is again


def test_where_the_page_cache_does_not_count_any_tail_is_written_again(
    sim: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "UNNOTICED_BYTES", 100)
    log = sim.log()
    for _ in range(50):
        append(log, b"x" * 100)
    sim.kill()
    assert sim.log().durable_end == 50
    sim.power_loss()
    assert sim.log().log_end == 50
