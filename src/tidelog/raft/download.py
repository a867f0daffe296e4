"""A checkpoint of the leader, fetched in pieces: into a file of its own, checked, synced, and renamed in the end.

Until then it is nothing: a crash leaves a file that the next start removes. Files are written off the loop. The pieces
come one after the other, each where the last one ended; whatever doesn't fit ends it, and the follower fetches again.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.env import Environment
from tidelog.env.disk import File
from tidelog.env.promise import Promise
from tidelog.raft.driver import RaftDriver
from tidelog.raft.requests import Said, endpoint_of, only_partition, snapshot_request
from tidelog.raft.snapshot import PART, SUFFIX, SnapshotContents, SnapshotId, read_snapshot
from tidelog.raft.transport import QuorumTransport
from tidelog.wire.errors import ErrorCode, KafkaError, error_code

T = TypeVar("T")

TRIES = 1 << 40
"""Of so many names one is taken at random."""


class SnapshotDownload:
    """One checkpoint on its way. `done` has its contents once it is durable under its name. `heard` is called with each
    piece: the leader lives."""

    def __init__(
        self,
        env: Environment,
        transport: QuorumTransport,
        driver: RaftDriver,
        snapshot: SnapshotId,
        heard: Callable[[], None],
    ) -> None:
        self.snapshot = snapshot
        self.done: Promise[SnapshotContents] = Promise()
        self._env = env
        self._transport = transport
        self._driver = driver
        self._epoch = driver.epoch
        self._heard = heard
        self._path = f"{driver.folder}/{snapshot.file_name}"
        # Nobody else's name: a checkpoint of one's own may be under way, and so may the last step of a try that was
        # abandoned, which would name this one's file before it is whole.
        number = env.random.random_int(0, TRIES)
        self._part = f"{self._path.removesuffix(SUFFIX)}-fetched-{number}{PART}"
        self._file: File | None = None
        self._position = 0
        self.done.on_done(self._discard)

    def begin(self) -> None:
        if self.snapshot in self._driver.snapshots:  # it came before, and the log was cut off from it by a crash
            self._off_loop(lambda: read_snapshot(self._env.disk, self._path), self._finish)
            return
        self._off_loop(self._create, self._created)

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        if not self.done.done:
            self.done.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leader is followed"))

    def _discard(self, promise: Promise[SnapshotContents]) -> None:
        """What was written goes where it is of no use; at the latest with the next start."""
        if promise.error is not None:
            self._env.loop.run_blocking(self._remove)

    def _remove(self) -> None:
        if self._env.disk.exists(self._part):
            self._env.disk.remove(self._part)

    def _off_loop(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        def worked(promise: Promise[T]) -> None:
            if self.done.done:
                return
            if promise.error is not None:
                self.done.fail(promise.error)
            else:
                then(promise.result())

        self._env.loop.run_blocking(work).on_done(worked)

    def _create(self) -> File:
        self._remove()
        return self._env.disk.open(self._part, create=True)

    def _created(self, file: File) -> None:
        self._file = file
        self._ask()

    def _ask(self) -> None:
        peer = self._transport.leader()
        if peer is None:
            self.done.fail(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "nobody knows where the leader listens"))
            return
        request = snapshot_request(
            self._transport.cluster_id, self._driver.quorum.local, self._epoch, self.snapshot, self._position
        )
        peer.ask(request, self._transport.request_timeout_ms).on_done(self._answered)

    def _answered(self, promise: Promise[Any]) -> None:
        if self.done.done:
            return
        if promise.error is not None:
            self.done.fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, str(promise.error)))
            return
        try:
            piece, size = self._piece(promise.result())
        except KafkaError as error:
            if not self.done.done:
                self.done.fail(error)
            return
        self._heard()
        file = self._file
        assert file is not None

        def write() -> None:
            file.append(piece)

        def written(_: None) -> None:
            self._position += len(piece)
            if self._position < size:
                self._ask()
            else:
                self._off_loop(lambda: self._freeze(file), self._finish)

        self._off_loop(write, written)

    def _piece(self, response: Any) -> tuple[bytes, int]:
        """The bytes that come next, and how many there are in all."""
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(error_code(response.error_code), "the leader refuses it")
        part = only_partition(response.topics, lambda one: one.index)
        if part is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the answer is for something else")
        leader = part.current_leader
        if part.error_code != ErrorCode.NONE:
            endpoint = endpoint_of(leader.leader_id, response.node_endpoints)
            self._transport.hear(Said(part.error_code, leader.leader_id, leader.leader_epoch, endpoint))
            raise KafkaError(error_code(part.error_code), "the leader can't serve it")
        piece = bytes(part.unaligned_records or b"")
        fits = part.position == self._position and piece and self._position + len(piece) <= part.size
        if not fits or (part.snapshot_id.end_offset, part.snapshot_id.epoch) != self.snapshot:
            raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE, f"not what comes at byte {self._position} of it")
        return piece, part.size

    def _freeze(self, file: File) -> SnapshotContents:
        """Off the loop: what was fetched is whole, and durable under its name when this returns."""
        disk = self._env.disk
        contents = read_snapshot(disk, self._part)
        file.sync()
        disk.rename(self._part, self._path)
        disk.sync_folder(self._driver.folder)
        return contents

    def _finish(self, contents: SnapshotContents) -> None:
        self._file = None
        self.done.resolve(contents)
