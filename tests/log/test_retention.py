"""Rolling and deleting: by size, by age, by what a client asked for."""

import pytest
from tests.batches import Batch, Sent
from tests.log.harness import EPOCH, NOW_MS, LogHarness, append, batch, send, values
from tests.log.keyed import COMPACT, clean, pairs, put, roll

from tidelog.log import retention
from tidelog.log.log import Log
from tidelog.wire.errors import ErrorCode, KafkaError

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "200"}


def bases(log: Log) -> list[int]:
    return [segment.base for segment in log.segments]


def fill(log: Log, count: int, step_ms: int = 1) -> None:
    for n in range(count):
        append(log, b"%d" % n, now_ms=NOW_MS + n * step_ms)


def test_a_segment_rolls_before_it_is_too_large(harness: LogHarness) -> None:
    log = harness.log(internal_segment_bytes="1000")
    size = len(batch(b"x").encode())
    fill(log, 100)
    assert len(log.segments) > 5
    assert all(segment.size <= 1000 for segment in log.segments)
    assert all(segment.size + size + 1 > 1000 for segment in log.segments[:-1])


def test_a_segment_rolls_by_the_time_of_its_records(harness: LogHarness) -> None:
    log = harness.log(segment_ms="1000")
    for delta in (0, 500, 1000, 1001, 1500, 2002):
        append(log, b"x", now_ms=NOW_MS + delta)
    assert bases(log) == [0, 3, 5]


def test_a_segment_without_times_rolls_by_the_clock(harness: LogHarness) -> None:
    log = harness.log(segment_ms="1000")
    for delta in (0, 900, 1100, 1200):
        send(log, batch(b"x", at=-1), now_ms=NOW_MS + delta)
    assert bases(log) == [0, 2]


def test_jitter_rolls_earlier(harness: LogHarness) -> None:
    log = harness.log(segment_ms="1000", segment_jitter_ms="900")
    fill(log, 300, step_ms=10)
    spans = [later - base for base, later in zip(bases(log), bases(log)[1:], strict=False)]
    assert len(set(spans)) > 1
    assert all(10 <= span <= 101 for span in spans)


def test_a_full_index_rolls(harness: LogHarness) -> None:
    log = harness.log(segment_index_bytes="80", index_interval_bytes="0")
    fill(log, 60)
    assert len(log.segments) > 5
    assert values(log)[-1] == (59, b"59")
    harness.restart()
    assert len(values(harness.log(segment_index_bytes="80", index_interval_bytes="0"))) == 60


def test_offsets_too_far_from_the_base_roll(harness: LogHarness) -> None:
    log = harness.log()
    for base in (0, 2**31 - 1, 2**31, 2**33):
        data = bytearray(Batch([Sent(b"x")], base_offset=base, leader_epoch=1, base_timestamp=NOW_MS).encode())
        log.append_records(memoryview(data), 0, len(data), NOW_MS)
    assert bases(log) == [0, 2**31, 2**31 + 1]
    assert [offset for offset, _ in values(log)] == [0, 2**31 - 1, 2**31, 2**33]


def test_old_segments_go_by_age(harness: LogHarness) -> None:
    settings = {**SMALL, "retention_ms": "50"}
    log = harness.log(**settings)
    fill(log, 100)
    harness.commit(log)
    third = bases(log)[2]
    newest = log.segments[1].max_timestamp
    assert harness.retain(log, newest + 50) == 1
    assert harness.retain(log, newest + 51) == 1
    assert (log.log_start, bases(log)[0]) == (third, third)
    with pytest.raises(KafkaError) as caught:
        log.read(0, 100, 100)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.epochs.entries() == [(EPOCH, third)]
    harness.settle(61)
    assert not [name for name in harness.disk.list_folder(log.folder) if name.endswith(".deleted")]
    harness.restart()
    assert (harness.log(**settings).log_start, harness.log(**settings).log_end) == (third, 100)


