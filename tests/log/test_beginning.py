"""The first write to a log: a few make their files themselves, many have them made off the loop."""

import errno

import pytest
from tests.log.harness import EPOCH, NOW_MS, TOPIC_ID, CountingDisk, LogHarness, append, values

from tidelog.env.promise import Promise
from tidelog.log.bounds import BEGUN_AT_ONCE_MAX, BEGUN_AT_ONCE_PER_S, SYNCED_LOGS_MAX
from tidelog.log.folder import PartitionFolder
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk, SimFile
from tidelog.wire.errors import ErrorCode, KafkaError

NEXT_ID = bytes(15) + b"\x02"


def begin(log: Log) -> Promise[None]:
    """Off the loop."""
    begun = log.begin()
    assert begun is not None
    return begun


def keep_busy(harness: LogHarness) -> LogHarness:
    """So many logs were begun that the next ones aren't on the loop."""
    for partition in range(BEGUN_AT_ONCE_MAX):
        assert harness.log("others", partition).begin() is None
    return harness


@pytest.fixture
def busy(harness: LogHarness) -> LogHarness:
    return keep_busy(harness)


def test_a_few_are_begun_by_the_write_itself_and_many_off_the_loop(busy: LogHarness) -> None:
    log = busy.log()
    begun = begin(log)
    assert not busy.disk.exists(log.folder)
    busy.run(lambda: begun.done)
    assert busy.disk.exists(f"{log.folder}/partition.metadata")
    assert log.begin() is None
    assert append(log, b"a") == 0
    busy.restart()
    assert values(busy.log()) == [(0, b"a")]


def test_after_a_while_some_more_are_begun_on_the_loop(busy: LogHarness) -> None:
    busy.settle(2 / BEGUN_AT_ONCE_PER_S)
    assert [busy.log("tide", partition).begin() is None for partition in range(3)] == [True, True, False]


def test_what_is_written_to_one_that_was_begun_off_the_loop_is_durable(sim: LogHarness) -> None:
    log = keep_busy(sim).log()
    begun = begin(log)
    sim.run(lambda: begun.done)
    append(log, b"a")
    sim.commit(log)
    sim.power_loss()
    assert values(sim.log()) == [(0, b"a")]


def test_whoever_writes_meanwhile_on_the_loop_is_told_to_come_again(busy: LogHarness) -> None:
    log = busy.log()
    begun = begin(log)
    with pytest.raises(KafkaError) as refused:
        append(log, b"a")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is None
    busy.run(lambda: begun.done)
    assert append(log, b"a") == 0


