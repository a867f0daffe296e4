"""A controller on its log: starts, restarts, snapshots, crashes."""

import re
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.controller.nodes import DATA, METADATA, Node, World
from tests.metadata.images import broker
from tidelog.controller import record_log
from tidelog.controller.activation import default_bootstrap
from tidelog.controller.controller import MetadataError
from tidelog.metadata.image import ClusterImage
from tidelog.raft.events import NO_LEADER
from tidelog.raft.folder import FolderError
from tidelog.raft.replay import ReplayBatch
from tidelog.raft.settings import RaftSettings
from tidelog.raft.snapshot import SnapshotContents, SnapshotId, read_snapshot
from tidelog.wire.batch import iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.cluster import ConfigRecord, FeatureLevelRecord, NoOpRecord
from tidelog.wire.records.control import SnapshotHeaderRecord, decode_control
from tidelog.wire.records.metadata import Record, decode_record, encode_record
from tidelog.wire.records.topics import PartitionRecord, RemoveTopicRecord, TopicRecord

SMALL = RaftSettings(snapshot_bytes=2000, retention_bytes=6000, snapshot_interval_ms=0)


@pytest.fixture
def world() -> World:
    return World()


def log_contents(world: World) -> list[tuple[int, int, list[object]]]:
    """(base offset, epoch, records) of each batch in the log's first segment."""
    data = world.disk.read_whole(f"{METADATA}/00000000000000000000.log")
    found: list[tuple[int, int, list[object]]] = []
    for header in iterate(data):
        values = [
            decode_control(r.key or b"", r.value or b"") if header.control else decode_record(r.value or b"")
            for r in records(data, header)
        ]
        found.append((header.base_offset, header.leader_epoch, values))
    return found


def settings_of(image: ClusterImage) -> dict[str, str]:
    return dict(image.configs.get((4, "1"), {}))


def setting(number: int) -> Record:
    return ConfigRecord(resource_type=4, resource_name="1", name=f"n{number}", value=str(number))


def test_first_start_writes_what_kafka_would(world: World) -> None:
    node = world.start()
    names = [[type(record).__name__ for record in batch] for _, _, batch in log_contents(world)]
    assert names == [
        ["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"],
        ["BeginTransactionRecord", *["FeatureLevelRecord"] * 6, "ConfigRecord", "EndTransactionRecord"],
        ["RegisterControllerRecord"],
    ]
    assert [(offset, epoch) for offset, epoch, _ in log_contents(world)] == [(0, 1), (3, 1), (12, 1)]
    assert (node.raft.epoch, node.raft.leader_id, node.raft.high_watermark) == (1, 1, 13)
    assert node.raft.kraft_version == 1
    assert (node.image.offset, node.image.epoch) == (12, 1)


def test_answer_comes_after_the_image_was_published(world: World) -> None:
    node = world.start()
    node.write(broker(epoch=13))
    assert node.create("t", 3).topics[0].error_code == 0
    assert len(node.image.topics["t"].partitions) == 3
    node.image.check_invariants()


def test_restart_leads_the_next_epoch_and_knows_everything(world: World) -> None:
    node = world.start()
    node.write(broker(epoch=13))
    node.create("t", 3)
    before = node.image
    node.stop()
    node = world.start()
    assert node.raft.epoch == 2
    assert node.image.topics == before.topics
    assert node.image.brokers == before.brokers
    assert node.image.offset == before.offset + 2  # a LeaderChange, and the controller's registration


def test_voters_are_written_once(world: World) -> None:
    for _ in range(2):
        world.start().stop()
    opening = next(batch for _, epoch, batch in log_contents(world) if epoch == 2)
    assert [type(record).__name__ for record in opening] == ["LeaderChangeMessage"]


def test_snapshot_and_the_log_behind_it_give_the_same_image_as_the_log(world: World) -> None:
    node = world.start()
    node.write(broker(epoch=13))
    for number in range(5):
        node.create(f"t{number}", 2)
    world.settle(node.raft.take_snapshot())
    assert list(node.raft.snapshots) == [SnapshotId(0, 0), SnapshotId(29, 1)]
    node.create("after", 4)
    expected = node.image
    node.stop()
    node = world.start()
    assert node.image.topics == expected.topics
    assert node.image.features == expected.features
    contents = read_snapshot(world.disk, f"{METADATA}/{SnapshotId(29, 1).file_name}")
    assert [type(record).__name__ for record in contents.control] == ["KRaftVersionRecord", "VotersRecord"]
    assert [decode_record(value) for value in contents.values][:6] == default_bootstrap()


