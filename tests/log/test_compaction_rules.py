"""What compaction may take and what it must leave: tombstones, lags, dirty ratio, log start, damaged logs."""

import pytest
from tests.batches import GZIP, LZ4, SNAPPY, ZSTD, Batch, Sent
from tests.log.harness import NOW_MS, TOPIC_ID, LogHarness, send
from tests.log.keyed import clean, compacted, contents, headers, pairs, put, roll, table

from tidelog.log.names import LOG
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom

DAY_MS = 86_400_000


def test_a_tombstone_stays_for_its_time_then_goes(harness: LogHarness) -> None:
    log = compacted(harness, delete_retention_ms="60000")
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", None), now_ms=NOW_MS + 5)
    put(log, (b"z", b"end"))
    roll(harness, log)
    clean(harness, log)
    assert pairs(log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"z", b"end")]
    [tombstone] = headers(log, lambda header: header.base_offset == 2)
    assert tombstone.delete_horizon is not None
    began = tombstone.delete_horizon - 60_000
    assert NOW_MS <= began <= harness.now_ms()
    [record] = [record for record in contents(log) if record.offset == 2]
    assert record.timestamp == NOW_MS + 5  # although the batch's base is the horizon now
    assert tombstone.max_timestamp == NOW_MS + 5
    # Cleaned again before its time: it stays, and its time is still the first one.
    put(log, (b"b", b"3"))
    roll(harness, log)
    clean(harness, log)
    assert [h.delete_horizon for h in headers(log) if h.base_offset == 2] == [tombstone.delete_horizon]
    harness.settle(61.0)
    put(log, (b"b", b"4"))
    roll(harness, log)
    clean(harness, log)
    assert table(log) == {b"z": b"end", b"b": b"4"}


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_compressed_batch_is_compressed_again(sim: LogHarness, codec: int) -> None:
    log = compacted(sim)
    put(log, *[(b"k%d" % (n % 7), b"v" * 50 + b"%d" % n) for n in range(100)], codec=codec)
    put(log, (b"k0", None), (b"k1", b"x"), codec=codec)
    roll(sim, log)
    clean(sim, log)
    assert [header.codec for header in headers(log)] == [codec, codec]
    assert sorted(key for _, key, _ in pairs(log)) == [b"k0", b"k1", b"k2", b"k3", b"k4", b"k5", b"k6"]
    assert headers(log)[0].record_count == 5
    assert headers(log)[0].last_offset_delta == 99
    assert headers(log)[1].delete_horizon is not None


def test_the_newest_timestamp_is_that_of_what_stays(sim: LogHarness) -> None:
    log = compacted(sim)
    sent = [Sent(b"1", key=b"a", timestamp_delta=500), Sent(b"2", key=b"b", timestamp_delta=3)]
    send(log, Batch(sent, base_timestamp=NOW_MS))
    put(log, (b"a", b"3"))
    roll(sim, log)
    clean(sim, log)
    assert [header.max_timestamp for header in headers(log)] == [NOW_MS + 3, NOW_MS]
    assert log.max_timestamp() == (NOW_MS + 3, 1, 7)
    assert log.find_by_time(NOW_MS + 1, log.log_end) == (NOW_MS + 3, 1, 7)


def test_large_and_small_records_with_long_keys(sim: LogHarness) -> None:
    log = compacted(sim, max_message_bytes="20000000")
    long = b"L" * 70_000
    for value in (b"x" * 3_000_000, b"", b"y" * 200_000):
        put(log, (long, value))
        put(log, (long[:-1], value), (b"", value), (b"k" * 39, value), (b"k" * 40, value), (b"k" * 41, value))
    roll(sim, log)
    clean(sim, log)
    assert len(pairs(log)) == 6
    assert set(table(log).values()) == {b"y" * 200_000}


def test_nothing_is_cleaned_before_enough_is_dirty(sim: LogHarness) -> None:
    log = compacted(sim, min_cleanable_dirty_ratio="0.5")
    for _ in range(4):
        put(log, (b"a", b"x" * 100), (b"b", b"y" * 100))
    roll(sim, log)
    clean(sim, log)  # all of it is dirty
    assert len(pairs(log)) == 2
    put(log, (b"a", b"z" * 20))
    roll(sim, log)
    clean(sim, log)
    assert len(pairs(log)) == 3
    put(log, (b"b", b"z" * 200))
    roll(sim, log)
    clean(sim, log)
    assert [offset for offset, _, _ in pairs(log)] == [8, 9]


