"""Logs that are kept in memory: bounded, empty after a restart, and never giving an offset twice."""

import pytest
from tests.batches import Producer
from tests.log.shore import EPOCH, NOW_MS, CountingDisk, Shore, append, batch, send, values

from tidelog.log.memory import RESERVED_OFFSETS
from tidelog.sim.disk import SimDisk
from tidelog.wire.errors import ErrorCode, KafkaError

MEMORY = {"tidelog_storage": "memory", "retention_bytes": "1000000"}


def test_it_is_written_and_read_like_any_other(shore: Shore) -> None:
    log = shore.log(**MEMORY)
    for n in range(3000):
        append(log, b"%d" % n, now_ms=NOW_MS + n)
    assert log.durable_end == 3000
    assert values(log) == [(n, b"%d" % n) for n in range(3000)]
    assert log.find_by_time(NOW_MS + 1234, 3000) == (NOW_MS + 1234, 1234, EPOCH)
    assert log.max_timestamp() == (NOW_MS + 2999, 2999, EPOCH)
    assert not shore.disk.exists(log.folder)
    with pytest.raises(KafkaError):
        send(log, batch(b"x").encode()[:-1])


def test_it_forgets_the_oldest_records_when_it_is_full(shore: Shore) -> None:
    log = shore.log(**MEMORY)
    for _ in range(4000):
        append(log, bytes(1000))
    assert log.size_bytes() <= 1_000_000
    assert 0 < log.log_start < log.log_end == 4000
    assert len(values(log)) == log.log_end - log.log_start
    with pytest.raises(KafkaError) as caught:
        log.read(0, 10, 4000)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_slow_reader_keeps_what_it_is_being_sent(shore: Shore) -> None:
    log = shore.log(**MEMORY)
    append(log, b"first")
    piece = log.read(0, 100, 1)
    assert piece is not None
    before = bytes(piece.view())
    for _ in range(4000):
        append(log, bytes(1000))
    assert bytes(piece.view()) == before


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_after_a_restart_it_is_empty_and_goes_on_above(shore: Shore, end: str) -> None:
    log = shore.log(**MEMORY)
    for _ in range(10):
        append(log, b"x")
    shore.settle(1)
    getattr(shore, end)()
    log = shore.log(**MEMORY)
    assert log.log_start == log.log_end == log.durable_end
    assert 10 <= log.log_end <= RESERVED_OFFSETS * 2
    assert append(log, b"y") == log.log_start


def test_a_power_loss_gives_no_offset_twice(sim: Shore) -> None:
    assert isinstance(sim.disk, SimDisk)
    seen = -1
    made = batch(*[b""] * 5000).encode()
    for _ in range(4):
        log = sim.log(**MEMORY)
        assert log.log_end > seen
        for _ in range(5):
            seen = send(log, made)[1]
        sim.power_loss()


def test_the_disk_is_asked_once_in_a_while_only(sim: Shore) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log(**MEMORY)
    append(log, b"x")
    before = sim.disk.syncs
    made = batch(*[b""] * 5000).encode()
    for _ in range(700):
        send(log, made)
    assert sim.disk.syncs == before
    for _ in range(200):
        send(log, made)
    assert 0 < sim.disk.syncs - before < 5


def test_idempotence_age_and_truncation_work_there_too(shore: Shore) -> None:
    log = shore.log(**MEMORY, retention_ms="1000")
    for n in range(5):
        send(log, batch(b"%d" % n, producer=Producer(3, 0, n)))
    assert send(log, batch(b"1", producer=Producer(3, 0, 1)))[0] == 1
    assert log.truncate_to(3)
    assert values(log) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert send(log, batch(b"3", producer=Producer(3, 0, 3)))[0] == 3
    log.delete_before(2)
    assert values(log) == [(2, b"2"), (3, b"3")]
    log.truncate_fully_and_start_at(50, NOW_MS)
    assert append(log, b"x") == 50
    log.apply_retention(NOW_MS + 2000)
    assert (log.log_start, log.log_end) == (51, 51)
    assert append(log, b"y", now_ms=NOW_MS + 2000) == 51