def test_snapshots_come_by_size_and_old_ones_go_with_the_log_below_them(world: World) -> None:
    node = world.start(SMALL, {"log.segment.bytes": "1048576"})
    for number in range(120):
        node.write(setting(number))
    world.run(1)
    assert 1 <= len(node.raft.snapshots) <= 4
    assert SnapshotId(0, 0) not in node.raft.snapshots
    assert node.raft.log_start == node.raft.snapshots[0].offset
    node.stop()
    assert len(settings_of(world.start(SMALL).image)) == 120


def test_snapshot_by_time_only_where_something_changed(world: World) -> None:
    node = world.start(RaftSettings(snapshot_interval_ms=60_000))
    world.run(61)
    assert len(node.raft.snapshots) == 2
    world.run(600)
    assert len(node.raft.snapshots) == 2
    node.write(NoOpRecord())
    world.run(61)
    assert len(node.raft.snapshots) == 3


def test_snapshot_by_size_counts_what_earlier_lives_wrote(world: World) -> None:
    """A broker that is restarted again and again writes one all the same: else its log would grow for ever."""
    for life in range(12):
        node = world.start(SMALL)
        for number in range(3):
            node.write(setting(10 * life + number))
        world.run(1)
        node.stop()
    node = world.start(SMALL)
    world.run(1)
    assert node.raft.snapshots[-1].offset > 0
    assert len(settings_of(node.image)) == 36


def test_snapshot_by_time_counts_from_the_last_one_not_from_the_start(world: World) -> None:
    hourly = RaftSettings(snapshot_interval_ms=3_600_000)
    for life in range(5):
        node = world.start(hourly)
        node.write(setting(life))
        world.run(50 * 60)
        node.stop()
    node = world.start(hourly)
    assert len(node.raft.snapshots) in (3, 4, 5)
    newest = node.raft.snapshots[-1]
    world.run(55 * 60)
    assert node.raft.snapshots[-1] > newest
    seen = node.raft.snapshots[-1]
    world.run(3 * 3600)
    assert node.raft.snapshots[-1] == seen, "only where something changed"


def test_power_loss_forgets_nothing_that_was_answered(world: World) -> None:
    for life in range(1, 8):
        node = world.start(SMALL)
        assert set(settings_of(node.image)) >= {f"n{number}" for number in range(10 * (life - 1))}
        assert node.raft.epoch >= life
        for number in range(10 * (life - 1), 10 * life):
            node.write(setting(number))
        node.controller.submit(lambda image, now_ms: ([setting(1000)], None))  # may or may not be there later
        node.power_loss()


class PowerCut(BaseException):
    """Nothing catches it, as nothing survives it."""


@pytest.mark.parametrize("cut", [*range(30), *range(30, 300, 5)])
def test_power_cut_at_any_write_of_starts_and_snapshots(cut: int) -> None:
    """The power goes at the n-th change of the disk; whoever was answered before finds it afterwards."""
    world = World(cut)
    epochs: list[int] = []
    answered: set[str] = set()
    cut_disk(world, cut)
    try:
        for life in range(3):
            node = world.start(SMALL)
            epochs.append(node.raft.epoch)
            for number in range(25):
                node.write(setting(100 * life + number))
                answered.add(f"n{100 * life + number}")
            node.power_loss()
    except PowerCut:
        pass
    restore_disk(world)
    world.disk.release_locks()
    world.disk.crash()
    node = world.start(SMALL)
    assert answered <= set(settings_of(node.image))
    assert all(epoch < node.raft.epoch for epoch in epochs), "an epoch was led twice"
    assert node.raft.kraft_version == 1
    node.create("refused")  # there is no broker, but there is an answer


CHANGES = ("rename", "sync_folder", "remove", "make_folders", "write_whole", "sync_node")


