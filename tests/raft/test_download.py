"""A checkpoint on its way, when another one is fetched in its place."""

from collections.abc import Callable
from typing import Any, cast

from tests.raft.cluster import FOLDER, ROOT
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.raft.download import SnapshotDownload
from tidelog.raft.driver import RaftDriver
from tidelog.raft.snapshot import SnapshotId, encode_snapshot, list_snapshots, read_snapshot
from tidelog.raft.transport import QuorumTransport
from tidelog.raft.voters import ReplicaKey
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.messages import fetch_snapshot as pieces

SNAPSHOT = SnapshotId(10, 2)
PIECE_BYTES = 60_000


class Threads:
    """Work that is done aside when the test says so, in any order and one amid the other."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Promise[Any]]] = []

    def run_blocking(self, work: Callable[[], Any]) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        self.waiting.append((work, promise))
        return promise

    def do(self, at: int = 0) -> None:
        work, promise = self.waiting.pop(at)
        try:
            value = work()
        except Exception as error:
            promise.fail(error)
        else:
            promise.resolve(value)


class Quorum:
    local = ReplicaKey(1, b"1" * 16)


class Driver:
    epoch = 3
    folder = FOLDER
    snapshots: tuple[SnapshotId, ...] = ()
    quorum = Quorum()


class Leader:
    """Who has the checkpoint."""

    cluster_id = "a cluster"
    request_timeout_ms = 1000

    def __init__(self) -> None:
        batches = encode_snapshot([b"v" * 100_000], epoch=SNAPSHOT.epoch, log_timestamp_ms=0, now_ms=0)
        self.data = b"".join(bytes(batch) for batch in batches)

    def leader(self) -> "Leader":
        return self

    def ask(self, request: pieces.FetchSnapshotRequest, timeout_ms: int) -> Promise[pieces.FetchSnapshotResponse]:
        position = request.topics[0].partitions[0].position
        piece = pieces.ResponsePartitionSnapshot(
            snapshot_id=pieces.SnapshotId(end_offset=SNAPSHOT.offset, epoch=SNAPSHOT.epoch),
            size=len(self.data),
            position=position,
            unaligned_records=self.data[position : position + PIECE_BYTES],
        )
        topic = pieces.ResponseTopicSnapshot(name="__cluster_metadata", partitions=[piece])
        return Promise[pieces.FetchSnapshotResponse].resolved(pieces.FetchSnapshotResponse(topics=[topic]))


def test_try_that_was_abandoned_never_names_the_file_of_the_next_one() -> None:
    """It is about to give its file the checkpoint's name, in a thread of its own, when another try begins. A file that
    has the name and isn't whole would keep the node from its next start."""
    disk, threads = SimDisk(SimRandom(1)), Threads()
    disk.make_folders(FOLDER)
    disk.sync_folder(ROOT)
    env = Environment(cast(Any, None), cast(Any, threads), disk, cast(Any, None), SimRandom(2))
    transport, driver = cast(QuorumTransport, Leader()), cast(RaftDriver, Driver())

    def begin() -> SnapshotDownload:
        download = SnapshotDownload(env, transport, driver, SNAPSHOT, lambda: None)
        download.begin()
        return download

    first = begin()
    for _ in range(3):  # its file is made, and both pieces are written
        threads.do()
    second: list[SnapshotDownload] = []
    rename = disk.rename

    def renamed(old: str, new: str) -> None:
        disk.rename = rename
        first.abandon()
        second.append(begin())
        while len(threads.waiting) > 1:
            threads.do()
        threads.do()  # the second one's file is made
        threads.do()  # and has a piece
        rename(old, new)

    disk.rename = renamed
    threads.do()
    for snapshot in list_snapshots(disk, FOLDER):
        assert read_snapshot(disk, f"{FOLDER}/{snapshot.file_name}").values == [b"v" * 100_000]
    while threads.waiting:
        threads.do()
    assert second[0].done.result().values == [b"v" * 100_000]
    assert disk.list_folder(FOLDER) == [SNAPSHOT.file_name], "nothing else is left"


def test_what_was_written_of_a_checkpoint_that_is_not_had_goes() -> None:
    disk, threads = SimDisk(SimRandom(1)), Threads()
    disk.make_folders(FOLDER)
    env = Environment(cast(Any, None), cast(Any, threads), disk, cast(Any, None), SimRandom(2))
    download = SnapshotDownload(
        env, cast(QuorumTransport, Leader()), cast(RaftDriver, Driver()), SNAPSHOT, lambda: None
    )
    download.begin()
    threads.do()
    threads.do()
    assert len(disk.list_folder(FOLDER)) == 1
    download.abandon()
    while threads.waiting:
        threads.do()
    assert disk.list_folder(FOLDER) == []
