"""After a stop, a kill, a power loss: what is there, what is cut, what is reported."""

import pytest
from tests.batches import Producer
from tests.log.harness import EPOCH, NOW_MS, LogHarness, append, batch, send, values
from tests.log.keyed import COMPACT, clean, pairs, put, roll

from tidelog.log import recovery, upkeep
from tidelog.log.checkpoints import CLEANER, RECOVERY_POINT, CheckpointError, write_offsets
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "200"}
FIRST = "00000000000000000000.log"


def fill(log: Log, count: int, start: int = 0) -> None:
    for n in range(start, start + count):
        append(log, b"%d" % n, now_ms=NOW_MS + n)


def test_everything_is_there_after_a_clean_stop(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    log.lead(EPOCH)
    fill(log, 50)
    expected = values(log)
    harness.restart()
    assert harness.store.broker_epoch == 5
    log = harness.log(**SMALL)
    assert (log.log_start, log.log_end, log.durable_end, log.recovery_point) == (0, 50, 50, 50)
    assert log.epochs.entries() == [(EPOCH, 0)]
    assert values(log) == expected
    fill(log, 30, 50)
    harness.restart()
    assert [value for _, value in values(harness.log(**SMALL))] == [b"%d" % n for n in range(80)]


def test_a_clean_log_is_not_opened_before_it_is_used(harness: LogHarness) -> None:
    fill(harness.log(), 5)
    harness.restart()
    log = harness.log()
    assert (log.log_end, len(harness.store.files)) == (5, 0)
    assert append(log, b"x") == 5


def test_a_stop_without_a_word_leaves_no_mark(harness: LogHarness) -> None:
    fill(harness.log(), 5)
    harness.restart()
    harness.kill()
    assert harness.store.broker_epoch is None


def test_the_topic_is_named_once_however_often_it_starts(harness: LogHarness) -> None:
    fill(harness.log(), 3)
    harness.kill()
    harness.log()
    harness.kill()
    written = harness.disk.read_whole(f"{harness.log().folder}/partition.metadata")
    assert written == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_a_killed_broker_finds_everything_in_the_page_cache(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    fill(log, 40)
    harness.flush(log)
    assert log.recovery_point == 40
    fill(log, 40, 40)
    harness.kill()
    log = harness.log(**SMALL)
    assert (log.log_end, log.durable_end, log.recovery_point) == (80, 80, 40)
    assert len(values(log)) == 80
    fill(log, 40, 80)
    harness.restart()
    assert [value for _, value in values(harness.log(**SMALL))] == [b"%d" % n for n in range(120)]


def test_indexes_are_the_same_whether_written_or_recovered(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    fill(log, 90)
    harness.flush(log)
    fill(log, 90, 90)
    folder = log.folder
    harness.kill()
    harness.log(**SMALL)
    harness.stop()
    recovered = {name: harness.disk.read_whole(f"{folder}/{name}") for name in harness.disk.list_folder(folder)}
    harness.start()
    other = harness.log("other", **SMALL)
    fill(other, 180)
    folder = other.folder
    harness.stop()
    written = {name: harness.disk.read_whole(f"{folder}/{name}") for name in harness.disk.list_folder(folder)}
    indexes = [name for name in written if name.endswith((".index", ".timeindex", ".log"))]
    assert {name: recovered[name] for name in indexes} == {name: written[name] for name in indexes}


@pytest.mark.parametrize("flushed", [False, True])
def test_a_tail_torn_at_any_byte_is_cut(sim: LogHarness, flushed: bool) -> None:
    log = sim.log()
    fill(log, 3)
    if flushed:
        sim.flush(log)
    size = log.size_bytes()
    append(log, b"the last one")
    whole = sim.disk.read_whole(f"{log.folder}/{FIRST}")
    sim.loop.kill()
    for cut in range(size, len(whole)):
        sim.disk.write_whole(f"{log.folder}/{FIRST}", whole[:cut])
        sim.start()
        log = sim.log()
        assert (log.offline, log.log_end, log.size_bytes()) == (None, 3, size)
        assert append(log, b"again") == 3
        assert values(log)[-1] == (3, b"again")
        sim.loop.kill()


@pytest.mark.parametrize("tail", [bytes(100), bytes(4096), b"\xff" * 70, b"\x00" * 61, b"garbage"])
def test_what_follows_the_last_batch_and_is_none_is_cut(sim: LogHarness, tail: bytes) -> None:
    log = sim.log()
    fill(log, 3)
    log.segments.file_of(log.segments[-1]).append(tail)
    sim.kill()
    assert (sim.log().log_end, sim.log().offline) == (3, None)


def test_a_flipped_bit_above_the_recovery_point_cuts(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log = sim.log(**SMALL)
    fill(log, 10)
    sim.flush(log)
    fill(log, 40, 10)
    at = log.segments[-2].base
    sim.disk.flip_bit(log.segments[-2].stem + ".log", 30, 31)
    later = log.segments[-1].stem + ".log"
    sim.kill()
    log = sim.log(**SMALL)
    assert (log.log_end, log.offline) == (at, None)
    assert not sim.disk.exists(later)
    append(log, b"new")
    assert values(log)[-1] == (at, b"new")


def test_a_flipped_bit_below_the_recovery_point_is_reported_and_not_cut(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log = sim.log()
    fill(log, 30)
    sim.flush(log)
    fill(log, 30, 30)
    size = log.size_bytes()
    path = f"{log.folder}/{FIRST}"
    sim.disk.flip_bit(path, size // 2 - 100, size // 2 - 90)
    sim.kill()
    log = sim.log()
    assert log.offline is not None
    assert path in log.offline
    assert "recovery point 30" in log.offline
    assert sim.disk.size(path) == size
    for use in (lambda: append(log, b"x"), lambda: log.read(0, 100, 1)):
        with pytest.raises(KafkaError) as caught:
            use()
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    sim.stop()
    sim.start()
    assert sim.store.broker_epoch is None, "a folder with a damaged log is not clean"


def test_segments_that_vanished_are_reported(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    fill(log, 60)
    harness.flush(log)
    paths = [segment.stem + ".log" for segment in log.segments]
    size, end = log.segments[-2].size, log.segments[-1].base
    harness.loop.kill()
    harness.disk.remove(paths[-1])
    harness.start()
    offline = harness.log(**SMALL).offline
    assert offline is not None
    assert f"{paths[-2]} byte {size}: the log ends at offset {end}, but records up to 60 were made durable" in offline
    harness.loop.kill()
    for path in paths[:-1]:
        harness.disk.remove(path)
    harness.start()
    offline = harness.log(**SMALL).offline
    assert offline is not None
    assert "-0 byte 0: no segment is here" in offline


def test_a_file_that_vanishes_under_a_reader_takes_the_log_offline(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    fill(log, 60)
    harness.restart()
    log = harness.log(**SMALL)
    harness.disk.remove(log.segments[1].stem + ".log")
    with pytest.raises(KafkaError) as caught:
        values(log)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is not None
    assert log.segments[1].stem in log.offline


def test_nothing_durable_goes_with_the_power(sim: LogHarness) -> None:
    for round_number in range(8):
        log = sim.log(**SMALL)
        assert log.offline is None
        kept = [value for _, value in values(log)]
        assert kept == [b"%d" % n for n in range(len(kept))]
        fill(log, 20, log.log_end)
        sim.commit(log)
        durable = log.durable_end
        if round_number % 3 == 0:
            sim.flush(log)
        fill(log, 7, log.log_end)
        sim.power_loss()
        assert sim.log(**SMALL).log_end >= durable


def test_what_a_kill_left_in_the_page_cache_is_durable_before_it_is_shown(sim: LogHarness) -> None:
    logs = [sim.log("tide", n) for n in range(20)]
    for log in logs:
        fill(log, 5)
    sim.kill()
    assert [sim.log("tide", n).durable_end for n in range(20)] == [5] * 20
    sim.power_loss()
    assert [sim.log("tide", n).log_end for n in range(20)] == [5] * 20


def test_a_new_folder_is_durable_with_its_first_record(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"a")
    sim.commit(log)
    sim.power_loss()
    assert values(sim.log()) == [(0, b"a")]
    assert sim.disk.read_whole(f"{log.folder}/partition.metadata").startswith(b"version: 0\ntopic_id: ")


def test_what_was_cut_never_comes_back(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    for life in range(12):
        log = sim.log(**SMALL)
        fill(log, 12)
        sim.flush(log)
        fill(log, 12)
        end = log.log_end
        sim.disk.flip_bit(log.segments[-1].stem + ".log", 30, log.segments[-1].size)
        sim.power_loss()
        log = sim.log(**SMALL)
        assert (log.offline, log.log_end <= end) == (None, True), f"life {life}"
        expected = values(log)
        if life % 2:
            sim.stop()
            sim.disk.crash()
            sim.start()
        else:
            sim.power_loss()
        assert values(sim.log(**SMALL)) == expected


def test_leader_epochs_come_back_from_the_batches(sim: LogHarness) -> None:
    log = sim.log()
    for epoch in (1, 2, 5):
        append(log, b"x", epoch=epoch)
        append(log, b"y", epoch=epoch)
        if epoch == 2:
            sim.flush(log)
    sim.commit(log)
    sim.power_loss()
    assert sim.log().epochs.entries() == [(1, 0), (2, 2), (5, 4)]
    sim.disk.write_whole(f"{log.folder}/leader-epoch-checkpoint", b"nonsense\n")
    sim.power_loss()
    assert sim.log().epochs.entries() == [(1, 0), (2, 2), (5, 4)]


@pytest.mark.parametrize("end", ["stop", "kill", "flush and kill", "snapshot lost"])
def test_the_last_five_batches_of_a_producer_are_known_after_a_restart(harness: LogHarness, end: str) -> None:
    log = harness.log(**SMALL)
    sent = [batch(b"%d" % n, producer=Producer(9, 0, n), at=NOW_MS + n) for n in range(40)]
    for n, one in enumerate(sent):
        send(log, one)
        append(log, b"another's", now_ms=NOW_MS + n)
    if end == "stop":
        harness.restart()
    elif end == "kill":
        harness.kill()
    else:
        harness.flush(log)
        if end == "snapshot lost":
            for name in harness.disk.list_folder(log.folder):
                if name.endswith(".snapshot"):
                    harness.disk.write_whole(f"{log.folder}/{name}", b"damaged")
        harness.kill()
    log = harness.log(**SMALL)
    read = log.read_windows()
    harness.run(lambda: read.done)
    for n in range(35, 40):
        assert send(log, sent[n])[:2] == (2 * n, 2 * n + 1)
    assert log.log_end == 80
    assert send(log, batch(b"next", producer=Producer(9, 0, 40)))[0] == 80
    with pytest.raises(KafkaError) as caught:
        send(log, batch(b"gap", producer=Producer(9, 0, 42)))
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_producer_whose_records_were_all_deleted_is_known_after_a_restart(harness: LogHarness, end: str) -> None:
    log = harness.log(**SMALL)
    sent = [batch(b"%d" % n, producer=Producer(9, 0, n)) for n in range(40)]
    for one in sent:
        send(log, one)
    log.roll(NOW_MS)
    harness.flush(log)
    log.high_watermark = log.log_end
    log.delete_before(log.log_end)
    harness.settle()
    harness.retain(log, harness.now_ms())
    assert [segment.base for segment in log.segments] == [40]
    if end == "stop":
        harness.restart()
    else:
        harness.kill()
    log = harness.log(**SMALL)
    assert (log.log_start, log.log_end) == (40, 40)
    assert send(log, sent[-1])[:2] == (39, 40)
    assert send(log, batch(b"next", producer=Producer(9, 0, 40)))[:2] == (40, 41)


def test_the_recovery_point_moves_on_by_itself(sim: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    log = sim.log()
    append(log, b"a")
    sim.settle(30)
    assert log.recovery_point == 0
    sim.settle(40)
    assert log.recovery_point == 1
    big = bytes(9 * 1024 * 1024)
    for _ in range(9):
        append(log, big)
    sim.settle(2)
    assert log.recovery_point >= 7, "64 MB are enough for a flush"
    monkeypatch.setattr(upkeep, "BATCHES_MAX", 30)
    other = sim.log("other")
    fill(log, 40)
    append(other, b"x")
    sim.settle(3)
    assert log.recovery_point == log.log_end, "so are many batches"
    assert other.recovery_point == 0, "a log with few of them can wait"


def test_only_the_snapshots_that_are_needed_stay(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    for n in range(8):
        fill(log, 10, 10 * n)
        harness.flush(log)
    names = [int(name[:20]) for name in harness.disk.list_folder(log.folder) if name.endswith(".snapshot")]
    bases = [segment.base for segment in log.segments]
    assert names == sorted({*bases[1:], 80})


def test_a_folder_of_another_topic_of_the_same_name_is_put_aside_and_kept(harness: LogHarness) -> None:
    """Perhaps that topic was deleted in the moment of a crash, perhaps the file that names it is damaged."""
    fill(harness.log(), 5)
    harness.restart()
    log = harness.log(topic_id=bytes(15) + b"\x01")
    assert (log.log_end, append(log, b"new")) == (0, 0)
    harness.settle(70)
    (stray,) = [name for name in harness.disk.list_folder(harness.root) if name.endswith("-stray")]
    assert harness.disk.size(f"{harness.root}/{stray}/{0:020d}.log")
    assert values(log) == [(0, b"new")]


def test_the_metadata_log_is_never_put_aside(harness: LogHarness) -> None:
    append(harness.log("__cluster_metadata"), b"the cluster")
    harness.restart()
    with pytest.raises(CheckpointError, match=r"partition\.metadata names another topic"):
        harness.log("__cluster_metadata", topic_id=bytes(15) + b"\x01")
    assert [value for _, value in values(harness.log("__cluster_metadata"))] == [b"the cluster"]


@pytest.mark.parametrize("torn", [0, 7])
def test_what_another_controller_wrote_behind_a_clean_stop_is_checked_and_kept(harness: LogHarness, torn: int) -> None:
    """Apache Kafka's controllers write the metadata log, but neither checkpoints nor marks of a clean stop."""
    log = harness.log("__cluster_metadata")
    log.lead(EPOCH)
    fill(log, 8)
    harness.stop()
    write_offsets(harness.disk, f"{harness.root}/{RECOVERY_POINT}", {("__cluster_metadata", 0): 5})
    harness.disk.open(f"{harness.root}/__cluster_metadata-0/{FIRST}").append(b"torn..."[:torn])
    harness.start()
    log = harness.log("__cluster_metadata")
    assert [value for _, value in values(log)] == [b"%d" % n for n in range(8)]
    assert (log.log_end, log.durable_end) == (8, 8)


def test_a_mark_of_a_clean_stop_that_cannot_be_read_is_none(harness: LogHarness) -> None:
    fill(harness.log(), 5)
    harness.stop()
    harness.disk.write_whole(f"{harness.root}/.kafka_cleanshutdown", b"\xff\xfe")
    harness.start()
    assert harness.store.broker_epoch is None
    assert harness.log().log_end == 5


def sealed_paths(harness: LogHarness) -> list[str]:
    log = harness.log(**SMALL)
    fill(log, 60)
    paths = [segment.stem + ".log" for segment in log.segments[:-1]]
    assert len(paths) > 2
    harness.stop()
    return paths


def test_a_sealed_segment_that_was_cut_short_is_damage(harness: LogHarness) -> None:
    path = sealed_paths(harness)[1]
    file = harness.disk.open(path)
    file.truncate(12 + int.from_bytes(file.read(8, 4)))  # its first batch is left
    harness.start()
    log = harness.log(**SMALL)
    with pytest.raises(KafkaError) as refused:
        values(log)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is not None
    assert path in log.offline


def test_a_sealed_segment_that_is_gone_is_told_of(harness: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    harness.disk.remove(sealed_paths(harness)[1])
    harness.start()
    offsets = [offset for offset, _ in values(harness.log(**SMALL))]
    missing = sorted({*range(60)}.difference(offsets))
    assert missing
    assert f"offsets {missing[0]} to {missing[-1]} are missing" in caplog.text


def test_leftovers_of_an_interrupted_compaction_are_finished(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    fill(log, 60)
    second, third = log.segments[1].base, log.segments[2].base
    expected = values(log)
    folder = log.folder
    harness.stop()
    for suffix in (".log", ".index", ".timeindex"):
        harness.disk.rename(f"{folder}/{second:020d}{suffix}", f"{folder}/{second:020d}{suffix}.swap")
    harness.disk.write_whole(f"{folder}/{second:020d}.log", b"old")
    harness.disk.write_whole(f"{folder}/{0:020d}.log.deleted", b"gone")
    harness.disk.write_whole(f"{folder}/{third + 1:020d}.log.cleaned", b"half")
    harness.disk.write_whole(f"{folder}/{third - 1:020d}.timeindex", b"orphan")
    harness.start()
    assert values(harness.log(**SMALL)) == expected
    assert not [n for n in harness.disk.list_folder(folder) if n.endswith((".swap", ".deleted", ".cleaned"))]
    assert not harness.disk.exists(f"{folder}/{third - 1:020d}.timeindex")


def test_indexes_with_room_reserved_by_kafka_are_read(harness: LogHarness) -> None:
    log = harness.log(index_interval_bytes="200")
    fill(log, 50)
    expected = values(log)
    folder = log.folder
    harness.flush(log)
    for suffix in (".index", ".timeindex"):
        file = harness.disk.open(f"{folder}/{0:020d}{suffix}")
        file.append(bytes(240))
    harness.kill()
    log = harness.log(index_interval_bytes="200")
    assert values(log) == expected
    fill(log, 50, 50)
    assert log.find_by_time(NOW_MS + 80, 100) == (NOW_MS + 80, 80, EPOCH)
    harness.restart()
    assert len(values(harness.log(index_interval_bytes="200"))) == 100


SEEDS = range(6)
"""What a power loss leaves of what isn't durable is a matter of luck."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_folder_that_did_not_say_whose_it_is_does_so_durably_before_more_is(end: str, seed: int) -> None:
    disk = SimDisk(SimRandom(seed))
    sim = LogHarness(disk)
    log = sim.log()
    append(log, b"x")
    sim.commit(log)
    path = f"{log.folder}/partition.metadata"
    written = disk.read_whole(path)
    if end == "stop":
        sim.stop()
    else:
        sim.loop.kill()
    disk.remove(path)
    disk.sync_folder(log.folder)
    sim.start()
    log = sim.log()
    if end == "stop":
        append(log, b"y")
        sim.commit(log)
    sim.loop.kill()
    disk.crash()
    assert disk.read_whole(path) == written


def test_batches_that_a_start_had_to_read_are_counted_until_they_are_flushed(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    fill(log, 10)
    sim.flush(log)
    fill(log, 40, 10)
    assert len(log.segments) > 3
    behind = sum(1 for offset, _ in values(log) if offset >= log.recovery_point)
    sim.kill()
    assert sim.log(**SMALL).ends.batches >= behind, "all of them, and what stands before them in their segment"
    other = sim.log("other", **SMALL)
    fill(other, 40)
    sim.store.upkeep.stop()  # no flush comes
    sim.kill()
    assert sim.log("other", **SMALL).ends.batches == 40
    assert sim.log(**SMALL).offline is None
    sim.restart()
    assert sim.log("other", **SMALL).ends.batches == 0


def test_a_segment_that_begins_before_the_last_one_ends_is_reported_and_not_dropped(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    fill(log, 40)
    second = log.segments[1]
    stray = f"{log.folder}/{second.base - 1:020d}.log"
    sim.loop.kill()
    sim.disk.rename(second.path, stray)
    sim.start()
    offline = sim.log(**SMALL).offline
    assert offline is not None
    assert f"{stray} byte 0: the segment begins at offset {second.base - 1}" in offline
    assert f"the one before it ends at {second.base}" in offline
    assert sim.disk.exists(stray)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_segments_behind_a_hole_stay_gone_when_the_power_goes(
    policy: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of them was acknowledged; were they to come back, what is written meanwhile would be between them."""
    disk = SimDisk(SimRandom(seed))
    sim = LogHarness(disk)
    settings = {**SMALL, "cleanup_policy": policy}
    log = sim.log(**settings)
    while len(log.segments) < 2 or log.log_end < log.segments[1].base + 3:
        put(log, (b"key", b"flushed"))
    sim.flush(log)
    flushed, size = log.log_end, log.segments[1].size
    while len(log.segments) < 4:
        put(log, (b"key", b"committed"))
    before, behind = log.segments[1:3]
    sim.commit(log)
    sim.loop.kill()
    file = disk.open(before.path)
    file.truncate(size)
    file.sync()
    sim.start()
    assert sim.log(**settings).log_end == flushed < behind.base
    assert f"are missing; what is behind them goes, the log goes on at {flushed}" in caplog.text
    assert not disk.exists(behind.path)
    sim.loop.kill()
    disk.crash()
    assert not disk.exists(behind.path)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_what_was_cut_stays_cut_when_the_power_goes(
    durability: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "UNNOTICED_BYTES", 0)
    disk = SimDisk(SimRandom(seed))
    sim = LogHarness(disk, tidelog_durability=durability)
    log = sim.log()
    fill(log, 3)
    sound = log.size_bytes()
    log.segments.file_of(log.segments[-1]).append(b"garbage" * 20)
    disk.sync_all(sim.root)
    sim.kill()
    assert sim.log().log_end == 3
    sim.loop.kill()
    disk.crash()
    assert disk.size(f"{log.folder}/{FIRST}") == sound


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_hole_that_compaction_left_above_the_recovery_point_is_none_that_a_crash_did(
    sim: LogHarness, policy: str
) -> None:
    """Apache Kafka compacts up there, and so did whoever was cut back since."""
    log = sim.log(**COMPACT, internal_segment_bytes="600")
    for n in range(12):
        put(log, (b"k%d" % n if n % 3 == 1 else b"again and again", b"x" * 100))
    roll(sim, log)
    clean(sim, log)
    put(log, (b"later", b"y"))
    sim.flush(log)
    kept = pairs(log)
    assert [segment.base for segment in log.segments] == [0, 3, 6, 9, 12]
    assert [offset for offset, _, _ in kept] == [1, 4, 7, 10, 11, 12]
    sim.stop()
    sim.disk.remove(f"{sim.root}/{CLEANER}")
    write_offsets(sim.disk, f"{sim.root}/{RECOVERY_POINT}", {("tide", 0): 0})
    sim.disk.remove(f"{sim.root}/.kafka_cleanshutdown")
    sim.start()
    log = sim.log(cleanup_policy=policy)
    assert log.offline is None
    assert pairs(log) == (kept if policy == "compact" else kept[:1])
    assert log.log_end == (13 if policy == "compact" else 2)
