"""What a broker claims of its past when it registers: after which ends, and on which folders."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from tests.log.harness import append
from tests.metadata.images import DIRECTORY, TOPIC_ID, broker, image_of, topic
from tidelog.broker.past import NOTE, Past, State
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import resolve_topic
from tidelog.env import Environment
from tidelog.env.slices import whole
from tidelog.log.store import Store
from tidelog.metadata.apply import fold
from tidelog.metadata.follow import Follower
from tidelog.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.wire.records.metadata import ConfigRecord, Record

SECOND = b"second directory"
ONE = {"/a": DIRECTORY}
TWO = {"/a": DIRECTORY, "/b": SECOND}
CLUSTER = [broker(1), broker(2), *topic("tide", replicas=(1, 2))]
EPOCH = 6
"""Of broker 1 in there."""


def setting(name: str, value: str | None, topic: str = "tide") -> ConfigRecord:
    kind = TOPIC_RESOURCE if topic else BROKER_RESOURCE
    return ConfigRecord(resource_type=kind, resource_name=topic, name=name, value=value)


class Life:
    """One life of broker 1 on a disk: its folders are found, and nothing is open."""

    def __init__(
        self, disk: SimDisk, folders: Mapping[str, bytes] = ONE, image: ClusterImage | None = None, **settings: str
    ) -> None:
        self.disk = disk
        self.timeline = Timeline()
        random = SimRandom(1)
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.config = BrokerConfig.parse({"node.id": "1", "log.dirs": ",".join(folders), **given})
        self.env = Environment(self.timeline, SimLoop(self.timeline, random), disk, cast(Any, None), random)
        for folder in folders:
            disk.make_folders(folder)
            if not disk.exists(f"{folder}/meta.properties"):
                disk.write_whole(f"{folder}/meta.properties", b"version=1\n")
                disk.sync_folder("/")
        self.store = Store(self.env, list(folders), self.config)
        self.metadata = Follower(image_of(*CLUSTER) if image is None else image)
        self.past = Past(self.env, 1, folders, self.store, self.metadata, lambda: self.config)
        self.store.start()

    def keep(self, epoch: int = EPOCH) -> "Life":
        kept = self.past.keep(epoch)
        self.run(lambda: kept.done)
        kept.result()
        return self

    def change(self, *records: Record) -> None:
        image = self.metadata.image
        whole(self.metadata.publish(fold(image, records, image.offset + len(records), 1, 0), records))

    def run(self, until: Callable[[], bool], seconds: float = 5.0) -> None:
        self.timeline.run_until(until, self.timeline.now + seconds)

    def has_note(self, folder: str = "/a") -> bool:
        return self.disk.exists(f"{folder}/{NOTE}")

    def write(self, records: int, *, flush: bool = True) -> None:
        """To tide-0, acknowledged, and flushed perhaps."""
        log = self.store.log("tide", 0, TOPIC_ID, resolve_topic({}, self.config))
        for _ in range(records):
            append(log, b"x")
        self.store.commit.request(log)
        self.run(lambda: log.durable_end == log.log_end)
        if flush:
            self.store.flush_soon(log)
            self.run(lambda: log.recovery_point == log.log_end and self.store.upkeep.idle)
            self.run(lambda: False, 1.0)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(SimRandom(1))


def test_after_a_crash_a_broker_is_who_it_was_registered_as(disk: SimDisk) -> None:
    assert Life(disk).past.claim() == -1, "a new one was nobody"
    life = Life(disk).keep()
    assert life.past.state is State.KEPT
    disk.crash()
    after = Life(disk)
    assert (after.past.claim(), after.past.claimed) == (EPOCH, True)


def test_who_stopped_cleanly_says_so_as_kafka_does(disk: SimDisk) -> None:
    life = Life(disk, TWO).keep()
    stopped = life.store.stop(broker_epoch=EPOCH)
    life.run(lambda: stopped.done)
    disk.remove(f"/a/{NOTE}")
    after = Life(disk, TWO)
    assert (after.past.claim(), after.past.claimed) == (EPOCH, False)


def test_the_mark_of_a_clean_stop_counts_where_all_folders_have_it(disk: SimDisk) -> None:
    life = Life(disk, TWO)
    stopped = life.store.stop(broker_epoch=EPOCH)
    life.run(lambda: stopped.done)
    disk.remove("/b/.kafka_cleanshutdown")
    assert Life(disk, TWO).past.claim() == -1


def test_a_note_of_an_earlier_registration_is_nothing_to_go_by(disk: SimDisk) -> None:
    """It was registered again, and killed before that was noted; or the folder is older than that."""
    Life(disk).keep(EPOCH - 1)
    assert Life(disk).past.claim() == -1
    Life(disk).keep(EPOCH)
    assert Life(disk).past.claim() == EPOCH
    assert Life(disk, image=image_of(broker(2), *topic("tide", replicas=(2,)))).past.claim() == -1


@pytest.mark.parametrize(
    "settings", [{"tidelog_durability": "os"}, {}], ids=["by the broker's setting", "by the topic's"]
)
def test_who_counts_the_page_cache_claims_nothing(disk: SimDisk, settings: dict[str, str]) -> None:
    own = [] if settings else [setting("tidelog.durability", "os")]
    Life(disk).keep()
    life = Life(disk, image=image_of(*CLUSTER, *own), **settings).keep()
    assert life.past.state is State.WITHDRAWN
    assert not life.has_note(), "that of an earlier life doesn't hold for this one"


def test_a_topic_elsewhere_is_no_matter(disk: SimDisk) -> None:
    image = image_of(
        *CLUSTER, *topic("other", b"another topic 00", replicas=(2,)), setting("tidelog.durability", "os", "other")
    )
    assert Life(disk, image=image).keep().has_note()


def test_the_note_goes_before_the_page_cache_counts_and_does_not_come_back(disk: SimDisk) -> None:
    life = Life(disk).keep()
    seen: list[bool] = []
    life.metadata.subscribe(lambda *_: seen.append(life.has_note()))
    life.change(setting("retention.ms", "1000"))
    life.change(setting("tidelog.durability", "os"))
    life.change(setting("tidelog.durability", None))
    assert seen == [True, False, False]
    disk.crash()
    assert Life(disk).past.claim() == -1


def test_the_note_goes_when_such_a_topic_is_made_or_the_brokers_default_changes(disk: SimDisk) -> None:
    life = Life(disk).keep()
    life.change(*topic("other", b"another topic 00", replicas=(1, 2)), setting("tidelog.durability", "os", "other"))
    assert not life.has_note()
    life = Life(disk).keep()
    life.config = BrokerConfig.parse({"node.id": "1", "log.dirs": "/a", "tidelog.durability": "os"})
    life.change(setting("tidelog.durability", "os", ""))
    assert not life.has_note()


def test_replicas_in_memory_are_empty_after_a_kill(disk: SimDisk) -> None:
    in_memory = setting("tidelog.storage", "memory", "mist")
    several = image_of(*CLUSTER, *topic("mist", b"another topic 00", replicas=(1, 2)), in_memory)
    assert not Life(disk, image=several).keep().has_note()
    alone = image_of(*CLUSTER, *topic("mist", b"another topic 00", replicas=(1,)), in_memory)
    assert Life(disk, image=alone).keep().has_note()


def test_the_note_goes_when_a_log_fails(disk: SimDisk) -> None:
    life = Life(disk).keep()
    life.store.log("tide", 0, TOPIC_ID, resolve_topic({}, life.config)).go_offline("its disk is worn")
    assert not life.has_note()


def test_a_note_that_cannot_be_removed_is_tried_again(disk: SimDisk, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(disk).keep()
    disk.failing_syncs = 1
    life.change(setting("tidelog.durability", "os"))
    assert "can't be removed" in caplog.text
    life.run(lambda: False, 3.0)
    disk.crash()
    assert not life.has_note()


def test_a_note_that_cannot_be_written_keeps_nobody_from_serving(
    disk: SimDisk, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(disk)
    disk.failing_syncs = 1
    with caplog.at_level(logging.WARNING):
        life.keep()
    assert f"{NOTE} can't be written" in caplog.text
    disk.crash()
    assert Life(disk, image=life.metadata.image).past.claim() == -1


# ---- the folders ----


def test_a_further_folder_takes_nothing_away_and_one_that_is_missing_or_new_does(disk: SimDisk) -> None:
    Life(disk, TWO).keep()
    third = {**TWO, "/c": b"third directory "}
    assert Life(disk, third).past.claim() == EPOCH
    assert Life(disk, ONE).past.claim() == -1
    assert Life(disk, {"/a": DIRECTORY, "/b": b"another in place"}).past.claim() == -1
    disk.remove(f"/b/{NOTE}")
    assert Life(disk, TWO).past.claim() == -1


def test_notes_of_two_lives_are_nothing_to_go_by(disk: SimDisk) -> None:
    Life(disk, ONE).keep()
    Life(disk, {"/b": SECOND}).keep()
    assert Life(disk, TWO).past.claim() == -1


def test_a_folder_that_was_moved_is_the_same_and_a_copy_is_not(disk: SimDisk) -> None:
    Life(disk).keep()
    disk.rename("/a", "/moved")
    assert Life(disk, {"/moved": DIRECTORY}).past.claim() == EPOCH
    disk.make_folders("/copy")
    for name in disk.list_folder("/moved"):
        disk.write_whole(f"/copy/{name}", disk.read_whole(f"/moved/{name}"))
    assert Life(disk, {"/copy": DIRECTORY}).past.claim() == -1


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 0, "directories": [3]}', b"\xff"])
def test_a_note_that_cannot_be_read_is_none(disk: SimDisk, data: bytes) -> None:
    Life(disk).keep()
    disk.write_whole(f"/a/{NOTE}", data)
    assert Life(disk).past.claim() == -1


# ---- what is in them ----


def test_recovery_points_that_are_lost_end_the_claim(disk: SimDisk, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(disk).keep()
    life.write(3)
    assert Life(disk).past.claim() == EPOCH
    disk.remove("/a/recovery-point-offset-checkpoint")
    with caplog.at_level(logging.INFO):
        assert Life(disk).past.claim() == -1
    assert "doesn't claim to have all that its replicas had: the recovery points in /a are lost" in caplog.text


def test_a_partition_whose_folder_somebody_took_away_ends_the_claim(disk: SimDisk) -> None:
    life = Life(disk).keep()
    life.write(3)
    disk.rename("/a/tide-0", "/taken")
    assert Life(disk).past.claim() == -1
    elsewhere = image_of(broker(1), broker(2), *topic("tide", replicas=(2,)))
    assert Life(disk, image=elsewhere).past.claim() == EPOCH, "it isn't this broker's"


def test_a_journal_that_is_damaged_ends_the_claim(disk: SimDisk) -> None:
    life = Life(disk, tidelog_journal_bytes="262144").keep()
    life.write(1, flush=False)
    life.run(lambda: life.store.journals["/a"].is_ready)
    life.write(3, flush=False)
    life.write(3, flush=False)
    written = [name for name in disk.list_folder("/a") if name.startswith("tidelog-journal-")]
    assert Life(disk).past.claim() == EPOCH
    for name in written:
        disk.write_at(f"/a/{name}", 100, b"rust")
    assert Life(disk).past.claim() == -1


def test_a_log_that_is_less_than_was_claimed_is_not_served(disk: SimDisk) -> None:
    """What the journal has can't be put behind what is left of the segment: somebody cut that."""
    life = Life(disk, tidelog_journal_bytes="262144").keep()
    life.write(1, flush=False)
    life.run(lambda: life.store.journals["/a"].is_ready)
    life.write(3, flush=False)
    path = "/a/tide-0/00000000000000000000.log"
    disk.open(path).truncate(0)

    def reopened(*, claims: bool, image: ClusterImage | None = None) -> str | None:
        after = Life(disk, image=image)
        if claims:
            assert after.past.claim() == EPOCH
        return after.store.log("tide", 0, TOPIC_ID, resolve_topic({}, after.config)).offline

    told = reopened(claims=True)
    assert told is not None
    assert "ends at offset 0, but records up to 4 were made durable: others have them" in told
    alone = image_of(broker(1), broker(2), *topic("tide", replicas=(1,)))
    assert reopened(claims=True, image=alone) is None, "what is left of it is better than nothing"
    assert reopened(claims=False) is None