def test_when_everything_is_old_an_empty_segment_keeps_the_place(harness: LogHarness) -> None:
    log = harness.log(**SMALL, retention_ms="50")
    fill(log, 100)
    harness.commit(log)
    assert harness.retain(log, NOW_MS + 10_000) > 3
    assert (log.log_start, log.log_end, bases(log), log.size_bytes()) == (100, 100, [100], 0)
    assert harness.retain(log, NOW_MS + 20_000) == 0
    harness.restart()
    log = harness.log(**SMALL)
    assert (log.log_start, log.log_end) == (100, 100)
    assert append(log, b"x") == 100


def test_large_logs_lose_their_oldest_segments(harness: LogHarness) -> None:
    log = harness.log(**SMALL, retention_bytes="2500")
    fill(log, 100)
    harness.commit(log)
    total = log.size_bytes()
    assert harness.retain(log, NOW_MS) > 0
    assert 2500 <= log.size_bytes() < 2500 + 1000 < total


def test_nothing_above_the_high_watermark_goes(harness: LogHarness) -> None:
    log = harness.log(**SMALL, retention_ms="50")
    fill(log, 100)
    assert harness.retain(log, NOW_MS + 10_000) == 0
    harness.commit(log)
    log.high_watermark = bases(log)[2] + 1
    assert harness.retain(log, NOW_MS + 10_000) == 2


def test_what_a_client_deleted_goes_whatever_the_policy(harness: LogHarness) -> None:
    log = harness.log(**SMALL, cleanup_policy="compact")
    for n in range(100):
        send(log, batch(b"x", key=b"%d" % n))
    harness.commit(log)
    second = bases(log)[2]
    log.delete_before(second + 1)
    harness.settle(1.0)
    assert harness.retain(log, NOW_MS + 10**12) == 2
    assert (log.log_start, bases(log)[0]) == (second + 1, second)


def test_retention_comes_by_itself(sim: LogHarness) -> None:
    sim.config = type(sim.config).parse({**sim.config.static, "log.initial.task.delay.ms": "1000"})
    sim.restart()
    log = sim.log(**SMALL, retention_ms="50")
    fill(log, 50)
    sim.commit(log)
    sim.settle(2)
    assert log.log_start == 50


