"""Checkpoint files that are lost or damaged: the records stay, and what can't be served says why."""

import pytest
from tests.log.harness import NOW_MS, ROOT, LogHarness, append, values
from tests.log.keyed import COMPACT, clean, pairs, put, roll

from tidelog.log import checkpoints, recovery
from tidelog.log.checkpoints import CLEANER, LOG_START, PARTITION_METADATA, RECOVERY_POINT, REPLICATION
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "200"}
FILE = f"{ROOT}/{RECOVERY_POINT}"
LOSSES = ("missing", "empty", "version only", "torn", "zeros", "garbage")


def fill(log: Log, count: int, start: int = 0) -> None:
    for n in range(start, start + count):
        append(log, b"%d" % n, now_ms=NOW_MS + n)


def lose(sim: LogHarness, path: str, how: str) -> None:
    """What a damaged file system, or a hand, leaves of a checkpoint."""
    if how == "missing":
        sim.disk.remove(path)
        sim.disk.sync_folder(ROOT)
        return
    whole = sim.disk.read_whole(path)
    left = {
        "empty": b"",
        "version only": b"0\n",
        "torn": whole[:-2],
        "zeros": bytes(len(whole)),
        "garbage": b"\x8e\xff\x01" * 9,
    }
    sim.disk.write_whole(path, left[how])


@pytest.mark.parametrize("how", LOSSES)
def test_a_segment_that_is_missing_takes_no_other_with_it(sim: LogHarness, how: str) -> None:
    log = sim.log(**SMALL)
    fill(log, 140)
    sim.flush(log)
    paths = [segment.stem + ".log" for segment in log.segments]
    assert len(paths) == 10
    sim.loop.kill()
    sim.disk.remove(paths[2])
    lose(sim, FILE, how)
    sim.start()
    log = sim.log(**SMALL)
    assert log.offline is not None
    assert "the recovery point is not known" in log.offline
    assert [path for path in paths if sim.disk.exists(path)] == [*paths[:2], *paths[3:]]


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("how", LOSSES)
def test_a_log_is_whole_without_its_recovery_point(sim: LogHarness, how: str, end: str) -> None:
    log = sim.log(**SMALL)
    fill(log, 60)
    sim.flush(log)
    fill(log, 5, 60)
    expected = values(log)
    if end == "stop":
        sim.stop()
    else:
        sim.loop.kill()
    lose(sim, FILE, how)
    sim.start()
    log = sim.log(**SMALL)
    assert (log.offline, values(log)) == (None, expected)


def test_a_recovery_point_stays_lost_until_its_log_was_flushed(sim: LogHarness) -> None:
    """Another log's is saved meanwhile, in the same file."""
    log, other = sim.log(**SMALL), sim.log("other")
    fill(log, 140)
    fill(other, 3)
    sim.flush(log)
    sim.flush(other)
    damaged = log.segments[2].stem + ".log"
    sim.loop.kill()
    sim.disk.remove(FILE)
    sim.start()
    other = sim.log("other")
    fill(other, 3, 3)
    sim.flush(other)
    assert sim.disk.exists(FILE)
    sim.loop.kill()
    sim.disk.remove(damaged)
    sim.start()
    assert "the recovery point is not known" in (sim.log(**SMALL).offline or "")
    assert sim.log("other").log_end == 6


