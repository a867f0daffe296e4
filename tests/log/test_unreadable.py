"""Bytes that the disk doesn't give back, or that somebody cut off: told to who asks, and nothing else stops."""

import errno
import logging
import os
from pathlib import Path

import pytest
from tests.log.harness import EPOCH, NOW_MS, LogHarness, append

from tidelog.env.disk import ReadableFile
from tidelog.env.real_disk import RealDisk
from tidelog.log.index import BLOCK_ENTRIES, OFFSET_ENTRY, IndexFile, SealedIndexes
from tidelog.log.log import Log
from tidelog.log.scrub import Scrub
from tidelog.log.unreadable import AGAIN_MS, RANGES_MAX, Unreadable, UnreadableBytes, readable
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import iterate
from tidelog.wire.errors import ErrorCode, KafkaError

SMALL = {"internal_segment_bytes": "20000", "index_interval_bytes": "200"}


@pytest.fixture
def real(tmp_path: Path) -> LogHarness:
    return LogHarness(RealDisk(), str(tmp_path))


@pytest.fixture
def simulated() -> LogHarness:
    disk = SimDisk(SimRandom(1))
    disk.make_folders("/data")
    return LogHarness(disk)


def filled(harness: LogHarness, count: int = 200) -> Log:
    log = harness.log(**SMALL)
    for number in range(count):
        append(log, (b"%d" % number).ljust(500), now_ms=NOW_MS + number)
    return log


def code_of(log: Log, offset: int) -> ErrorCode:
    with pytest.raises(KafkaError) as failed:
        log.read(offset, 1000, log.log_end)
    return failed.value.code


def first_read(log: Log, offset: int) -> int:
    data = log.read_bytes(offset, 1000, log.log_end)
    assert data is not None
    return next(iter(iterate(data))).base_offset


def test_an_index_that_somebody_made_shorter_is_read_again(real: LogHarness) -> None:
    """Its pages were mapped: a look at them ended the process."""
    filled(real)
    real.restart()
    log = real.log(**SMALL)
    middle = log.segments[1]
    assert first_read(log, middle.base + 5) == middle.base + 5
    os.truncate(middle.stem + ".index", 0)
    os.truncate(middle.stem + ".timeindex", 0)
    assert first_read(log, middle.base + 7) == middle.base + 7
    assert log.offline is None


def test_a_segment_that_somebody_made_shorter_takes_its_log_offline(real: LogHarness) -> None:
    """So says who reads it here, the coordinators and the metadata log; what was mapped ended the process."""
    log = filled(real)
    path = log.segments[0].stem + ".log"
    assert log.read_bytes(0, 15_000, log.log_end) is not None
    os.truncate(path, 100)
    with pytest.raises(KafkaError, match="somebody made it shorter"):
        log.read_bytes(0, 15_000, log.log_end)
    assert log.offline is not None
    assert path in log.offline


def test_what_is_before_and_behind_a_bad_sector_is_read(simulated: LogHarness) -> None:
    log = filled(simulated)
    disk = simulated.disk
    assert isinstance(disk, SimDisk)
    segment = log.segments[1]
    each = segment.size // (log.segments[2].base - segment.base)
    disk.bad[segment.stem + ".log"] = range(each * 10 + 100, each * 10 + 200)
    broken = segment.base + 10
    assert first_read(log, broken - 1) == broken - 1
    with pytest.raises(KafkaError, match=f"offset {broken} can't be read"):
        log.read_bytes(broken, 1000, log.log_end)
    piece = log.read(broken - 3, 1 << 20, log.log_end)
    assert piece is not None
    assert each <= len(piece) <= 3 * each + 100, "whole batches before it; how many, pages decide"
    assert first_read(log, broken + 1) == broken + 1
    append(log, b"goes on")
    assert first_read(log, log.log_end - 1) == log.log_end - 1


