"""The controller: a machine on the metadata log whose state is the cluster image."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tidelog.controller.activation import activation_records
from tidelog.controller.brokers import register_controller
from tidelog.controller.leader_balance import LeaderBalance
from tidelog.controller.leaders import Defaults
from tidelog.controller.liveness import Liveness
from tidelog.controller.record_log import RecordLog
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, whole
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
from tidelog.raft.driver import RaftDriver
from tidelog.raft.replay import ReplayBatch
from tidelog.raft.snapshot import SnapshotContents, SnapshotId
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError
from tidelog.wire.records.metadata import Record, decode_record, encode_record

_logger = logging.getLogger(__name__)

T = TypeVar("T")

REPLAY_RECORDS = 50_000
"""Records that are folded into the image at once while the log is replayed."""
DECODED_A_STEP = 32


class MetadataError(Exception):
    """The metadata on disk can't be understood: written by a newer version, or damaged."""


class Controller:
    """Runs decisions, one after the other. Active while this node leads the metadata quorum."""

    def __init__(
        self,
        env: Environment,
        raft: RaftDriver,
        follower: Follower,
        bootstrap: Sequence[Record],
        defaults: Defaults,
        session_timeout_ms: int = 9000,
        leader_imbalance_interval_s: float | None = None,
    ) -> None:
        self.raft = raft
        self.defaults = defaults
        self._follower = follower
        self._bootstrap = bootstrap
        self.incarnation_id = env.random.uuid()
        self._loop = env.loop
        self._behind: deque[Iterator[ReplayBatch]] = deque()
        """What is committed and has yet to be replayed; the first is under way."""
        self._replaying: Steps[None] | None = None
        self._ready: Promise[None] = Promise()
        self._started = False
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
        self.liveness = Liveness(
            env,
            self.submit_steps,
            raft.local.key.id,
            defaults,
            session_timeout_ms,
            lambda: [replica.id for replica in raft.quorum.replica_ends],
        )
        self.balance = LeaderBalance(env.loop, self.submit_steps, defaults, leader_imbalance_interval_s)
        follower.subscribe(self.balance.look)

    def start(self) -> Promise[None]:
        """Load the metadata and take part in the quorum. Resolves when this node knows what is committed: it leads and
        has opened its epoch, or has come to the present epoch of who does. Where it is the only voter it fails with
        what keeps it from that; among others it goes on trying."""
        self.raft.watch(self._look)
        self.raft.start(self)
        self._started = True
        return self._ready

    def _look(self) -> None:
        """Whoever follows has all that was committed before this epoch once it has the first record of it."""
        if not self._ready.done and self.raft.follows and self.machine.committed.epoch == self.raft.epoch:
            self._ready.resolve(None)

    @property
    def _is_alone(self) -> bool:
        return self.raft.voters.is_only(self.raft.local.key.id)

    def submit(self, decide: Callable[[ClusterImage, int], Decision[Record, T]]) -> Promise[T]:
        """`decide(image, now_ms)` sees everything appended so far. Its answer comes when its records are committed and
        published, so that whoever asks next reads what it wrote; a KafkaError that it raises fails the promise."""
        return self._decisions.submit(decide)

    def submit_steps(self, decide: Callable[[ClusterImage, int], Steps[Decision[Record, T]]]) -> Promise[T]:
        """As `submit`, for a decision that may take long: it yields where the loop may have a turn for others. What is
        decided meanwhile waits for it, so the image stays the newest one until its records are appended."""
        return self._decisions.submit_steps(decide)

    @property
    def active(self) -> bool:
        """Whether this node leads the quorum, and decides."""
        return self.machine.epoch is not None

    def check_active(self) -> None:
        """NOT_CONTROLLER where another node decides, or none."""
        if not self.active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node isn't the active controller")

    def connection_broken(self, connection_id: int) -> None:
        """The other side ended a connection to this controller: the broker that was heard on it may be dead."""
        self.liveness.connection_broken(connection_id)

    # ---- what raft tells ----

    def load_snapshot(self, contents: SnapshotContents, snapshot: SnapshotId) -> None:
        """Raises MetadataError while the node starts; a checkpoint that comes from the leader later ends it."""
        if self._broken is not None:
            return
        try:
            self._load_snapshot(contents, snapshot)
        except MetadataError as error:
            if not self._started:
                raise
            self._end(error)

    def _load_snapshot(self, contents: SnapshotContents, snapshot: SnapshotId) -> None:
        self._behind.clear()  # all that is in the checkpoint
        self._catch_up()
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
        """Follow what is committed. In steps: it may be a change of thousands of partitions, or all of the log."""
        if self._broken is not None:
            return
        self._behind.append(iter(batches))
        if self._replaying is None:
            self._replaying = self._replay_steps()
            self._loop.drive(self._replaying)

    def _catch_up(self) -> None:
        """Now, and not in later turns."""
        if self._replaying is not None:
            whole(self._replaying)

    def _replay_steps(self) -> Steps[None]:
        """All that is behind. What is read from the log comes with each step: where the log begins anew, `_behind` is
        empty then."""
        try:
            while self._behind and not self.raft.stopped:
                chunk = _Chunk()
                batch = None
                while self._behind and not self.raft.stopped and len(chunk.records) < REPLAY_RECORDS:
                    batch = next(self._behind[0], None)
                    if batch is None:
                        break
                    yield from chunk.add(batch)
                if not self._behind:
                    break
                if batch is None:
                    self._behind.popleft()
                yield from self._replay_chunk(chunk)
                check_features(self.machine.newest)
        except UnreadableRecordError as error:
            self._end(MetadataError(f"{error.place} of the metadata log in {self.raft.folder}: {error.reason}"))
        except (MetadataError, KafkaError) as error:
            self._end(MetadataError(f"the metadata log in {self.raft.folder}: {error}"))
        finally:
            self._replaying = None
        self._look()

    def _replay_chunk(self, chunk: "_Chunk") -> Steps[None]:
        position = chunk.position
        if position is None:
            return
        before = self.machine.newest
        try:
            image = yield from _fold_steps(before, chunk.records, position)
        except ImageError as error:
            raise locate(before, chunk.records, chunk.offsets, error) from None
        yield from self.machine.follow(image, chunk.records, position.offset)

    def _end(self, error: MetadataError) -> None:
        """What is committed can't be understood. This comes from the loop, where nobody would hear an exception: the
        start fails, or, where this node serves already, it ends. Until it has, it decides nothing any more.
        """
        if self._broken is not None:
            return
        self._broken = error
        self._behind.clear()
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
        self._catch_up()
        if self._broken is not None:
            self.raft.resign()
            return
        self.machine.lead(epoch)
        activated = self.submit(lambda image, _: activation_records(image, self._bootstrap, self.defaults))
        if activated.error is None:
            self.liveness.start(epoch, self.machine.newest)
            self.balance.start()
            self.submit(self._register).on_done(self._opened)
        else:
            self._opened(activated)

    def _register(self, image: ClusterImage, now_ms: int) -> Decision[Record, None]:
        """This incarnation of the controller names its endpoints and features."""
        local = self.raft.local
        endpoints = [EndpointImage(e.name, e.host, e.port) for e in local.endpoints]
        return register_controller(image, local.key.id, self.incarnation_id, endpoints, SUPPORTED)

    def _opened(self, promise: Promise[None]) -> None:
        error = promise.error
        if error is None:
            if not self._ready.done:
                self._ready.resolve(None)
            return
        if not self._ready.done and self._is_alone:
            self._ready.fail(error)
        if self.machine.epoch is not None:
            _logger.error("epoch %d of the metadata log can't be opened, this node resigns: %s", self.raft.epoch, error)
            self.raft.resign()

    def stop_leading(self, epoch: int) -> None:
        self.liveness.stop()
        self.balance.stop()
        self.machine.unload()
        self._decisions.unload()
        if not self._ready.done and self._is_alone:
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

    def add(self, batch: ReplayBatch) -> Steps[None]:
        for start in range(0, len(batch.values), DECODED_A_STEP):
            some = batch.values[start : start + DECODED_A_STEP]
            self.records += decode_records(some, batch.first_offset + start)
            yield
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
