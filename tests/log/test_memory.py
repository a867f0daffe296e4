"""Logs that are kept in memory: bounded, empty after a restart, and never giving an offset twice."""

import pytest
from tests.batches import Producer
from tests.log.harness import EPOCH, NOW_MS, CountingDisk, LogHarness, append, batch, send, values
from tests.log.keyed import end, put

from tidelog.log.aborted import Aborted
from tidelog.log.bounds import RESERVED_OFFSETS
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk
from tidelog.wire.errors import ErrorCode, KafkaError

MEMORY = {"tidelog_storage": "memory", "retention_bytes": "1000000"}


def reserved(harness: LogHarness, log: Log) -> None:
    """Wait until nobody could be given the offsets again that were given so far, and take note as a replica does."""
    harness.run(lambda: not log.unreserved)
    log.high_watermark = log.durable_end
    log.producers.advance_high_watermark(log.durable_end)


def test_it_is_written_and_read_like_any_other(harness: LogHarness) -> None:
    log = harness.log(**MEMORY)
    for n in range(3000):
        append(log, b"%d" % n, now_ms=NOW_MS + n)
    reserved(harness, log)
    assert log.durable_end == 3000
    assert values(log) == [(n, b"%d" % n) for n in range(3000)]
    assert log.find_by_time(NOW_MS + 1234, 3000) == (NOW_MS + 1234, 1234, EPOCH)
    assert log.max_timestamp() == (NOW_MS + 2999, 2999, EPOCH)
    assert not harness.disk.exists(log.folder)
    with pytest.raises(KafkaError):
        send(log, batch(b"x").encode()[:-1])


def test_it_forgets_the_oldest_records_when_it_is_full(harness: LogHarness) -> None:
    log = harness.log(**MEMORY)
    append(log, bytes(1000))
    reserved(harness, log)
    for _ in range(3999):
        append(log, bytes(1000))
    assert log.size_bytes() <= 1_000_000
    assert 0 < log.log_start < log.log_end == 4000
    assert len(values(log)) == log.log_end - log.log_start
    with pytest.raises(KafkaError) as caught:
        log.read(0, 10, 4000)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_slow_reader_keeps_what_it_is_being_sent(harness: LogHarness) -> None:
    log = harness.log(**MEMORY)
    append(log, b"first")
    piece = log.read(0, 100, 1)
    assert piece is not None
    before = bytes(piece.view())
    reserved(harness, log)
    for _ in range(4000):
        append(log, bytes(1000))
    assert bytes(piece.view()) == before


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_after_a_restart_it_is_empty_and_goes_on_above(harness: LogHarness, end: str) -> None:
    log = harness.log(**MEMORY)
    for _ in range(10):
        append(log, b"x")
    harness.settle(1)
    getattr(harness, end)()
    log = harness.log(**MEMORY)
    assert log.log_start == log.log_end == log.durable_end
    assert not log.unreserved
    assert 10 <= log.log_end <= RESERVED_OFFSETS * 2
    assert append(log, b"y") == log.log_start


@pytest.mark.parametrize("waits", [True, False])
def test_a_power_loss_gives_no_offset_twice_that_anybody_knows(sim: LogHarness, waits: bool) -> None:
    assert isinstance(sim.disk, SimDisk)
    known = 0
    made = batch(*[b""] * 5000).encode()
    for _ in range(4):
        log = sim.log(**MEMORY)
        assert log.log_end >= known
        for _ in range(5):
            seen = send(log, made)[1]
            if waits:
                reserved(sim, log)
            if not log.unreserved:
                assert log.durable_end == log.log_end == seen
                known = seen
        assert (known > 0) == waits
        sim.power_loss()