def test_what_fails_is_told_by_the_write_and_tried_again(busy: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    log = busy.log()

    def refuse(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    with monkeypatch.context() as patch:
        patch.setattr(busy.disk, "make_folders", refuse)
        begun = begin(log)
        busy.run(lambda: begun.done)
        with pytest.raises(KafkaError) as refused:
            append(log, b"a")
        assert "No space left" in (refused.value.message or "")
    assert append(log, b"a") == 0


def test_one_that_fails_half_way_is_begun_again(sim: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    log, real_open = keep_busy(sim).log(), sim.disk.open

    def refuse(path: str, *, create: bool = False) -> SimFile:
        if path.endswith(".log"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        opened = real_open(path, create=create)
        assert isinstance(opened, SimFile)
        return opened

    with monkeypatch.context() as patch:
        patch.setattr(sim.disk, "open", refuse)
        begun = begin(log)
        sim.run(lambda: begun.done)
    begun = begin(log)
    sim.run(lambda: begun.done)
    assert append(log, b"a") == 0
    sim.restart()
    assert values(sim.log()) == [(0, b"a")]


def test_one_that_is_deleted_meanwhile_leaves_nothing_under_its_name(busy: LogHarness) -> None:
    log = busy.log()
    begun = begin(log)
    busy.store.delete("tide", 0, TOPIC_ID)
    assert busy.store.waits("tide", 0, busy.topic({})), "a new one of its name waits"
    waited = busy.store.open("tide", 0, NEXT_ID, busy.topic({}))
    busy.run(lambda: begun.done and waited.done)
    assert not busy.store.waits("tide", 0, busy.topic({}))
    assert "tide-0" not in busy.disk.list_folder(busy.root)
    assert append(busy.log(topic_id=NEXT_ID), b"new") == 0
    busy.restart()
    assert values(busy.log(topic_id=NEXT_ID)) == [(0, b"new")]


def test_a_stop_waits_for_what_is_begun(busy: LogHarness) -> None:
    begin(busy.log())
    busy.restart()
    assert busy.store.broker_epoch == 5
    assert busy.log().log_end == 0


# -- names of deleted logs


def test_a_name_that_a_flush_still_uses_is_waited_for(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"old")
    sim.commit(log)
    sim.store.flush_soon(log)
    sim.run(lambda: sim.store.upkeep.saving(log.folder))
    sim.store.delete("tide", 0, TOPIC_ID)
    log = sim.log(topic_id=NEXT_ID)
    begun = begin(log)
    sim.run(lambda: begun.done)
    assert append(log, b"new") == 0
    sim.commit(log)
    sim.power_loss()
    assert values(sim.log(topic_id=NEXT_ID)) == [(0, b"new")]


def test_a_name_that_a_sync_still_uses_is_waited_for(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"old")
    sim.store.commit.request(log)
    sim.run(lambda: sim.store.commit.syncs(log))
    sim.store.delete("tide", 0, TOPIC_ID)
    log = sim.log(topic_id=NEXT_ID)
    begun = begin(log)
    sim.run(lambda: begun.done)
    assert append(log, b"new") == 0


def test_what_stands_in_a_checkpoint_for_a_deleted_log_is_gone_before_its_name_is_taken(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log()
    for _ in range(10):
        append(log, b"old")
    sim.flush(log)
    log.delete_before(10)
    sim.settle()
    sim.store.delete("tide", 0, TOPIC_ID)
    log, syncs = sim.log(topic_id=NEXT_ID), sim.disk.syncs
    begun = begin(log)
    assert sim.disk.syncs == syncs, "nothing is synced on the loop"
    sim.run(lambda: begun.done)
    assert append(log, b"new") == 0
    assert append(log, b"newer") == 1
    sim.commit(log)
    sim.power_loss()
    log = sim.log(topic_id=NEXT_ID)
    assert (log.offline, values(log)) == (None, [(0, b"new"), (1, b"newer")])


def test_where_the_checkpoints_cannot_be_written_the_name_stays_taken(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log = sim.log()
    append(log, b"old")
    sim.flush(log)
    sim.store.delete("tide", 0, TOPIC_ID)
    sim.disk.capacity = 0
    log = sim.log(topic_id=NEXT_ID)
    begun = begin(log)
    sim.run(lambda: begun.done)
    assert "tide-0" not in sim.disk.list_folder(sim.root)
    with pytest.raises(KafkaError):
        append(log, b"new")
    sim.disk.capacity = None
    begun = begin(log)
    sim.run(lambda: begun.done)
    assert append(log, b"new") == 0


def test_a_first_write_looks_at_no_other_log(sim: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are synced at that moment."""
    syncing = [sim.log("others", partition) for partition in range(300)]
    for log in syncing:
        append(log, b"a")
        sim.store.commit.request(log)
    sim.run(lambda: sim.store.commit.syncs(syncing[-1]))
    asked = 0
    folder = PartitionFolder.folder

    def counted(log: PartitionFolder) -> str:
        nonlocal asked
        asked += 1
        return folder.__get__(log)

    monkeypatch.setattr(PartitionFolder, "folder", property(counted))
    for partition in range(100):
        append(sim.log("tide", partition), b"a")
    assert asked <= 100 * 12


def test_a_sync_has_to_do_with_a_bounded_number_of_logs(sim: LogHarness) -> None:
    logs = [sim.log("tide", partition) for partition in range(2 * SYNCED_LOGS_MAX + 10)]
    for log in logs:
        append(log, b"a")
        sim.store.commit.request(log)
    most = 0
    while not sim.store.commit.idle:
        sim.settle(0.001)
        most = max(most, sum(map(sim.store.commit.syncs, logs)))
    assert most == SYNCED_LOGS_MAX
    assert {log.durable_end for log in logs} == {1}


def test_the_files_of_logs_that_were_begun_off_the_loop_count_among_the_open_ones(sim: LogHarness) -> None:
    keep_busy(sim).store.files.limit = 16
    logs = [sim.log("tide", partition) for partition in range(40)]
    begun = [begin(log) for log in logs]
    sim.run(lambda: all(each.done for each in begun))
    assert sum(1 for log in logs if log.segments[0].file is not None) == len(sim.store.files) == 16


def test_logs_that_were_begun_off_the_loop_do_not_roll_all_at_once(sim: LogHarness) -> None:
    topic = {"segment_ms": "10000", "segment_jitter_ms": "9000"}
    keep_busy(sim)
    logs = [sim.log("tide", partition, **topic) for partition in range(20)]
    begun = [begin(log) for log in logs]
    sim.run(lambda: all(each.done for each in begun))
    for log in logs:
        append(log, b"x", now_ms=NOW_MS)
        append(log, b"x", now_ms=NOW_MS + 5000)
    assert {len(log.segments) for log in logs} == {1, 2}


def test_who_wrote_to_a_log_that_was_begun_off_the_loop_is_known_without_a_look_at_it(
    sim: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = keep_busy(sim).log()
    begun = begin(log)
    sim.run(lambda: begun.done)
    for _ in range(50):
        append(log, b"x")
    looks: list[int] = []
    monkeypatch.setattr(SimFile, "read", lambda _, pos, count: looks.append(pos))
    assert (dict(log.producers.items()), log.epochs.latest) == ({}, EPOCH)
    assert looks == []
