"""Logs on disk are opened off the loop: who asks meanwhile, what becomes of one that is deleted, what a fault does."""

import errno

import pytest
from tests.batches import Producer
from tests.log.harness import NOW_MS, TOPIC_ID, LogHarness, append, values
from tests.log.keyed import end, put

from tidelog.env.promise import Promise
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk, SimFile
from tidelog.wire.errors import ErrorCode, KafkaError

NEXT_ID = bytes(15) + b"\x02"
FIRST = "00000000000000000000"


def open_later(harness: LogHarness, topic_id: bytes = TOPIC_ID, partition: int = 0, **settings: str) -> Promise[None]:
    return harness.store.open("tide", partition, topic_id, harness.topic(settings))


def opened(harness: LogHarness, topic_id: bytes = TOPIC_ID, partition: int = 0, **settings: str) -> Log:
    promise = open_later(harness, topic_id, partition, **settings)
    harness.run(lambda: promise.done)
    promise.result()
    return harness.log("tide", partition, topic_id, **settings)


def waits(harness: LogHarness, partition: int = 0) -> bool:
    return harness.store.waits("tide", partition, harness.topic({}))


def folders(harness: LogHarness, suffix: str) -> list[str]:
    return [name for name in harness.disk.list_folder(harness.root) if name.endswith(suffix)]


@pytest.mark.parametrize("ending", ["restart", "kill"])
def test_a_log_that_is_opened_off_the_loop_is_the_one_that_would_be_opened_at_once(
    harness: LogHarness, ending: str
) -> None:
    for number in range(20):
        append(harness.log(), b"%d" % number, now_ms=NOW_MS + number)
    expected = values(harness.log())
    getattr(harness, ending)()
    assert waits(harness)
    assert not harness.store.all_open
    log = opened(harness)
    assert not waits(harness)
    assert harness.store.all_open
    assert values(log) == expected
    assert (log.log_start, log.log_end, log.durable_end) == (0, 20, 20)
    assert append(log, b"next") == 20
    harness.restart()
    assert len(values(opened(harness))) == 21


def test_nothing_is_held_open_by_a_log_that_was_only_opened(harness: LogHarness) -> None:
    append(harness.log(), b"a")
    harness.restart()
    opened(harness)
    assert len(harness.store.files) == 0


def test_whoever_asks_meanwhile_waits_for_the_same_log(sim: LogHarness) -> None:
    append(sim.log(), b"a")
    sim.kill()
    first, second = open_later(sim), open_later(sim)
    assert waits(sim)
    sim.run(lambda: first.done and second.done)
    assert not waits(sim)
    assert sim.store.unopened() == []


def test_a_log_that_is_not_on_disk_has_nothing_to_wait_for(sim: LogHarness) -> None:
    assert sim.store.all_open
    assert not waits(sim)


def test_a_log_that_is_deleted_while_it_is_opened_goes_when_that_has_ended(harness: LogHarness) -> None:
    append(harness.log(), b"old")
    harness.kill()
    promise = open_later(harness)
    harness.store.delete("tide", 0, TOPIC_ID)
    assert waits(harness), "its folder still has the name"
    harness.run(lambda: promise.done)
    assert not waits(harness)
    assert len(folders(harness, "-delete")) == 1
    log = harness.log(topic_id=NEXT_ID)
    assert append(log, b"new") == 0
    harness.restart()
    assert values(opened(harness, NEXT_ID)) == [(0, b"new")]


def test_a_topic_made_again_while_the_old_ones_log_is_opened_waits_for_its_name(sim: LogHarness) -> None:
    append(sim.log(), b"old")
    sim.kill()
    old = open_later(sim)
    sim.store.delete("tide", 0, TOPIC_ID)
    new = open_later(sim, NEXT_ID)
    sim.run(lambda: old.done and new.done)
    assert append(sim.log(topic_id=NEXT_ID), b"new") == 0


def test_a_folder_of_another_topic_is_put_aside_and_the_log_begins_empty(harness: LogHarness) -> None:
    append(harness.log(), b"another's")
    harness.restart()
    log = opened(harness, NEXT_ID)
    assert (log.log_end, log.offline) == (0, None)
    assert len(folders(harness, "-stray")) == 1


