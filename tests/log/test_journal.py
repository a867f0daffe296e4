"""The journal: small commits of any number of logs with one sync, and what a start after a crash makes of it."""

from collections.abc import Callable

import pytest
from tests.log.harness import TOPIC_ID, CountingDisk, LogHarness, append, values

from tidelog.log.bounds import JOURNALED_BYTES_MAX
from tidelog.log.checkpoints import CLEAN_SHUTDOWN, write_clean_shutdown
from tidelog.log.journal import AGAIN_S, JOURNAL, VOIDS
from tidelog.log.journal_blocks import ALIGNMENT
from tidelog.log.log import Log
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom

JOURNAL_BYTES = 1 << 20
OTHER_ID = bytes(range(1, 17))


def made(disk: SimDisk, journal_bytes: int = JOURNAL_BYTES, **settings: str) -> LogHarness:
    """A store with its journal made."""
    harness = LogHarness(disk, tidelog_journal_bytes=str(journal_bytes), **settings)
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


def commit_each(harness: LogHarness, *each: bytes) -> None:
    for value in each:
        append(harness.log(), value)
        harness.commit(harness.log())


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


def test_a_damaged_block_with_sound_ones_behind_it_is_told(
    harness: LogHarness, disk: CountingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """A torn write has nothing newer behind it: here records that were acknowledged are gone."""
    commit_each(harness, b"a", b"b", b"c", b"d")
    path = f"{harness.root}/{journal_files(harness)[0]}"
    data = bytearray(disk.read_whole(path))
    data[ALIGNMENT + 100] ^= 1
    disk.put(path, bytes(data))
    lose_power(harness)
    assert values(harness.log()) == [(0, b"a")]
    assert f"{path} byte 4096: a block is damaged, and sound ones are behind it" in caplog.text


def test_a_journal_that_begins_with_a_damaged_block_is_told(
    harness: LogHarness, disk: CountingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    commit_each(harness, b"a", b"b")
    path = f"{harness.root}/{journal_files(harness)[0]}"
    disk.put(path, b"\xff" * ALIGNMENT + disk.read_whole(path)[ALIGNMENT:])
    lose_power(harness)
    assert f"{path} byte 0: a block is damaged, and sound ones are behind it" in caplog.text


def test_a_journal_that_somebody_made_shorter_is_told(
    harness: LogHarness, disk: CountingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    commit_each(harness, b"a", b"b")
    path = f"{harness.root}/{journal_files(harness)[0]}"
    disk.put(path, disk.read_whole(path)[: ALIGNMENT + 60])
    lose_power(harness)
    assert values(harness.log()) == [(0, b"a")]
    assert f"{path} byte 4096: a block goes on behind the end of the file" in caplog.text


def test_what_an_earlier_use_of_the_file_left_is_no_damage(
    disk: CountingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    harness = made(disk, 8 * ALIGNMENT)
    for _ in range(3):  # of 4 blocks a file: the third turn is in the middle of the first file
        commit_each(harness, b"a", b"b", b"c")
        harness.settle()
    for name in journal_files(harness):
        blocks = [
            disk.read_whole(f"{harness.root}/{name}")[at : at + ALIGNMENT] for at in range(0, 4 * ALIGNMENT, ALIGNMENT)
        ]
        newest = max(range(4), key=lambda at: blocks[at][8:16])
        blocks[newest] = blocks[newest][:100] + b"\xff" * 50 + blocks[newest][150:]  # torn
        disk.put(f"{harness.root}/{name}", b"".join(blocks))
        break
    lose_power(harness)
    assert "damaged" not in caplog.text


def test_a_journal_leaves_as_much_room_as_it_takes(disk: CountingDisk, caplog: pytest.LogCaptureFixture) -> None:
    """Made on a disk that is nearly full it would take the room that records need."""
    harness = LogHarness(disk, tidelog_journal_bytes=str(JOURNAL_BYTES))
    disk.capacity = disk.used_bytes() + 2 * JOURNAL_BYTES - 1
    log = harness.log()
    for _ in range(3):
        append(log, b"a")
        harness.commit(log)
        harness.settle(AGAIN_S + 1)
    assert not journal_files(harness)
    assert disk.free_bytes(harness.root) > JOURNAL_BYTES
    assert caplog.text.count("making a journal failed") == 1
    disk.capacity += JOURNAL_BYTES
    ready(harness)


def test_files_of_other_names_are_nobodys(harness: LogHarness, disk: CountingDisk) -> None:
    """A colleague's copy is neither read nor removed."""
    commit_each(harness, b"a")
    copies = [f"{harness.root}/{JOURNAL}{name}" for name in ("0.bak", "\u00b2")]
    for path in copies:
        disk.put(path, b"mine")
    lose_power(harness)
    assert values(harness.log()) == [(0, b"a")]
    harness.stop()
    assert [disk.read_whole(path) for path in copies] == [b"mine", b"mine"]


def test_what_came_back_is_in_the_summary(harness: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    """Without it a cut whose records all came back reads as a loss, and a loss as one of these."""
    caplog.set_level("INFO", "tidelog.log")
    commit_each(harness, b"a", b"b", b"c")
    lose_power(harness)
    harness.log()
    harness.store.recoveries.finish(0)
    assert "nothing was cut; 3 records of 1 partition came back from the journal" in caplog.text


def test_a_cut_says_what_came_back_in_its_place(harness: LogHarness, disk: CountingDisk) -> None:
    commit_each(harness, b"a", b"b", b"c")
    path = harness.log().segments[0].path
    harness.kill()
    disk.put(path, disk.read_whole(path)[:-1])
    harness.start()
    assert values(harness.log()) == [(0, b"a"), (1, b"b"), (2, b"c")]
    (cut,) = harness.store.recoveries.cuts
    assert str(cut).endswith("bytes from offset 2 on, where 1 record came back from the journal")
