"""Group commit: who is told when, what one sync covers, and what becomes of a log whose sync or write fails."""

import errno
import os

import pytest
from tests.log.harness import NOW_MS, CountingDisk, LogHarness, append, values

from tidelog.log.bounds import SYNC_EACH_MAX, SYNCS_TOGETHER_MAX
from tidelog.log.flush import Saving
from tidelog.log.log import Log
from tidelog.log.names import METADATA_TOPIC
from tidelog.sim.world.disk import SimDisk
from tidelog.wire.errors import ErrorCode, KafkaError


class Listener:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.offline: list[str | None] = []

    def durable_advanced(self, log: Log) -> None:
        self.ends.append(log.durable_end)

    def went_offline(self, log: Log) -> None:
        self.offline.append(log.offline)


def listened(harness: LogHarness, partition: int = 0, **settings: str) -> tuple[Log, Listener]:
    log = harness.log("tide", partition, **settings)
    listener = Listener()
    log.listener = listener
    return log, listener


def test_a_sync_covers_what_was_written_when_it_began(sim: LogHarness) -> None:
    log, listener = listened(sim)
    append(log, b"a")
    sim.store.commit.request(log)
    append(log, b"b")
    sim.run(lambda: not sim.store.commit.idle)
    sim.run(lambda: sim.store.commit.syncs(log))
    append(log, b"c")
    sim.store.commit.request(log)
    sim.run(lambda: sim.store.commit.idle)
    assert listener.ends == [2, 3]