def test_a_young_record_is_not_compacted_away(sim: LogHarness) -> None:
    log = compacted(sim, min_compaction_lag_ms="60000")
    put(log, (b"a", b"1"), now_ms=sim.now_ms())
    put(log, (b"a", b"2"), now_ms=sim.now_ms())
    roll(sim, log)
    clean(sim, log)
    assert len(pairs(log)) == 2
    sim.settle(61.0)
    clean(sim, log)
    assert pairs(log) == [(1, b"a", b"2")]


def test_an_old_record_is_due_however_little_is_dirty(sim: LogHarness) -> None:
    log = compacted(sim, min_cleanable_dirty_ratio="1", max_compaction_lag_ms="60000")
    put(log, (b"a", b"1"), now_ms=sim.now_ms())
    put(log, (b"a", b"2"), now_ms=sim.now_ms())
    roll(sim, log)
    clean(sim, log)
    assert len(pairs(log)) == 2
    sim.settle(61.0)
    clean(sim, log)
    assert pairs(log) == [(1, b"a", b"2")]


def test_a_segment_is_rolled_before_its_records_are_overdue(sim: LogHarness) -> None:
    log = compacted(sim, max_compaction_lag_ms="60000")
    put(log, (b"a", b"1"), now_ms=NOW_MS)
    put(log, (b"a", b"2"), now_ms=NOW_MS + 60_001)
    assert [segment.base for segment in log.segments] == [0, 1]


def test_the_dirtiest_log_comes_first(sim: LogHarness) -> None:
    logs = [compacted(sim, topic=name) for name in ("little", "much")]
    for log in logs:
        put(log, (b"a", b"x" * 500))
        roll(sim, log)
        clean(sim, log)
    put(logs[0], (b"a", b"y" * 100))
    put(logs[1], (b"a", b"y" * 900))
    for log in logs:
        roll(sim, log)
    cleaner = sim.store.upkeep.cleaner
    cleaner.look()
    sim.run(lambda: bool(cleaner.runs()))
    assert [run.log.topic for run in cleaner.runs()] == ["much"]
    sim.run(lambda: all(len(pairs(log)) == 1 for log in logs))


def test_more_keys_than_fit_take_several_passes() -> None:
    harness = LogHarness(SimDisk(SimRandom(5)), log_cleaner_dedupe_buffer_size="2000")  # room for nine keys
    log = compacted(harness)
    for round_ in range(2):
        for n in range(40):
            put(log, (b"k%d" % n, b"%d" % round_))
        roll(harness, log)
    clean(harness, log)
    ends = [harness.store.clean_end(log)]
    while ends[-1] < 80:
        clean(harness, log)
        ends.append(harness.store.clean_end(log))
        assert ends[-1] > ends[-2], ends
    assert pairs(log) == [(40 + n, b"k%d" % n, b"1") for n in range(40)]


