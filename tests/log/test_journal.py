"""The journal: small commits of any number of logs with one sync, and what a start after a crash makes of it."""

from collections.abc import Callable

import pytest
from tests.log.harness import EPOCH, TOPIC_ID, CountingDisk, LogHarness, append, values

from tidelog.log.bounds import JOURNALED_BYTES_MAX, JOURNALS_KEPT_MAX
from tidelog.log.checkpoints import CLEAN_SHUTDOWN, LEADER_EPOCHS, write_clean_shutdown, write_epochs
from tidelog.log.journal import AGAIN_S, JOURNAL, TRANSITIONS, VOIDS, JournalState
from tidelog.log.journal_blocks import ALIGNMENT
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom

JOURNAL_BYTES = 1 << 20
OTHER_ID = bytes(range(1, 17))


def made(disk: SimDisk, journal_bytes: int = JOURNAL_BYTES) -> LogHarness:
    """A store with its journal made."""
    harness = LogHarness(disk, tidelog_journal_bytes=str(journal_bytes))
    ready(harness)
    return harness


def ready(harness: LogHarness) -> None:
    journal = harness.store.journals[harness.root]
    journal.want()
    harness.run(lambda: journal.is_ready)


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk(SimRandom(5))


@pytest.fixture
def harness(disk: CountingDisk) -> LogHarness:
    return made(disk)


def journal_files(harness: LogHarness) -> list[str]:
    return [name for name in harness.disk.list_folder(harness.root) if name.startswith(JOURNAL)]


def forgetful(disk: SimDisk, keep: Callable[[str], bool] = lambda path: JOURNAL in path) -> None:
    """The power goes, and takes all that wasn't synced; of files that `keep` says something else: they stay."""
    kept = {path: disk.read_whole(path) for path in disk.files("/") if keep(path)}
    for seed in range(100):  # until nothing is kept by luck
        disk.random = SimRandom(seed)
        node = disk.root
        disk.crash()
        if not any(path.endswith(".log") and disk.size(path) for path in disk.files("/")):
            break
        disk.root = node
    for path, data in kept.items():
        assert disk.read_whole(path) == data, f"{path} was never made durable"


def lose_power(harness: LogHarness) -> None:
    assert isinstance(harness.disk, SimDisk)
    harness.loop.kill()
    forgetful(harness.disk)
    harness.start()


def test_first_records_of_many_logs_are_durable_with_one_sync(harness: LogHarness, disk: CountingDisk) -> None:
    logs = [harness.log(partition=number) for number in range(300)]
    for log in logs:
        append(log, b"a")
        harness.store.commit.request(log)
    before = disk.syncs
    harness.run(lambda: harness.store.commit.idle)
    assert disk.syncs - before == 1
    assert [log.durable_end for log in logs] == [1] * 300
    lose_power(harness)
    assert all(values(harness.log(partition=number)) == [(0, b"a")] for number in range(300))


