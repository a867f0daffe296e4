"""Several data folders: a start knows each by its directory id, and doesn't take a missing one for a new one."""

import errno
import logging

import pytest

from tests.apis.sim_broker import SimBroker
from tidelog.metadata.versions import DEFAULT_LEVELS, METADATA_VERSION, MV_3_7_IV2
from tidelog.raft.folder import FolderError
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.inode import FolderNode
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

TWO = {"log.dirs": "/a,/b"}
PARTITIONS = 4


def disk_of_two() -> SimDisk:
    """As it is after a clean stop: each of two folders has two of the four partitions, with three records each."""
    disk = SimDisk(SimRandom(1))
    sim_broker = SimBroker(TWO, disk=disk)
    sim_broker.make_topic("tide", PARTITIONS)
    for index in range(PARTITIONS):
        for number in range(3):
            assert sim_broker.append("tide", b"old", partition=index) == number
    stop(sim_broker)
    for folder in ("/a", "/b"):
        assert sum(name.startswith("tide-") for name in disk.list_folder(folder)) == 2
    return disk


def stop(sim_broker: SimBroker) -> None:
    sim_broker.wait(sim_broker.broker.stop())
    sim_broker.kill()


def refused(disk: SimDisk, settings: dict[str, str] = TWO) -> str:
    """Why a start on the disk is refused."""
    try:
        with pytest.raises(FolderError) as told:
            SimBroker(settings, disk=disk)
    finally:
        disk.release_locks()
    return str(told.value)


def tree(disk: SimDisk, folder: str) -> dict[str, list[str]]:
    return {name: disk.list_folder(f"{folder}/{name}") for name in disk.list_folder(folder) if "-" in name[1:]}


def directory_id(disk: SimDisk, folder: str) -> str:
    return disk.read_whole(f"{folder}/meta.properties").decode().partition("directory.id=")[2].strip()


def ends(sim_broker: SimBroker) -> list[int]:
    return [sim_broker.partition("tide", index).log.log_end for index in range(PARTITIONS)]


@pytest.mark.parametrize("missing", ["the folder", "what is in it", "meta.properties"])
def test_a_start_without_one_of_its_folders_is_refused_and_all_is_there_when_it_returns(missing: str) -> None:
    disk = disk_of_two()
    lost = directory_id(disk, "/b")
    disk.rename("/b", "/away")
    if missing == "what is in it":
        disk.make_folders("/b")  # where it isn't mounted
    elif missing == "meta.properties":
        disk.rename("/away", "/b")
        disk.rename("/b/meta.properties", "/kept")
    told = refused(disk)
    assert lost in told
    assert "/b" in told
    assert f"tidelog.log.dirs.lost={lost}" in told
    assert ("meta.properties" in told) == (missing == "meta.properties")
    assert not disk.exists("/b/meta.properties"), "it was taken for a new one"
    assert refused(disk) == told, "a second try changes nothing"

    if missing == "meta.properties":
        disk.rename("/kept", "/b/meta.properties")
    else:
        disk.remove_tree("/b")
        disk.rename("/away", "/b")
    sim_broker = SimBroker(TWO, disk=disk)
    assert ends(sim_broker) == [3] * PARTITIONS


def test_a_folder_that_log_dirs_no_longer_names_is_missed() -> None:
    disk = disk_of_two()
    assert directory_id(disk, "/b") in refused(disk, {"log.dirs": "/a"})


def test_folders_are_known_by_their_ids_and_not_by_their_paths() -> None:
    disk = disk_of_two()
    disk.rename("/b", "/elsewhere")
    sim_broker = SimBroker({"log.dirs": "/a,/elsewhere"}, disk=disk)
    assert ends(sim_broker) == [3] * PARTITIONS


def test_a_further_folder_is_simply_named() -> None:
    disk = disk_of_two()
    sim_broker = SimBroker({"log.dirs": "/a,/b,/c"}, disk=disk)
    assert ends(sim_broker) == [3] * PARTITIONS
    sim_broker.make_topic("more")
    sim_broker.append("more", b"x")
    assert disk.exists("/c/more-0")
    stop(sim_broker)
    disk.rename("/c", "/away")
    assert "/c" in refused(disk, {"log.dirs": "/a,/b,/c"})


