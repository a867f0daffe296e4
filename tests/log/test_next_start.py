"""The start after the next: what a start found, made or began anew is there, and no more than that."""

import pytest
from tests.batches import Producer
from tests.log.harness import EPOCH, NOW_MS, CountingDisk, LogHarness, append, values
from tests.log.keyed import end as end_transaction
from tests.log.keyed import put

from tidelog.log import recovery
from tidelog.log.checkpoints import LOG_START, PARTITION_METADATA, RECOVERY_POINT, write_offsets
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import HEADER_BYTES, LOG_OVERHEAD

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "200"}
OS = {**SMALL, "tidelog_durability": "os"}
FIRST = "00000000000000000000.log"


def fill(log: Log, count: int, start: int = 0) -> None:
    for n in range(start, start + count):
        append(log, b"%d" % n, now_ms=NOW_MS + n)


@pytest.mark.parametrize("rolled", [False, True], ids=["written", "empty"])
def test_a_last_segment_that_is_not_as_the_stop_left_it_is_reported(harness: LogHarness, rolled: bool) -> None:
    log = harness.log()
    fill(log, 3)
    if rolled:
        log.roll(NOW_MS)
    harness.restart()
    fill(harness.log(), 2, 3)
    harness.stop()
    write_offsets(harness.disk, f"{harness.root}/{RECOVERY_POINT}", {("tide", 0): 3})
    harness.start()
    offline = harness.log().offline
    assert offline is not None
    assert "the segment ends at offset 5, but after the last stop it was 3" in offline


def test_after_a_stop_a_recovery_point_in_an_older_segment_is_no_end(harness: LogHarness) -> None:
    """So it stands where a flush of the last segments never came to its end, or an older Kafka wrote it."""
    log = harness.log(**SMALL)
    fill(log, 60)
    last = log.segments[-1].base
    harness.stop()
    write_offsets(harness.disk, f"{harness.root}/{RECOVERY_POINT}", {("tide", 0): last - 1})
    harness.start()
    log = harness.log(**SMALL)
    assert (log.offline, log.log_end, len(values(log))) == (None, 60, 60)


def test_where_the_page_cache_counts_what_was_committed_before_a_kill_is_stable_after_it(
    sim: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "UNNOTICED_BYTES", 0)
    log, producer = sim.log(tidelog_durability="os"), Producer(9, 0, 0)
    put(log, (b"k", b"committed"), producer=producer, transactional=True)
    end_transaction(log, producer, commit=True)
    sim.kill()
    assert sim.log(tidelog_durability="os").producers.first_unstable == -1


def lose_what_was_deleted(sim: LogHarness, *, all_unflushed: bool = False) -> list[str]:
    """That records below 29 are deleted is durable, of the records themselves some are lost; the paths that were."""
    log = sim.log(**OS)
    fill(log, 5)
    sim.flush(log)
    flushed = log.size_bytes()
    sim.store.upkeep.stop()  # no flush comes
    fill(log, 25, 5)
    log.high_watermark = 30
    log.delete_before(29)
    sim.settle(1)
    paths = [segment.path for segment in log.segments]
    sim.disk.sync_folder(log.folder)
    sim.loop.kill()
    left = paths[:1] if all_unflushed else paths[:-1]
    for path in paths[len(left) :]:
        sim.disk.remove(path)
    sim.disk.open(left[-1]).truncate(flushed)
    sim.start()
    assert (sim.log(**OS).log_start, sim.log(**OS).log_end) == (29, 29)
    return paths


@pytest.mark.parametrize("all_unflushed", [False, True])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_log_that_begins_anew_behind_what_was_lost_goes_on_there_after_the_next_start(
    sim: LogHarness, end: str, all_unflushed: bool
) -> None:
    lose_what_was_deleted(sim, all_unflushed=all_unflushed)
    for _ in range(2):
        assert sim.log(**OS).epochs.entries() == [] or end == "kill", "nothing of the old leaders is left, or saved"
        if end == "stop":
            sim.stop()
            indexes = [name for name in sim.disk.list_folder(f"{sim.root}/tide-0") if name.endswith("index")]
            assert [name for name in indexes if not name.startswith(f"{29:020d}")] == []
            sim.start()
        else:
            sim.kill()
        log = sim.log(**OS)
        assert (log.offline, log.log_start, log.log_end) == (None, 29, 29)
    assert append(log, b"new", epoch=EPOCH + 2) == 29
    sim.kill()
    log = sim.log(**OS)
    assert (values(log), log.epochs.entries()) == ([(29, b"new")], [(EPOCH + 2, 29)])


