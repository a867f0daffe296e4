"""A log that was cut is as one that never had the rest: read, searched, appended to, restarted, killed."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest
from tests.batches import TRANSACTIONAL, Batch, Producer, Sent
from tests.log.harness import EPOCH, NOW_MS, LogHarness, append, values
from tests.log.keyed import COMPACT, clean, pairs, put, roll

from tidelog.log.log import Log
from tidelog.wire.batch import build
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


def test_an_epoch_that_was_cut_off_begins_anew_with_the_next_record_of_it(harness: LogHarness) -> None:
    log = harness.log()
    for epoch in (EPOCH, EPOCH + 1, EPOCH + 1):
        append(log, b"x", epoch=epoch)
    assert log.truncate_to(1)
    assert log.epochs.entries() == [(EPOCH, 0)]
    assert append(log, b"y", epoch=EPOCH + 1) == 1
    assert log.epochs.entries() == [(EPOCH, 0), (EPOCH + 1, 1)]
