"""The controller: a machine on the metadata log whose state is the cluster image."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tidelog.controller.activation import activation_records
from tidelog.controller.brokers import register_controller
from tidelog.controller.leaders import Defaults
from tidelog.controller.record_log import RecordLog
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.machine.machine import Machine, Position
from tidelog.machine.stepwise import Stepwise
from tidelog.metadata.apply import ImageBuilder, ImageError, fold, fold_steps
from tidelog.metadata.follow import Follower
from tidelog.metadata.image import EMPTY_IMAGE, ClusterImage, EndpointImage
from tidelog.metadata.records import image_records
from tidelog.metadata.unreadable import UnreadableRecordError, decode_records, locate
from tidelog.metadata.versions import SUPPORTED, record_version
from tidelog.raft.checkpointer import SnapshotSource
from tidelog.raft.driver import RaftDriver, ReplayBatch
from tidelog.raft.snapshot import SnapshotContents, SnapshotId
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.records.metadata import Record, decode_record, encode_record

_logger = logging.getLogger(__name__)

T = TypeVar("T")

REPLAY_RECORDS = 50_000
"""Records that are folded into the image at once while the log is replayed."""


class MetadataError(Exception):
    """The metadata on disk can't be understood: written by a newer version, or damaged."""


class Controller:
    """Runs decisions, one after the other. Active while this node leads the metadata quorum."""

    def __init__(
        self, env: Environment, raft: RaftDriver, follower: Follower, bootstrap: Sequence[Record], defaults: Defaults
    ) -> None:
        self.raft = raft
        self.defaults = defaults
        self._follower = follower
        self._bootstrap = bootstrap
        self._incarnation_id = env.random.uuid()
        self._ready: Promise[None] = Promise()
        self._broken: MetadataError | None = None
        self.ended: Promise[None] = Promise()
        """Fails when this node, which served already, can't go on: what is committed can't be understood."""
        log = RecordLog(raft, lambda: self.machine.newest.metadata_version)
        self.machine: Machine[ClusterImage, Record] = Machine(
            EMPTY_IMAGE,
            _fold,
            log,
            follower.publish,
            env.clock,
            env.loop,
            ErrorCode.NOT_CONTROLLER,
        )
        self._decisions: Stepwise[ClusterImage, Record] = Stepwise(self.machine, _fold_steps, log, env.clock, env.loop)

    def start(self) -> Promise[None]:
        """Load the metadata and take part in the quorum. Resolves when this node leads it and has opened its epoch."""
        self.raft.start(self)
        return self._ready

    def submit(self, decide: Callable[[ClusterImage, int], Decision[Record, T]]) -> Promise[T]:
        """`decide(image, now_ms)` sees everything appended so far. Its answer comes when its records are committed and
        published, so that whoever asks next reads what it wrote; a KafkaError that it raises fails the promise."""
        return self._decisions.submit(decide)

    def submit_steps(self, decide: Callable[[ClusterImage, int], Steps[Decision[Record, T]]]) -> Promise[T]:
        """As `submit`, for a decision that may take long: it yields where the loop may have a turn for others. What is
        decided meanwhile waits for it, so the image stays the newest one until its records are appended."""
        return self._decisions.submit_steps(decide)

    # ---- what raft tells ----

    def load_snapshot(self, contents: SnapshotContents, snapshot: SnapshotId) -> None:
        builder = ImageBuilder(EMPTY_IMAGE)
        try:
            for value in contents.values:
                builder.apply(decode_record(value))
            image = builder.build(snapshot.offset - 1, snapshot.epoch, contents.header.last_contained_log_timestamp)
        except (MalformedError, ImageError) as error:
            raise MetadataError(f"{snapshot.file_name}: {error}") from None
        check_features(image)
        self.machine.load(image)
        self._follower.replace(image)

    def replay(self, batches: Iterable[ReplayBatch]) -> None:
        if self._broken is not None:
            return
        chunk = _Chunk()
        try:
            for batch in batches:
                chunk.add(batch)
                if len(chunk.records) >= REPLAY_RECORDS:
                    self._replay_chunk(chunk)
                    chunk = _Chunk()
            self._replay_chunk(chunk)
            check_features(self.machine.newest)
        except UnreadableRecordError as error:
            self._end(MetadataError(f"{error.place} of the metadata log in {self.raft.folder}: {error.reason}"))
        except (MetadataError, KafkaError) as error:
            self._end(MetadataError(f"the metadata log in {self.raft.folder}: {error}"))

    def _replay_chunk(self, chunk: "_Chunk") -> None:
        if chunk.position is None:
            return
        before = self.machine.newest
        try:
            self.machine.replay(chunk.records, chunk.position)
        except ImageError as error:
            raise locate(before, chunk.records, chunk.offsets, error) from None

    def _end(self, error: MetadataError) -> None:
        """What is committed can't be understood. This comes from the loop, where nobody would hear an exception: the
        start fails, or, where this node serves already, it ends. Until it has, it decides nothing any more.
        """
        self._broken = error
        if not self._ready.done:
            self._ready.fail(error)
            return
        _logger.critical(
            "%s. This node can't follow the metadata any further, and ends: start the version that wrote it, or "
            "restore the folder from a backup",
            error,
        )
        self.ended.fail(error)

    def lead(self, epoch: int) -> None:
        """Open the epoch: nothing else is decided in it unless the first change, which ends what another controller
        left open, could be written."""
        if self._broken is not None:
            self.raft.resign()
            return
        self.machine.lead(epoch)
        activated = self.submit(lambda image, _: activation_records(image, self._bootstrap, self.defaults))
        if activated.error is None:
            self.submit(self._register).on_done(self._opened)
        else:
            self._opened(activated)

    def _register(self, image: ClusterImage, now_ms: int) -> Decision[Record, None]:
        """This incarnation of the controller names its endpoints and features."""
        local = self.raft.local
        endpoints = [EndpointImage(e.name, e.host, e.port) for e in local.endpoints]
        return register_controller(image, local.key.id, self._incarnation_id, endpoints, SUPPORTED)

    def _opened(self, promise: Promise[None]) -> None:
        error = promise.error
        if error is None:
            if not self._ready.done:
                self._ready.resolve(None)
            return
        if not self._ready.done:
            self._ready.fail(error)
        if self.machine.epoch is not None:
            _logger.error("epoch %d of the metadata log can't be opened, this node resigns: %s", self.raft.epoch, error)
            self.raft.resign()

    def stop_leading(self, epoch: int) -> None:
        self.machine.unload()
        self._decisions.unload()
        if not self._ready.done:
            self._ready.fail(MetadataError(f"epoch {epoch} of the metadata log ended before it was opened"))

    def committed(self, end: int) -> None:
        self.machine.commit(end)

    def snapshot_source(self) -> SnapshotSource | None:
        image = self.machine.committed
        if image.before_transaction is not None or not image.metadata_version:
            return None
        level = image.metadata_version
        values = (encode_record(record, record_version(record, level)) for record in image_records(image))
        return SnapshotSource(SnapshotId(image.offset + 1, image.epoch), image.timestamp_ms, values)


class _Chunk:
    """Records that are folded at once, each with its offset."""

    __slots__ = ("offsets", "position", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.offsets: list[int] = []
        self.position: Position | None = None

    def add(self, batch: ReplayBatch) -> None:
        self.records += decode_records(batch.values, batch.first_offset)
        self.offsets += range(batch.first_offset, batch.last_offset + 1)
        self.position = Position(batch.last_offset, batch.epoch, batch.timestamp_ms)


def check_features(image: ClusterImage) -> None:
    """Refuse to run on metadata whose features this version doesn't know: acting on half of it would damage it."""
    for name, level in image.features.items():
        low, high = SUPPORTED.get(name, (0, 0))
        if not low <= level <= high:
            raise MetadataError(
                f"the cluster runs {name} at level {level}, this version of Tidelog supports {low} to {high}: "
                "start the version that wrote it, or lower the feature there"
            )


def _fold(image: ClusterImage, records: Sequence[Record], position: Position) -> ClusterImage:
    return fold(image, records, position.offset, position.epoch, position.timestamp_ms)


def _fold_steps(image: ClusterImage, records: Sequence[Record], position: Position) -> Steps[ClusterImage]:
    return fold_steps(image, records, position.offset, position.epoch, position.timestamp_ms)
