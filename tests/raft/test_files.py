"""The files beside the metadata log: quorum-state, checkpoints, meta.properties."""

from typing import cast

import pytest

from tidelog.env import Environment, Network
from tidelog.raft.election_file import (
    ElectionFileError,
    decode_election,
    encode_election,
    read_election,
    write_election,
)
from tidelog.raft.events import ElectionState
from tidelog.raft.folder import FolderError, FolderIdentity, encode_identity, open_folders, read_identity
from tidelog.raft.snapshot import (
    SnapshotError,
    SnapshotId,
    encode_snapshot,
    list_snapshots,
    parse_name,
    read_snapshot,
    remove_leftovers,
    snapshot_timestamp,
    write_snapshot,
)
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.wire.uuids import uuid_bytes

DIRECTORY = uuid_bytes("DxlK0OXYTTORAgQinkzEfA")
KEY = ReplicaKey(1, DIRECTORY)
VOTERS = VoterSet((Voter(KEY, (Endpoint("CONTROLLER", "localhost", 9093),)),))


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(SimRandom(1))
    disk.make_folders("/m")
    disk.sync_all("/")
    return disk


@pytest.fixture
def env(disk: SimDisk) -> Environment:
    timeline = Timeline()
    return Environment(timeline, SimLoop(timeline, SimRandom(2)), disk, cast(Network, None), SimRandom(3))


def test_election_is_written_as_kafka_writes_it() -> None:
    led = b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    assert encode_election(ElectionState(3, leader_id=1), 1, VOTERS) == led
    voted = b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"DxlK0OXYTTORAgQinkzEfA","data_version":1}'
    assert encode_election(ElectionState(2, voted=KEY), 1, VOTERS) == voted


@pytest.mark.parametrize(
    "election", [ElectionState(), ElectionState(3, 1), ElectionState(2, voted=KEY), ElectionState(4, 2, KEY)]
)
def test_election_comes_back(election: ElectionState) -> None:
    assert decode_election(encode_election(election, 1, VOTERS), "") == election


def test_election_of_kraft_version_zero_knows_no_directories() -> None:
    data = encode_election(ElectionState(4, 2, ReplicaKey(1)), 0, VOTERS)
    assert data == (
        b'{"clusterId":"","leaderId":2,"leaderEpoch":4,"votedId":1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert decode_election(data, "") == ElectionState(4, 2, ReplicaKey(1))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b'{"data_version":7}', b'{"data_version":1,"votedId":"x"}', b"\xff"]
)
def test_file_that_is_no_election_is_refused(data: bytes) -> None:
    with pytest.raises(ElectionFileError):
        decode_election(data, "/m/quorum-state")


def test_election_survives_a_power_loss_whole(disk: SimDisk) -> None:
    assert read_election(disk, "/m") is None
    for epoch in range(1, 30):
        write_election(disk, "/m", ElectionState(epoch, 1), 1, VOTERS)
        disk.crash()
        assert read_election(disk, "/m") == ElectionState(epoch, 1)


def test_names_of_checkpoints() -> None:
    assert SnapshotId(29, 3).file_name == "00000000000000000029-0000000003.checkpoint"
    assert parse_name("00000000000000000029-0000000003.checkpoint") == SnapshotId(29, 3)
    for name in ("00000000000000000029.log", "29-3.checkpoint", "00000000000000000029-0000000003.checkpoint.part"):
        assert parse_name(name) is None


def batches(*values: bytes) -> list[bytearray]:
    return [*encode_snapshot(values, epoch=3, log_timestamp_ms=5, now_ms=7, kraft_version=1, voters=VOTERS)]


def test_checkpoint_comes_back(disk: SimDisk) -> None:
    values = [b"%d" % number * 100_000 for number in range(25)]  # more than one batch
    write_snapshot(disk, "/m", SnapshotId(29, 3).file_name, batches(*values))
    path = f"/m/{SnapshotId(29, 3).file_name}"
    contents = read_snapshot(disk, path)
    assert contents.values == values
    assert contents.header.last_contained_log_timestamp == snapshot_timestamp(disk, path) == 5
    assert list_snapshots(disk, "/m") == [SnapshotId(29, 3)]


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_checkpoint_without_one_of_its_parts_is_refused(disk: SimDisk, left_out: int) -> None:
    parts = batches(b"value")
    del parts[left_out]
    write_snapshot(disk, "/m", SnapshotId(1, 1).file_name, parts)
    path = f"/m/{SnapshotId(1, 1).file_name}"
    if left_out == 1:  # the values; nothing says how many there were
        assert read_snapshot(disk, path).values == []
    else:
        with pytest.raises(SnapshotError, match="lacks its"):
            read_snapshot(disk, path)


