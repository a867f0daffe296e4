"""A kill around retention: what a start needs to know of producers is durable before the segments that told it go."""

import pytest
from tests.batches import Producer
from tests.log.harness import NOW_MS, CountingDisk, LogHarness, batch, send, values
from tests.log.keyed import end, put

from tidelog.log.log import Log
from tidelog.sim.world.random import SimRandom

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "200", "retention_ms": "50"}
LATER_MS = NOW_MS + 1_000_000
STEADY = Producer(5, 0, 0)
ENDED = Producer(6, 0, 0)
ABORTED = Producer(7, 0, 0)
OPEN = Producer(8, 0, 0)


def write(log: Log, producer: Producer, count: int, at_ms: int = NOW_MS, *, transactional: bool = False) -> Producer:
    """So many batches of one record; the producer as it goes on."""
    for _ in range(count):
        put(log, (b"k", b"x" * 50), producer=producer, now_ms=at_ms, transactional=transactional)
        producer = Producer(producer.id, producer.epoch, producer.sequence + 1)
    return producer


def old_records(harness: LogHarness, *, saved: bool) -> tuple[Log, Producer]:
    """A log whose transactions have ended since its recovery point moved, but for one; all of it is old."""
    log = harness.log(**SMALL)
    steady = write(log, STEADY, 3)
    for producer in (ENDED, ABORTED, OPEN):
        write(log, producer, 2, transactional=True)
    if saved:
        harness.flush(log)
    steady = write(log, steady, 4)
    end(log, ENDED, commit=True)
    end(log, ABORTED, commit=False)
    steady = write(log, steady, 2)
    harness.commit(log)
    return log, steady


def kill_after(harness: LogHarness, events: int) -> None:
    """Let the process live for so many events more, then kill it."""
    stop = harness.timeline.events + events
    harness.timeline.run_until(lambda: harness.timeline.events >= stop, harness.timeline.now + 1.0)
    harness.kill()


def check_producers(log: Log, steady: Producer) -> None:
    """Nothing hangs that has ended, what is open is open, and whoever goes on may."""
    assert log.offline is None
    known = {number: producer.txn_first_offset >= 0 for number, producer in log.producers.items()}
    assert known == {STEADY.id: False, ENDED.id: False, ABORTED.id: False, OPEN.id: True}
    assert log.producers.first_unstable == 7
    assert send(log, batch(b"next", producer=steady))[0] == log.log_end - 1


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("why", ["age", "DeleteRecords"])
def test_producers_are_known_whenever_the_kill_comes(saved: bool, why: str) -> None:
    started = set[int]()
    for events in range(60):
        harness = LogHarness(CountingDisk(SimRandom(3)))
        log, steady = old_records(harness, saved=saved)
        log_end = log.log_end
        if why == "age":
            log.apply_retention(LATER_MS)
        else:
            log.roll(NOW_MS)
            log.delete_before(log_end)
            deleted = harness.store.starts.saved(log)
            deleted.on_done(lambda _, log=log: log.apply_retention(NOW_MS))
        kill_after(harness, events)
        log = harness.log(**SMALL)
        assert log.log_end == log_end
        started.add(log.log_start)
        check_producers(log, steady)
        harness.loop.kill()
    assert started == {0, log_end}  # before it went, and after


@pytest.mark.parametrize("seed", range(20))
def test_producers_are_known_after_a_power_loss(seed: int) -> None:
    random = SimRandom(f"power {seed}")
    harness = LogHarness(CountingDisk(random.fork("disk")))
    log, steady = old_records(harness, saved=True)
    log_end = log.log_end
    log.apply_retention(LATER_MS)
    harness.settle(random.choose((0.0, 0.001, 0.003, 0.01, 0.1)))
    harness.power_loss()
    log = harness.log(**SMALL)
    assert log.log_end == log_end
    check_producers(log, steady)
    harness.loop.kill()


def test_a_recovered_log_keeps_its_producers_when_it_is_flushed_and_killed() -> None:
    """After a kill segments have no snapshot of their own: the one that a start begins with must outlive the next."""
    for events in range(40):
        harness = LogHarness(CountingDisk(SimRandom(4)))
        log, steady = old_records(harness, saved=True)
        steady = write(log, steady, 20, LATER_MS)
        harness.commit(log)
        harness.kill()
        log = harness.log(**SMALL)
        harness.flush(log)
        log.apply_retention(LATER_MS)
        harness.settle(1.0)
        assert 0 < log.log_start == log.segments[0].base < log.log_end
        steady = write(log, steady, 1, LATER_MS)
        harness.commit(log)
        harness.store.flush_soon(log)
        kill_after(harness, events)
        check_producers(harness.log(**SMALL), steady)
        harness.loop.kill()


def test_the_log_starts_where_readers_were_told_after_a_kill(sim: LogHarness) -> None:
    log, _ = old_records(sim, saved=True)
    log.apply_retention(LATER_MS)
    told = log.log_start
    while told < log.log_end:
        kill_after(sim, 1)
        log = sim.log(**SMALL)
        assert log.log_start >= told
        log.apply_retention(LATER_MS)
        sim.run(lambda log=log, told=told: log.log_start > told)
        told = log.log_start
    assert values(log) == []


def test_retention_syncs_nothing_on_the_loop(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log, _ = old_records(sim, saved=True)
    before = sim.disk.syncs
    log.apply_retention(LATER_MS)
    assert sim.disk.syncs == before
    sim.settle(1.0)
    assert (log.log_start, values(log)) == (log.log_end, [])
