"""A log that was cut is as one that never had the rest: read, searched, appended to, restarted, killed."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest
from tests.batches import TRANSACTIONAL, Batch, Producer, Sent
from tests.log.harness import EPOCH, NOW_MS, LogHarness, append, values
from tests.log.keyed import COMPACT, clean, pairs, put, roll

from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import marker_record

SMALL = {"internal_segment_bytes": "800", "index_interval_bytes": "100"}
STEPS = 60


class Step(NamedTuple):
    """A batch, its epoch, and the offset behind it."""

    data: bytes
    epoch: int
    end: int
    rolls: bool
    flushes: bool


def steps(seed: int) -> list[Step]:
    """Batches of nobody, of idempotent producers and in transactions, which markers end either way."""
    random = Random(seed)
    made: list[Step] = []
    sequences: dict[int, int] = {}
    open_ids: set[int] = set()
    epoch, end = EPOCH, 0
    for number in range(STEPS):
        epoch += random.random() < 0.1
        now_ms, kind, count = NOW_MS + number, random.random(), random.randint(1, 3)
        producer_id = random.choice((7, 8, 9))
        if open_ids and kind < 0.25:
            producer_id = random.choice(sorted(open_ids))
            open_ids.discard(producer_id)
            record = marker_record(0, now_ms, commit=random.random() < 0.5)
            data = bytes(build([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True))
            count = 1
        else:
            sent = [Sent(b"%d.%d" % (number, place)) for place in range(count)]
            if kind < 0.5:
                batch = Batch(sent, base_timestamp=now_ms)
            else:
                sequence = sequences.get(producer_id, 0)
                sequences[producer_id] = sequence + count
                batch = Batch(sent, base_timestamp=now_ms, producer=Producer(producer_id, 0, sequence))
                if producer_id != 7:
                    open_ids.add(producer_id)
                    batch.attributes = TRANSACTIONAL
            data = batch.encode()
        end += count
        made.append(Step(data, epoch, end, random.random() < 0.1, random.random() < 0.1))
    return made


def apply(harness: LogHarness, log: Log, *wanted: Step) -> None:
    for number, step in enumerate(wanted):
        view = memoryview(bytearray(step.data))
        log.append(view, 0, len(view), step.epoch, NOW_MS + number, internal=True)
        if step.rolls:
            log.roll(NOW_MS + number)
        if step.flushes:
            harness.flush(log)


def state(log: Log) -> dict[str, Any]:
    """All that anybody can see of a log."""
    assert log.offline is None
    log.check_invariants()
    log.producers.advance_high_watermark(log.log_end)  # as a replica does
    log.producers.check_invariants()
    aborted: set[Any] = set()
    at = log.log_start
    while (piece := log.read(at, 300, log.log_end)) is not None:
        aborted |= set(log.aborted(at, piece))
        at = values(log, at, 300)[-1][0] + 1 if values(log, at, 300) else log.log_end
    return {
        "ends": (log.log_start, log.log_end),
        "values": values(log),
        "epochs": log.epochs.entries(),
        "producers": {
            producer_id: (known.epoch, known.last_sequence, known.txn_first_offset)
            for producer_id, known in sorted(log.producers.items())
        },
        "unstable": log.producers.first_unstable,
        "aborted": sorted((each.producer_id, each.first_offset, each.last_offset) for each in aborted),
        "times": [log.find_by_time(NOW_MS + number, log.log_end) for number in range(0, STEPS, 7)],
    }


def after_restart(harness: LogHarness) -> None:
    harness.restart()


def after_kill(harness: LogHarness) -> None:
    harness.kill()


def after_power_loss(harness: LogHarness) -> None:
    harness.power_loss()


@pytest.mark.parametrize("then", [after_restart, after_kill, after_power_loss], ids=lambda then: then.__name__)
@pytest.mark.parametrize("seed", range(12))
def test_a_log_that_was_cut_is_as_one_that_never_had_the_rest(
    sim: LogHarness, seed: int, then: Callable[[LogHarness], None]
) -> None:
    random = Random(seed)
    made = steps(seed)
    kept = random.randint(1, STEPS - 2)
    cut, short = sim.log("cut", **SMALL), sim.log("short", **SMALL)
    apply(sim, cut, *made[: STEPS - 1])
    apply(sim, short, *made[:kept])
    state(cut)  # whatever is remembered of what is read is remembered now
    if random.random() < 0.3:
        sim.commit(cut)
    assert cut.truncate_to(made[kept - 1].end)
    assert cut.durable_end <= cut.log_end
    assert cut.recovery_point <= cut.log_end
    expected = state(short)
    assert state(cut) == expected
    if random.random() < 0.5:
        apply(sim, cut, made[kept])
        apply(sim, short, made[kept])
        expected = state(short)
        assert state(cut) == expected
    for log in (cut, short):
        sim.commit(log)
    then(sim)
    cut = sim.log("cut", **SMALL)
    assert state(cut) == expected
    assert append(cut, b"next", now_ms=NOW_MS + 999, epoch=made[-1].epoch) == expected["ends"][1]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_cut_in_turns_with_what_is_written_is_the_last_of_each(sim: LogHarness, seed: int) -> None:
    random = Random(seed)
    made = steps(seed)
    log, here = sim.log("cut", **SMALL), 0
    for _ in range(12):
        there = random.randint(here, STEPS)
        apply(sim, log, *made[here:there])
        here = random.randint(1, max(there, 1))
        if here < there:
            log.truncate_to(made[here - 1].end)
        else:
            here = there
        if random.random() < 0.3:
            sim.commit(log)
            random.choice((sim.restart, sim.kill, sim.power_loss))()
            log = sim.log("cut", **SMALL)
    short = sim.log("short", **SMALL)
    apply(sim, short, *made[:here])
    assert state(log) == state(short)


@pytest.mark.parametrize("then", [after_restart, after_kill, after_power_loss], ids=lambda then: then.__name__)
@pytest.mark.parametrize("target", range(1, 9))
@pytest.mark.parametrize("first", [b"k", b"another"])
def test_a_log_that_is_cut_behind_what_compaction_took_goes_on_where_it_was_cut(
    sim: LogHarness, first: bytes, target: int, then: Callable[[LogHarness], None]
) -> None:
    """Of eight records of one key only the last stays: a cut anywhere before it leaves nothing, and a place."""
    log = sim.log(**COMPACT)
    for number in range(8):
        put(log, (b"k" if number else first, b"%d" % number))
        if number in (3, 7):
            roll(sim, log)
    put(log, (b"other", b"x"))
    clean(sim, log)
    before = pairs(log)
    log.truncate_to(target)
    assert log.offline is None
    assert log.log_end == target
    assert pairs(log) == [each for each in before if each[0] < target]
    assert log.log_start == (0 if pairs(log) else target)
    put(log, (b"k", b"new"))
    sim.commit(log)
    then(sim)
    log = sim.log(**COMPACT)
    assert (log.offline, log.log_end) == (None, target + 1)
    assert pairs(log)[-1] == (target, b"k", b"new")


@pytest.mark.parametrize("then", [after_restart, after_kill], ids=lambda then: then.__name__)
@pytest.mark.parametrize("target", range(2, 8))
def test_a_log_that_was_cut_behind_what_compaction_left_ends_there_before_anything_is_written(
    sim: LogHarness, target: int, then: Callable[[LogHarness], None]
) -> None:
    log = sim.log(**COMPACT)
    for number in range(8):
        put(log, (b"k" if number else b"stays", b"%d" % number))
    put(log, (b"k", b"8"))
    roll(sim, log)
    put(log, (b"other", b"x"))
    clean(sim, log)
    log.truncate_to(target)
    assert (pairs(log), log.log_end) == ([(0, b"stays", b"0")], target)
    then(sim)
    log = sim.log(**COMPACT)
    assert (log.offline, pairs(log), log.log_end) == (None, [(0, b"stays", b"0")], target)


@pytest.mark.parametrize("waits", [0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_was_cut_to_a_place_where_nothing_is_keeps_it_when_the_power_goes(seed: int, waits: int) -> None:
    """It was offline after that: the start was saved, the segment that begins there was not durable yet."""
    sim = LogHarness(SimDisk(SimRandom(seed)))
    log = sim.log(**COMPACT)
    for number in range(8):
        put(log, (b"k", b"%d" % number))
        if number in (3, 7):
            roll(sim, log)
    put(log, (b"other", b"x"))
    clean(sim, log)
    log.truncate_to(5)
    sim.settle(waits)
    sim.power_loss()
    log = sim.log(**COMPACT)
    assert (log.offline, log.log_start, log.log_end) == (None, 5, 5)
    sim.loop.kill()


@pytest.mark.parametrize("then", [after_restart, after_kill, after_power_loss], ids=lambda then: then.__name__)
@pytest.mark.parametrize("offset", [0, 40, 1000])
def test_a_log_that_starts_anew_knows_nothing_of_before(
    sim: LogHarness, offset: int, then: Callable[[LogHarness], None]
) -> None:
    for seed in range(4):
        log = sim.log(f"anew-{seed}", **SMALL)
        made = steps(seed)
        apply(sim, log, *made)
        if seed % 2:
            sim.flush(log)
        state(log)
        log.truncate_fully_and_start_at(offset, NOW_MS)
        assert (log.log_start, log.log_end, log.durable_end, log.recovery_point) == (offset,) * 4
        assert (values(log), log.epochs.entries(), dict(log.producers.items())) == ([], [], {})
        assert append(log, b"new", epoch=made[-1].epoch + 1) == offset
        expected = state(log)
        assert expected["epochs"] == [(made[-1].epoch + 1, offset)]
        sim.commit(log)
        then(sim)
        assert state(sim.log(f"anew-{seed}", **SMALL)) == expected


@pytest.mark.parametrize("then", [after_restart, after_kill, after_power_loss], ids=lambda then: then.__name__)
@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        (lambda log: log.truncate_to(5), (5, 6)),
        (lambda log: log.truncate_fully_and_start_at(5, NOW_MS), (5, 6)),
        (lambda log: log.truncate_fully_and_start_at(0, NOW_MS), (0, 1)),
    ],
    ids=["cut", "anew", "anew at 0"],
)
def test_a_log_that_is_cut_before_the_start_that_was_saved_is_served_after_a_crash(
    sim: LogHarness, cut: Callable[[Log], object], kept: tuple[int, int], then: Callable[[LogHarness], None]
) -> None:
    """It was offline then: the recovery point was below all that, and the start stayed behind the end."""
    log = sim.log()
    for _ in range(10):
        append(log, b"x")
    sim.commit(log)
    log.high_watermark = 10
    log.delete_before(8)
    sim.settle(1)
    cut(log)
    assert append(log, b"new") == kept[0]
    sim.commit(log)
    then(sim)
    log = sim.log()
    assert (log.offline, log.log_start, log.log_end) == (None, *kept)
    assert values(log) == [(kept[0], b"new")]


def test_a_log_of_which_nothing_is_on_disk_yet_may_start_anywhere(harness: LogHarness) -> None:
    """A new follower of a leader whose first records were deleted long ago."""
    log = harness.log()
    log.truncate_fully_and_start_at(1000, NOW_MS)
    assert append(log, b"x") == 1000
    harness.commit(log)
    harness.kill()
    log = harness.log()
    assert (log.log_start, values(log)) == (1000, [(1000, b"x")])


def test_an_epoch_that_was_cut_off_begins_anew_with_the_next_record_of_it(harness: LogHarness) -> None:
    log = harness.log()
    for epoch in (EPOCH, EPOCH + 1, EPOCH + 1):
        append(log, b"x", epoch=epoch)
    assert log.truncate_to(1)
    assert log.epochs.entries() == [(EPOCH, 0)]
    assert append(log, b"y", epoch=EPOCH + 1) == 1
    assert log.epochs.entries() == [(EPOCH, 0), (EPOCH + 1, 1)]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_log_that_starts_anew_further_back_than_it_began_begins_there_after_a_restart(
    sim: LogHarness, end: str
) -> None:
    log = sim.log()
    for _ in range(60):
        append(log, b"x")
    sim.commit(log)
    log.delete_before(50)
    sim.settle(5)
    log.truncate_fully_and_start_at(10, sim.now_ms())
    append(log, b"anew")
    sim.commit(log)
    sim.settle(5)
    if end == "stop":
        sim.restart()
    else:
        sim.kill()
    log = sim.log()
    assert (log.offline, log.log_start, log.log_end) == (None, 10, 11)
    assert values(log) == [(10, b"anew")]


def test_what_is_written_after_a_cut_is_found_where_it_is(sim: LogHarness) -> None:
    log = sim.log()
    for _ in range(5):
        append(log, b"short")
        sim.commit(log)
    log.truncate_to(1)
    for value in (b"long" * 50, b"longer" * 50, b"x"):
        append(log, value)
    assert values(log) == [(0, b"short"), (1, b"long" * 50), (2, b"longer" * 50), (3, b"x")]
    for offset, value in values(log):
        piece = log.read(offset, 1 << 20, log.log_end)
        assert piece is not None
        assert value in bytes(piece.view())


@pytest.mark.parametrize("seed", range(6))
def test_segments_behind_a_cut_stay_gone_when_the_power_goes(seed: int) -> None:
    disk = SimDisk(SimRandom(seed))
    sim = LogHarness(disk)
    log = sim.log(internal_segment_bytes="300")
    for _ in range(12):
        append(log, b"x" * 50)
    sim.flush(log)
    behind = [segment.path for segment in log.segments[3:]]
    log.truncate_to(log.segments[2].base + 1)
    sim.loop.kill()
    disk.crash()
    assert [path for path in behind if disk.exists(path)] == []


@pytest.mark.parametrize("seed", range(6))
def test_segments_of_a_log_that_starts_anew_stay_gone_when_the_power_goes(seed: int) -> None:
    disk = SimDisk(SimRandom(seed))
    sim = LogHarness(disk)
    log = sim.log(internal_segment_bytes="300")
    for _ in range(12):
        append(log, b"x" * 50)
    sim.flush(log)
    old = [segment.path for segment in log.segments]
    log.truncate_fully_and_start_at(100, NOW_MS)
    sim.loop.kill()
    disk.crash()
    assert [path for path in old if disk.exists(path)] == []


def test_nothing_is_deleted_above_a_high_watermark_at_the_beginning(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"x")
    sim.commit(log)
    log.high_watermark = 0
    with pytest.raises(KafkaError) as caught:
        log.delete_before(1)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.high_watermark = 1
    assert log.delete_before(1) == 1


def test_a_log_that_is_closed_says_so_and_one_that_failed_before_why(sim: LogHarness) -> None:
    log, failed = sim.log(), sim.log("other")
    append(log, b"x")
    append(failed, b"x")
    failed.offline = "its disk is gone"
    for each in (log, failed):
        each.close()
        with pytest.raises(KafkaError) as caught:
            append(each, b"y")
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.offline, failed.offline) == ("the log is closed", "its disk is gone")


def test_a_log_that_starts_anew_further_on_is_served_when_the_power_goes_right_then(sim: LogHarness) -> None:
    """All segments go, durably, and the one that keeps the new place isn't durable yet: a checkpoint has all of it."""
    for partition in range(8):
        log = sim.log("tide", partition)
        for _ in range(22):
            append(log, b"x")
        sim.commit(log)
        sim.flush(log)
        log.truncate_fully_and_start_at(60, sim.now_ms())
        sim.power_loss()
        log = sim.log("tide", partition)
        assert log.offline is None
        assert (log.log_start, log.log_end) in ((0, 0), (60, 60))
        log.truncate_fully_and_start_at(60, sim.now_ms())
        assert append(log, b"y") == 60
        sim.commit(log)