def test_the_requests_of_one_turn_share_a_sync(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    pairs = [listened(sim, n) for n in range(200)]
    for log, _ in pairs:
        append(log, b"a")
        sim.store.commit.request(log)
    before = sim.disk.syncs
    sim.run(lambda: sim.store.commit.idle)
    assert sim.disk.syncs - before == 1
    assert [listener.ends for _, listener in pairs] == [[1]] * 200
    sim.power_loss()
    assert [sim.log("tide", n).log_end for n in range(200)] == [1] * 200


def test_a_few_files_are_synced_one_by_one(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    logs = [listened(sim, n)[0] for n in range(2)]
    for log in logs:
        append(log, b"a")
        sim.commit(log)
    for log in logs:
        append(log, b"b")
        sim.store.commit.request(log)
    before = sim.disk.syncs
    sim.run(lambda: sim.store.commit.idle)
    assert sim.disk.syncs - before == len(logs) <= SYNC_EACH_MAX


def test_a_log_does_not_wait_for_the_sync_of_another_but_for_its_own(sim: LogHarness) -> None:
    commit = sim.store.commit
    (first, told), (second, told_too) = listened(sim, 0), listened(sim, 1)
    for log in (first, second):
        append(log, b"a")
        sim.commit(log)
    under_way: list[tuple[bool, bool]] = []
    for log in (first, second, first, second):
        append(log, b"b")
        commit.request(log)
        sim.settle(0)
        under_way.append((commit.syncs(first), commit.syncs(second)))
    assert under_way == [(True, False), (True, True), (True, True), (True, True)]
    assert sim.loop.blocking == 2, "one sync each, and none for what came meanwhile"
    sim.run(lambda: commit.idle)
    assert told.ends == told_too.ends == [1, 2, 3]


def test_nobody_is_forgotten_where_new_files_take_the_last_sync_that_may_run(sim: LogHarness) -> None:
    commit = sim.store.commit
    logs = [listened(sim, n)[0] for n in range(SYNCS_TOGETHER_MAX)]
    for log in logs:
        append(log, b"a")
        sim.commit(log)
    new = listened(sim, SYNCS_TOGETHER_MAX)[0]
    for log in logs[:-1]:
        append(log, b"b")
        commit.request(log)
        sim.settle(0)
    assert sim.loop.blocking == SYNCS_TOGETHER_MAX - 1
    for log in (new, logs[-1]):  # its files' names are synced by a sync of their own
        append(log, b"b")
        commit.request(log)
    sim.run(lambda: commit.idle)
    assert [log.durable_end for log in (*logs, new)] == [2] * len(logs) + [1]


def test_nothing_runs_beside_a_sync_of_everything(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    commit = sim.store.commit
    logs = [listened(sim, n)[0] for n in range(SYNC_EACH_MAX + 2)]
    for log in logs:
        append(log, b"a")
        sim.commit(log)
    append(logs[0], b"b")
    commit.request(logs[0])
    sim.run(lambda: commit.syncs(logs[0]))
    for log in logs[1:]:
        append(log, b"b")
        append(log, b"c")
        commit.request(log)
    append(logs[0], b"c")
    commit.request(logs[0])
    before, most = sim.disk.syncs, 0

    def watch() -> bool:
        nonlocal most
        if commit.syncs(logs[1]):  # which has to do with so many logs that it is of everything
            most = max(most, sim.loop.blocking)
        return commit.idle

    sim.run(watch)
    assert most == 1
    assert sim.disk.syncs - before <= 2  # the one that was under way, and one of everything
    assert [log.durable_end for log in logs] == [3] * len(logs)


def test_with_durability_os_the_durable_end_follows_at_once(sim: LogHarness) -> None:
    log, listener = listened(sim, tidelog_durability="os")
    append(log, b"a")
    assert (log.durable_end, listener.ends) == (1, [])
    log.configure(sim.topic({}))
    append(log, b"b")
    assert log.durable_end == 1
    log.configure(sim.topic({"tidelog_durability": "os"}))
    assert log.durable_end == 2


def test_flush_messages_keeps_its_meaning(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log, listener = listened(sim, tidelog_durability="os", flush_messages="3")
    append(log, b"a")
    append(log, b"b")
    assert log.durable_end == 2
    append(log, b"c")
    assert log.durable_end == 2
    sim.run(lambda: log.durable_end == 3)
    assert listener.ends == [3]
    append(log, b"d")
    assert log.durable_end == 4
    sim.power_loss()
    assert sim.log(tidelog_durability="os").log_end >= 3


def test_flush_ms_flushes_after_a_while(sim: LogHarness) -> None:
    log, _ = listened(sim, tidelog_durability="os", flush_ms="3000")
    append(log, b"a")
    sim.settle(5)
    assert log.ends.synced_end == 1


def test_a_failed_sync_takes_its_logs_offline_for_good(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log, listener = listened(sim)
    other, other_listener = listened(sim, 1)
    append(log, b"a")
    append(other, b"b")
    sim.commit(other)
    sim.disk.failing_syncs = 1
    sim.store.commit.request(log)
    sim.run(lambda: sim.store.commit.idle)
    assert listener.ends == []
    assert len(listener.offline) == 1
    assert "sync" in (listener.offline[0] or "")
    with pytest.raises(KafkaError) as caught:
        append(log, b"b")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    sim.store.commit.request(log)
    sim.settle()
    assert listener.ends == []
    append(other, b"c")
    sim.commit(other)
    assert other_listener.ends == [1, 2]
    sim.restart()
    assert sim.store.broker_epoch is None
    assert sim.log().offline is None
    assert sim.log("tide", 1).log_end == 2


def test_a_full_disk_refuses_the_batch_and_the_log_goes_on_when_there_is_room(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log, listener = listened(sim)
    append(log, b"a")
    for _ in range(20):
        sim.disk.capacity = sim.disk.used_bytes() + 50
        with pytest.raises(KafkaError) as caught:
            append(log, bytes(1000))
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert log.offline is None
        assert values(log)[-1] == (log.log_end - 1, b"a")
        sim.disk.capacity = None
        append(log, b"a")
    assert listener.offline == []
    sim.kill()
    assert sim.log().log_end == 21


def test_a_disk_too_full_for_the_first_file_says_so(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    sim.disk.capacity = sim.disk.used_bytes() + 10
    log, _ = listened(sim)
    with pytest.raises(KafkaError) as caught:
        append(log, b"a")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    sim.disk.capacity = None
    assert append(log, b"a") == 0


class Failing:
    """A file whose writes fail, as those of a dying disk."""

    def __init__(self, path: str) -> None:
        self.path = path

    def append(self, data: bytes) -> None:
        raise OSError(errno.EIO, "the disk is dying")


def test_a_failed_write_takes_the_log_offline(sim: LogHarness) -> None:
    log, listener = listened(sim)
    append(log, b"a")
    segment = log.segments[-1]
    segment.file = Failing(segment.stem + ".log")  # type: ignore[assignment]
    with pytest.raises(KafkaError) as caught:
        append(log, b"b", now_ms=NOW_MS)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(listener.offline) == 1
    assert "the disk is dying" in (log.offline or "")
    assert log.log_end == 1


def test_retention_in_the_middle_of_a_flush_waits_for_it(real: LogHarness) -> None:
    settings = {"segment_bytes": "1048576", "retention_bytes": "1", "file_delete_delay_ms": "0"}
    logs = [real.log("tide", n, tidelog_durability="os", **settings) for n in (0, 1)]
    for log in logs:
        for _ in range(5):
            append(log, bytes(400_000))
    saving = Saving(real.disk, real.store.upkeep.prepare(logs))
    assert len(saving.jobs[0].files) > 1
    before = len(logs[0].segments)
    logs[0].apply_retention(real.now_ms())
    saving.run()
    assert len(logs[0].segments) == before > 1
    real.store.upkeep.take_note(saving, None)
    real.settle()
    assert len(logs[0].segments) == 1
    assert [log.offline for log in logs] == [None, None]
    assert [log.recovery_point for log in logs] == [5, 5]
    append(logs[0], b"goes on")
    real.restart()
    assert [value for _, value in values(real.log("tide", 0))][-1] == b"goes on"


def test_a_flush_that_finds_no_room_is_tried_again(sim: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(sim.disk, SimDisk)
    log, _ = listened(sim)
    append(log, b"a")
    sim.commit(log)
    sim.disk.capacity = sim.disk.used_bytes()
    sim.store.flush_soon(log)
    sim.settle(1)
    assert (log.offline, log.recovery_point) == (None, 0)
    assert "tide-0: its recovery point stays at 0: " in caplog.text
    sim.disk.capacity = None
    sim.flush(log)
    assert log.recovery_point == 1
    sim.kill()
    assert values(sim.log()) == [(0, b"a")]


def test_a_segment_that_someone_removed_takes_its_log_offline(real: LogHarness) -> None:
    log, other = real.log("tide", 0), real.log("tide", 1)
    for written in (log, other):
        append(written, b"a")
        real.commit(written)
    os.remove(f"{log.folder}/{0:020d}.log")
    real.store.flush_soon(log)
    real.store.flush_soon(other)
    real.settle()
    assert log.offline is not None
    assert "someone removed it" in log.offline
    assert (other.offline, other.recovery_point) == (None, 1)


@pytest.mark.parametrize("events", range(6))
def test_a_sync_that_ends_after_a_roll_says_nothing_of_the_new_segment(sim: LogHarness, events: int) -> None:
    log = sim.log()
    for _ in range(3):
        append(log, b"old")
    sim.store.commit.request(log)
    before = sim.timeline.events
    sim.timeline.run_until(lambda: sim.timeline.events >= before + events, sim.timeline.now + 1)
    log.roll(sim.now_ms())
    for number in range(9):
        append(log, b"new %d" % number)
    sim.run(lambda: log.durable_end >= 3)
    sim.run(lambda: sim.store.commit.idle and sim.store.upkeep.idle)  # the roll's flush holds back what a sync did
    for offset in range(3, 12):
        piece = log.read(offset, 1 << 20, log.log_end)
        assert piece is not None
        assert b"new %d" % (offset - 3) in bytes(piece.view()), offset


def test_a_consumer_that_goes_on_where_a_sync_ended_needs_no_look_at_the_file(
    sim: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = sim.log()
    for number in range(5):
        append(log, b"%d" % number)
    sim.commit(log)
    append(log, b"next")
    looks: list[int] = []
    file = sim.store.files.open(log.segments[0])
    monkeypatch.setattr(type(file), "read", lambda _, pos, count: looks.append(pos))
    assert log.read(5, 1 << 20, log.log_end) is not None
    assert looks == []


def test_what_was_synced_once_is_not_synced_again(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log()
    sim.store.upkeep.stop()  # no flush comes
    for _ in range(3):
        append(log, b"sealed")
        log.roll(sim.now_ms())
    append(log, b"a")
    sim.commit(log)
    append(log, b"b")
    before = sim.disk.syncs
    sim.commit(log)
    assert sim.disk.syncs == before + 1, "of the segment that is written"


def test_a_full_disk_is_told_of_once_although_flushes_find_no_room_either(
    sim: LogHarness, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(sim.disk, SimDisk)
    log = sim.log()
    append(log, b"a")
    sim.disk.capacity = sim.disk.used_bytes()
    with pytest.raises(KafkaError):
        append(log, b"b")
    sim.store.flush_soon(log)
    sim.settle(1)
    assert log.recovery_point == 0
    assert [record.getMessage() for record in caplog.records if "free some space" in record.getMessage()]
    assert "its recovery point stays" not in caplog.text


# -- the metadata log's own lane


def metadata_log(harness: LogHarness) -> Log:
    log = harness.log(METADATA_TOPIC)
    append(log, b"a")
    harness.commit(log)
    return log


def test_the_metadata_log_is_synced_however_many_syncs_are_under_way(sim: LogHarness) -> None:
    commit = sim.store.commit
    metadata = metadata_log(sim)
    logs = [listened(sim, n)[0] for n in range(SYNCS_TOGETHER_MAX)]
    for log in logs:
        append(log, b"a")
        sim.commit(log)
    for log in logs:
        append(log, b"b")
        commit.request(log)
        sim.settle(0)
    assert sim.loop.blocking == SYNCS_TOGETHER_MAX
    append(metadata, b"b")
    commit.request(metadata)
    sim.settle(0)
    assert commit.syncs(metadata)
    assert sim.loop.blocking == SYNCS_TOGETHER_MAX + 1


def test_the_metadata_log_passes_a_sync_of_everything_that_waits_and_only_once(sim: LogHarness) -> None:
    commit = sim.store.commit
    metadata = metadata_log(sim)
    logs = [listened(sim, n)[0] for n in range(SYNC_EACH_MAX + 2)]
    for log in logs:
        append(log, b"a")
        sim.commit(log)
    append(logs[0], b"b")
    commit.request(logs[0])
    sim.run(lambda: commit.syncs(logs[0]))
    for log in logs[1:]:
        append(log, b"b")
        commit.request(log)
    turns: list[str] = []

    def write_on() -> bool:
        """The metadata is written without a pause."""
        if commit.syncs(logs[1]):
            turns.append("everything")  # the metadata too, where it waits
        elif commit.syncs(metadata):
            turns.append("metadata")
        if metadata.durable_end == metadata.log_end:
            append(metadata, b"x")
            commit.request(metadata)
        return all(log.durable_end == log.log_end for log in logs)

    sim.run(write_on)
    assert list(dict.fromkeys(turns)) == ["metadata", "everything"]
    assert turns == sorted(turns, reverse=True), "once each"
