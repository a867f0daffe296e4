"""A slice of batches that have their offsets, as a follower gets it: one write, and the same log as one by one."""

import pytest
from tests.batches import ANYONE, Producer
from tests.log.harness import EPOCH, NOW_MS, LogHarness, append
from tests.log.keyed import end, put

from tidelog.env.network import Buffer
from tidelog.log.log import Log
from tidelog.log.producer_snapshot import encode_snapshot
from tidelog.sim.world.disk import SimDisk, SimFile
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import iterate
from tidelog.wire.errors import ErrorCode, KafkaError

SMALL = {"internal_segment_bytes": "2000", "index_interval_bytes": "100"}
KINDS = ({}, SMALL, {**SMALL, "segment_index_bytes": "36"}, {**SMALL, "tidelog_durability": "os"})
MEMORY = {"tidelog_storage": "memory", "retention_bytes": "1000000"}


def led(sim: LogHarness, seed: int) -> bytearray:
    """What some leaders wrote: plain batches, those of producers, and transactions, some of them aborted."""
    log, random = sim.log("leader", tidelog_durability="os"), SimRandom(seed)
    sequences = {1: 0, 2: 0}
    for n in range(60):
        epoch, kind = EPOCH + (n > 45), random.random_int(0, 3)
        if kind == 0 or epoch > EPOCH:
            append(log, b"plain", b"two", epoch=epoch, now_ms=NOW_MS + n)
        elif kind == 3:
            end(log, Producer(2, 0, 0), commit=bool(n % 2))
        else:
            sender = Producer(kind, 0, sequences[kind])
            put(log, (b"key", b"%d" % n * 20), now_ms=NOW_MS + n, producer=sender, transactional=kind == 2)
            sequences[kind] += 1
    return bytearray(b"".join(log.segments.file_of(segment).read(0, segment.size) for segment in log.segments))


def take(log: Log, data: bytearray, *, together: bool) -> None:
    if together:
        log.append_records(memoryview(data), 0, len(data), NOW_MS)
        return
    for header in iterate(data):
        log.append_records(memoryview(data), header.pos, header.end, NOW_MS)


def state(log: Log) -> list[object]:
    log.check_invariants()
    ends = log.ends
    segments = [
        (
            segment.base,
            log.segments.file_of(segment).read(0, segment.size),
            segment.max_timestamp,
            segment.max_timestamp_offset,
            None if segment.offsets is None else list(segment.offsets.positions),
            None if segment.times is None else list(segment.times.stamps),
        )
        for segment in log.segments
    ]
    aborted = [] if not log.log_end else log.aborted(0, log.read(0, 1 << 30, log.log_end) or pytest.fail("empty"))
    known = log.epochs.entries(), encode_snapshot(log.producers.items()), aborted
    return [segments, ends.log_end, ends.durable_end, ends.batches, log.segments.has_aborted, known]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", [*KINDS, MEMORY])
def test_a_slice_makes_the_same_log_as_its_batches_one_by_one(seed: int, settings: dict[str, str]) -> None:
    sim = LogHarness(SimDisk(SimRandom(seed)))
    data = led(sim, seed)
    one, other = (sim.log(name, **settings) for name in ("together", "apart"))
    take(one, data, together=True)
    take(other, data, together=False)
    assert state(one) == state(other)


def test_what_goes_to_one_segment_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = LogHarness(SimDisk(SimRandom(1)))
    leader, follower = sim.log("leader", tidelog_durability="os"), sim.log()
    for n in range(50):
        append(leader, b"%d" % n, producer=Producer(1, 0, n // 2) if n % 2 else ANYONE)
    written: list[int] = []
    real = SimFile.append

    def counted(file: SimFile, data: Buffer) -> None:
        written.append(len(data))
        real(file, data)

    data = bytearray(leader.read_bytes(0, 1 << 20, leader.log_end) or b"")
    append(follower, b"makes its files")
    follower.truncate_to(0)
    monkeypatch.setattr(SimFile, "append", counted)
    take(follower, data, together=True)
    assert written == [len(data)]


def test_what_comes_before_a_damaged_batch_was_appended() -> None:
    sim = LogHarness(SimDisk(SimRandom(1)))
    data = led(sim, 1)
    bad = list(iterate(data))[10]
    data[bad.end - 1] ^= 1
    log = sim.log()
    with pytest.raises(KafkaError) as refused:
        take(log, data, together=True)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.log_end == bad.base_offset
    log.check_invariants()


def test_a_slice_that_finds_no_room_leaves_nothing_behind() -> None:
    disk = SimDisk(SimRandom(1))
    sim = LogHarness(disk)
    data = led(sim, 1)
    log = sim.log()
    first = next(iterate(data))
    take(log, data[: first.end], together=True)
    disk.capacity = disk.used_bytes() + 100
    with pytest.raises(KafkaError):
        log.append_records(memoryview(data), first.end, len(data), NOW_MS)
    assert log.log_end == first.next_offset
    assert log.segments.file_of(log.segments[0]).size() == first.end


@pytest.mark.parametrize("begins", ["after a cut", "after a restart"])
def test_producers_that_are_not_read_yet_know_each_batch_of_a_slice_once(sim: LogHarness, begins: str) -> None:
    """The simulator found it: a batch that was noted twice took the place of one that its sender sent again."""
    leader = sim.log("leader", tidelog_durability="os")
    for sequence in range(5):
        put(leader, (b"key", b"value"), producer=Producer(1, 0, sequence))
    data = bytearray(b"".join(leader.segments.file_of(one).read(0, one.size) for one in leader.segments))
    first = next(iterate(data)).end
    log = sim.log("follower")
    log.append_records(memoryview(data), 0, len(data) if begins == "after a cut" else first, NOW_MS)
    sim.flush(log)
    if begins == "after a cut":
        log.truncate_to(1)
    else:
        sim.kill()
        sim.start()
        log = sim.log("follower")
    log.append_records(memoryview(data), first, len(data), NOW_MS)
    producer = log.producers.get(1)
    assert producer is not None
    assert [batch.first_sequence for batch in producer.window] == [0, 1, 2, 3, 4]
