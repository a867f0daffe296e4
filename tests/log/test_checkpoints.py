"""Checkpoint files are Kafka's, to the byte, and a damaged one is named with its line."""

import pytest

from tidelog.log.checkpoints import (
    CheckpointError,
    read_clean_shutdown,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    write_clean_shutdown,
    write_epochs,
    write_offsets,
    write_partition_metadata,
)
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom

PATH = "/data/checkpoint"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(SimRandom(1))
    disk.make_folders("/data")
    disk.sync_folder("/")
    return disk


def test_offsets_are_written_as_kafka_does_and_survive_a_crash(disk: SimDisk) -> None:
    offsets = {("orders", 0): 17, ("orders", 12): 2**40, ("a.b-c_d", 1): 0}
    write_offsets(disk, PATH, offsets)
    disk.crash()
    assert disk.read_whole(PATH) == b"0\n3\norders 0 17\norders 12 1099511627776\na.b-c_d 1 0\n"
    assert read_offsets(disk, PATH) == offsets


def test_epochs_come_back(disk: SimDisk) -> None:
    write_epochs(disk, PATH, [(0, 0), (3, 100)])
    assert disk.read_whole(PATH) == b"0\n2\n0 0\n3 100\n"
    assert read_epochs(disk, PATH) == [(0, 0), (3, 100)]


def test_a_missing_file_holds_nothing(disk: SimDisk) -> None:
    assert read_offsets(disk, PATH) == {}
    assert read_epochs(disk, PATH) == []
    assert read_partition_metadata(disk, PATH) is None
    assert read_clean_shutdown(disk, PATH) is None
    disk.write_whole(PATH, b"0\n0\n")
    assert read_offsets(disk, PATH) == {}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"1\n0\n", "line 1"),
        (b"", "line 1"),
        (b"1\n", "line 1"),
        (b"0\n", "line 2"),
        (b"0\n1\ntide 0 12", "line 3"),
        (b"x\n0\n", "line 1"),
        (b"0\n2\na 0 1\n", "line 2"),
        (b"0\nmany\na 0 1\n", "line 2"),
        (b"0\n1\na 0\n", "line 3"),
        (b"0\n2\na 0 1\na b 1\n", "line 4"),
        (b"0\n1\na 0 \n", "line 3"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(disk: SimDisk, content: bytes, line: str) -> None:
    disk.write_whole(PATH, content)
    with pytest.raises(CheckpointError, match=f"{PATH} {line} should hold"):
        read_offsets(disk, PATH)


def test_a_malformed_epoch_is_named_with_its_line(disk: SimDisk) -> None:
    disk.write_whole(PATH, b"0\n1\n1 2 3\n")
    with pytest.raises(CheckpointError, match="line 3 should hold leader epoch and start offset"):
        read_epochs(disk, PATH)


def test_a_file_of_noise_is_named(disk: SimDisk) -> None:
    disk.write_whole(PATH, b"\xff\xfe")
    with pytest.raises(CheckpointError, match="isn't UTF-8"):
        read_offsets(disk, PATH)


def test_the_topic_id_comes_back(disk: SimDisk) -> None:
    topic_id = bytes(range(16))
    write_partition_metadata(disk, PATH, topic_id)
    assert disk.read_whole(PATH) == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_partition_metadata(disk, PATH) == topic_id


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0\n",
        b"version: x\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: short",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
    ],
)
def test_a_malformed_partition_metadata_is_told(disk: SimDisk, content: bytes) -> None:
    disk.write_whole(PATH, content)
    with pytest.raises(CheckpointError, match=PATH):
        read_partition_metadata(disk, PATH)


def test_the_clean_shutdown_mark_holds_the_broker_epoch(disk: SimDisk) -> None:
    write_clean_shutdown(disk, PATH, 42)
    assert disk.read_whole(PATH) == b'{"version":0,"brokerEpoch":42}'
    assert read_clean_shutdown(disk, PATH) == 42


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"version":0,"brokerEpoch":null}', b"12"])
def test_a_mark_of_an_older_kafka_is_a_mark_without_epoch(disk: SimDisk, content: bytes) -> None:
    disk.write_whole(PATH, content)
    assert read_clean_shutdown(disk, PATH) == -1