def test_a_broker_that_was_killed_before_its_first_checkpoint_lost_none(sim: LogHarness) -> None:
    """The tail of a segment that isn't the last was never made durable: an ordinary power loss."""
    log = sim.log(**SMALL)
    sim.store.upkeep.stop()  # no flush comes
    while len(log.segments) < 3:
        append(log, b"x" * 100)
    assert isinstance(sim.disk, SimDisk)
    torn, base = log.segments[1].stem + ".log", log.segments[1].base
    sim.disk.flip_bit(torn, 70, 71)
    sim.kill()
    log = sim.log(**SMALL)
    assert (log.offline, log.log_end) == (None, base)


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("kept", ["cleaner checkpoint kept", "cleaner checkpoint lost"])
def test_a_compacted_log_keeps_its_records_without_its_recovery_point(sim: LogHarness, how: str, kept: str) -> None:
    log = sim.log(**COMPACT, **SMALL)
    for n in range(45):
        put(log, (b"%d" % (n % 20), b"v%d" % n))
        if n in (14, 29):  # segments that end in records which compaction removes
            roll(sim, log)
    roll(sim, log)
    clean(sim, log)
    put(log, (b"last", b"one"))
    sim.commit(log)
    expected = pairs(log)
    sim.loop.kill()
    lose(sim, FILE, how)
    if kept == "cleaner checkpoint lost":
        sim.disk.remove(f"{ROOT}/{CLEANER}")
    sim.start()
    log = sim.log(**COMPACT, **SMALL)
    assert (log.offline, pairs(log)) == (None, expected)
    sim.kill()
    log = sim.log(**COMPACT, **SMALL)
    assert (log.offline, pairs(log)) == (None, expected), "after a second crash too"


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_start_above_the_end_wipes_nothing(sim: LogHarness, end: str, durability: str) -> None:
    if (end, durability) == ("kill", "os"):
        pytest.skip("the page cache may have lost what was deleted: test_second_look.py")
    log = sim.log(tidelog_durability=durability)
    fill(log, 30)
    sim.flush(log)
    folder = log.folder
    if end == "stop":
        sim.stop()
    else:
        sim.loop.kill()
    sim.disk.write_whole(f"{ROOT}/{LOG_START}", b"0\n1\ntide 0 5000\n")
    sim.start()
    log = sim.log(tidelog_durability=durability)
    assert log.offline is not None
    assert "ends at offset 30, but log-start-offset-checkpoint says that it begins at 5000" in log.offline
    assert [name for name in sim.disk.list_folder(folder) if name.endswith(".log")] == [f"{0:020d}.log"]
    sim.loop.kill()
    sim.disk.write_whole(f"{ROOT}/{LOG_START}", b"0\n1\ntide 0 10\n")
    sim.start()
    assert len(values(sim.log(tidelog_durability=durability))) == 20


CHECKPOINTS = (RECOVERY_POINT, CLEANER, LOG_START, REPLICATION)


def come_from_elsewhere(sim: LogHarness, *names: str) -> None:
    """The checkpoints are another data folder's, which knows nothing of the log."""
    for name in names:
        checkpoints.write_offsets(sim.disk, f"{ROOT}/{name}", {("other", 0): 5})


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_log_that_was_moved_between_data_folders_is_not_cut_for_damage_in_old_segments(
    sim: LogHarness, end: str
) -> None:
    log = sim.log(**SMALL)
    fill(log, 140)
    sim.flush(log)
    damaged = log.segments[1].stem + ".log"
    if end == "stop":
        sim.stop()
    else:
        sim.loop.kill()
    come_from_elsewhere(sim, *CHECKPOINTS)
    sim.start()
    assert len(values(sim.log(**SMALL))) == 140
    sim.loop.kill()  # before it is flushed
    flipped = bytearray(sim.disk.read_whole(damaged))
    flipped[300] ^= 1
    sim.disk.write_whole(damaged, bytes(flipped))
    sim.start()
    log = sim.log(**SMALL)
    assert "the recovery point is not known" in (log.offline or "")