def test_checkpoint_that_is_cut_off_is_refused(disk: SimDisk) -> None:
    data = b"".join(batches(b"value"))
    for size in (0, 30, 100, len(data) - 1):
        disk.write_whole("/m/x.checkpoint", data[:size])
        with pytest.raises(SnapshotError):
            read_snapshot(disk, "/m/x.checkpoint")
    disk.write_whole("/m/x.checkpoint", data + b"more")
    with pytest.raises(SnapshotError, match="the end of its last batch"):
        read_snapshot(disk, "/m/x.checkpoint")


def test_checkpoint_is_whole_or_not_there_whenever_the_power_goes() -> None:
    for seed in range(20):
        disk = SimDisk(SimRandom(seed))
        disk.make_folders("/m")
        disk.sync_all("/")
        write_snapshot(disk, "/m", SnapshotId(1, 1).file_name, batches(b"old"))
        part = disk.open("/m/00000000000000000002-0000000001.checkpoint.part", create=True)
        part.append(b"".join(batches(b"new"))[: 40 * seed])
        disk.crash()
        remove_leftovers(disk, "/m")
        assert disk.list_folder("/m") == [SnapshotId(1, 1).file_name]
        assert read_snapshot(disk, f"/m/{SnapshotId(1, 1).file_name}").values == [b"old"]


def test_identity_comes_back(env: Environment) -> None:
    identity = FolderIdentity("4L6g3nShT-eMCtK--X86sw", 1, DIRECTORY)
    env.disk.write_whole("/m/meta.properties", encode_identity(identity))
    assert read_identity(env, "/m") == identity


def test_identity_as_kafka_writes_it(env: Environment) -> None:
    env.disk.write_whole(
        "/m/meta.properties",
        b"#\n#a date\nnode.id=1\ndirectory.id=DxlK0OXYTTORAgQinkzEfA\nversion=1\ncluster.id=abc\n",
    )
    assert read_identity(env, "/m") == FolderIdentity("abc", 1, DIRECTORY)


def test_folder_without_a_directory_id_is_given_one(env: Environment) -> None:
    env.disk.write_whole("/m/meta.properties", b"version=1\ncluster.id=abc\nnode.id=1\n")
    identity = read_identity(env, "/m")
    assert identity is not None
    assert read_identity(env, "/m") == identity


@pytest.mark.parametrize(
    "text",
    ["version=0\ncluster.id=a\nbroker.id=1\n", "version=1\nnode.id=1\n", "version=1\ncluster.id=a\nnode.id=x\n", ""],
)
def test_identity_that_cannot_be_read_is_refused(env: Environment, text: str) -> None:
    env.disk.write_whole("/m/meta.properties", text.encode())
    with pytest.raises(FolderError):
        read_identity(env, "/m")


def test_new_folder_joins_the_cluster_of_the_others(env: Environment) -> None:
    env.disk.write_whole("/m/meta.properties", encode_identity(FolderIdentity("abc", 1, DIRECTORY)))
    identities, new = open_folders(env, ["/m", "/n/deep"], 1, None)
    assert [identity.cluster_id for identity in identities] == ["abc", "abc"]
    assert identities[0].directory_id != identities[1].directory_id
    assert new == ["/n/deep"]


@pytest.mark.parametrize(("node", "cluster"), [(2, None), (1, "another")])
def test_folder_of_another_is_refused(env: Environment, node: int, cluster: str | None) -> None:
    env.disk.write_whole("/m/meta.properties", encode_identity(FolderIdentity("abc", 1, DIRECTORY)))
    with pytest.raises(FolderError, match="belongs to"):
        open_folders(env, ["/m"], node, cluster)


def test_folders_of_two_clusters_are_refused(env: Environment) -> None:
    env.disk.make_folders("/n")
    for folder, cluster in (("/m", "abc"), ("/n", "def")):
        env.disk.write_whole(f"{folder}/meta.properties", encode_identity(FolderIdentity(cluster, 1, DIRECTORY)))
    with pytest.raises(FolderError, match="belongs to cluster def, not to abc"):
        open_folders(env, ["/m", "/n"], 1, None)