def test_records_below_the_logs_start_go(harness: LogHarness) -> None:
    log = compacted(harness, cleanup_policy="compact,delete")
    put(log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    put(log, (b"d", b"4"))
    roll(harness, log)
    harness.commit(log)
    log.delete_before(2)
    harness.settle(1.0)
    clean(harness, log)
    assert pairs(log) == [(2, b"c", b"3"), (3, b"d", b"4")]
    assert [(h.base_offset, h.record_count) for h in headers(log)] == [(0, 1), (3, 1)]


def test_compacted_and_deleted_by_age(sim: LogHarness) -> None:
    log = compacted(sim, cleanup_policy="compact,delete", retention_ms="100000")
    put(log, (b"a", b"1"), (b"a", b"2"), now_ms=sim.now_ms())
    roll(sim, log)
    clean(sim, log)
    assert pairs(log) == [(1, b"a", b"2")]
    sim.settle(101.0)
    assert sim.retain(log, sim.now_ms()) == 1
    put(log, (b"b", b"3"), (b"b", b"4"), now_ms=sim.now_ms())
    roll(sim, log)
    clean(sim, log)
    assert pairs(log) == [(3, b"b", b"4")]
    assert log.log_start == 2


def test_records_without_a_key_have_no_place(sim: LogHarness) -> None:
    """They stem from the time before the topic was compacted."""
    log = sim.log()
    put(log, (None, b"1"), (b"a", b"2"))
    put(log, (None, b"3"))
    put(log, (b"b", b"4"))
    roll(sim, log)
    log.configure(sim.topic({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}))
    clean(sim, log)
    assert pairs(log) == [(1, b"a", b"2"), (3, b"b", b"4")]


def test_a_damaged_log_is_left_alone_and_told_of_once(harness: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    log = compacted(harness)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(harness, log)
    path = log.segments[0].stem + LOG
    data = bytearray(harness.disk.read_whole(path))
    data[-1] ^= 1
    file = harness.disk.open(path)
    file.truncate(0)
    file.append(bytes(data))
    harness.store.files.forget(log.segments[0])
    clean(harness, log)
    clean(harness, log)
    told = [record.getMessage() for record in caplog.records if "can't be compacted" in record.getMessage()]
    assert len(told) == 1
    assert "tide-0 can't be compacted:" in told[0]
    assert "00000000000000000000.log byte" in told[0]
    assert "wrong checksum" in told[0]
    assert log.offline is None


def test_what_a_batch_may_inflate_to_holds_for_those_that_were_let_in_before(
    harness: LogHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that isn't compacted takes what it isn't told to look into; then it is to be compacted."""
    log = harness.log()
    put(log, (b"a", bytes(2_000_000)), codec=ZSTD)
    put(log, (b"a", b"2"))
    roll(harness, log)
    harness.restart()
    log = compacted(harness, tidelog_inflated_bytes_max="1000000")
    clean(harness, log)
    assert "inflates to more than the 1000000 bytes allowed: tidelog.inflated.bytes.max" in caplog.text
    assert len(pairs(log)) == 2
    harness.restart()
    log = compacted(harness, tidelog_inflated_bytes_max="3000000")
    clean(harness, log)
    assert [(offset, value) for offset, _, value in pairs(log)] == [(1, b"2")]


def test_a_full_disk_is_tried_again_later(sim: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    log = compacted(sim)
    for n in range(50):
        put(log, (b"%d" % n, b"x" * 500))
    roll(sim, log)
    disk = sim.disk
    disk.capacity = disk.used_bytes() + 10_000
    clean(sim, log)
    assert "compacting tide-0 failed: [Errno 28]" in caplog.text
    assert not [name for name in disk.list_folder(log.folder) if name.endswith(".cleaned")]
    clean(sim, log)
    assert caplog.text.count("compacting tide-0 failed") == 1  # it waits
    disk.capacity = None
    sim.run(lambda: sim.store.clean_end(log) == 50)


def test_a_truncation_ends_a_cleaning(sim: LogHarness) -> None:
    log = compacted(sim)
    for n in range(10):
        put(log, (b"k", b"%d" % n))
        if n % 2:
            roll(sim, log)
    cleaner = sim.store.upkeep.cleaner
    cleaner.look()
    sim.run(lambda: bool(cleaner.runs()))
    log.truncate_to(4)
    sim.run(lambda: cleaner.idle)
    assert [offset for offset, _, _ in pairs(log)] == [0, 1, 2, 3]
    assert sim.store.clean_end(log) == 0
    put(log, (b"k", b"new"))
    roll(sim, log)
    clean(sim, log)
    assert pairs(log) == [(4, b"k", b"new")]


def test_what_is_written_after_a_truncation_counts_as_dirty(harness: LogHarness) -> None:
    log = compacted(harness)
    for n in range(6):
        put(log, (b"k", b"%d" % n))
    roll(harness, log)
    clean(harness, log)
    assert harness.store.clean_end(log) == 6
    log.truncate_to(5)
    assert harness.store.clean_end(log) <= 5
    harness.kill()
    log = compacted(harness)
    assert harness.store.clean_end(log) <= 5
    assert log.log_end == 5
    for n in range(3):
        put(log, (b"k", b"after %d" % n))
    roll(harness, log)
    clean(harness, log)
    assert pairs(log) == [(7, b"k", b"after 2")]


def test_a_topic_that_is_deleted_and_made_again_is_dirty(harness: LogHarness) -> None:
    log = compacted(harness)
    put(log, (b"k", b"1"), (b"k", b"2"))
    roll(harness, log)
    clean(harness, log)
    harness.store.delete("tide", 0, TOPIC_ID)
    log = harness.store.log("tide", 0, bytes(15) + b"\1", harness.topic({"cleanup.policy": "compact"}))
    assert harness.store.clean_end(log) == 0
    put(log, (b"k", b"1"), (b"k", b"2"))
    roll(harness, log)
    clean(harness, log)
    assert pairs(log) == [(1, b"k", b"2")]


def test_a_reader_of_an_old_segment_keeps_it(harness: LogHarness) -> None:
    log = compacted(harness)
    for n in range(20):
        put(log, (b"k", b"%d" % n))
    roll(harness, log)
    piece = log.read(0, 1 << 20, log.log_end)
    assert piece is not None
    before = bytes(piece.view())
    clean(harness, log)
    harness.settle(5.0)
    assert bytes(piece.view()) == before
    assert not [name for name in harness.disk.list_folder(log.folder) if not name.endswith((LOG, "index", "snapshot"))
                and name not in ("partition.metadata", "leader-epoch-checkpoint")]  # fmt: skip


def test_small_segments_become_one(sim: LogHarness) -> None:
    log = compacted(sim, internal_segment_bytes="2000")
    for n in range(100):
        put(log, (b"k%d" % n, b"x" * 100))
    roll(sim, log)
    assert len(log.segments) > 8
    log.configure(sim.topic({"cleanup.policy": "compact", "internal.segment.bytes": "8000",
                             "min.cleanable.dirty.ratio": "0"}))  # fmt: skip
    clean(sim, log)
    assert len(log.segments) <= 5
    assert all(segment.size <= 8000 for segment in log.segments)
    assert [offset for offset, _, _ in pairs(log)] == list(range(100))
    for offset in range(100):
        piece = log.read(offset, 1, log.log_end)
        assert piece is not None


def test_the_scrub_goes_on_beside_compaction(sim: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    log = compacted(sim)
    for n in range(30):
        put(log, (b"k%d" % (n % 3), b"x" * (320 - n)))
    roll(sim, log)
    scrub = sim.store.upkeep.scrub
    monkeypatch.setattr("tidelog.log.scrub.STEP_BYTES", 300)
    scrub.step()
    sim.settle(1.0)  # it stands where a batch begins in the old segment, and none in the new one
    clean(sim, log)
    for _ in range(5):
        scrub.step()
        sim.settle(1.0)
    assert log.offline is None


def test_a_topic_that_is_no_longer_compacted_keeps_its_gaps(
    harness: LogHarness, caplog: pytest.LogCaptureFixture
) -> None:
    log = compacted(harness, internal_segment_bytes="300")
    for n in range(12):
        put(log, (b"k%d" % (n % 2), b"x" * 100))
    roll(harness, log)
    clean(harness, log)
    kept = pairs(log)
    for segment in log.segments[:-1]:
        harness.disk.remove(segment.stem + ".index")
    harness.restart()
    log = harness.log()
    assert pairs(log) == kept
    assert log.offline is None
    assert "are missing between its segments" not in caplog.text


def test_two_logs_are_cleaned_at_once() -> None:
    harness = LogHarness(SimDisk(SimRandom(6)), log_cleaner_threads="2")
    logs = [compacted(harness, topic=name) for name in ("one", "two", "three")]
    for log in logs:
        put(log, (b"a", b"1"), (b"a", b"2"))
        roll(harness, log)
    cleaner = harness.store.upkeep.cleaner
    cleaner.look()
    harness.run(lambda: len(cleaner.runs()) == 2)
    harness.run(lambda: all(len(pairs(log)) == 1 for log in logs))


def test_retention_waits_for_a_cleaning() -> None:
    sim = LogHarness(SimDisk(SimRandom(8)), log_initial_task_delay_ms="10000")
    log = compacted(sim, cleanup_policy="compact,delete", retention_ms="1")
    put(log, (b"a", b"1"), (b"a", b"2"), now_ms=NOW_MS)
    roll(sim, log)
    cleaner = sim.store.upkeep.cleaner
    sim.settle(9.5 - sim.timeline.now)
    sim.loop.lag = lambda: 1.0
    cleaner.look()
    sim.run(lambda: cleaner.busy(log))
    sim.settle(10.1 - sim.timeline.now)
    assert cleaner.busy(log), "retention looked at the logs meanwhile"

    def cleaned() -> bool:
        assert cleaner.idle or log.log_start == 0
        return cleaner.idle

    sim.run(cleaned)
    sim.run(lambda: log.log_start == 2)  # its turn came as soon as the log was clean


def test_nothing_is_cleaned_where_it_is_turned_off() -> None:
    harness = LogHarness(SimDisk(SimRandom(7)), log_cleaner_enable="false")
    log = compacted(harness)
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(harness, log)
    harness.settle(100.0)
    assert len(pairs(log)) == 2