def test_a_stop_waits_for_what_is_being_opened(sim: LogHarness) -> None:
    for partition in range(10):
        append(sim.log("tide", partition), b"a")
    sim.restart()
    promises = [open_later(sim, partition=partition) for partition in range(10)]
    stopped = sim.store.stop(broker_epoch=5)
    sim.run(lambda: stopped.done)
    stopped.result()
    assert any(promise.done for promise in promises)
    assert not all(promise.done for promise in promises), "no more are begun"
    sim.loop.kill()
    sim.start()
    assert sim.store.broker_epoch == 5
    assert [opened(sim, partition=partition).log_end for partition in range(10)] == [1] * 10


def test_after_a_kill_a_stop_before_all_were_recovered_leaves_no_mark(sim: LogHarness) -> None:
    for partition in range(10):
        append(sim.log("tide", partition), b"a")
    sim.kill()
    open_later(sim)
    sim.restart()
    assert sim.store.broker_epoch is None


# -- faults


def test_damage_is_told_as_it_is_for_one_that_is_opened_at_once(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log = sim.log()
    for number in range(30):
        append(log, b"%d" % number)
    sim.flush(log)
    append(log, b"more")
    sim.disk.flip_bit(f"{log.folder}/{FIRST}.log", 500, 510)
    sim.kill()
    log = opened(sim)
    assert log.offline is not None
    assert f"{FIRST}.log" in log.offline
    assert "recovery point 30" in log.offline


def test_what_was_cut_is_told_to_the_operator(sim: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    log = sim.log()
    append(log, b"a")
    log.segments.file_of(log.segments[-1]).append(b"torn")
    sim.kill()
    assert opened(sim).log_end == 1
    assert "cut 4 bytes" in caplog.text


def test_a_sync_that_fails_takes_the_log_offline(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    append(sim.log(), b"a")
    sim.kill()
    promise = open_later(sim)
    sim.disk.failing_syncs = 1
    sim.run(lambda: promise.done)
    log = sim.log()
    assert log.offline is not None
    assert "Input/output error" in log.offline


def test_too_many_open_files_are_no_reason_to_stay_offline(sim: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    append(sim.log(), b"a")
    sim.kill()
    real_open = sim.disk.open

    def refuse(path: str, *, create: bool = False) -> SimFile:
        raise OSError(errno.EMFILE, "Too many open files", path)

    monkeypatch.setattr(sim.disk, "open", refuse)
    promise = open_later(sim)
    sim.run(lambda: promise.done)
    assert isinstance(promise.error, KafkaError)
    assert promise.error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert waits(sim)
    monkeypatch.setattr(sim.disk, "open", real_open)
    assert values(opened(sim)) == [(0, b"a")]


def test_a_bug_of_ours_takes_the_log_offline_and_is_told(
    sim: LogHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append(sim.log(), b"a")
    sim.kill()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("never")

    monkeypatch.setattr("tidelog.log.recovery.recover", broken)
    log = opened(sim)
    assert log.offline is not None
    assert "ZeroDivisionError" in caplog.text


def test_a_transaction_that_was_aborted_behind_the_recovery_point_is_known_when_the_log_is_open(
    sim: LogHarness,
) -> None:
    log = sim.log()
    producer = Producer(7, 0, 0)
    put(log, (b"key", b"a"), producer=producer, transactional=True)
    end(log, producer, commit=False)
    sim.kill()
    log = opened(sim)
    piece = log.read(0, 1000, log.log_end)
    assert piece is not None
    assert [(found.producer_id, found.first_offset) for found in log.aborted(0, piece)] == [(7, 0)]


def test_what_was_compacted_beyond_the_end_is_lowered_durably_before_anyone_writes(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"a")
    sim.commit(log)
    sim.store.cleaned_to(log, 10)
    sim.settle()
    sim.kill()
    log = opened(sim)
    assert sim.store.clean_end(log) == 1
    sim.power_loss()
    assert sim.store.clean_end(sim.log()) == 1
