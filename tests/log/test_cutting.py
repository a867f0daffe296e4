"""Many logs are cut in one go: as if each had been cut by itself, with few syncs, and none of them on the loop."""

import pytest
from tests.batches import Batch, Sent
from tests.log.harness import EPOCH, NOW_MS, ROOT, CountingDisk, LogHarness, values

from tidelog.env.promise import Promise
from tidelog.log.cutting import Cuts
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError

LOGS = 40
BATCHES = 10


class Wanted:
    def __init__(self, log: Log, offset: int | None) -> None:
        self.log = log
        self.at = offset

    def offset(self) -> int | None:
        return self.at


def write(log: Log, batches: int = BATCHES, epoch: int = EPOCH, size: int = 50) -> None:
    for _ in range(batches):
        view = memoryview(bytearray(Batch([Sent(b"x" * size)], base_timestamp=NOW_MS).encode()))
        log.append(view, 0, len(view), epoch, NOW_MS)


def filled(harness: LogHarness, *, flushed: bool = False, **settings: str) -> list[Log]:
    logs = [harness.log(partition=number, **settings) for number in range(LOGS)]
    for log in logs:
        write(log, BATCHES // 2, EPOCH)
        write(log, BATCHES // 2, EPOCH + 1)
        if flushed:
            harness.flush(log)
    for log in logs:
        harness.commit(log)
    harness.settle()
    return logs


def cut(harness: LogHarness, wanted: list[Wanted]) -> Promise[None]:
    return harness.loop.spread(harness.store.cuts.cut(wanted))


def harness_on(disk: SimDisk, **settings: str) -> LogHarness:
    disk.make_folders(ROOT)
    return LogHarness(disk, **settings)


@pytest.mark.parametrize("flushed", [False, True], ids=["not flushed", "flushed"])
@pytest.mark.parametrize("journal", ["0", "1048576"], ids=["synced", "in the journal"])
def test_logs_that_are_cut_together_are_as_those_cut_one_by_one(journal: str, flushed: bool) -> None:
    found: list[list[object]] = []
    for together in (True, False):
        harness = harness_on(SimDisk(SimRandom(1)), tidelog_journal_bytes=journal)
        logs = filled(harness, flushed=flushed, internal_segment_bytes="400")
        if together:
            done = cut(harness, [Wanted(log, number % 12) for number, log in enumerate(logs)])
            harness.run(lambda: done.done)  # noqa: B023
            done.result()
        else:
            for number, log in enumerate(logs):
                log.truncate_to(number % 12)
        state: list[object] = []
        for log in logs:
            log.check_invariants()
            write(log, 1, EPOCH + 2)
            harness.commit(log)
            state.append((values(log), log.epochs.entries(), log.log_end))
        harness.power_loss()
        again = [values(harness.log(partition=number)) for number in range(LOGS)]
        assert again == [each[0] for each in state]  # type: ignore[index]
        found.append(state)
    assert found[0] == found[1]


def test_syncs_are_of_the_files_that_were_cut_and_hardly_any_others() -> None:
    disk = CountingDisk(SimRandom(1))
    harness = harness_on(disk, tidelog_journal_bytes="0")
    logs = filled(harness, flushed=True)
    disk.syncs = 0
    done = cut(harness, [Wanted(log, BATCHES - 2) for log in logs])
    harness.run(lambda: done.done)
    # One of each file, one of its folder for the snapshot that went, and the checkpoint, with its folder.
    assert disk.syncs <= 2 * LOGS + 12


def test_what_is_to_be_cut_is_decided_when_its_turn_comes() -> None:
    harness = harness_on(SimDisk(SimRandom(1)))
    kept, gone = filled(harness)[:2]
    wanted = [Wanted(kept, None), Wanted(gone, 4)]
    done = cut(harness, wanted)
    harness.run(lambda: done.done)
    assert (kept.log_end, gone.log_end) == (BATCHES, 4)


def test_nothing_is_written_behind_a_cut_that_is_not_durable() -> None:
    harness = harness_on(SimDisk(SimRandom(1)))
    log = filled(harness)[0]
    done = cut(harness, [Wanted(log, 4)])
    harness.run(lambda: log.log_end == 4)
    if not done.done:
        with pytest.raises(KafkaError) as raised:
            write(log, 1)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    harness.run(lambda: done.done)
    write(log, 1)
    assert log.log_end == 5
    assert log.offline is None


@pytest.mark.parametrize("turns", range(0, 40, 2))
def test_a_power_loss_in_its_midst_leaves_logs_as_they_were_or_cut(turns: int) -> None:
    harness = harness_on(SimDisk(SimRandom(turns)))
    before = [values(log) for log in filled(harness, flushed=True)]
    logs = [harness.log(partition=number) for number in range(LOGS)]
    cut(harness, [Wanted(log, 3) for log in logs])
    for _ in range(turns):
        harness.timeline.run_until(lambda: True, harness.timeline.now + 0.001)
        harness.settle(0.0005)
    harness.power_loss()
    for number in range(LOGS):
        log = harness.log(partition=number)
        assert log.offline is None, log.offline
        found = values(log)
        assert len(found) >= 3
        assert found == before[number][: len(found)]


def test_a_sync_that_fails_takes_its_log_offline_and_no_other() -> None:
    disk = SimDisk(SimRandom(1))
    harness = harness_on(disk)
    logs = filled(harness)
    disk.failing_syncs = 1
    done = cut(harness, [Wanted(log, 4) for log in logs])
    harness.run(lambda: done.done)
    assert sum(log.offline is not None for log in logs) == 1
    assert {log.log_end for log in logs} == {4}


def test_a_store_that_stops_waits_for_the_cuts_that_are_under_way() -> None:
    harness = harness_on(SimDisk(SimRandom(1)))
    logs = filled(harness)
    cuts: Cuts = harness.store.cuts
    done = cut(harness, [Wanted(log, 4) for log in logs])
    harness.run(lambda: not cuts.idle)
    harness.stop()
    assert done.done
    harness.start()
    assert [len(values(harness.log(partition=number))) for number in range(LOGS)] == [4] * LOGS