def test_a_log_that_begins_anew_has_a_segment_that_keeps_its_place(
    sim: LogHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the file with the starts of logs is lost later."""
    lose_what_was_deleted(sim)
    assert "what was deleted and is still there goes, the log is empty" in caplog.text
    sim.stop()
    sim.disk.remove(f"{sim.root}/{LOG_START}")
    sim.start()
    log = sim.log(**OS)
    assert (log.offline, log.log_start, append(log, b"new")) == (None, 29, 29)


@pytest.mark.parametrize("seed", range(12))
def test_what_was_deleted_and_left_behind_stays_gone_when_the_power_goes(seed: int) -> None:
    disk = SimDisk(SimRandom(seed))
    sim = LogHarness(disk)
    paths = lose_what_was_deleted(sim)
    sim.loop.kill()
    disk.crash()
    assert [path for path in paths if disk.exists(path)] == []


@pytest.mark.parametrize("begun", [False, True], ids=["folder", "segment"])
def test_a_log_that_was_killed_before_its_first_record_is_empty_and_goes_on(harness: LogHarness, begun: bool) -> None:
    log = harness.log()
    append(log, b"taken back")
    harness.loop.kill()
    path = f"{log.folder}/{FIRST}"
    if begun:
        harness.disk.open(path).truncate(0)
    else:
        harness.disk.remove(path)
    harness.start()
    log = harness.log()
    assert (log.offline, log.log_start, log.log_end) == (None, 0, 0)
    assert append(log, b"first") == 0
    harness.kill()
    assert values(harness.log()) == [(0, b"first")]


@pytest.mark.parametrize("seed", range(12))
def test_whose_folder_it_is_stays_known_where_the_first_sync_failed_and_left_it_in_the_cache(seed: int) -> None:
    disk = SimDisk(SimRandom(seed))
    disk.failed_sync_keeps_cache = True
    sim = LogHarness(disk)
    log = sim.log()
    append(log, b"x")
    disk.failing_syncs = 2  # of the segment, and of the file that names the topic
    sim.commit(log)
    assert (log.offline is None, disk.failing_syncs) == (False, 0)
    path = f"{log.folder}/{PARTITION_METADATA}"
    written = disk.read_whole(path)
    sim.kill()
    assert sim.log().durable_end == 1
    sim.loop.kill()
    disk.crash()
    assert disk.read_whole(path) == written


def test_what_a_start_had_to_read_is_flushed_after_a_while(sim: LogHarness) -> None:
    log, flushed = sim.log("tide"), sim.log("flushed")
    fill(log, 5)
    fill(flushed, 5)
    sim.flush(flushed)
    sim.kill()
    log, flushed = sim.log("tide"), sim.log("flushed")
    assert (log.recovery_point, sim.store.upkeep.dirty) == (0, [log])
    sim.settle(70)
    assert log.recovery_point == 5


def test_a_log_that_lost_what_was_behind_a_hole_is_flushed_as_any_other(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    sim.store.upkeep.stop()  # no flush comes
    fill(log, 40)
    middle = log.segments[1]
    sim.loop.kill()
    count = log.segments[2].base - middle.base
    sim.disk.open(middle.path).truncate(middle.size // count * 6)  # its batches are of one size
    sim.start()
    log = sim.log(**SMALL)
    end = log.log_end
    assert end == middle.base + 6
    append(log, b"new")
    sim.flush(log)
    append(log, b"newer")
    sim.commit(log)
    sim.kill()
    log = sim.log(**SMALL)
    assert (log.offline, log.recovery_point) == (None, end + 1)
    assert values(log)[-2:] == [(end, b"new"), (end + 1, b"newer")]


@pytest.mark.parametrize("seed", range(12))
def test_segments_behind_a_torn_one_stay_gone_when_the_power_goes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "UNNOTICED_BYTES", 0)
    disk = SimDisk(SimRandom(seed))
    sim = LogHarness(disk)
    log = sim.log(**OS)
    sim.store.upkeep.stop()  # no flush comes
    fill(log, 40)
    disk.sync_all(sim.root)
    _, middle, *_ = paths = [segment.path for segment in log.segments]
    disk.flip_bit(middle, 30, 31)
    sim.kill()
    assert sim.log(**OS).log_end == 14
    sim.loop.kill()
    disk.crash()
    assert [path for path in paths if disk.exists(path)] == paths[:2]


@pytest.mark.parametrize("room", [True, False])
def test_a_tail_as_large_as_goes_unnoticed_is_written_again_and_one_byte_more_is_not(
    sim: LogHarness, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(sim.disk, CountingDisk)
    log = sim.log(**OS)
    fill(log, 20)
    sim.flush(log)
    before = log.size_bytes()
    sim.store.upkeep.stop()  # no flush comes
    fill(log, 20, 20)
    log.roll(NOW_MS)
    monkeypatch.setattr(recovery, "UNNOTICED_BYTES", log.size_bytes() - before - (not room))
    sim.kill()
    syncs = sim.disk.syncs
    assert sim.log(**OS).log_end == 40
    assert (sim.disk.syncs > syncs) is room


def test_on_a_full_disk_what_a_kill_left_in_the_cache_is_made_durable_as_it_is_and_that_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for seed in range(8):
        disk = SimDisk(SimRandom(seed))
        sim = LogHarness(disk)
        log = sim.log()
        append(log, b"a" * 1000)
        disk.capacity = disk.used_bytes() + 10
        sim.kill()
        size = log.size_bytes()
        assert sim.log().durable_end == 1
        assert f"no room to write {size} bytes of {log.segments[0].path} again" in caplog.text
        sim.loop.kill()
        disk.crash()
        disk.capacity = None
        sim.start()
        assert values(sim.log()) == [(0, b"a" * 1000)]
        sim.loop.kill()


@pytest.mark.parametrize("seed", range(12))
def test_records_in_a_segment_that_was_begun_right_before_a_kill_are_durable_with_their_sync(seed: int) -> None:
    """Whether its name is durable nobody knows any more: the next sync is of the folder, too."""
    disk = SimDisk(SimRandom(seed))
    sim = LogHarness(disk)
    log = sim.log()
    fill(log, 3)
    sim.flush(log)
    sim.store.upkeep.stop()  # no flush comes
    log.roll(NOW_MS)
    sim.kill()
    log = sim.log()
    fill(log, 1, 3)
    sim.commit(log)
    assert (log.durable_end, len(log.segments)) == (4, 2)
    sim.power_loss()
    assert [offset for offset, _ in values(sim.log())] == [0, 1, 2, 3]
    sim.loop.kill()


def test_a_producer_snapshot_from_beyond_the_end_is_not_the_log_s(sim: LogHarness) -> None:
    """Somebody put it there: of the producers that it names, this log has nothing."""
    log, other = sim.log(), sim.log("other")
    append(log, b"x", producer=Producer(8, 0, 0))
    append(other, b"x", producer=Producer(9, 0, 0))
    sim.stop()
    sim.disk.write_whole(log.snapshot_path(50), sim.disk.read_whole(other.snapshot_path(1)))
    sim.start()
    assert list(dict(sim.log().producers.items())) == [8]


def test_a_hole_below_the_recovery_point_is_reported_and_nothing_behind_it_goes(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    fill(log, 20)
    sim.flush(log)
    sim.store.upkeep.stop()  # no flush comes
    fill(log, 40, 20)
    _, holed, *behind = log.segments
    each = holed.size // (behind[0].base - holed.base)
    sim.loop.kill()
    sim.disk.open(holed.path).truncate(4 * each)
    sim.start()
    offline = sim.log(**SMALL).offline
    assert offline is not None
    assert f"{holed.path} byte {4 * each}: it ends at offset {holed.base + 4}, below the recovery point 20" in offline
    assert all(sim.disk.exists(segment.path) for segment in behind)


def test_what_a_start_took_off_a_log_is_summed_up(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log = sim.log(**SMALL)
    sim.store.upkeep.stop()  # no flush comes
    fill(log, 40)
    _, torn, *behind = log.segments
    size = torn.size + sum(segment.size for segment in behind)
    sim.disk.flip_bit(torn.path, 30, 31)
    sim.kill()
    assert sim.log(**SMALL).log_end == torn.base
    whole = behind[0].base - torn.base - 1  # of those behind the torn segment nobody has looked at any
    found = sim.store.recoveries.summary(0)
    assert f"tide-0, {size:,} bytes with {whole} whole records from offset {torn.base} on" in found


def test_producer_snapshots_below_the_recovery_point_outlive_a_kill(sim: LogHarness) -> None:
    """A truncation begins with them; without them all would have to be read for it."""
    log = sim.log(**SMALL)
    fill(log, 60)
    sim.flush(log)
    bases = [segment.base for segment in log.segments[1:]]
    fill(log, 2, 60)
    sim.kill()
    log = sim.log(**SMALL)
    assert list(log.snapshots) == [*bases, 60]
    assert all(sim.disk.exists(log.snapshot_path(base)) for base in bases)


def test_of_what_is_behind_a_bad_batch_only_sound_ones_are_counted(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log = sim.log()
    sim.store.upkeep.stop()  # no flush comes
    fill(log, 9)
    each = log.size_bytes() // 9
    for bad in (2, 6):
        sim.disk.flip_bit(f"{log.folder}/{FIRST}", bad * each + 30, bad * each + 31)
    sim.kill()
    assert sim.log().log_end == 2
    assert f"tide-0, {7 * each} bytes with 3 whole records from offset 2 on" in sim.store.recoveries.summary(0)


def test_what_is_behind_a_bad_batch_without_records_is_counted_too(sim: LogHarness) -> None:
    """Compaction leaves such batches."""
    assert isinstance(sim.disk, SimDisk)
    log = sim.log()
    sim.store.upkeep.stop()  # no flush comes
    fill(log, 3)
    path, each = f"{log.folder}/{FIRST}", log.size_bytes() // 3
    whole = sim.disk.read_whole(path)
    empty = bytearray(whole[each : each + HEADER_BYTES])
    empty[8:12] = (HEADER_BYTES - LOG_OVERHEAD).to_bytes(4)  # its checksum is that of another
    sim.loop.kill()
    sim.disk.put(path, whole[:each] + empty + whole[2 * each :])
    sim.start()
    assert sim.log().log_end == 1
    assert f"{each + HEADER_BYTES} bytes with 1 whole records from offset 1 on" in sim.store.recoveries.summary(0)