def cut_disk(world: World, at: int) -> None:
    left = [at]

    def cutting(name: str) -> None:
        original = getattr(world.disk, name)

        def change(*args: object, **kwargs: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise PowerCut(name)
            return original(*args, **kwargs)

        setattr(world.disk, name, change)

    for name in CHANGES:
        cutting(name)


def restore_disk(world: World) -> None:
    for name in CHANGES:
        delattr(world.disk, name)


def test_failed_sync_at_the_start_fails_the_start(world: World) -> None:
    world.start().stop()
    node = Node(world, RaftSettings(), {})
    world.disk.failing_syncs = 1
    world.settle(node.ready)
    assert isinstance(node.ready.error, MetadataError)


def test_failed_sync_ends_leadership_and_fails_who_waits(world: World) -> None:
    node = world.start()
    world.run(10.0)  # what a start leaves to be flushed is
    world.disk.failing_syncs = 1
    with pytest.raises(KafkaError) as raised:
        node.write(setting(1))
    assert raised.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError) as raised:
        node.write(setting(2))
    assert raised.value.code is ErrorCode.NOT_CONTROLLER
    assert settings_of(node.image) == {}


def test_full_disk_refuses_the_change_and_goes_on_when_there_is_room(world: World) -> None:
    node = world.start()
    world.disk.capacity = world.disk.used_bytes()
    with pytest.raises(KafkaError) as raised:
        node.write(setting(1))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.capacity = None
    node.write(setting(2))
    assert settings_of(node.image) == {"n2": "2"}
    node.stop()
    assert settings_of(world.start().image) == {"n2": "2"}


def test_large_change_is_one_transaction_over_several_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    node = world.start()
    monkeypatch.setattr(record_log, "BATCH_BYTES", 100)
    node.write(*(setting(number) for number in range(30)))
    assert len(settings_of(node.image)) == 30
    written = [batch for _, _, batch in log_contents(world)][3:]
    assert len(written) > 3
    assert type(written[0][0]).__name__ == "BeginTransactionRecord"
    assert type(written[-1][-1]).__name__ == "EndTransactionRecord"
    node.write(setting(99))
    expected = node.image
    node.stop()
    assert settings_of(world.start().image) == settings_of(expected)


@pytest.mark.parametrize("room", range(0, 900, 25))
def test_full_disk_amid_a_large_change_leaves_nothing_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Whatever fits of it: what is decided afterwards, while the disk is full and later, is there after a restart."""
    node = world.start()
    monkeypatch.setattr(record_log, "BATCH_BYTES", 100)
    large = [setting(number) for number in range(30)]
    world.disk.capacity = world.disk.used_bytes() + room
    with pytest.raises(KafkaError) as raised:
        node.write(*large)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    expected: dict[str, str] = {}
    for number in (100, 101):  # small ones may fit, or not
        with suppress(KafkaError):
            node.write(setting(number))
            expected[f"n{number}"] = str(number)
    world.disk.capacity = None
    node.write(setting(102))
    node.write(*(setting(number) for number in range(200, 230)))
    expected |= {f"n{number}": str(number) for number in (102, *range(200, 230))}
    assert settings_of(node.image) == expected
    node.stop()
    assert settings_of(world.start().image) == expected


def test_cut_off_change_is_told_once_and_its_abort_is_in_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = world.start()
    monkeypatch.setattr(record_log, "BATCH_BYTES", 100)
    world.disk.capacity = world.disk.used_bytes() + 420
    for _ in range(3):
        with pytest.raises(KafkaError):
            node.write(*(setting(number) for number in range(30)))
    written = [type(record).__name__ for _, _, batch in log_contents(world)[3:] for record in batch]
    assert written[0] == "BeginTransactionRecord"
    assert written[-1] == "AbortTransactionRecord"
    assert written.count("BeginTransactionRecord") == written.count("AbortTransactionRecord") == 1
    told = [record.getMessage() for record in caplog.records if record.name.startswith("tidelog.controller")]
    assert [line.split(":")[0] for line in told] == [
        "a metadata change was cut off after 1 of its 4 batches (KAFKA_STORAGE_ERROR",
        "the metadata can't be changed",
    ]
    assert "No space left" in told[1]
    assert "free some space" in told[1]
    world.disk.capacity = None
    node.write(setting(1))
    assert caplog.records[-1].getMessage() == "the metadata can be changed again; 3 changes were refused meanwhile"


def test_nothing_is_accepted_while_the_abort_of_a_cut_off_change_does_not_fit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.start()
    monkeypatch.setattr(record_log, "BATCH_BYTES", 100)
    world.disk.capacity = world.disk.used_bytes() + 300
    append = node.raft.append_records
    monkeypatch.setattr(node.raft, "append_records", full_from(append, 1))
    with pytest.raises(KafkaError):
        node.write(*(setting(number) for number in range(30)))
    with pytest.raises(KafkaError):
        node.write(setting(1))
    assert type(log_contents(world)[-1][2][0]).__name__ == "BeginTransactionRecord"
    node.kill()  # before there is room: the next life aborts it
    world.disk.capacity = None
    node = world.start()
    assert "AbortTransactionRecord" in [
        type(record).__name__ for _, _, batch in log_contents(world) for record in batch
    ]
    node.write(setting(2))
    assert settings_of(node.image) == {"n2": "2"}
    node.stop()
    assert settings_of(world.start().image) == {"n2": "2"}


def full_from(append: Callable[..., int], call: int) -> Callable[..., int]:
    """Appends work up to this call of them."""
    calls = [0]

    def limited(*args: object) -> int:
        calls[0] += 1
        if calls[0] > call:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device")
        return append(*args)

    return limited


@pytest.mark.parametrize("room", range(0, 800, 20))
def test_start_on_a_full_disk_opens_its_epoch_or_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """A first change that can't be written is never skipped: the rest would be decided on half of a beginning."""
    node = Node(world, RaftSettings(), {})
    world.disk.capacity = world.disk.used_bytes() + room
    world.settle(node.ready)
    if node.ready.error is not None:
        assert "No space left" in str(node.ready.error)
        assert node.controller.submit(lambda image, now_ms: ([], None)).error.code is ErrorCode.NOT_CONTROLLER
    else:
        assert node.image.metadata_version == 30
    node.kill()
    world.disk.capacity = None
    assert world.start().image.metadata_version == 30