def test_a_further_folder_may_be_named_first_where_the_metadata_stays() -> None:
    disk = disk_of_two()
    told = refused(disk, {"log.dirs": "/c,/a,/b"})
    assert "metadata.log.dir=/a" in told
    assert not disk.exists("/c/meta.properties")
    sim_broker = SimBroker({"log.dirs": "/c,/b,/a", "metadata.log.dir": "/a"}, disk=disk)
    assert ends(sim_broker) == [3] * PARTITIONS


def test_folders_in_another_order_are_refused_where_the_metadata_would_begin_anew() -> None:
    disk = disk_of_two()
    assert "metadata.log.dir=/a" in refused(disk, {"log.dirs": "/b,/a"})


def test_the_folder_of_the_metadata_that_is_missing_is_no_new_cluster() -> None:
    disk = SimDisk(SimRandom(1))
    stop(SimBroker(TWO, disk=disk))  # no partition is there whose metadata could be missed
    disk.rename("/a", "/away")
    told = refused(disk)
    assert "/a" in told
    assert "metadata" in told
    disk.remove_tree("/a")
    disk.rename("/away", "/a")
    SimBroker(TWO, disk=disk)


def test_a_folder_that_is_lost_for_good_is_done_without_when_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    disk = disk_of_two()
    lost = directory_id(disk, "/b")
    kept = [index for index in range(PARTITIONS) if disk.exists(f"/a/tide-{index}")]
    disk.rename("/b", "/away")
    with caplog.at_level(logging.WARNING, "tidelog"):
        sim_broker = SimBroker({**TWO, "tidelog.log.dirs.lost": lost}, disk=disk)
    assert f"data folder {lost}" in caplog.text
    assert ends(sim_broker) == [3 if index in kept else 0 for index in range(PARTITIONS)]
    seen = sim_broker.ask(ApiKey.METADATA, 12, {"topics": [{"name": "tide"}]}).topics[0].partitions
    assert [partition.offline_replicas for partition in seen] == [[]] * PARTITIONS
    for index in range(PARTITIONS):
        sim_broker.append("tide", b"new", partition=index)
    stop(sim_broker)
    assert directory_id(disk, "/b") != lost
    stop(SimBroker(TWO, disk=disk))  # it needn't be said again

    # The lost one comes back: which of two histories is the topic's, nobody but the operator knows.
    disk.rename("/b", "/anew")
    disk.rename("/away", "/b")
    told = refused(disk, {"log.dirs": "/a,/b,/anew"})
    assert "tide-" in told
    assert "/b" in told
    assert "/anew" in told


def test_what_is_called_lost_and_is_there_stays() -> None:
    disk = disk_of_two()
    ids = f"{directory_id(disk, '/a')},{directory_id(disk, '/b')}"
    assert ends(SimBroker({**TWO, "tidelog.log.dirs.lost": ids}, disk=disk)) == [3] * PARTITIONS


def test_two_copies_of_one_folder_are_refused() -> None:
    disk = disk_of_two()
    disk.make_folders("/c")
    disk.write_whole("/c/meta.properties", disk.read_whole("/b/meta.properties"))
    told = refused(disk, {"log.dirs": "/a,/b,/c"})
    assert "/b" in told
    assert "/c" in told


def test_a_new_folder_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tidelog"):
        sim_broker = SimBroker(TWO)
    for folder in ("/a", "/b"):
        assert f"{folder} is new: formatted as data folder {directory_id(sim_broker.disk, folder)}" in caplog.text


def test_partitions_of_a_lost_folder_that_metadata_assigns_are_not_offline() -> None:
    """A broker with one data folder says in the metadata in which its partitions are."""
    disk = SimDisk(SimRandom(1))
    settings = {"log.dirs": "/a", "metadata.log.dir": "/m"}
    sim_broker = SimBroker(settings, disk=disk)
    sim_broker.make_topic("tide")
    sim_broker.append("tide", b"x")
    stop(sim_broker)
    lost = directory_id(disk, "/a")
    disk.remove_tree("/a")
    assert lost in refused(disk, settings)
    sim_broker = SimBroker({**settings, "tidelog.log.dirs.lost": lost}, disk=disk)
    seen = sim_broker.ask(ApiKey.METADATA, 12, {"topics": [{"name": "tide"}]}).topics[0].partitions[0]
    assert (seen.error_code, seen.offline_replicas) == (ErrorCode.NONE, [])
    assert sim_broker.append("tide", b"y") == 0