def test_a_log_that_fails_ends_no_pass_for_the_others(sim: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    sim.config = type(sim.config).parse({**sim.config.static, "log.initial.task.delay.ms": "1000"})
    sim.restart()
    logs = [sim.log("tide", number, **SMALL, retention_ms="50") for number in range(3)]
    for log in logs:
        fill(log, 50)
        sim.commit(log)
    look = retention.look

    def failing(log: Log, start: int, now_ms: int) -> int:
        if log is logs[0]:
            raise IndexError("nobody thought of this")
        return look(log, start, now_ms)

    monkeypatch.setattr(retention, "look", failing)
    sim.settle(2)
    assert [log.log_start for log in logs] == [0, 50, 50]


def test_truncation_forgets_everything_from_an_offset_on(harness: LogHarness) -> None:
    for target in (0, 1, 10, 55, 99):
        log = harness.log(f"cut-{target}", **SMALL)
        fill(log, 50)
        harness.flush(log)
        fill(log, 50)
        log.lead(EPOCH + 1)
        assert log.truncate_to(target)
        log.check_invariants()
        assert (log.log_end, log.durable_end <= target, log.recovery_point <= target) == (target, True, True)
        assert [offset for offset, _ in values(log)] == list(range(target))
        assert append(log, b"new", epoch=EPOCH + 1) == target
        assert values(log)[-1] == (target, b"new")
        assert log.epochs.latest == EPOCH + 1
    harness.kill()
    for target in (0, 1, 10, 55, 99):
        log = harness.log(f"cut-{target}", **SMALL)
        assert (log.offline, log.log_end) == (None, target + 1)
        assert values(log)[-1] == (target, b"new")


def test_a_power_loss_right_after_a_truncation_is_no_damage(sim: LogHarness) -> None:
    for target in (45, 30, 12, 1, 0):
        log = sim.log(**SMALL)
        fill(log, 50 - log.log_end)
        sim.flush(log)
        assert log.recovery_point == 50
        log.truncate_to(target)
        sim.power_loss()
        log = sim.log(**SMALL)
        assert log.offline is None
        assert target <= log.log_end <= 50


def test_what_was_truncated_stays_so_after_a_clean_stop_and_a_power_loss(sim: LogHarness) -> None:
    for target in (30, 12, 0):
        log = sim.log(**SMALL)
        fill(log, 50 - log.log_end)
        sim.flush(log)
        log.truncate_to(target)
        sim.stop()
        sim.disk.crash()
        sim.start()
        assert (sim.log(**SMALL).offline, len(values(sim.log(**SMALL)))) == (None, target)


def test_deleted_records_stay_so_when_their_files_come_back(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    fill(log, 80)
    sim.flush(log)
    log.delete_before(50)
    saved = sim.store.starts.saved(log)
    sim.run(lambda: saved.done)
    assert sim.retain(log, NOW_MS) > 0
    sim.power_loss()
    assert sim.log(**SMALL).log_start == 50


def test_truncation_at_or_above_the_end_changes_nothing(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    fill(log, 20)
    assert not log.truncate_to(20)
    assert log.log_end == 20


def test_a_log_that_starts_anew_goes_on_where_it_is_told(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    fill(log, 50)
    harness.flush(log)
    log.truncate_fully_and_start_at(1000, NOW_MS)
    assert (log.log_start, log.log_end, values(log)) == (1000, 1000, [])
    harness.kill()
    log = harness.log(**SMALL)
    assert (log.offline, log.log_start, log.log_end) == (None, 1000, 1000)
    assert append(log, b"x") == 1000
    harness.restart()
    assert values(harness.log(**SMALL)) == [(1000, b"x")]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_records_without_timestamps_age_through_restarts(sim: LogHarness, end: str) -> None:
    """Their age is that of the file."""
    topic = {"retention_ms": "10000"}
    log = sim.log(**topic)
    for _ in range(3):
        send(log, batch(b"dateless", at=-1))
    log.roll(NOW_MS)
    append(log, b"dated", now_ms=sim.now_ms() + 60_000)
    sim.flush(log)
    for _ in range(3):
        sim.settle(4)
        if end == "stop":
            sim.restart()
        else:
            sim.kill()
        log = sim.log(**topic)
        log.high_watermark = log.log_end
    assert sim.retain(log, sim.now_ms()) == 1
    assert [value for _, value in values(log)] == [b"dated"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_records_that_were_old_when_they_came_go_after_a_restart_too(sim: LogHarness, end: str) -> None:
    """Their age is their own, though the file is young."""
    topic = {"retention_ms": "10000"}
    log = sim.log(**topic)
    append(log, b"old", now_ms=sim.now_ms() - 60_000)
    log.roll(sim.now_ms())
    append(log, b"new", now_ms=sim.now_ms())
    sim.flush(log)
    if end == "stop":
        sim.restart()
    else:
        sim.kill()
    log = sim.log(**topic)
    log.high_watermark = log.log_end
    assert sim.retain(log, sim.now_ms()) == 1
    assert [value for _, value in values(log)] == [b"new"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_segments_that_compaction_left_empty_age_through_restarts(sim: LogHarness, end: str) -> None:
    """A consumer that stands in one goes on behind it; when its file is too old, it goes as any other."""
    topic = {**COMPACT, "cleanup_policy": "compact,delete", "retention_ms": "10000", "internal_segment_bytes": "300"}
    log = sim.log(**topic)
    for n in range(12):
        put(log, (b"k", b"x" * 100), now_ms=sim.now_ms() + n)
    roll(sim, log)
    clean(sim, log)
    assert [segment.base for segment in log.segments if segment.size] == [11]
    assert (log.log_start, [offset for offset, _, _ in pairs(log)]) == (0, [11])
    put(log, (b"later", b"y"), now_ms=sim.now_ms() + 60_000)
    sim.flush(log)
    for _ in range(3):
        sim.settle(4)
        if end == "stop":
            sim.restart()
        else:
            sim.kill()
        log = sim.log(**topic)
        log.high_watermark = log.log_end
    assert sim.retain(log, sim.now_ms()) == 12
    assert (log.log_start, [offset for offset, _, _ in pairs(log)]) == (12, [12])


def test_the_age_of_records_without_timestamps_counts_from_the_last_write(sim: LogHarness) -> None:
    """A segment that this process began long ago may have been written to a moment ago."""
    log = sim.log(retention_ms="10000")
    send(log, batch(b"first", at=-1), now_ms=sim.now_ms())
    sim.settle(60)
    send(log, batch(b"fresh", at=-1), now_ms=sim.now_ms())
    sim.commit(log)
    log.high_watermark = log.log_end
    sim.retain(log, sim.now_ms())
    sim.settle(5)
    assert (log.log_start, len(log.segments)) == (0, 1)
    sim.settle(11)
    sim.retain(log, sim.now_ms())
    sim.settle(5)
    assert log.log_start == 2


def test_in_memory_too_the_age_of_records_without_timestamps_counts_from_the_last_write(sim: LogHarness) -> None:
    log = sim.log(tidelog_storage="memory", retention_ms="10000")
    for _ in range(2):
        send(log, batch(b"dateless", at=-1), now_ms=sim.now_ms())
        sim.settle(60)
        sim.commit(log)
        log.high_watermark = log.log_end
        log.apply_retention(sim.now_ms())
        assert log.log_start == 0, "written to since the last look"
    sim.settle(11)
    log.apply_retention(sim.now_ms())
    assert log.log_start == log.log_end == 2


def test_cleaning_makes_records_without_timestamps_no_younger(sim: LogHarness) -> None:
    log = sim.log(**COMPACT, retention_ms="10000")
    for key in (b"a", b"b", b"a"):
        made = Batch([Sent(key=key, value=b"x")], base_timestamp=-1)
        send(log, made, now_ms=sim.now_ms())
    roll(sim, log)
    written = sim.now_ms()
    sim.settle(60)
    clean(sim, log)
    assert len(pairs(log)) == 2
    assert sim.disk.modified_ms(log.segments[0].stem + ".log") <= written


def ten_segments(harness: LogHarness, **settings: str) -> tuple[Log, int]:
    """One batch in each, all of one size; the log, and that size. The last one is not the active one's only batch."""
    log = harness.log(**settings)
    for n in range(10):
        append(log, b"%d" % n, now_ms=NOW_MS + n)
        if n < 9:
            log.roll(NOW_MS)
    harness.commit(log)
    assert bases(log) == list(range(10))
    return log, log.segments[0].size


def test_as_many_go_for_their_size_as_leave_no_less_than_is_to_be_kept(harness: LogHarness) -> None:
    log, size = ten_segments(harness, retention_ms="-1")
    for kept, going in ((-1, 0), (0, 10), (1, 9), (3 * size - 1, 7), (3 * size, 7), (3 * size + 1, 6), (99 * size, 0)):
        log.configure(harness.topic({"retention_ms": "-1", "retention_bytes": str(kept)}))
        assert retention.look(log, log.log_start, NOW_MS) == going, kept


def test_what_is_below_the_start_goes_first_and_the_rest_counts_for_the_size(harness: LogHarness) -> None:
    log, size = ten_segments(harness, retention_ms="-1", retention_bytes="-1")
    log.delete_before(2)
    harness.settle(1.0)
    assert retention.look(log, log.log_start, NOW_MS) == 2
    log.configure(harness.topic({"retention_ms": "-1", "retention_bytes": str(7 * size)}))
    assert retention.look(log, log.log_start, NOW_MS) == 3
    log.configure(harness.topic({"retention_ms": "-1", "retention_bytes": "0"}))
    for high_watermark, going in ((0, 0), (1, 1), (2, 2), (5, 5), (10, 10), (-1, 10)):
        log.high_watermark = high_watermark
        assert retention.look(log, log.log_start, NOW_MS) == going, high_watermark


def test_what_is_older_than_it_may_be_goes_and_nothing_that_is_just_as_old(harness: LogHarness) -> None:
    log, _ = ten_segments(harness)
    for kept, now, going in ((-1, 10**6, 0), (0, 0, 0), (0, 1, 1), (0, 10, 10), (50, 52, 2), (50, 55, 5)):
        log.configure(harness.topic({"retention_ms": str(kept)}))
        assert retention.look(log, log.log_start, NOW_MS + now) == going, (kept, now)


def test_size_and_age_count_together(harness: LogHarness) -> None:
    log, size = ten_segments(harness, retention_ms="50")
    log.configure(harness.topic({"retention_ms": "50", "retention_bytes": str(8 * size)}))
    assert retention.look(log, log.log_start, NOW_MS + 51) == 2, "two are too many, and of those one is too old"
    assert retention.look(log, log.log_start, NOW_MS + 55) == 5, "five are too old"


def test_records_of_the_first_moment_of_1970_are_old(harness: LogHarness) -> None:
    log = harness.log(retention_ms="50")
    send(log, batch(b"x", at=0), now_ms=harness.now_ms())
    log.roll(harness.now_ms())
    harness.commit(log)
    assert retention.look(log, log.log_start, harness.now_ms()) == 1


def test_truncation_at_the_end_forgets_an_epoch_that_has_nothing(harness: LogHarness) -> None:
    log = harness.log()
    fill(log, 20)
    log.lead(EPOCH + 1)
    assert log.epochs.entries() == [(EPOCH, 0), (EPOCH + 1, 20)]
    assert not log.truncate_to(20)
    assert log.epochs.entries() == [(EPOCH, 0)]


def test_truncation_below_everything_starts_there(harness: LogHarness) -> None:
    log, _ = ten_segments(harness, retention_ms="50")
    assert harness.retain(log, NOW_MS + 55) == 5
    assert log.truncate_to(3)
    assert (log.log_start, log.log_end, log.durable_end, log.recovery_point, bases(log)) == (3, 3, 3, 3, [3])
    assert append(log, b"x") == 3
    harness.restart()
    assert values(harness.log(retention_ms="50")) == [(3, b"x")]


def test_truncation_forgets_the_epochs_behind_it(harness: LogHarness) -> None:
    log = harness.log()
    fill(log, 20)
    log.lead(EPOCH + 1)
    append(log, b"x", epoch=EPOCH + 1)
    assert log.truncate_to(20)
    assert log.epochs.entries() == [(EPOCH, 0)]


def test_truncation_below_the_start_takes_the_start_along(harness: LogHarness) -> None:
    log = harness.log()
    fill(log, 20)
    harness.commit(log)
    log.delete_before(15)
    harness.settle(1.0)
    assert log.log_start == 15
    assert log.truncate_to(12)
    assert (log.log_start, log.log_end, values(log)) == (12, 12, [])
    assert append(log, b"x") == 12


@pytest.mark.parametrize("target", [0, 15, 35, 49])
def test_what_stays_of_a_truncated_log_is_made_durable_with_what_comes_next(sim: LogHarness, target: int) -> None:
    """Sealed segments that weren't synced yet are, those before the cut and the one that is cut."""
    for name in ("one", "two", "three"):
        log = sim.log(name, **SMALL)
        fill(log, 50)
        assert log.truncate_to(target)
        append(log, b"next")
        sim.commit(log)
    sim.power_loss()
    for name in ("one", "two", "three"):
        log = sim.log(name, **SMALL)
        assert (log.offline, log.log_end) == (None, target + 1)
        assert [offset for offset, _ in values(log)] == list(range(target + 1))
