"""Following the leader of the metadata log: one fetch after the other, and what its answers do to the own log.

A fetch says how far the own log is durable, and the leader counts on it: so the next one leaves when what the last one
brought is synced, never before. What doesn't come from the leader that is followed now, in its epoch, is dropped. Where
the logs part ways the own one is cut, where the leader's begins too late a checkpoint is fetched (`download.py`).

What can't be taken (a full disk, a batch that isn't sound) is asked for again after a while; a log that can't be
written at all is left alone.
"""

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from tidelog.env import Environment
from tidelog.env.loop import Timer
from tidelog.env.promise import Promise
from tidelog.raft.download import SnapshotDownload
from tidelog.raft.driver import RaftDriver
from tidelog.raft.events import CommitHeard, LeaderHeard, LogEnd
from tidelog.raft.quorum import Role
from tidelog.raft.requests import Said, fetch_request, only_partition
from tidelog.raft.snapshot import SnapshotId
from tidelog.raft.transport import RETRY_BACKOFF_MAX_MS, QuorumTransport, said_in_fetch
from tidelog.wire.batch import check, iterate
from tidelog.wire.errors import ErrorCode, KafkaError, error_name

_logger = logging.getLogger(__name__)

UNTAKEN_MS = 500
"""Until it is asked again for what could not be taken, as on a full disk; at most twice that. The leader is heard of
meanwhile within `controller.quorum.fetch.timeout.ms`."""


class State(Enum):
    IDLE = auto()
    """Nobody is followed, or what was taken isn't durable yet."""
    ASKING = auto()
    """A fetch is under way."""
    LOADING = auto()
    """A checkpoint is."""
    BACKING_OFF = auto()