def test_what_is_in_the_journal_comes_behind_what_the_segments_have(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a", b"b")
    harness.flush(log)
    for value in (b"c", b"d"):
        append(log, value)
        harness.commit(log)
    append(log, b"never committed")
    assert log.ends.synced_end == 2
    harness.loop.kill()
    assert isinstance(harness.disk, SimDisk)
    harness.disk.open(f"{log.folder}/{0:020}.log").truncate(harness.disk.size(f"{log.folder}/{0:020}.log") - 10)
    harness.disk.crash()
    harness.start()
    found = values(harness.log())
    assert found[:4] == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_each_batch_is_counted_once(harness: LogHarness, disk: CountingDisk) -> None:
    """So that a flush comes when so many wait for it, not earlier."""
    log = harness.log()
    for value in (b"a", b"b"):
        append(log, value)
        harness.commit(log)
    harness.loop.kill()
    path = log.segments[0].path
    disk.put(path, disk.read_whole(path)[: log.segments[0].size // 2])
    harness.start()
    log = harness.log()
    assert values(log) == [(0, b"a"), (1, b"b")]
    assert log.ends.batches == 2


def test_a_second_start_finds_the_same(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    lose_power(harness)
    for _ in range(3):
        assert values(harness.log()) == [(0, b"a")]
        assert isinstance(harness.disk, SimDisk)
        harness.power_loss()


def test_a_block_that_is_torn_does_not_count(harness: LogHarness, disk: CountingDisk) -> None:
    log = harness.log()
    for value in (b"a", b"b"):
        append(log, value)
        harness.commit(log)
    path = f"{harness.root}/{journal_files(harness)[0]}"
    data = bytearray(disk.read_whole(path))
    data[ALIGNMENT + 100] ^= 1
    disk.put(path, bytes(data))
    lose_power(harness)
    assert values(harness.log()) == [(0, b"a")]


@pytest.mark.parametrize("what", ["sync", "write"])
def test_a_journal_that_fails_takes_no_log_offline(harness: LogHarness, disk: CountingDisk, what: str) -> None:
    first, second = harness.log(partition=0), harness.log(partition=1)
    append(first, b"a")
    harness.commit(first)
    if what == "sync":
        disk.failing_syncs, disk.failed_sync_keeps_cache = 1, True
    else:
        disk.failing_appends, disk.failing_suffix = 1, "0"
    append(second, b"b")
    harness.commit(second)
    assert second.offline is None
    assert second.ends.synced_end == second.durable_end == 1  # synced itself
    harness.settle()
    assert first.ends.synced_end == 1
    append(first, b"c")
    harness.commit(first)
    lose_power(harness)
    assert values(harness.log(partition=0)) == [(0, b"a"), (1, b"c")]
    assert values(harness.log(partition=1)) == [(0, b"b")]


def test_what_is_large_is_written_once(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"x" * JOURNALED_BYTES_MAX)
    harness.commit(log)
    assert log.ends.synced_end == 1


def test_a_log_of_the_page_cache_has_nothing_to_do_with_it(disk: CountingDisk) -> None:
    harness = LogHarness(disk, tidelog_journal_bytes=str(JOURNAL_BYTES), tidelog_durability="os")
    append(harness.log(), b"a")
    harness.settle()
    assert not journal_files(harness)


def test_a_file_is_used_anew_when_all_that_it_holds_is_durable_elsewhere(disk: CountingDisk) -> None:
    harness = made(disk, 8 * ALIGNMENT)
    logs = [harness.log(partition=number) for number in range(3)]
    for round_number in range(40):
        for log in logs:
            append(log, b"%d" % round_number)
            harness.commit(log)
    expected = [(number, b"%d" % number) for number in range(40)]
    lose_power(harness)
    assert all(values(harness.log(partition=number)) == expected for number in range(3))


def test_a_full_journal_waits_for_no_segment(disk: CountingDisk) -> None:
    """Where a log can't be settled, the others are synced themselves."""
    harness = made(disk, 4 * ALIGNMENT)
    stuck, log = harness.log(partition=0), harness.log(partition=1)
    append(stuck, b"a")
    harness.commit(stuck)
    stuck.go_offline("a test")
    for _ in range(10):
        append(log, b"b")
        harness.commit(log)
    assert log.durable_end == 10
    lose_power(harness)
    assert values(harness.log(partition=0)) == [(0, b"a")]
    assert len(values(harness.log(partition=1))) == 10


def test_what_was_cut_off_does_not_come_back(harness: LogHarness) -> None:
    log = harness.log()
    for value in (b"a", b"b", b"c"):
        append(log, value)
        harness.commit(log)
    log.truncate_to(1)
    assert VOIDS in journal_files(harness)
    lose_power(harness)
    log = harness.log()
    assert values(log) == [(0, b"a")]
    ready(harness)
    append(log, b"d")
    harness.commit(log)
    lose_power(harness)
    assert values(harness.log()) == [(0, b"a"), (1, b"d")]


def test_a_log_that_goes_on_elsewhere_gets_its_names_back(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    log.truncate_fully_and_start_at(1000, harness.now_ms())
    append(log, b"b")
    harness.commit(log)
    lose_power(harness)
    assert values(harness.log()) == [(1000, b"b")]


def test_a_deleted_topics_records_are_not_the_next_ones(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    append(log, b"b")
    harness.commit(log)
    harness.store.delete("tide", 0, TOPIC_ID)
    harness.settle()
    log = harness.log(topic_id=OTHER_ID)
    append(log, b"new")
    harness.commit(log)
    lose_power(harness)
    assert harness.store.unopened() == [("tide", 0)]
    assert values(harness.log(topic_id=OTHER_ID)) == [(0, b"new")]


def test_a_deletion_that_a_start_hears_of_once_more_takes_nothing_of_the_next_topic(harness: LogHarness) -> None:
    """It replays the metadata log, and the records of both are in the journal only."""
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    harness.store.delete("tide", 0, TOPIC_ID)
    harness.settle()
    log = harness.log(topic_id=OTHER_ID)
    append(log, b"new")
    harness.commit(log)
    lose_power(harness)
    harness.store.delete("tide", 0, TOPIC_ID)
    harness.settle()
    assert values(harness.log(topic_id=OTHER_ID)) == [(0, b"new")]


def test_a_partition_that_only_the_journal_knows_of_and_no_topic_has_leaves_nothing(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    lose_power(harness)
    assert harness.folders() == []
    harness.store.put_stray_aside("tide", 0)
    harness.settle()
    assert harness.folders() == []
    assert harness.store.unopened() == []
    assert not journal_files(harness)


def other_history(harness: LogHarness, disk: SimDisk) -> Log:
    """Somebody else cuts the log at offset 1, and writes what ends where the journal has something that goes on."""
    log = harness.log()
    for value in (b"a", b"b", b"c"):
        append(log, value)
        harness.commit(log)
    kept = {path: disk.read_whole(path) for path in disk.files(harness.root) if JOURNAL in path}
    log.truncate_to(1)
    append(log, b"x")
    harness.flush(log)
    harness.loop.kill()
    for path in disk.files(harness.root):
        if JOURNAL in path:
            disk.remove(path)
    for path, data in kept.items():
        disk.put(path, data)
    return log


def test_a_journal_of_another_history_adds_nothing(harness: LogHarness, disk: CountingDisk) -> None:
    """As when Apache Kafka took over the folder after a power loss, and was killed."""
    other_history(harness, disk)
    harness.start()
    log = harness.log()
    assert values(log) == [(0, b"a"), (1, b"x")]
    append(log, b"y", b"z")  # up to where the journal's last batch would come next
    harness.flush(log)
    harness.kill()
    assert values(harness.log()) == [(0, b"a"), (1, b"x"), (2, b"y"), (3, b"z")]


def test_an_epoch_of_another_that_wrote_nothing_is_not_that_of_what_comes_back(harness: LogHarness) -> None:
    """Apache Kafka took over the folder after a power loss, led the log, which it notes, and was killed."""
    log = harness.log()
    append(log, b"a")
    harness.flush(log)
    for value in (b"b", b"c"):
        append(log, value)
        harness.commit(log)
    harness.loop.kill()
    path = f"{log.folder}/{0:020}.log"
    harness.disk.open(path).truncate(harness.disk.size(path) // 3)
    write_epochs(harness.disk, f"{log.folder}/{LEADER_EPOCHS}", [(EPOCH, 0), (EPOCH + 2, 1)])
    harness.start()
    log = harness.log()
    assert values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert log.epochs.entries() == [(EPOCH, 0)]
    assert log.epochs.end_offset_for(EPOCH, log.log_end) == (EPOCH, 3)


def test_after_a_clean_stop_of_somebody_else_nothing_counts(harness: LogHarness, disk: CountingDisk) -> None:
    other_history(harness, disk)
    write_clean_shutdown(disk, f"{harness.root}/{CLEAN_SHUTDOWN}", 5)
    harness.start()
    assert not journal_files(harness)


def test_a_clean_stop_leaves_no_journal(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    assert journal_files(harness)
    harness.stop()
    assert not journal_files(harness)
    harness.start()
    assert values(harness.log()) == [(0, b"a")]


def test_files_of_an_earlier_life_stay_until_each_log_was_opened(harness: LogHarness) -> None:
    for number in range(2):
        append(harness.log(partition=number), b"a")
        harness.commit(harness.log(partition=number))
    before = journal_files(harness)
    lose_power(harness)
    harness.log(partition=0)
    harness.settle()
    assert set(before) <= set(journal_files(harness))
    harness.log(partition=1)
    harness.settle()
    assert not set(before) & set(journal_files(harness))


def test_a_log_that_rolled_has_no_hole(harness: LogHarness) -> None:
    log = harness.log(internal_segment_bytes="600")
    for number in range(30):
        append(log, b"%d" % number, b"x" * 100)
        harness.commit(log)
    lose_power(harness)
    log = harness.log(internal_segment_bytes="600")
    assert [value for _, value in values(log)][::2] == [b"%d" % number for number in range(30)]


# -- its states


def test_every_state_of_a_journal_ends_with_a_clean_stop() -> None:
    assert TRANSITIONS.keys() == set(JournalState)
    assert all(JournalState.OFF in others for others in TRANSITIONS.values())
    assert {one for one, others in TRANSITIONS.items() if JournalState.READY in others} == {JournalState.MAKING}


def test_files_that_could_not_be_made_are_made_after_a_while(disk: CountingDisk) -> None:
    harness = LogHarness(disk, tidelog_journal_bytes=str(JOURNAL_BYTES))
    journal = harness.store.journals[harness.root]
    disk.failing_syncs = 1
    journal.want()
    harness.run(lambda: journal.state is JournalState.RESTING)
    journal.want()  # whoever needs it meanwhile doesn't try again
    assert journal.state is JournalState.RESTING
    log = harness.log()
    append(log, b"a")
    harness.commit(log)
    assert log.ends.synced_end == 1
    harness.settle(AGAIN_S)
    ready(harness)


def test_a_stop_while_the_files_are_made_does_not_wait_for_them(disk: CountingDisk) -> None:
    harness = LogHarness(disk, tidelog_journal_bytes=str(JOURNAL_BYTES))
    journal = harness.store.journals[harness.root]
    journal.want()
    journal.close()
    harness.settle()
    assert journal.state is JournalState.OFF


class LateDisk(CountingDisk):
    """Lists a journal's file that a thread has just removed."""

    removed = ""

    def list_folder(self, path: str) -> list[str]:
        return sorted({*super().list_folder(path), *filter(None, (self.removed,))})


def test_a_stop_beside_the_removal_of_old_files_is_clean() -> None:
    """A thread removes what an earlier life left; that one of the files is gone by then is no error."""
    disk = LateDisk(SimRandom(5))
    journal = made(disk).store.journals["/data"]
    disk.removed = f"{JOURNAL}0"
    disk.remove(f"/data/{disk.removed}")
    journal.remove_files()
    disk.removed = ""
    assert not [name for name in disk.list_folder("/data") if name.startswith(JOURNAL)]


# -- what is left on the disk, and counts or doesn't


def test_a_block_that_failed_and_is_there_all_the_same_brings_nothing_back(
    harness: LogHarness, disk: CountingDisk
) -> None:
    """Its records were synced in the segment instead, and cut off after that."""
    log = harness.log()
    disk.failing_syncs, disk.failed_sync_keeps_cache = 1, True
    append(log, b"a")
    append(log, b"b")
    harness.commit(log)
    assert harness.store.journals[harness.root].state is JournalState.FAILED
    log.truncate_to(1)
    harness.settle()
    harness.kill()
    assert values(harness.log()) == [(0, b"a")]


def test_files_that_know_of_no_log_go_at_the_next_start(harness: LogHarness) -> None:
    """Or else a broker that is killed again and again before its first record has no journal any more."""
    for _ in range(JOURNALS_KEPT_MAX):
        harness.kill()
        harness.settle()
        ready(harness)
    assert len(journal_files(harness)) == 2


def test_beside_a_mark_that_is_damaged_nothing_counts(harness: LogHarness, disk: CountingDisk) -> None:
    """It is removed before anything is written: a journal beside it is older than the stop that left it."""
    other_history(harness, disk)
    disk.put(f"{harness.root}/{CLEAN_SHUTDOWN}", b"\xff")
    harness.start()
    assert not journal_files(harness)
    log = harness.log()
    assert (log.offline, values(log)) == (None, [(0, b"a"), (1, b"x")])