def test_a_folder_for_the_metadata_alone_holds_no_partitions() -> None:
    """It isn't registered as one of the broker's directories: the controller would know nothing of what is in it."""
    sim_broker = SimBroker({"log.dirs": "/a,/b", "metadata.log.dir": "/m"})
    sim_broker.make_topic("tide", partitions=6)
    for index in range(6):
        sim_broker.append("tide", b"x", partition=index)
    names = {folder: sim_broker.disk.list_folder(folder) for folder in ("/a", "/b", "/m")}
    counts = {folder: sum(name.startswith("tide-") for name in listed) for folder, listed in names.items()}
    assert counts == {"/a": 3, "/b": 3, "/m": 0}


class StubbornDisk(SimDisk):
    """Some folder can't be renamed."""

    stubborn: str | None = None

    def rename(self, old: str, new: str) -> None:
        if old == self.stubborn:
            raise OSError(errno.EACCES, "Permission denied", old)
        super().rename(old, new)


def made_again_elsewhere(disk: StubbornDisk) -> None:
    """A topic that was deleted keeps its folder in /b, and the next one of its name is in /a; all of it is durable."""
    sim_broker = SimBroker(TWO, disk=disk)
    sim_broker.make_topic("tide")
    sim_broker.append("tide", b"of the deleted topic")
    disk.sync_all("/")
    disk.stubborn = "/b/tide-0"
    sim_broker.delete_topic("tide")
    sim_broker.make_topic("other")
    sim_broker.append("other", b"x")
    sim_broker.make_topic("tide")
    for _ in range(5):
        sim_broker.append("tide", b"new")
    disk.sync_all("/")
    disk.stubborn = None
    assert disk.exists("/a/tide-0")
    assert disk.exists("/b/tide-0")
    sim_broker.kill()