def test_a_log_that_was_moved_between_data_folders_has_a_recovery_point_when_it_was_flushed(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    fill(log, 140)
    sim.flush(log)
    sim.stop()
    come_from_elsewhere(sim, *CHECKPOINTS)
    sim.start()
    sim.log(**SMALL)
    sim.settle()
    assert checkpoints.read_offsets(sim.disk, FILE)["tide", 0] == 140


def test_a_compacted_log_that_was_moved_between_data_folders_keeps_its_records(sim: LogHarness) -> None:
    topic = {**COMPACT, "internal_segment_bytes": "1500"}
    log = sim.log(**topic)
    for segment in range(3):
        for n in range(5):
            put(log, (b"%d-%d" % (segment, n), b"x" * 100), now_ms=sim.now_ms())
        for _ in range(5):  # what a segment ends in goes, but for the last
            put(log, (b"again", b"x" * 100), now_ms=sim.now_ms())
        roll(sim, log)
    clean(sim, log)
    sim.settle()
    before = pairs(log)
    assert len(before) == 16
    sim.stop()
    come_from_elsewhere(sim, *CHECKPOINTS)
    sim.start()
    assert pairs(sim.log(**topic)) == before
    sim.settle()
    sim.kill()
    log = sim.log(**topic)
    assert (log.offline, pairs(log)) == (None, before)


def test_a_new_log_is_cut_and_not_offline_whichever_segment_a_power_loss_tears(sim: LogHarness) -> None:
    """Another log's recovery point is saved meanwhile; its own never was."""
    other = sim.log("other")
    append(other, b"x")
    sim.flush(other)
    log = sim.log(**SMALL)
    sim.store.upkeep.stop()  # no flush comes
    while len(log.segments) < 3:
        append(log, b"x" * 100)
    torn, base = log.segments[1].stem + ".log", log.segments[1].base
    assert isinstance(sim.disk, SimDisk)
    sim.disk.flip_bit(torn, 70, 71)
    for _ in range(2):
        sim.kill()
    log = sim.log(**SMALL)
    assert (log.offline, log.log_end) == (None, base)


@pytest.mark.parametrize("how", LOSSES)
def test_flushed_records_stay_where_both_recovery_point_and_topic_id_are_lost(sim: LogHarness, how: str) -> None:
    log = sim.log()
    fill(log, 5)
    sim.commit(log)
    sim.flush(log)
    sim.loop.kill()
    lose(sim, FILE, how)
    sim.disk.write_whole(f"{log.folder}/{PARTITION_METADATA}", b"")
    sim.start()
    log = sim.log()
    assert (log.offline, len(values(log)), sim.folders()) == (None, 5, ["tide-0"])


def test_a_log_that_is_cut_below_what_was_whole_when_it_rolled_is_not_taken_for_damaged(sim: LogHarness) -> None:
    """It was killed before its recovery point was ever saved: what was synced when it rolled stands in its place."""
    log = sim.log(**SMALL)
    fill(log, 5)
    sim.commit(log)
    sim.kill()
    log = sim.log(**SMALL)
    sim.store.upkeep.stop()  # no flush comes
    log.roll(NOW_MS)
    append(log, b"in a further segment")
    log.truncate_to(2)
    sim.loop.kill()
    sim.start()
    log = sim.log(**SMALL)
    assert (log.offline, log.log_end) == (None, 2)


@pytest.mark.parametrize("bound", ["all", "the last two segments", "one byte less"])
def test_without_a_recovery_point_as_much_is_written_again_as_may_not_have_been_flushed(
    sim: LogHarness, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is further back was made durable long ago: a sync is enough for it."""
    assert isinstance(sim.disk, SimDisk)
    log = sim.log(**SMALL)
    fill(log, 60)
    sim.flush(log)
    paths = [segment.path for segment in log.segments]
    last_two = sum(segment.size for segment in log.segments[-2:])
    sim.loop.kill()
    lose(sim, FILE, "missing")
    if bound != "all":
        monkeypatch.setattr(recovery, "LOST_BYTES", last_two - (bound == "one byte less"))
    sim.start()
    again, synced = list[str](), list[str]()
    sim.disk.renamed = again.append
    sim.disk.touched = lambda what, path: synced.append(path) if what == "sync" else None
    assert sim.log(**SMALL).log_end == 60
    sim.disk.renamed = sim.disk.touched = None
    expected = {"all": paths, "the last two segments": paths[-3:], "one byte less": paths[-2:]}[bound]
    assert [path for path in again if path in paths] == expected
    assert sorted({path for path in synced if path in paths}) == [path for path in paths if path not in expected]
