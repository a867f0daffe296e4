"""Index files after kills, power losses and damage: whatever they hold, searches find what the log holds."""

from collections.abc import Callable

import pytest
from tests.log.harness import EPOCH, NOW_MS, LogHarness, append, batch, send, values

from tidelog.env.promise import Promise
from tidelog.log.index import OFFSET_ENTRY
from tidelog.log.log import Log
from tidelog.log.names import OFFSET_INDEX, TIME_INDEX
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom

SMALL = {"internal_segment_bytes": "3000", "index_interval_bytes": "200"}
COUNT = 115
DAMAGE = ("missing", "empty", "torn", "cut at an entry", "zeros", "zeros inside", "garbage", "a newer end")


def stamp_of(number: int) -> int:
    """They rise, but for every third."""
    return NOW_MS + 10 * number - (35 if number % 3 == 0 else 0)


def fill(log: Log, start: int = 0, count: int = COUNT) -> None:
    for n in range(start, start + count):
        append(log, b"%d" % n, now_ms=stamp_of(n))


def check_times(log: Log) -> None:
    """Each search by time gives the first record that is new enough."""
    stamps = [stamp_of(n) for n in range(log.log_end)]
    for wanted in range(NOW_MS - 40, NOW_MS + 10 * log.log_end, 13):
        first = next(((stamp, n, EPOCH) for n, stamp in enumerate(stamps) if stamp >= wanted), None)
        assert log.find_by_time(wanted, log.log_end) == first
    assert [offset for offset, _ in values(log, max_bytes=100)] == [*range(log.log_end)]


def damage(sim: LogHarness, path: str, how: str) -> None:
    """On the platter and in the cache."""
    if how == "missing":
        sim.disk.remove(path)
        return
    assert isinstance(sim.disk, SimDisk)
    data = sim.disk.read_whole(path)
    entry = 12 if path.endswith(TIME_INDEX) else 8
    half = len(data) // entry // 2 * entry
    left = {
        "empty": b"",
        "torn": data[: half + 3],
        "cut at an entry": data[:half],
        "zeros": bytes(len(data)),
        "zeros inside": data[:half] + bytes(entry) + data[half + entry :],
        "garbage": bytes(n * 91 % 251 for n in range(len(data))),
        "a newer end": data[:-entry] + b"\x00" + b"\x7f" * (entry - 5) + data[-4:],
    }[how]
    sim.disk.put(path, left)


@pytest.mark.parametrize("end", ["kill", "power loss", "stop"])
@pytest.mark.parametrize("segment", ["first", "last"])
@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("suffix", [OFFSET_INDEX, TIME_INDEX])
def test_whatever_is_wrong_with_an_index_is_built_again(
    sim: LogHarness, suffix: str, how: str, segment: str, end: str
) -> None:
    log = sim.log(**SMALL)
    fill(log)
    sim.flush(log)
    path = log.segments[0 if segment == "first" else -1].stem + suffix
    if end == "stop":
        sim.stop()
    else:
        sim.loop.kill()
    damage(sim, path, how)
    if end == "power loss":
        assert isinstance(sim.disk, SimDisk)
        sim.disk.crash()
    sim.start()
    log = sim.log(**SMALL)
    check_times(log)
    sim.settle(1)
    sim.kill()
    check_times(sim.log(**SMALL))


@pytest.mark.parametrize("seed", range(10))
def test_an_index_that_was_built_again_is_whole_after_a_power_loss(seed: int) -> None:
    sim = LogHarness(SimDisk(SimRandom(seed)))
    log = sim.log(**SMALL)
    fill(log)
    sim.flush(log)
    paths = [segment.stem + suffix for segment in log.segments for suffix in (OFFSET_INDEX, TIME_INDEX)]
    sim.loop.kill()
    for path in paths[: 2 + seed]:
        sim.disk.remove(path)
    sim.start()
    log = sim.log(**SMALL)
    check_times(log)
    sim.settle((0, 0.001, 1)[seed % 3])
    sim.power_loss()
    check_times(sim.log(**SMALL))
    sim.loop.kill()


@pytest.mark.parametrize("interval", ["200", "4096"])
def test_a_kill_right_after_a_segment_rolled_hides_no_record(sim: LogHarness, interval: str) -> None:
    """All was flushed before: the recovery point is where the new segment begins."""
    topic = {"index_interval_bytes": interval, "retention_ms": "100000"}
    log = sim.log(**topic)
    for n in range(20):
        send(log, batch(b"%d" % n, at=stamp_of(n)), now_ms=NOW_MS)
    sim.flush(log)
    sim.store.upkeep.stop()
    log.roll(NOW_MS)
    send(log, batch(b"20", at=stamp_of(20)), now_ms=NOW_MS)
    sim.commit(log)
    for _ in range(2):
        sim.kill()
        log = sim.log(**topic)
        assert log.recovery_point == 20
        check_times(log)
    log.high_watermark = 21
    sim.timeline.run_until(lambda: False, sim.timeline.now + 50)
    sim.kill()
    log = sim.log(**topic)
    log.high_watermark = 21
    assert sim.retain(log, NOW_MS + 100_000 + 195) == 1, "its last record is of 190 ms after the first"