def test_the_disk_is_asked_once_in_a_while_only_and_never_on_the_loop(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log(**MEMORY)
    before = sim.disk.syncs
    append(log, b"x")
    assert sim.disk.syncs == before
    reserved(sim, log)
    before = sim.disk.syncs
    made = batch(*[b""] * 5000).encode()
    for _ in range(399):
        send(log, made)
        sim.settle(0.1)
    assert (sim.disk.syncs, log.unreserved) == (before, False)
    for _ in range(100):
        send(log, made)
        sim.settle(0.1)
        assert not log.unreserved  # they were reserved ahead of time
    assert 0 < sim.disk.syncs - before < 5


def test_while_nothing_can_be_reserved_nothing_is_durable(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    sim.disk.capacity = sim.disk.used_bytes()
    log = sim.log(**MEMORY)
    for _ in range(600):
        append(log, bytes(1000))
    sim.settle(2.0)
    assert (log.durable_end, log.unreserved, log.offline) == (0, True, None)
    with pytest.raises(KafkaError, match="not reserved on disk yet") as caught:
        append(log, bytes(600_000))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_start, log.size_bytes() <= 1_000_000) == (0, True)
    sim.disk.capacity = None
    sim.run(lambda: log.durable_end == log.log_end, 2.0)
    append(log, bytes(1000))
    assert log.durable_end == log.log_end


def test_a_setting_that_changes_makes_nothing_durable(sim: LogHarness) -> None:
    log = sim.log(**MEMORY)
    append(log, b"x")
    log.configure(sim.topic({**MEMORY, "tidelog_durability": "os"}))
    assert (log.durable_end, log.unreserved) == (0, True)
    reserved(sim, log)
    assert log.durable_end == 1


def test_readers_are_told_of_aborted_transactions_as_of_any_log(harness: LogHarness) -> None:
    log = harness.log(**{**MEMORY, "retention_bytes": "150000"})
    for producer_id in (5, 6, 7):
        put(log, (b"k", b"x"), producer=Producer(producer_id, 0, 0), transactional=True)
    end(log, Producer(6, 0, 0), commit=True)
    assert end(log, Producer(5, 0, 0), commit=False) == 4
    reserved(harness, log)
    piece = log.read(0, 10_000, log.log_end)
    assert piece is not None
    assert log.aborted(0, piece) == [Aborted(5, 0, 4, 2)]
    assert log.producers.first_unstable == 2
    end(log, Producer(7, 0, 0), commit=False)
    assert log.truncate_to(5)
    assert [entry.producer_id for entry in log.aborted(0, piece)] == [5]
    assert log.producers.first_unstable == 2
    for _ in range(200):
        append(log, bytes(2000))
    assert log.log_start > 5
    assert log.offline is None


@pytest.mark.parametrize("by", ["age", "DeleteRecords"])
def test_retention_lets_go_of_everything(harness: LogHarness, by: str) -> None:
    log = harness.log(**{**MEMORY, "retention_bytes": "100000", "retention_ms": "1000" if by == "age" else "-1"})
    for size in (10, 60_000, 70_000, 10):
        append(log, bytes(size))
        reserved(harness, log)
        if by == "DeleteRecords":
            log.delete_before(log.log_end)
        log.apply_retention(NOW_MS + 2000)
        log.check_invariants()
        assert (log.log_start, values(log)) == (log.log_end, [])
    assert append(log, b"goes on") == 4


def test_idempotence_age_and_truncation_work_there_too(harness: LogHarness) -> None:
    log = harness.log(**MEMORY, retention_ms="1000")
    for n in range(5):
        send(log, batch(b"%d" % n, producer=Producer(3, 0, n)))
    assert send(log, batch(b"1", producer=Producer(3, 0, 1)))[0] == 1
    reserved(harness, log)
    assert log.truncate_to(3)
    assert values(log) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert send(log, batch(b"3", producer=Producer(3, 0, 3)))[0] == 3
    log.delete_before(2)
    assert values(log) == [(2, b"2"), (3, b"3")]
    log.truncate_fully_and_start_at(50, NOW_MS)
    assert append(log, b"x") == 50
    reserved(harness, log)
    log.apply_retention(NOW_MS + 2000)
    assert (log.log_start, log.log_end) == (51, 51)
    assert append(log, b"y", now_ms=NOW_MS + 2000) == 51