@pytest.mark.parametrize("order", ["/a,/b", "/b,/a"])
@pytest.mark.parametrize("ending", ["kill", "power"])
def test_of_two_folders_with_a_partition_the_topics_id_decides(
    order: str, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = StubbornDisk(SimRandom(1))
    made_again_elsewhere(disk)
    if ending == "power":
        disk.crash()
    sim_broker = SimBroker({"log.dirs": order, "metadata.log.dir": "/a"}, disk=disk)
    log = sim_broker.partition("tide").log
    assert (log.root, log.log_start, log.log_end) == ("/a", 0, 5)
    assert sim_broker.append("tide", b"next") == 5
    assert not disk.exists("/b/tide-0")
    aside = [name for name in disk.list_folder("/b") if name.endswith("-stray")]
    assert len(aside) == 1, "what is there is for the operator to look at"
    assert "/b/tide-0 is another topic's" in caplog.text
    stop(sim_broker)
    sim_broker = SimBroker({"log.dirs": order, "metadata.log.dir": "/a"}, disk=disk)
    assert sim_broker.partition("tide").log.log_end == 6


class LateDisk(SimDisk):
    """What is renamed in some folder isn't durable yet."""

    late: str | None = None

    def sync_folder(self, path: str) -> None:
        if path != self.late:
            super().sync_folder(path)


@pytest.mark.parametrize("journal_bytes", ["0", "1048576"])
@pytest.mark.parametrize("order", ["/a,/b", "/b,/a"])
def test_a_deletion_that_the_power_took_back_hides_nothing_of_the_next_topic(order: str, journal_bytes: str) -> None:
    disk = LateDisk(SimRandom(1))
    settings = {"tidelog.journal.bytes": journal_bytes, "metadata.log.dir": "/a"}
    sim_broker = SimBroker({**TWO, **settings}, disk=disk)
    for topic in ("tide", "first", "second"):
        sim_broker.make_topic(topic)
        sim_broker.append(topic, b"old")
    assert disk.exists("/b/tide-0")
    disk.sync_all("/")
    sim_broker.delete_topic("first")
    disk.late = "/b"
    sim_broker.delete_topic("tide")
    sim_broker.make_topic("tide")
    for _ in range(5):
        sim_broker.append("tide", b"new")
    sim_broker.kill()
    for child in disk.root.names.values():  # of what wasn't synced, nothing is left
        assert isinstance(child, FolderNode)
        child.names, child.changes = dict(child.durable), []
    disk.late = None
    assert disk.exists("/a/tide-0") == (journal_bytes == "0"), "it is in the journal, or its folder is there"
    assert disk.exists("/b/tide-0"), "the power took the rename back"
    sim_broker = SimBroker({**settings, "log.dirs": order}, disk=disk)
    assert sim_broker.partition("tide").log.log_end == 5
    assert sim_broker.partition("second").log.log_end == 1


def test_metadata_logs_in_two_folders_are_no_choice() -> None:
    """An empty one that is left in another folder isn't taken for the cluster's."""
    disk = disk_of_two()
    disk.make_folders("/b/__cluster_metadata-0")
    assert ends(SimBroker(TWO, disk=disk)) == [3] * PARTITIONS


def test_folders_of_a_partition_that_say_nothing_of_their_topic_are_for_the_operator() -> None:
    disk = disk_of_two()
    index = next(index for index in range(PARTITIONS) if disk.exists(f"/a/tide-{index}"))
    disk.make_folders(f"/b/tide-{index}")
    sim_broker = SimBroker(TWO, disk=disk)  # one says that it is the topic's: the other isn't
    assert ends(sim_broker) == [3] * PARTITIONS
    assert any(name.endswith("-stray") for name in disk.list_folder("/b"))
    stop(sim_broker)
    disk.make_folders(f"/b/tide-{index}")
    disk.remove(f"/a/tide-{index}/partition.metadata")
    told = refused(disk)
    assert f"/a/tide-{index}" in told
    assert f"/b/tide-{index}" in told
    assert "partition.metadata" in told


def test_a_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = disk_of_two()
    lock = SimDisk.lock_folder

    def read_only(self: SimDisk, path: str) -> object:
        if path == "/b":
            raise OSError(errno.EROFS, "Read-only file system", "/b/.lock")
        return lock(self, path)

    monkeypatch.setattr(SimDisk, "lock_folder", read_only)
    told = refused(disk)
    assert "/b: Read-only file system" in told
    assert "doesn't start without one of its data folders" in told


def test_a_topic_in_memory_goes_on_after_its_offsets_in_whatever_order_the_folders_are_named() -> None:
    disk = SimDisk(SimRandom(1))
    sim_broker = SimBroker(TWO, disk=disk)
    sim_broker.make_topic("foam", configs={"tidelog.storage": "memory"})
    assert [sim_broker.append("foam", b"x") for _ in range(3)] == [0, 1, 2]
    stop(sim_broker)
    sim_broker = SimBroker({"log.dirs": "/b,/a", "metadata.log.dir": "/a"}, disk=disk)
    assert sim_broker.append("foam", b"y") >= 3


def test_a_refused_start_writes_nothing_into_data_folders() -> None:
    """Where a folder isn't mounted a checkpoint would say, of what is restored there later, that nothing was lost."""
    disk = disk_of_two()
    third = {"log.dirs": "/a,/b,/c"}
    stop(SimBroker(third, disk=disk))
    disk.rename("/b", "/away")
    mark = disk.read_whole("/c/.kafka_cleanshutdown")
    before = disk.list_folder("/c")
    refused(disk, third)
    assert disk.list_folder("/b") == []
    assert disk.list_folder("/c") == before
    assert disk.read_whole("/c/.kafka_cleanshutdown") == mark, "the last stop was clean"


def test_a_refused_start_does_not_make_the_last_stop_an_unclean_one() -> None:
    """Else the next start reads all tails, and tells of a crash that there never was."""
    disk = disk_of_two()
    mark = disk.read_whole("/a/.kafka_cleanshutdown")
    disk.rename("/b", "/away")
    refused(disk)
    assert disk.read_whole("/a/.kafka_cleanshutdown") == mark
    disk.remove_tree("/b")
    disk.rename("/away", "/b")
    sim_broker = SimBroker(TWO, disk=disk)
    assert sim_broker.broker.services.store.recoveries.clean
    assert ends(sim_broker) == [3] * PARTITIONS


@pytest.mark.parametrize("tried", [False, True])
def test_partitions_restored_without_their_checkpoints_have_lost_them_also_after_a_refused_start(tried: bool) -> None:
    settings = {**TWO, "log.segment.bytes": "1048576", "log.flush.offset.checkpoint.interval.ms": "1000"}
    disk = SimDisk(SimRandom(1))
    sim_broker = SimBroker(settings, disk=disk)
    sim_broker.make_topic("tide", 2)
    for index in range(2):
        for _ in range(25):
            sim_broker.append("tide", b"x" * 100_000, partition=index)
    sim_broker.pass_time(10)
    sim_broker.kill()
    index = next(index for index in range(2) if disk.exists(f"/b/tide-{index}"))
    disk.rename("/b", "/away")
    if tried:
        refused(disk, settings)
    disk.make_folders("/b")
    for name in (f"tide-{index}", "meta.properties"):
        disk.rename(f"/away/{name}", f"/b/{name}")
    segments = sorted(name for name in disk.list_folder(f"/b/tide-{index}") if name.endswith(".log"))
    path = f"/b/tide-{index}/{segments[1]}"
    damaged = bytearray(disk.read_whole(path))
    damaged[250_000] ^= 1
    disk.write_whole(path, bytes(damaged))
    log = SimBroker(settings, disk=disk).partition("tide", index).log
    assert "the recovery point is not known" in (log.offline or "")


def test_a_missing_folder_is_missed_whatever_the_metadata_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 3.7-IV2 a registration has no directory ids: of folders that an older Kafka formatted, for example."""
    with monkeypatch.context() as patched:
        patched.setitem(DEFAULT_LEVELS, METADATA_VERSION, MV_3_7_IV2 - 1)
        disk = disk_of_two()
    lost = directory_id(disk, "/b")
    disk.rename("/b", "/away")
    told = refused(disk)
    assert f"tidelog.log.dirs.lost={lost}" in told
    assert disk.list_folder("/b") == []

    stop(SimBroker({**TWO, "tidelog.log.dirs.lost": lost}, disk=disk))
    stop(SimBroker(TWO, disk=disk))
    disk.remove_tree("/b")
    disk.rename("/away", "/b")
    assert "which this broker had at its last start" in refused(disk), "the one that came in its place"
    disk.write_whole("/a/tidelog-log-dirs", b"not an id")
    assert "/a/tidelog-log-dirs can't be read" in refused(disk)


def test_a_stray_folder_that_cannot_be_renamed_keeps_no_broker_from_starting(caplog: pytest.LogCaptureFixture) -> None:
    disk = StubbornDisk(SimRandom(1))
    sim_broker = SimBroker(disk=disk)
    for topic in ("tide", "other"):
        sim_broker.make_topic(topic)
        sim_broker.append(topic, b"x")
    disk.stubborn = "/data/tide-0"
    sim_broker.delete_topic("tide")
    stop(sim_broker)
    sim_broker = SimBroker(disk=disk)
    assert sim_broker.append("other", b"y") == 1
    assert "/data/tide-0, and it can't be renamed" in caplog.text
    sim_broker.make_topic("tide")
    assert "/data/tide-0 is of a deleted topic" in (sim_broker.partition("tide").log.offline or "")
    stop(sim_broker)
    disk.stubborn = None
    sim_broker = SimBroker(disk=disk)
    assert sim_broker.append("tide", b"new") == 0
    assert sum(name.endswith("-stray") for name in disk.list_folder("/data")) == 1


def test_a_topic_in_memory_that_is_made_again_begins_at_0_in_whatever_order_the_folders_were_named() -> None:
    disk = SimDisk(SimRandom(1))
    memory = {"tidelog.storage": "memory"}
    sim_broker = SimBroker(TWO, disk=disk)
    sim_broker.make_topic("tide", 1, memory)
    sim_broker.append("tide", b"x")
    stop(sim_broker)
    turned = {"log.dirs": "/b,/a", "metadata.log.dir": "/a"}
    sim_broker = SimBroker(turned, disk=disk)
    for _ in range(2):
        assert sim_broker.append("tide", b"x") > 0
        sim_broker.delete_topic("tide")
        sim_broker.pass_time(5)
        sim_broker.make_topic("tide", 1, memory)
        assert sim_broker.append("tide", b"x") == 0
        stop(sim_broker)
        sim_broker = SimBroker(turned, disk=disk)


def test_a_partition_whose_folder_somebody_removed_is_no_new_one(caplog: pytest.LogCaptureFixture) -> None:
    disk = disk_of_two()
    root = "/a" if disk.exists("/a/tide-0") else "/b"
    assert disk.is_folder(f"{root}/tide-0")
    disk.rename(f"{root}/tide-0", f"{root}/elsewhere")
    for _ in range(2):
        sim_broker = SimBroker(TWO, disk=disk)
        offline = sim_broker.partition("tide", 0).log.offline
        assert offline is not None
        assert f"{root}/tide-0 is not there, but held records up to offset 3" in offline
        assert sim_broker.append("tide", b"new", partition=1) >= 3, "the others go on"
        stop(sim_broker)
    disk.rename(f"{root}/elsewhere", f"{root}/tide-0")
    sim_broker = SimBroker(TWO, disk=disk)
    assert sim_broker.append("tide", b"new", partition=0) == 3
    stop(sim_broker)


def test_a_topic_whose_folder_somebody_removed_can_be_given_up() -> None:
    disk = disk_of_two()
    root = "/a" if disk.exists("/a/tide-0") else "/b"
    disk.rename(f"{root}/tide-0", f"{root}/elsewhere")
    sim_broker = SimBroker(TWO, disk=disk)
    assert sim_broker.partition("tide", 0).log.offline is not None
    sim_broker.delete_topic("tide")
    sim_broker.make_topic("tide", PARTITIONS)
    for index in range(PARTITIONS):
        assert sim_broker.append("tide", b"new", partition=index) == 0
    stop(sim_broker)
    sim_broker = SimBroker(TWO, disk=disk)
    assert ends(sim_broker) == [1] * PARTITIONS


def test_a_partition_that_was_moved_after_a_crash_has_what_the_journal_of_its_old_folder_knows() -> None:
    disk = SimDisk(SimRandom(1))
    sim_broker = SimBroker(TWO, disk=disk)
    sim_broker.make_topic("tide", PARTITIONS)
    for number in range(20):
        for index in range(PARTITIONS):
            assert sim_broker.append("tide", b"old", partition=index) == number
    sim_broker.kill()
    moved = next(name for name in disk.list_folder("/a") if name.startswith("tide-"))
    segment = f"/a/{moved}/{0:020}.log"
    disk.open(segment).truncate(disk.size(segment) - 10)  # as if the page cache had been lost
    disk.rename(f"/a/{moved}", f"/b/{moved}")
    for number in range(20, 22):
        sim_broker = SimBroker(TWO, disk=disk)
        assert ends(sim_broker) == [number] * PARTITIONS
        assert moved in disk.list_folder("/b")
        assert moved not in disk.list_folder("/a")
        for index in range(PARTITIONS):
            assert sim_broker.append("tide", b"new", partition=index) == number
        sim_broker.kill()


@pytest.mark.parametrize("came_back", [False, True], ids=["in use", "clean from an earlier life"])
def test_a_start_that_opens_nothing_keeps_what_a_journal_knows_of_a_partition_that_was_moved(came_back: bool) -> None:
    """The folder is where it was moved to; the records that only the old folder's journal has are needed until it is
    opened, however often the broker was started and stopped before."""
    disk = SimDisk(SimRandom(1))
    if came_back:  # its mark says that the last stop was clean: but not of what was moved there since
        stop(SimBroker(TWO, disk=disk))
    sim_broker = SimBroker(
        {"log.dirs": "/a", "tidelog.log.dirs.lost": directory_id(disk, "/b")} if came_back else TWO, disk=disk
    )
    sim_broker.make_topic("tide", PARTITIONS)
    for number in range(20):
        for index in range(PARTITIONS):
            assert sim_broker.append("tide", b"old", partition=index) == number
    sim_broker.kill()
    for moved in [name for name in disk.list_folder("/a") if name.startswith("tide-")]:
        segment = f"/a/{moved}/{0:020}.log"
        disk.open(segment).truncate(disk.size(segment) - 10)  # as if the page cache had been lost
        disk.rename(f"/a/{moved}", f"/b/{moved}")
    stop(SimBroker(TWO, disk=disk))  # before anybody asks for a log
    sim_broker = SimBroker(TWO, disk=disk)
    for index in range(PARTITIONS):
        assert sim_broker.append("tide", b"new", partition=index) == 20
    sim_broker.kill()
