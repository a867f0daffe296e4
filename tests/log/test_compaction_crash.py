"""A crash at every step of a swap: after the next start each key has its last value, and nothing is left over."""

import pytest
from tests.batches import Producer
from tests.log.harness import ROOT, LogHarness
from tests.log.keyed import clean, compacted, end, headers, put, roll, table

from tidelog.log.log import Log
from tidelog.log.names import CLEANED, DELETED, SWAP
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom

STEPS_MAX = 400


class Cut(BaseException):
    """The process is gone."""


class CuttingDisk(SimDisk):
    """Ends the process before one of its changes to the names in a log's folder, or to a file's contents."""

    left = -1

    def _step(self, path: str) -> None:
        if self.left >= 0 and "/tide-" in path:
            self.left -= 1
            if self.left < 0:
                raise Cut

    def rename(self, old: str, new: str) -> None:
        self._step(old)
        super().rename(old, new)

    def sync_folder(self, path: str) -> None:
        self._step(path + "/")
        super().sync_folder(path)

    def remove(self, path: str) -> None:
        self._step(path)
        super().remove(path)


def filled(harness: LogHarness) -> Log:
    """Three segments, of which the second keeps nothing; an aborted transaction; a producer with a sequence."""
    log = compacted(harness, internal_segment_bytes="100000")
    someone, other = Producer(7, 1, 0), Producer(8, 0, 0)
    put(log, (b"a", b"1"), (b"b", b"1"), producer=someone)
    put(log, (b"c", b"aborted"), producer=other, transactional=True)
    end(log, other, commit=False)
    roll(harness, log)
    put(log, (b"b", b"2"), (b"c", b"2"), producer=Producer(7, 1, 2))
    roll(harness, log)
    put(log, (b"a", b"3"), (b"b", b"3"), (b"c", b"3"))
    roll(harness, log)
    put(log, (b"d", b"4"))
    harness.commit(log)
    return log


EXPECTED = {b"a": b"3", b"b": b"3", b"c": b"3", b"d": b"4"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("how", ["killed", "power loss"])
def test_every_step_of_a_swap_survives_a_crash(how: str, seed: int) -> None:
    steps = 0
    for step in range(STEPS_MAX):
        disk = CuttingDisk(SimRandom(100 * seed + step))
        harness = LogHarness(disk)
        log = filled(harness)
        disk.left = step
        try:
            clean(harness, log)
        except Cut:
            steps += 1
        else:
            break
        disk.left = -1
        if how == "killed":
            harness.kill()
        else:
            harness.power_loss()
        log = check(harness)
        clean(harness, log)
        check_cleaned(harness, log)
        harness.restart()
        check_cleaned(harness, check(harness))
    assert steps > 20


@pytest.mark.parametrize("seed", range(4))
def test_every_step_of_the_recovery_from_a_crash_survives_another(seed: int) -> None:
    for step in range(STEPS_MAX):
        disk = CuttingDisk(SimRandom(seed))
        harness = LogHarness(disk)
        log = filled(harness)
        disk.left = 9 + seed  # among the renames of the swap
        with pytest.raises(Cut):
            clean(harness, log)
        disk.left = -1
        harness.power_loss()
        disk.left = step
        try:
            compacted(harness)
        except Cut:
            disk.left = -1
            harness.power_loss()
        else:
            disk.left = -1
            check(harness)
            return
        log = check(harness)
        clean(harness, log)
        check_cleaned(harness, log)


def check(harness: LogHarness) -> Log:
    log = compacted(harness, internal_segment_bytes="100000")
    assert log.offline is None
    assert table(log) == {**table(log), **EXPECTED}
    assert log.log_end == 10
    assert not [n for n in harness.disk.list_folder(f"{ROOT}/tide-0") if n.endswith((CLEANED, SWAP, DELETED))]
    producer = log.producers.get(7)
    assert producer is not None
    assert producer.last_sequence == 3
    return log


def check_cleaned(harness: LogHarness, log: Log) -> None:
    assert table(log) == EXPECTED
    assert len(log.segments) == 2
    assert [h.last_sequence for h in headers(log) if h.producer_id == 7] == [3]