def shift_positions(sim: LogHarness, path: str) -> None:
    """Each entry in its order, none where a batch begins: only a look at the segment tells."""
    file = sim.disk.open(path)
    entries = OFFSET_ENTRY.iter_unpack(file.read(0, file.size()))
    file.truncate(0)
    file.append(b"".join(OFFSET_ENTRY.pack(offset, position + 7) for offset, position in entries))
    file.sync()


@pytest.mark.parametrize("saved", ["no room", "not yet", "yes"])
def test_a_damaged_index_is_not_trusted_once_the_one_built_again_is_dropped(sim: LogHarness, saved: str) -> None:
    log = sim.log(**SMALL)
    fill(log)
    sim.flush(log)
    sim.restart()
    log = sim.log(**SMALL)
    segment = log.segments[1]
    shift_positions(sim, segment.stem + OFFSET_INDEX)
    assert isinstance(sim.disk, SimDisk)
    if saved == "no room":
        sim.disk.capacity = sim.disk.used_bytes()
    for _ in range(2):
        assert values(log, segment.base + 8, max_bytes=100)[0][0] == segment.base + 8
        if saved != "not yet":
            sim.settle(1)
        assert segment.indexed == (saved == "yes")
        segment.sealed = None  # others were read since
    assert log.offline is None


def test_a_damaged_index_is_not_trusted_after_opening_on_a_full_disk(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    fill(log)
    sim.flush(log)
    segment = log.segments[1]
    sim.loop.kill()
    shift_positions(sim, segment.stem + OFFSET_INDEX)
    sim.disk.remove(f"{log.folder}/leader-epoch-checkpoint")  # so that opening goes through the segments
    assert isinstance(sim.disk, SimDisk)
    sim.disk.capacity = sim.disk.used_bytes()
    sim.start()
    log = sim.log(**SMALL)
    sim.disk.capacity = None
    check_times(log)
    assert log.offline is None


def test_an_index_that_was_saved_late_does_not_replace_that_of_new_batches(
    sim: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segment was cut meanwhile, filled with others and sealed again."""
    log = sim.log(**SMALL)
    for n in range(COUNT):
        append(log, b"long".ljust(150), now_ms=stamp_of(n))
    sim.flush(log)
    sim.restart()
    log = sim.log(**SMALL)
    segment = log.segments[1]
    sim.disk.remove(segment.stem + OFFSET_INDEX)
    held: list[tuple[Callable[[], None], Promise[None]]] = []

    def hold(work: Callable[[], None]) -> Promise[None]:
        held.append((work, Promise()))
        return held[-1][1]

    with monkeypatch.context() as patched:
        patched.setattr(sim.loop, "run_blocking", hold)
        assert values(log, segment.base + 5, max_bytes=100)
    assert len(held) == 1
    log.truncate_to(segment.base + 6)
    for n in range(segment.base + 6, COUNT):
        append(log, b"shorter".ljust(100), now_ms=stamp_of(n))
    sim.flush(log)
    assert any(segment is other for other in log.segments[:-1])
    for work, saved in held:
        work()
        saved.resolve(None)
    sim.store.files.forget(segment)
    check_times(log)
    sim.restart()
    check_times(sim.log(**SMALL))


@pytest.mark.parametrize("number", [1, -1], ids=["sealed", "last"])
def test_a_wrong_byte_in_an_index_costs_nothing(sim: LogHarness, number: int) -> None:
    """Whichever it is: each offset is found, and the log stays online."""
    log = sim.log(**SMALL)
    fill(log)
    path = log.segments[number].stem + OFFSET_INDEX
    sim.stop()
    assert isinstance(sim.disk, SimDisk)
    sound = sim.disk.read_whole(path)
    assert len(sound) > 5 * OFFSET_ENTRY.size
    for at in range(len(sound)):
        sim.disk.put(path, sound[:at] + bytes((sound[at] ^ 0x15,)) + sound[at + 1 :])
        sim.start()
        log = sim.log(**SMALL)
        segment = log.segments[number]
        end = log.log_end if number < 0 else log.segments[number + 1].base
        for offset in range(segment.base, end):
            piece = log.read(offset, 100, log.log_end)
            assert piece is not None, (at, offset)
            assert int.from_bytes(piece.view()[:8]) == offset, (at, offset)
        assert log.offline is None
        sim.stop()