def test_transaction_that_a_crash_cut_off_never_was(world: World) -> None:
    node = world.start()
    from tidelog.wire.records.cluster import BeginTransactionRecord

    node.controller.submit(lambda image, now_ms: ([BeginTransactionRecord(name="x"), setting(1)], None))
    world.run(1)
    assert settings_of(node.image) == {}
    node.kill()
    node = world.start()
    assert settings_of(node.image) == {}
    node.write(setting(2))
    assert settings_of(node.image) == {"n2": "2"}


def test_metadata_of_a_newer_version_is_refused_with_a_clear_word(world: World) -> None:
    node = world.start()
    node.write(FeatureLevelRecord(name="metadata.version", feature_level=99))
    node.stop()
    node = Node(world, RaftSettings(), {})
    world.settle(node.ready)
    with pytest.raises(MetadataError, match=r"metadata.version at level 99.*supports 7 to 30"):
        node.ready.result()
    assert node.controller.submit(lambda image, now_ms: ([], None)).error.code is ErrorCode.NOT_CONTROLLER


def test_unknown_record_of_a_newer_version_is_told_with_its_place(world: World) -> None:
    node = world.start()
    node.raft.append([b"\x01\x7f\x00\x00"], node.raft.epoch, 0)
    world.run(1)
    node.kill()
    node = Node(world, RaftSettings(), {})
    world.settle(node.ready)
    with pytest.raises(MetadataError, match=r"the record at offset 13 of the metadata log in .*: .* type 127"):
        node.ready.result()


UNKNOWN = b"\x01\x7f\x00\x00"


@pytest.mark.parametrize(
    ("unreadable", "told"),
    [
        (UNKNOWN, r"the record at offset 98 of .*: a metadata record has type 127"),
        (b"\x01\x02", r"the record at offset 98 of .*: a metadata record is cut off after 2 bytes"),
        (
            encode_record(RemoveTopicRecord(topic_id=b"t" * 16)),
            r"the record at offset 98 of .*: .* which doesn't exist",
        ),
    ],
)
def test_committed_record_that_cannot_be_understood_while_serving_ends_the_node(
    world: World, caplog: pytest.LogCaptureFixture, unreadable: bytes, told: str
) -> None:
    """At a node that follows: it says which one and what to do, follows nothing more, and never leads again."""
    node = world.start()
    node.raft.resign()
    before = node.image
    readable = encode_record(setting(1))
    chunk = [
        ReplayBatch(95, 2, 0, [readable, readable]),
        ReplayBatch(96, 3, 0, []),
        ReplayBatch(99, 3, 0, [readable, unreadable, readable]),
    ]
    assert not node.controller.ended.done
    node.controller.replay(chunk)
    node.controller.replay([ReplayBatch(100, 3, 0, [readable])])
    with pytest.raises(MetadataError, match=told):
        node.controller.ended.result()
    (said,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert re.search(told, said.getMessage())
    assert METADATA in said.getMessage()
    assert "start the version that wrote it, or restore the folder from a backup" in said.getMessage()
    node.controller.lead(3)
    assert node.controller.submit(lambda image, now_ms: ([], None)).error.code is ErrorCode.NOT_CONTROLLER
    assert node.image is before


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (UNKNOWN, "a metadata record has type 127"),
        (encode_record(FeatureLevelRecord(name="metadata.version", feature_level=99)), "metadata.version at level 99"),
    ],
)
def test_checkpoint_of_the_leader_that_cannot_be_understood_ends_the_node(
    world: World, value: bytes, told: str
) -> None:
    """It comes to a node that serves, from a leader of a newer version."""
    node = world.start()
    node.raft.resign()
    before = node.image
    contents = SnapshotContents(SnapshotHeaderRecord(last_contained_log_timestamp=0), [], [value])
    node.controller.load_snapshot(contents, SnapshotId(1000, 7))
    with pytest.raises(MetadataError, match=told):
        node.controller.ended.result()
    node.controller.replay([ReplayBatch(1000, 7, 0, [encode_record(setting(1))])])
    assert node.image is before


