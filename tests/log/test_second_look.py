"""Where acknowledged records could be lost, or deleted ones come back: each of these once was so."""

from collections.abc import Callable

import pytest
from tests.batches import Producer
from tests.log.harness import ROOT, TOPIC_ID, CountingDisk, LogHarness, append, values
from tests.log.keyed import clean, compacted, end, put, roll

from tidelog.env.promise import Promise
from tidelog.log.log import Log
from tidelog.log.names import SNAPSHOT
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import Death
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import iterate
from tidelog.wire.errors import ErrorCode, KafkaError

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "200"}
NEXT_ID = bytes(15) + b"\x01"
FIRST = f"{0:020d}"


class Picky(CountingDisk):
    """Refuses to rename or to write what `refuses` says."""

    refuses: Callable[[str], bool] = staticmethod(lambda _: False)

    def rename(self, old: str, new: str) -> None:
        if self.refuses(new):
            raise OSError(28, "no space left", new)
        super().rename(old, new)


@pytest.fixture
def picky() -> LogHarness:
    return LogHarness(Picky(SimRandom(7)))


def fill(log: Log, count: int) -> None:
    for n in range(count):
        append(log, b"%d" % n)


def forget(harness: LogHarness, path: str, size: int) -> None:
    """The power went, and this is what is left of a file."""
    assert isinstance(harness.disk, SimDisk)
    harness.disk.put(path, harness.disk.read_whole(path)[:size])


def die_in_a_flush(harness: LogHarness, log: Log) -> None:
    """What it writes is there, under its name: the folder is not synced yet, and no recovery point moved."""

    def renamed(path: str) -> None:
        if path.endswith(SNAPSHOT):
            harness.loop.kill()
            raise Death

    assert isinstance(harness.disk, SimDisk)
    harness.disk.renamed = renamed
    harness.store.flush_soon(log)
    harness.run(lambda: not harness.loop.alive)
    harness.disk.renamed = None


