"""The controller: a machine on the metadata log whose state is the cluster image."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tidelog.controller.activation import activation_records
from tidelog.controller.brokers import register_controller
from tidelog.controller.leaders import Defaults
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.machine.machine import Machine, Position
from tidelog.metadata.apply import ImageBuilder, ImageError, fold
from tidelog.metadata.follow import Follower
from tidelog.metadata.image import EMPTY_IMAGE, ClusterImage, EndpointImage
from tidelog.metadata.records import image_records
from tidelog.metadata.versions import MV_3_6_IV1, SUPPORTED, record_version
from tidelog.raft.checkpointer import SnapshotSource
from tidelog.raft.driver import RaftDriver, ReplayBatch
from tidelog.raft.snapshot import SnapshotContents, SnapshotId
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.records.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    Record,
    decode_record,
    encode_record,
)

T = TypeVar("T")

BATCH_BYTES = 4 * 1024 * 1024
"""A change larger than this is written as several batches within one metadata transaction."""
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
        self.machine: Machine[ClusterImage, Record] = Machine(
            EMPTY_IMAGE,
            _fold,
            _RecordLog(raft, lambda: self.machine.newest.metadata_version),
            follower.publish,
            env.clock,
            env.loop,
            ErrorCode.NOT_CONTROLLER,
        )

    def start(self) -> Promise[None]:
        """Load the metadata and take part in the quorum. Resolves when this node leads it and has opened its epoch."""
        self.raft.start(self)
        return self._ready

    def submit(self, decide: Callable[[ClusterImage, int], tuple[Sequence[Record], T]]) -> Promise[T]:
        """`decide(image, now_ms)` sees everything appended so far. Its answer comes when its records are committed and
        published, so that whoever asks next reads what it wrote; a KafkaError that it raises fails the promise."""
        return self.machine.submit(decide)

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
        records: list[Record] = []
        last: ReplayBatch | None = None
        try:
            for last in batches:
                records += [decode_record(value) for value in last.values]
                if len(records) >= REPLAY_RECORDS:
                    self.machine.replay(records, Position(last.last_offset, last.epoch, last.timestamp_ms))
                    records = []
                    last = None
            if last is not None:
                self.machine.replay(records, Position(last.last_offset, last.epoch, last.timestamp_ms))
            check_features(self.machine.newest)
        except (MetadataError, MalformedError, ImageError, KafkaError) as error:
            near = "" if last is None else f" near offset {last.last_offset}"
            self._broken(MetadataError(f"the metadata log{near} in {self.raft.folder}: {error}"))

    def _broken(self, error: MetadataError) -> None:
        """This comes from the loop, where nobody would hear an exception: the start fails, and nothing is decided."""
        if not self._ready.done:
            self._ready.fail(error)

    def lead(self, epoch: int) -> None:
        if self._ready.done and self._ready.error is not None:
            return
        self.machine.lead(epoch)
        self.submit(lambda image, _: activation_records(image, self._bootstrap, self.defaults))
        self.submit(self._register).on_done(self._opened)

    def _register(self, image: ClusterImage, now_ms: int) -> tuple[list[Record], None]:
        """This incarnation of the controller names its endpoints and features."""
        local = self.raft.local
        endpoints = [EndpointImage(e.name, e.host, e.port) for e in local.endpoints]
        return register_controller(image, local.key.id, self._incarnation_id, endpoints, SUPPORTED)

    def _opened(self, promise: Promise[None]) -> None:
        if self._ready.done:
            return
        if promise.error is not None:
            self._ready.fail(promise.error)
        else:
            self._ready.resolve(None)

    def stop_leading(self, epoch: int) -> None:
        self.machine.unload()
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


class _RecordLog:
    """Metadata records on raft: one batch where they fit, a metadata transaction over several where they don't."""

    __slots__ = ("_level", "_raft")

    def __init__(self, raft: RaftDriver, level: Callable[[], int]) -> None:
        self._raft = raft
        self._level = level

    @property
    def next_offset(self) -> int:
        return self._raft.next_offset

    def append(self, records: Sequence[Record], epoch: int, now_ms: int) -> int:
        level = self._level()
        values = [encode_record(record, record_version(record, level)) for record in records]
        last = -1
        for batch in split(values, level):
            last = self._raft.append(batch, epoch, now_ms)
        return last


def split(values: Sequence[bytes], level: int) -> Iterator[Sequence[bytes]]:
    """The batches in which to write records that count as one change."""
    if sum(map(len, values)) <= BATCH_BYTES:
        yield values
        return
    if level < MV_3_6_IV1:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "the change is too large for this metadata.version")
    batch: list[bytes] = [encode_record(BeginTransactionRecord(name="Large change"), 0)]
    size = 0
    for value in values:
        batch.append(value)
        size += len(value)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    batch.append(encode_record(EndTransactionRecord(), 0))
    yield batch