def test_chunk_that_cannot_be_understood_only_as_a_whole_ends_the_node_too(world: World) -> None:
    node = world.start()
    node.raft.resign()
    hole = [TopicRecord(name="t", topic_id=b"t" * 16), PartitionRecord(partition_id=1, topic_id=b"t" * 16)]
    node.controller.replay([ReplayBatch(99, 2, 0, [encode_record(record) for record in hole])])
    with pytest.raises(MetadataError, match=r"the records up to offset 99 of .*: topic t lacks partition 0"):
        node.controller.ended.result()


def test_node_that_cannot_understand_its_metadata_resigns_when_it_is_elected(world: World) -> None:
    node = world.start()
    node.raft.append([UNKNOWN], node.raft.epoch, 0)
    world.run(1)
    node.kill()
    node = Node(world, RaftSettings(), {})
    world.settle(node.ready)
    world.run(1)
    assert node.raft.leader_id == NO_LEADER


def test_folder_of_another_node_is_refused(world: World) -> None:
    world.start().stop()
    world.disk.write_whole(f"{DATA}/meta.properties", b"version=1\ncluster.id=x\nnode.id=2\n")
    with pytest.raises(FolderError, match=r"belongs to node 2, but node.id is 1"):
        world.start()


def test_metadata_log_without_an_identity_is_not_formatted_over(world: World) -> None:
    world.start().stop()
    world.disk.remove(f"{DATA}/meta.properties")
    with pytest.raises(FolderError, match=r"metadata log but no meta.properties"):
        world.start()


def test_damaged_quorum_state_is_not_guessed_at(world: World) -> None:
    world.start().stop()
    world.disk.write_whole(f"{METADATA}/quorum-state", b"{")
    with pytest.raises(ValueError, match="not a quorum-state file"):
        world.start()


def test_damaged_snapshot_is_not_believed(world: World) -> None:
    node: Node = world.start()
    node.write(setting(1))
    world.settle(node.raft.take_snapshot())
    name = node.raft.snapshots[-1].file_name
    node.stop()
    world.disk.flip_bit(f"{METADATA}/{name}", 100, 120)
    with pytest.raises(ValueError, match="damaged"):
        world.start()


def test_wiped_identity_is_told_from_the_voter(world: World) -> None:
    world.start().stop()
    text = world.disk.read_whole(f"{DATA}/meta.properties").decode()
    replaced = "\n".join(line for line in text.splitlines() if "directory.id" not in line)
    world.disk.write_whole(f"{DATA}/meta.properties", replaced.encode())
    with pytest.raises(KafkaError, match="is none of the voters 1 with"):
        world.start()


def test_damage_in_the_middle_of_the_log_is_told(world: World) -> None:
    node = world.start()
    for number in range(20):
        node.write(setting(number))
    node.stop()
    world.disk.flip_bit(f"{METADATA}/00000000000000000000.log", 300, 320)
    with pytest.raises(MetadataError, match=r"CORRUPT_MESSAGE: the batch at offset \d+: "):
        world.start()


def test_missing_checkpoint_is_told(world: World) -> None:
    node = world.start(SMALL)
    for number in range(120):
        node.write(setting(number))
    world.run(1)
    assert node.raft.log_start > 0
    names = [snapshot.file_name for snapshot in node.raft.snapshots]
    node.stop()
    for name in names:
        world.disk.remove(f"{METADATA}/{name}")
    with pytest.raises(ValueError, match="the log begins at offset"):
        world.start()