def test_the_start_of_a_log_doesn_t_fall_with_what_the_page_cache_lost(sim: LogHarness) -> None:
    """tidelog.durability=os: DeleteRecords was durable, the records weren't. No offset is given twice."""
    log = sim.log(tidelog_durability="os")
    fill(log, 30)
    log.high_watermark = 30
    log.delete_before(20)
    sim.settle(1)
    sim.disk.sync_folder(ROOT)
    sim.loop.kill()
    forget(sim, f"{log.folder}/{FIRST}.log", log.size_bytes() // 3)
    sim.start()
    log = sim.log(tidelog_durability="os")
    assert (log.offline, log.log_start, log.log_end) == (None, 20, 20)
    assert append(log, b"new") == 20
    sim.restart()
    assert values(sim.log(tidelog_durability="os")) == [(20, b"new")]


def test_the_start_of_a_deleted_topic_is_not_that_of_the_next_one_of_its_name(harness: LogHarness) -> None:
    log = harness.log()
    fill(log, 30)
    harness.flush(log)
    log.high_watermark = 30
    log.delete_before(20)
    harness.settle(1)
    harness.store.delete("tide", 0, TOPIC_ID)
    harness.settle(1)
    harness.kill()
    log = harness.log(topic_id=NEXT_ID)
    assert append(log, b"a") == 0
    harness.commit(log)
    harness.restart()
    log = harness.log(topic_id=NEXT_ID)
    assert (log.offline, log.log_start, values(log)) == (None, 0, [(0, b"a")])


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_log_has_no_hole_where_a_segment_lost_its_unsynced_end(sim: LogHarness, policy: str) -> None:
    log = sim.log(**SMALL, cleanup_policy=policy)
    while len(log.segments) < 2:
        put(log, (b"k", b"v"))
    sim.flush(log)
    durable = log.recovery_point
    while len(log.segments) < 5:
        put(log, (b"k", b"v"))
    path = log.segments[-2].stem + ".log"
    last = list(iterate(sim.disk.read_whole(path)))[-1]
    sim.loop.kill()
    forget(sim, path, last.pos)
    sim.start()
    log = sim.log(**SMALL, cleanup_policy=policy)
    assert (log.offline, log.log_end) == (None, last.base_offset)
    assert last.base_offset > durable
    assert [offset for offset, _ in values(log)] == list(range(last.base_offset))
    assert put(log, (b"k", b"again")) == last.base_offset


def test_holes_that_compaction_made_stay_after_a_crash(sim: LogHarness) -> None:
    log = compacted(sim, internal_segment_bytes="100000")
    for n in range(3):
        put(log, (b"a", b"%d" % n), (b"b", b"%d" % n))
        roll(sim, log)
    put(log, (b"c", b"end"))
    sim.commit(log)
    clean(sim, log)
    before = values(log)
    assert len(before) == 3
    sim.kill()
    log = compacted(sim, internal_segment_bytes="100000")
    assert (log.offline, log.log_end, values(log)) == (None, 7, before)


def test_compaction_waits_until_the_recovery_point_is_saved(picky: LogHarness) -> None:
    log = compacted(picky, internal_segment_bytes="100000")
    put(log, (b"a", b"1"), (b"b", b"1"))
    log.roll(picky.now_ms())
    put(log, (b"a", b"2"))
    log.roll(picky.now_ms())
    assert isinstance(picky.disk, Picky)
    picky.disk.refuses = lambda path: "recovery-point" in path
    picky.flush(log)
    clean(picky, log)
    assert len(values(log)) == 3
    picky.disk.refuses = lambda _: False
    put(log, (b"c", b"3"))
    picky.flush(log)
    clean(picky, log)
    assert len(values(log)) == 3
    assert values(log)[0] == (1, b"1")


def test_an_empty_segment_in_the_middle_of_another_hides_nothing(harness: LogHarness) -> None:
    log = harness.log()
    fill(log, 10)
    harness.commit(log)
    harness.loop.kill()
    harness.disk.open(f"{log.folder}/{5:020d}.log", create=True)
    harness.start()
    log = harness.log()
    assert (log.offline, log.log_end, len(values(log))) == (None, 10, 10)


def aborted_ids(log: Log) -> list[int]:
    assert log.producers is not None
    piece = log.read(0, 1000, log.log_end)
    assert piece is not None
    return [entry.producer_id for entry in log.aborted(0, piece)]


def test_a_flush_that_the_power_cut_short_shows_nothing_that_was_aborted(sim: LogHarness) -> None:
    """Its snapshot of producers is there, what it was to make durable of the transaction index isn't."""
    log, producer = sim.log(), Producer(8, 0, 0)
    append(log, b"first")
    sim.flush(log)
    put(log, (b"k", b"aborted"), producer=producer, transactional=True)
    end(log, producer, commit=False)
    sim.commit(log)
    die_in_a_flush(sim, log)
    sim.disk.remove(f"{log.folder}/{FIRST}.txnindex")
    sim.start()
    assert aborted_ids(sim.log()) == [8]


@pytest.mark.parametrize("zeros", [2, 10, 18, 34])
def test_half_an_entry_of_the_transaction_index_is_not_trusted(sim: LogHarness, zeros: int) -> None:
    log, good, bad = sim.log(), Producer(0, 0, 0), Producer(9, 0, 0)
    put(log, (b"k", b"committed"), producer=good, transactional=True)
    end(log, good, commit=True)
    put(log, (b"k", b"aborted"), producer=bad, transactional=True)
    end(log, bad, commit=False)
    sim.commit(log)
    sim.loop.kill()
    assert isinstance(sim.disk, SimDisk)
    path = f"{log.folder}/{FIRST}.txnindex"
    sim.disk.put(path, bytes(zeros) + sim.disk.read_whole(path)[zeros:])
    sim.start()
    assert aborted_ids(sim.log()) == [9]


@pytest.mark.parametrize("seed", range(10))
def test_what_flush_messages_made_durable_is_so_after_a_restart_too(seed: int) -> None:
    sim = LogHarness(SimDisk(SimRandom(seed)))
    topic = {"tidelog_durability": "os", "flush_messages": "1"}
    log = sim.log(**topic)
    fill(log, 30)
    sim.commit(log)
    assert log.durable_end == 30
    sim.kill()
    assert sim.log(**topic).log_end == 30
    sim.power_loss()
    assert sim.log(**topic).log_end == 30
    sim.loop.kill()


def test_a_swap_of_which_the_segment_is_missing_changes_no_index(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    fill(log, 60)
    folder, expected = log.folder, values(log)
    harness.stop()
    index = harness.disk.read_whole(f"{folder}/{FIRST}.index")
    harness.disk.write_whole(f"{folder}/{FIRST}.index.swap", bytes(16))
    harness.start()
    assert values(harness.log(**SMALL)) == expected
    assert harness.disk.read_whole(f"{folder}/{FIRST}.index") == index


def test_what_another_cleaning_left_over_undoes_no_swap(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    fill(log, 60)
    second, expected, folder = f"{log.segments[1].base:020d}", values(log), log.folder
    harness.stop()
    for suffix in (".index", ".timeindex", ".log"):
        harness.disk.rename(f"{folder}/{second}{suffix}", f"{folder}/{second}{suffix}.swap")
    harness.disk.write_whole(f"{folder}/{FIRST}.0123456789abcdef.log.cleaned", b"half")
    harness.start()
    assert values(harness.log(**SMALL)) == expected


def test_a_folder_that_could_not_be_put_away_is_not_the_next_topic_s(picky: LogHarness) -> None:
    log = picky.log(**SMALL)
    fill(log, 60)
    picky.commit(log)
    assert isinstance(picky.disk, Picky)
    picky.disk.refuses = lambda path: path.endswith("-delete")
    picky.store.delete("tide", 0, TOPIC_ID)
    assert "can't be renamed" in (picky.log(topic_id=NEXT_ID, **SMALL).offline or "")
    picky.store.delete("tide", 0, NEXT_ID)
    picky.disk.refuses = lambda _: False
    log = picky.log(topic_id=NEXT_ID, **SMALL)
    assert append(log, b"new") == 0
    picky.restart()
    assert values(picky.log(topic_id=NEXT_ID, **SMALL)) == [(0, b"new")]


def test_an_old_topic_s_records_are_not_the_next_one_s_when_the_power_brought_its_folder_back(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"never made durable")
    sim.loop.kill()
    forget(sim, f"{log.folder}/partition.metadata", 0)
    sim.start()
    assert values(sim.log(topic_id=NEXT_ID)) == []
    assert [name for name in sim.disk.list_folder(ROOT) if name.endswith("-stray")]


@pytest.mark.parametrize("seed", range(5))
def test_a_folder_that_was_named_again_keeps_its_name(seed: int) -> None:
    """The first crash left an empty folder, without a name."""
    sim = LogHarness(SimDisk(SimRandom(seed)))
    folder = sim.log().folder
    sim.disk.make_folders(folder)
    sim.kill()
    log = sim.log()
    append(log, b"a")
    sim.commit(log)
    sim.power_loss()
    assert values(sim.log()) == [(0, b"a")]
    sim.loop.kill()


def test_a_start_that_was_acknowledged_outlives_an_older_fall(picky: LogHarness) -> None:
    """The new topic's first write had the offsets of the deleted one fall, and not all files could be written."""
    log = picky.log()
    fill(log, 30)
    picky.flush(log)
    log.high_watermark = 30
    log.delete_before(20)
    picky.settle(1)
    picky.store.delete("tide", 0, TOPIC_ID)
    assert isinstance(picky.disk, Picky)
    picky.disk.refuses = lambda path: path.endswith("recovery-point-offset-checkpoint")
    log = picky.log(topic_id=NEXT_ID)
    fill(log, 30)
    picky.commit(log)
    picky.settle(1)
    log.high_watermark = 30
    log.delete_before(10)
    refused = picky.store.starts.saved(log)
    picky.run(lambda: refused.done)
    assert isinstance(refused.error, OSError), "a crash now would have brought the records back"
    assert log.log_start == 0
    picky.disk.refuses = lambda _: False
    log.delete_before(10)
    saved = picky.store.starts.saved(log)
    picky.run(lambda: saved.done)
    saved.result()
    picky.power_loss()
    log = picky.log(topic_id=NEXT_ID)
    assert (log.offline, log.log_start, log.log_end) == (None, 10, 30)


def test_a_torn_batch_right_at_the_recovery_point_is_cut(sim: LogHarness) -> None:
    """The flush that was to move the point had written its index entry."""
    assert isinstance(sim.disk, SimDisk)
    log = sim.log(index_interval_bytes="0")
    fill(log, 8)
    sim.flush(log)
    append(log, b"torn")
    die_in_a_flush(sim, log)
    sim.disk.flip_bit(f"{log.folder}/{FIRST}.log", log.size_bytes() - 1, log.size_bytes())
    sim.start()
    log = sim.log(index_interval_bytes="0")
    assert (log.offline, log.log_end) == (None, 8)
    assert append(log, b"next") == 8


def test_without_the_recovery_points_only_the_last_segment_is_cut(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    fill(log, 60)
    sim.flush(log)
    sim.loop.kill()
    assert isinstance(sim.disk, SimDisk)
    sim.disk.write_whole(f"{ROOT}/recovery-point-offset-checkpoint", b"not\na checkpoint")
    damaged = log.segments[1].stem + ".log"
    sim.disk.flip_bit(damaged, 30, 31)
    sim.start()
    log = sim.log(**SMALL)
    assert log.offline is not None
    assert damaged in log.offline
    assert "the recovery point is not known" in log.offline


def test_segments_that_were_truncated_away_do_not_come_back_beside_what_took_their_place(sim: LogHarness) -> None:
    log = sim.log(**SMALL)
    fill(log, 60)
    sim.flush(log)
    for seed in range(10):
        log.truncate_to(log.segments[1].base + 1)
        end_before = log.log_end
        while len(log.segments) < 3:
            append(log, b"new")
        sim.commit(log)
        expected = values(log)
        assert isinstance(sim.disk, SimDisk)
        sim.disk.random = SimRandom(seed)
        sim.power_loss()
        log = sim.log(**SMALL)
        assert (log.offline, values(log)) == (None, expected)
        assert log.log_end > end_before


class Stopper:
    """Stops the store as soon as something is durable, as whoever waited for that may do."""

    def __init__(self, harness: LogHarness) -> None:
        self._shore = harness
        self.stopped: Promise[None] | None = None

    def durable_advanced(self, log: Log) -> None:
        self.stopped = self.stopped or self._shore.store.stop()

    def went_offline(self, log: Log) -> None: ...


def test_a_stop_that_begins_while_note_is_taken_of_a_flush_saves_its_recovery_point(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    harness.flush(log)
    append(log, b"b")
    stopper = log.listener = Stopper(harness)
    harness.store.flush_soon(log)
    harness.run(lambda: stopper.stopped is not None and stopper.stopped.done)
    harness.loop.kill()
    harness.start()
    assert values(harness.log()) == [(0, b"a"), (1, b"b")]


def test_what_fell_is_settled_by_a_stop(picky: LogHarness) -> None:
    """A fall of the recovery point that outlives the stop would have the next start take the log for damaged."""
    log = compacted(picky)
    put(log, *((b"%d" % n, b"x") for n in range(30)))
    roll(picky, log)
    clean(picky, log)
    assert isinstance(picky.disk, Picky)
    picky.disk.refuses = lambda path: path.endswith("cleaner-offset-checkpoint")
    picky.store.delete("tide", 0, TOPIC_ID)
    log = picky.log(topic_id=NEXT_ID)
    fill(log, 10)
    picky.commit(log)
    picky.settle(1)
    picky.disk.refuses = lambda _: False
    picky.restart()
    log = picky.log(topic_id=NEXT_ID)
    assert (len(values(log)), log.log_end) == (10, 10)
    assert append(log, b"next") == 10


def test_a_log_that_is_not_what_its_checkpoint_says_is_offline_for_producers(harness: LogHarness) -> None:
    fill(harness.log(), 5)
    folder = harness.log().folder
    harness.stop()
    harness.disk.open(f"{folder}/{FIRST}.log").truncate(0)
    harness.start()
    log = harness.log()
    with pytest.raises(KafkaError) as refused:
        append(log, b"x")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is not None


def test_a_flush_of_a_deleted_topic_writes_nothing_into_the_folder_of_the_next(sim: LogHarness) -> None:
    """It knows its files by name."""
    log = sim.log()
    append(log, b"old", producer=Producer(5, 0, 0))
    sim.commit(log)
    sim.store.flush_soon(log)
    sim.run(lambda: sim.store.upkeep.saving(log.folder))
    sim.store.delete("tide", 0, TOPIC_ID)
    log = sim.log(topic_id=NEXT_ID)
    with pytest.raises(KafkaError) as refused:
        append(log, b"new")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is None
    sim.run(lambda: sim.store.upkeep.idle)
    assert append(log, b"new") == 0
    sim.commit(log)
    sim.kill()
    log = sim.log(topic_id=NEXT_ID)
    assert (values(log), log.producers.get(5)) == ([(0, b"new")], None)


def test_a_cut_during_a_flush_leaves_no_snapshot_of_what_was_before(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"a", producer=Producer(5, 0, 0))
    append(log, b"b", producer=Producer(5, 0, 1))
    sim.store.flush_soon(log)
    sim.run(lambda: sim.disk.exists(log.snapshot_path(2)))
    log.truncate_to(1)
    append(log, b"c")
    append(log, b"d")
    sim.run(lambda: sim.store.upkeep.idle)
    assert not sim.disk.exists(log.snapshot_path(2))


def test_another_topic_s_folder_that_can_t_be_put_aside_takes_one_log_offline(picky: LogHarness) -> None:
    fill(picky.log(), 5)
    picky.stop()
    picky.start()
    assert isinstance(picky.disk, Picky)
    picky.disk.refuses = lambda path: path.endswith("-stray")
    assert "is another topic's" in (picky.log(topic_id=NEXT_ID).offline or "")
    picky.loop.kill()
    picky.disk.refuses = lambda _: False
    picky.start()
    assert len(values(picky.log())) == 5


def test_a_cut_tells_what_was_whole_behind_it(sim: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(sim.disk, SimDisk)
    log = sim.log()
    fill(log, 10)
    sim.commit(log)
    third = list(iterate(sim.disk.read_whole(f"{log.folder}/{FIRST}.log")))[2]
    sim.disk.flip_bit(f"{log.folder}/{FIRST}.log", third.end - 1, third.end)
    sim.kill()
    assert sim.log().log_end == 2
    assert "with 7 sound batches behind it, up to offset 9" in caplog.text
