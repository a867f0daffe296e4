"""Logs on disk are opened off the loop: who asks meanwhile, what becomes of one that is deleted, what a fault does."""

import errno
from collections.abc import Iterator
from itertools import count
from unittest.mock import patch

import pytest
from tests.batches import Producer
from tests.log.harness import NOW_MS, TOPIC_ID, LogHarness, append, values
from tests.log.keyed import end, put

from tidelog.env.promise import Promise
from tidelog.log import flush
from tidelog.log.bounds import OPENINGS_A_JOB, OPENINGS_TOGETHER_MAX
from tidelog.log.flush import FlushJob
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk, SimFile
from tidelog.sim.world.loop import Timeline
from tidelog.sim.world.random import SimRandom
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


class Steady(SimDisk):
    """Notes which log's folder was looked into, in which order."""

    def __init__(self, random: SimRandom) -> None:
        super().__init__(random)
        self.looked: list[str] = []

    def list_folder(self, path: str) -> list[str]:
        if "tide-" in path:
            self.looked.append(path.rpartition("-")[2])
        return super().list_folder(path)


@pytest.fixture
def noting() -> Iterator[tuple[LogHarness, Steady]]:
    disk = Steady(SimRandom(3))
    made = LogHarness(disk)
    for partition in range(100):
        append(made.log("tide", partition), b"a")
    made.kill()
    disk.looked.clear()
    yield made, disk
    made.loop.kill()


def ask(harness: LogHarness, partition: int, asker: object) -> Promise[None]:
    return harness.store.open("tide", partition, TOPIC_ID, harness.topic({}), asker)


def test_who_asks_for_one_log_does_not_wait_for_the_many_that_others_ask_for(
    noting: tuple[LogHarness, Steady],
) -> None:
    sim, disk = noting
    for partition in range(99):
        ask(sim, partition, "many")
    promise = ask(sim, 99, "one")
    sim.run(lambda: promise.done)
    first = disk.looked.index("99")
    assert first < (OPENINGS_TOGETHER_MAX + 1) * OPENINGS_A_JOB, "those that were begun, and no others"
    sim.run(lambda: sim.store.all_open)
    assert sorted(disk.looked, key=int) == [str(partition) for partition in range(100)], "each once"


def test_who_asks_for_a_log_that_waits_in_anothers_row_has_it_in_its_own_turn(
    noting: tuple[LogHarness, Steady],
) -> None:
    sim, disk = noting
    promises = [ask(sim, partition, "many") for partition in range(100)]
    sim.store.also_wants("tide", 99, "one")
    sim.run(lambda: promises[99].done)
    assert disk.looked.index("99") < (OPENINGS_TOGETHER_MAX + 1) * OPENINGS_A_JOB
    sim.run(lambda: sim.store.all_open)
    assert all(promise.done and promise.error is None for promise in promises)
    assert len(disk.looked) == 100, "each once"


def test_logs_without_a_recovery_point_are_flushed_when_all_are_open_and_not_a_few_at_a_time(
    noting: tuple[LogHarness, Steady], monkeypatch: pytest.MonkeyPatch
) -> None:
    sim, _ = noting
    flushed: list[Log] = []
    prepare = flush.prepare

    def noted(log: Log, *, closing: bool = False, lean: bool = False) -> FlushJob:
        flushed.append(log)
        return prepare(log, closing=closing, lean=lean)

    monkeypatch.setattr(flush, "prepare", noted)
    promises = [ask(sim, partition, "many") for partition in range(100)]
    while not all(promise.done for promise in promises):
        assert not flushed
        sim.settle(0.001)
    sim.settle(5)
    assert [sim.log("tide", partition).recovery_point for partition in range(100)] == [1] * 100


def test_what_takes_long_gives_way_to_others_between_two_logs(noting: tuple[LogHarness, Steady]) -> None:
    """Each look at the clock is a second later: after each log the thread is somebody else's."""
    sim, disk = noting
    ticks = count()
    with patch.object(Timeline, "monotonic", lambda _: next(ticks)):
        promises = [ask(sim, partition, "many") for partition in range(99)]
        promises.append(ask(sim, 99, "one"))
        sim.run(lambda: all(promise.done for promise in promises))
    assert disk.looked.index("99") <= 2 * OPENINGS_TOGETHER_MAX
    assert sorted(disk.looked, key=int) == [str(partition) for partition in range(100)]


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