class LogFollower:
    """Fetches for one replica, whenever it follows somebody. `on_follow` of the transport and the driver's watch wake
    it; it wakes itself after each answer."""

    def __init__(self, env: Environment, driver: RaftDriver, transport: QuorumTransport) -> None:
        self._env = env
        self._driver = driver
        self._transport = transport
        self._state = State.IDLE
        self._followed: tuple[int, int] | None = None
        self._life = 0
        """Counts what was begun: an answer to something that is over finds another number."""
        self._backoff_ms = self._transport.retry_backoff_ms
        self._untaken = ""
        """Why what came last could not be taken, as it was told; empty where it could."""
        self._timer: Timer | None = None
        self._download: SnapshotDownload | None = None
        transport.on_follow = self.begin
        driver.watch(self.wake)

    def begin(self) -> None:
        """There is another leader, or it listens elsewhere: what is under way goes on to nothing."""
        self._reset()
        self._backoff_ms = self._transport.retry_backoff_ms
        self.wake()

    def wake(self) -> None:
        """Something changed: fetch, if that is what is to be done next."""
        driver = self._driver
        leader = (driver.leader_id, driver.epoch)
        if driver.quorum.role is not Role.FOLLOWER or driver.stopped or driver.offline is not None:
            self._reset()
            return
        if leader != self._followed:
            self._reset()
            self._followed = leader
        if self._state is State.IDLE and driver.durable_end == driver.log_end:
            self._fetch()

    def _reset(self) -> None:
        self._life += 1
        self._state = State.IDLE
        self._followed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._download is not None:
            self._download.abandon()
            self._download = None

    def _fetch(self) -> None:
        driver, peer = self._driver, self._transport.leader()
        if peer is None:
            self._transport.find_leader()
            self._back_off()
            return
        self._state = State.ASKING
        request = fetch_request(
            self._transport.cluster_id, driver.quorum.local, driver.epoch, driver.end, driver.high_watermark
        )
        asked = peer.ask(request, self._transport.request_timeout_ms)
        asked.on_done(self._while_current(lambda promise: self._answered(promise)))

    def _while_current(self, then: Callable[[Promise[Any]], None]) -> Callable[[Promise[Any]], None]:
        """`then`, but nothing where another leader is followed by the time it is called."""
        life = self._life

        def call(promise: Promise[Any]) -> None:
            if life == self._life and not self._driver.stopped:
                then(promise)

        return call

    def _back_off(self) -> None:
        self._life += 1
        self._state = State.BACKING_OFF
        delay_ms = self._backoff_ms + self._env.random.random_int(0, self._backoff_ms)
        self._backoff_ms = min(2 * self._backoff_ms, RETRY_BACKOFF_MAX_MS)

        def again() -> None:
            self._timer = None
            self._state = State.IDLE
            self.wake()

        self._timer = self._env.loop.call_later(delay_ms / 1000, again)

    def _next(self) -> None:
        self._life += 1
        self._state = State.IDLE
        self.wake()

    # ---- answers ----

    def _answered(self, promise: Promise[Any]) -> None:
        driver = self._driver
        if promise.error is not None:
            if not driver.voters.is_voter(driver.quorum.local):
                self._transport.find_leader()  # a voter stands when its timer ends
            self._back_off()
            return
        said = said_in_fetch(promise.result())
        partition = only_partition(promise.result().responses, lambda one: one.partition_index)
        if said is None or partition is None:
            self._back_off()
        elif said.error != ErrorCode.NONE or said.epoch != driver.epoch:
            self._refused(said)
        else:
            self._backoff_ms = self._transport.retry_backoff_ms
            try:
                self._take(partition)
            except (KafkaError, OSError) as error:
                self._not_taken(f"what the leader of the metadata log sent can't be taken: {error}")

    def _not_taken(self, why: str) -> None:
        """Say so once, not each time that it is tried again."""
        if why != self._untaken:
            _logger.error("%s", why)
        self._untaken = why
        if self._driver.offline is None:
            self._backoff_ms = UNTAKEN_MS
            self._back_off()

    def _taken(self) -> None:
        if self._untaken:
            _logger.info("what the leader of the metadata log sends is taken again")
            self._untaken = ""

    def _refused(self, said: Said) -> None:
        life = self._life
        news = self._transport.hear(said)
        if life != self._life:
            return  # somebody else is followed already
        if news:
            self.begin()
            return
        if said.error not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            _logger.warning("the leader refuses a fetch of the metadata log: %s", error_name(said.error))
        self._back_off()

    def _take(self, partition: Any) -> None:
        """The leader of this epoch answered: cut, load or append."""
        driver, (leader_id, epoch) = self._driver, self._followed or (-1, -1)
        self._transport.found()
        driver.handle(LeaderHeard(leader_id, epoch))
        diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
        if diverging.epoch >= 0:
            self._cut(LogEnd(diverging.epoch, diverging.end_offset))
        elif snapshot.end_offset >= 0:
            self._load(SnapshotId(snapshot.end_offset, snapshot.epoch))
        else:
            batches = whole_batches(partition.records or b"", driver.log_end, epoch)
            if batches:
                driver.take(batches)
                self._taken()
            driver.handle(CommitHeard(epoch, partition.high_watermark))
            if (leader_id, epoch) == self._followed:
                self._next()

    def _cut(self, diverging: LogEnd) -> None:
        driver = self._driver
        before = driver.log_end
        driver.cut(diverging)
        _logger.info("the metadata log was cut from %d to %d, as the leader has it", before, driver.log_end)
        self._next()

    def _load(self, snapshot: SnapshotId) -> None:
        driver = self._driver
        if snapshot.offset <= driver.high_watermark:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{snapshot.file_name} holds less than is committed here")
        self._state = State.LOADING
        leader_id, epoch = driver.leader_id, driver.epoch
        self._download = SnapshotDownload(
            self._env,
            self._transport,
            driver,
            snapshot,
            lambda: driver.handle(LeaderHeard(leader_id, epoch)),
        )
        self._download.done.on_done(self._while_current(self._loaded))
        self._download.begin()

    def _loaded(self, promise: Promise[Any]) -> None:
        download, self._download = self._download, None
        assert download is not None
        if isinstance(promise.error, (KafkaError, OSError, ValueError)):
            self._not_taken(f"the checkpoint {download.snapshot.file_name} was not had: {promise.error}")
            return
        try:
            self._driver.install(download.snapshot, promise.result())
        except (KafkaError, OSError) as error:  # where half of it was done, the log is offline, and this node ends
            self._not_taken(f"the log can't begin behind the checkpoint {download.snapshot.file_name}: {error}")
            return
        self._taken()
        _logger.info("the metadata log begins behind the leader's checkpoint %s now", download.snapshot.file_name)
        self._next()


def whole_batches(data: bytes | bytearray | memoryview, next_offset: int, epoch: int) -> bytearray:
    """The whole batches in it, each looked at: its checksum, that it follows the one before, and that no epoch falls or
    is one that nobody leads yet. CORRUPT_MESSAGE and its like where one is not sound."""
    end = last_epoch = 0
    for header in iterate(data):
        check(data, header, len(data))
        if header.base_offset != next_offset or not last_epoch <= header.leader_epoch <= epoch:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"a batch of offset {header.base_offset} and epoch {header.leader_epoch} where offset {next_offset} "
                f"and an epoch from {last_epoch} to {epoch} were to come",
            )
        next_offset, last_epoch, end = header.next_offset, header.leader_epoch, header.end
    return bytearray(memoryview(data)[:end])