def test_a_bad_sector_is_asked_for_now_and_then(simulated: LogHarness) -> None:
    log = filled(simulated)
    disk = simulated.disk
    assert isinstance(disk, SimDisk)
    failed: list[str] = []
    disk.struck = failed.append
    disk.bad[log.segments[0].stem + ".log"] = range(100)
    with pytest.raises(KafkaError):
        log.read_bytes(0, 1000, log.log_end)
    asked = len(failed)
    assert [code_of(log, 0) for _ in range(50)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 50
    assert len(failed) == asked, "it isn't asked again and again"
    disk.bad.clear()
    assert code_of(log, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    simulated.settle(AGAIN_MS / 1000)
    assert first_read(log, 0) == 0
    assert log.segments.unreadable is None


def test_a_change_that_the_disk_refuses_takes_the_log_offline(
    simulated: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(simulated)

    def refuse(old: str, new: str) -> None:
        raise OSError(errno.EIO, "Input/output error", old)

    monkeypatch.setattr(simulated.disk, "rename", refuse)
    with pytest.raises(KafkaError):
        log.truncate_fully_and_start_at(1000, NOW_MS)
    assert log.offline is not None


def test_what_is_remembered_is_bounded() -> None:
    disk = SimDisk(SimRandom(1))
    disk.open("/f", create=True).append(bytes(20 * RANGES_MAX))
    disk.bad["/f"] = range(20 * RANGES_MAX)
    unreadable = Unreadable(Timeline())
    file = unreadable.careful(disk.open("/f"))
    for pos in range(0, 20 * RANGES_MAX, 10):
        with pytest.raises(UnreadableBytes) as failed:
            file.read(pos, 10)
        assert unreadable.is_news(failed.value)
        assert not unreadable.is_news(failed.value)
    assert len(unreadable) == RANGES_MAX


def test_what_is_known_of_unreadable_bytes_is_as_narrow_as_it_was_asked_for() -> None:
    disk = SimDisk(SimRandom(1))
    disk.open("/f", create=True).append(bytes(1000))
    disk.bad["/f"] = range(500, 510)
    struck: list[str] = []
    disk.struck = struck.append
    timeline = Timeline()
    unreadable = Unreadable(timeline)
    file = unreadable.careful(disk.open("/f"))

    def failures(*asked: tuple[int, int]) -> int:
        """How often the disk was asked in vain."""
        before = len(struck)
        for start, stop in asked:
            with pytest.raises(UnreadableBytes):
                file.read(start, stop - start)
        return len(struck) - before

    assert failures((0, 1000), (0, 1000)) == 1
    assert len(file.read(0, 500)) == 500
    assert failures((400, 600), (0, 1000), (300, 600), (400, 600)) == 1
    assert len(unreadable) == 1
    assert failures((450, 700), (440, 710)) == 1
    timeline.run_until(lambda: False, AGAIN_MS / 1000)
    assert failures((0, 1000), (0, 1000)) == 1
    disk.bad.clear()
    timeline.run_until(lambda: False, 2 * AGAIN_MS / 1000)
    assert len(file.read(0, 1000)) == 1000
    assert len(unreadable) == 0


def test_sealed_indexes_find_what_a_search_from_the_start_finds() -> None:
    disk = SimDisk(SimRandom(1))
    entries = [(3 * number + 2, 50 * number + 50) for number in range(3 * BLOCK_ENTRIES + 7)]
    disk.open("/o", create=True).append(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries))
    sealed = SealedIndexes(100, IndexFile(disk.open("/o")), IndexFile(disk.open("/t", create=True)))
    random = SimRandom(2)
    for _ in range(300):
        at = random.random_int(90, 100 + entries[-1][0] + 10)
        for offset in range(at, at + 5):  # near each other, as readers ask
            expected = max((position for last, position in entries if last <= offset - 100), default=0)
            assert sealed.lookup(offset) == expected


def sim_disk(harness: LogHarness) -> SimDisk:
    assert isinstance(harness.disk, SimDisk)
    return harness.disk


def errors_told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def restarted(harness: LogHarness) -> Log:
    """A filled log of which no sealed segment was looked at since the start."""
    harness.flush(filled(harness))
    harness.restart()
    return harness.log(**SMALL)


def scrubbed(harness: LogHarness, rounds: int) -> None:
    scrub = Scrub(harness.store.env, harness.store)
    for _ in range(rounds):
        scrub.step()
        harness.run(lambda: not scrub.busy)


def test_the_scrub_tells_of_a_bad_sector_and_the_partition_stays_online(
    simulated: LogHarness, caplog: pytest.LogCaptureFixture
) -> None:
    log = restarted(simulated)
    segment = log.segments[1]
    path = segment.stem + ".log"
    each = simulated.disk.size(path) // (log.segments[2].base - segment.base)
    sim_disk(simulated).bad[path] = range(each * 10 + 100, each * 10 + 200)
    scrubbed(simulated, 20)
    assert log.offline is None
    told = errors_told(caplog)
    assert len(told) == 1, "once, however many rounds"
    assert f"tide-0: offset {segment.base + 10} can't be read" in told[0]
    assert path in told[0]
    append(log, b"goes on")
    assert first_read(log, segment.base + 11) == segment.base + 11
    assert code_of(log, segment.base + 10) is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_scrub_goes_on_behind_a_segment_that_it_cannot_read(simulated: LogHarness) -> None:
    log = restarted(simulated)
    sim_disk(simulated).bad[log.segments[3].stem + ".log"] = range(100)
    damaged = log.segments[1].stem + ".log"  # the last one comes first
    sim_disk(simulated).flip_bit(damaged, 200, 201)
    scrubbed(simulated, 20)
    assert log.offline is not None
    assert damaged in log.offline


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_retention_that_cannot_look_passes_the_log_over(
    simulated: LogHarness, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """Both the index and the segment that it would be built from."""
    log = filled(simulated)
    simulated.flush(log)
    segment = log.segments[0]
    simulated.stop() if end == "stop" else simulated.loop.kill()
    simulated.disk.remove(segment.stem + ".index")
    simulated.start()
    sizes = {"retention_ms": "1000", "retention_bytes": "1000000000"}
    log = simulated.log(**SMALL, **sizes)
    log.high_watermark = log.log_end
    path = segment.stem + ".log"
    size = simulated.disk.size(path)
    sim_disk(simulated).bad[path] = range(size - 1000, size)
    for _ in range(3):
        with pytest.raises(KafkaError):
            simulated.retain(log, NOW_MS + 500)
    assert log.offline is None
    told = errors_told(caplog)
    assert len(told) == 1
    assert path in told[0]
    append(log, b"goes on")
    sim_disk(simulated).bad.clear()
    simulated.settle(AGAIN_MS / 1000)
    before = len(log.segments)
    assert simulated.retain(log, NOW_MS + 1_000_000) == before - 1, "when it can look again, it does"


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("bad", [100, 540, 1000])
def test_a_bad_sector_at_its_end_hides_no_more_of_a_segment(simulated: LogHarness, restart: bool, bad: int) -> None:
    log = filled(simulated)
    simulated.flush(log)
    if restart:
        simulated.restart()
        log = simulated.log(**SMALL)
    segment, behind = log.segments[1], log.segments[2].base
    path = segment.stem + ".log"
    size = simulated.disk.size(path)
    sim_disk(simulated).bad[path] = range(size - bad, size)
    each = size // (behind - segment.base)
    good = behind - -(-bad // each)
    for offset in range(segment.base, good):
        assert first_read(log, offset) == offset
    for offset in range(good, behind):
        assert code_of(log, offset) is ErrorCode.KAFKA_STORAGE_ERROR
    assert first_read(log, behind) == behind
    assert log.offline is None


def test_an_index_is_built_past_a_bad_sector_that_no_header_is_in(simulated: LogHarness) -> None:
    log = restarted(simulated)
    segment = log.segments[1]
    path = segment.stem + ".log"
    each = simulated.disk.size(path) // (log.segments[2].base - segment.base)
    sim_disk(simulated).bad[path] = range(each * 10 + 100, each * 10 + 200)
    simulated.disk.remove(segment.stem + ".index")
    assert first_read(log, segment.base + 20) == segment.base + 20
    assert first_read(log, segment.base + 9) == segment.base + 9
    assert code_of(log, segment.base + 10) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_segment_that_could_not_be_looked_at_is_not_taken_for_one_without_timestamps(simulated: LogHarness) -> None:
    log = restarted(simulated)
    segment = log.segments[1]
    simulated.disk.remove(segment.stem + ".timeindex")
    disk = sim_disk(simulated)
    disk.bad[segment.stem + ".log"] = range(100)
    wanted = NOW_MS + segment.base + 5
    for _ in range(2):
        with pytest.raises(KafkaError):
            log.find_by_time(wanted, log.log_end)
    disk.bad.clear()
    simulated.settle(AGAIN_MS / 1000)
    assert log.find_by_time(wanted, log.log_end) == (wanted, segment.base + 5, EPOCH)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_search_by_time_builds_an_index_again_that_cannot_be_read_any_more(
    simulated: LogHarness, suffix: str
) -> None:
    log = restarted(simulated)
    segment = log.segments[1]
    wanted = NOW_MS + segment.base + 5
    found = wanted, segment.base + 5, EPOCH
    assert log.find_by_time(wanted, log.log_end) == found
    path = segment.stem + suffix
    sim_disk(simulated).bad[path] = range(simulated.disk.size(path))
    segment.sealed = None if suffix == ".index" else segment.sealed
    assert log.find_by_time(wanted, log.log_end) == found
    assert log.find_by_time(wanted + 1, log.log_end) == (wanted + 1, segment.base + 6, EPOCH)


def test_a_clock_that_is_set_back_does_not_hide_what_can_be_read_again(
    simulated: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(simulated)
    disk = sim_disk(simulated)
    disk.bad[log.segments[0].stem + ".log"] = range(100)
    with pytest.raises(KafkaError):
        log.read_bytes(0, 1000, log.log_end)
    disk.bad.clear()
    dated = simulated.timeline.now_ms
    monkeypatch.setattr(simulated.timeline, "now_ms", lambda: dated() - 3_600_000)
    simulated.settle(AGAIN_MS / 1000)
    assert first_read(log, 0) == 0


def test_what_is_asked_before_a_bad_sector_does_not_ask_for_it_each_time(simulated: LogHarness) -> None:
    log = filled(simulated)
    disk = sim_disk(simulated)
    segment = log.segments[1]
    each = segment.size // (log.segments[2].base - segment.base)
    disk.bad[segment.stem + ".log"] = range(each * 10 + 100, each * 10 + 200)
    broken = segment.base + 10
    with pytest.raises(KafkaError):
        log.read_bytes(broken, 1000, log.log_end)
    struck: list[str] = []
    disk.struck = struck.append
    for _ in range(100):
        assert log.read(broken - 1, 1 << 20, log.log_end) is not None
    for offset in range(segment.base, broken):
        assert log.read(offset, 1 << 20, log.log_end) is not None
    assert len(struck) <= 10, "once for each place that is asked from, at most"
    simulated.settle(AGAIN_MS / 1000)
    struck.clear()
    for _ in range(100):
        assert log.read(broken - 1, 1 << 20, log.log_end) is not None
    assert 1 <= len(struck) <= 3, "and again after a while"


def test_all_offsets_of_a_bad_batch_are_one(simulated: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    log = simulated.log()
    append(log, *[b"x"] * 1000)
    append(log, b"y")
    disk = sim_disk(simulated)
    struck: list[str] = []
    disk.struck = struck.append
    disk.bad[log.segments[0].stem + ".log"] = range(2000, 2100)
    for offset in range(1000):
        with pytest.raises(KafkaError, match=f"offset {offset} can't be read"):
            log.read_bytes(offset, 1000, log.log_end)
    assert len(struck) <= 5
    assert len(errors_told(caplog)) == 1
    assert first_read(log, 1000) == 1000


def test_a_bad_sector_in_one_segment_makes_no_fetch_of_others_dearer(
    simulated: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = restarted(simulated)
    sim_disk(simulated).bad[log.segments[1].stem + ".log"] = range(100)
    scrubbed(simulated, 20)
    looked: list[str] = []

    def look(file: ReadableFile, pos: int, count: int) -> int:
        looked.append(file.path)
        return readable(file, pos, count)

    monkeypatch.setattr("tidelog.log.reading.readable", look)
    for offset in (0, log.segments[1].base + 5, log.segments[2].base, log.log_end - 1):
        assert first_read(log, offset) == offset
    assert looked == [log.segments[1].stem + ".log"]


class OnceUnreadable:
    """A file that the disk doesn't give back when it is first asked for much of it."""

    path = "t-0/0.log"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.failures = 1

    def size(self) -> int:
        return len(self._data)

    def read(self, pos: int, count: int) -> bytes:
        if count > 4096 and self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error", self.path)
        return self._data[pos : pos + count]


@pytest.mark.parametrize("size", [5000, 8192, 26_355, 70_000])
def test_what_can_be_read_after_all_ends_where_the_file_does(size: int) -> None:
    """The last page isn't a whole one: that the file ends in it is no damage."""
    first = bytes(8) + (88).to_bytes(4)
    file = OnceUnreadable(first + bytes(size - len(first)))
    assert readable(file, 0, size) == size
    assert file.failures == 0


def test_what_could_not_be_read_of_a_log_that_starts_anew_is_forgotten(simulated: LogHarness) -> None:
    """A follower drops all and copies it again: its files have the names that the bad ones had."""
    log = filled(simulated, 3)
    disk, path = simulated.disk, log.segments[0].stem + ".log"
    assert isinstance(disk, SimDisk)
    disk.bad[path] = range(700)
    assert code_of(log, 0) == ErrorCode.KAFKA_STORAGE_ERROR
    del disk.bad[path]
    log.truncate_fully_and_start_at(0, NOW_MS)
    for number in range(3):
        append(log, (b"%d" % number).ljust(500))
    assert [first_read(log, offset) for offset in range(3)] == [0, 1, 2]
