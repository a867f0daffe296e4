"""One partition of an internal topic that this broker leads: its coordinator's state, run as a machine.

A request becomes `submit(decide)`: the decision sees the newest state, its records are appended and folded at once,
and its answer leaves when the high watermark has passed them. Readers look at `state`, which is committed. `live` is
what isn't in the log (who waits, timers): made when the log was read to its end, dropped when leadership ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tidelog.coordinator.entry import Entry, LogEntry, Marker
from tidelog.coordinator.shard_log import EncodedEntries, ShardLog
from tidelog.machine.decision import Decision, Submission
from tidelog.machine.machine import Fold, Machine
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.env import Environment
    from tidelog.env.loop import Timer
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps
    from tidelog.replica.partition import Partition
    from tidelog.wire.records.coordinator import RecordTypes

S = TypeVar("S")
L = TypeVar("L")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[S, L]):
    """What runs on the partitions of one internal topic."""

    topic: str
    types: RecordTypes
    empty: S
    fold: Fold[S, LogEntry]
    make_live: Callable[[Shard[S, L]], L]
    codec: Callable[[], int] = lambda: 0
    """The compression of what is written."""
    timeout_s: Callable[[], float] = lambda: 5.0
    """How long an answer may wait for its commit."""
    prepare: Callable[[S, Marker], Steps[Marker]] | None = None
    """The marker with what its fold changes, made ahead in steps: for a log that is being loaded."""
    end_transaction: Callable[[Shard[S, L], Marker], Promise[None]] | None = None
    """How a marker is written, where that isn't done by `write_marker` alone."""


class Shard(Generic[S, L]):
    """State of the keys of one partition. `epoch` is the leader epoch in which it was loaded, and decides."""

    __slots__ = (
        "_awaited",
        "_end_transaction",
        "_failed",
        "_impatient",
        "_log",
        "_loop",
        "_timeout_s",
        "clock",
        "epoch",
        "index",
        "live",
        "machine",
        "partition",
    )

    live: L

    def __init__(
        self,
        kind: Kind[S, L],
        partition: Partition,
        env: Environment,
        failed: Callable[[Shard[S, L]], None],
    ) -> None:
        self.index = partition.index
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.clock = env.clock
        self._failed = failed
        self._timeout_s = kind.timeout_s
        self._end_transaction = kind.end_transaction
        self._impatient = False
        self._awaited = -1
        self._loop = env.loop
        self._log = ShardLog(partition, kind.types, kind.codec)
        self.machine: Machine[S, LogEntry] = Machine(
            kind.empty,
            kind.fold,
            self._log,
            _publish_nothing,
            env.clock,
            env.loop,
            ErrorCode.NOT_COORDINATOR,
            full=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )

    @property
    def state(self) -> S:
        """What is committed: for readers."""
        return self.machine.committed

    @property
    def leads(self) -> bool:
        """Whether it is loaded, and neither lost its leadership nor its log."""
        return self.machine.epoch is not None

    def submit(
        self,
        decide: Callable[[S, int], Decision[Entry, T]],
        *,
        producer: tuple[int, int] | None = None,
    ) -> Promise[T]:
        """`decide(newest state, now_ms)`; the answer comes when its entries are committed.

        All entries go into one batch: all or none of them count. A KafkaError that `decide` raises fails the promise,
        and so does a failed append, after which the state is what it was. `producer` is the (id, epoch) of the
        transaction that the entries are part of; those that were encoded ahead are marked as such already.
        """
        return self.hand_in(decide, producer=producer).promise

    def hand_in(
        self, decide: Callable[[S, int], Decision[Entry, T]], *, producer: tuple[int, int] | None = None
    ) -> Submission[T]:
        """As `submit`, for who has to know at once what was decided: `live` follows the newest state."""
        if producer is not None:
            decide = self._within(decide, *producer)
        submission = self.machine.hand_in(decide)
        if self._written(submission.promise).error is not None:
            return Submission(submission.promise, None)
        return submission

    def encode(self, entry: Entry, to: EncodedEntries, bytes_max: int | None = None) -> bool:
        """Ahead of a decision. False: it doesn't fit into the same batch; what is compressed may, but isn't tried."""
        room = self.partition.log.config.max_message_bytes
        return self._log.encode(entry, to, room if bytes_max is None else min(bytes_max, room))

    def end_transaction(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, commit: bool
    ) -> Promise[None]:
        """Write the marker: what the producer's transaction wrote here counts from now on, or never will."""
        marker = Marker(producer_id, producer_epoch, commit, coordinator_epoch)
        return self.write_marker(marker) if self._end_transaction is None else self._end_transaction(self, marker)

    def write_marker(self, marker: Marker) -> Promise[None]:
        def decide(state: S, now_ms: int) -> Decision[LogEntry, None]:
            self._check_producer(marker.producer_id, marker.producer_epoch)
            return Decision((marker,), None)

        return self._written(self.machine.submit(decide))

    def schedule(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Run `action` later, unless the leader epoch is over by then."""
        return self.machine.schedule(delay_s, action)

    def drive(self, steps: Steps[T]) -> Promise[T]:
        """Work that may take long, or has to wait; it goes on whoever leads by then."""
        return self._loop.drive(steps)

    def _written(self, promise: Promise[T]) -> Promise[T]:
        end = self.partition.log.log_end
        if end != self._awaited:
            self._awaited = end
            self.partition.wait_for_ack(end, self._acked)
            if not self._impatient and self.machine.waiting_since is not None:
                self._impatient = True
                self.schedule(self._timeout_s(), self._look_at_the_time)
        return promise

    def _look_at_the_time(self) -> None:
        """Who waited too long for a commit is told to come again. One timer for all, set while anybody waits."""
        timeout_s, now = self._timeout_s(), self.clock.monotonic()
        late = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the change was not committed in {timeout_s:g} s")
        self.machine.give_up(now - timeout_s, late)
        since = self.machine.waiting_since
        self._impatient = since is not None
        if since is not None:
            self.schedule(max(since + timeout_s - now, timeout_s / 10), self._look_at_the_time)

    def _acked(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self.machine.commit(self.partition.high_watermark)
        elif self.machine.epoch is not None:
            self._failed(self)

    def _within(
        self, decide: Callable[[S, int], Decision[Entry, T]], producer_id: int, producer_epoch: int
    ) -> Callable[[S, int], Decision[Entry, T]]:
        """The same decision, its entries part of a transaction."""

        def inside(state: S, now_ms: int) -> Decision[Entry, T]:
            self._check_producer(producer_id, producer_epoch)
            entries, answer = decide(state, now_ms)
            if not isinstance(entries, EncodedEntries):
                entries = [entry._replace(producer_id=producer_id, producer_epoch=producer_epoch) for entry in entries]
            return Decision(entries, answer)

        return inside

    def _check_producer(self, producer_id: int, producer_epoch: int) -> None:
        """An epoch that the log has seen the end of writes nothing more."""
        known = self.partition.log.producers.get(producer_id)
        if known is not None and producer_epoch < known.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {known.epoch} by now; epoch {producer_epoch} is too old",
            )


def _publish_nothing(state: object, records: Sequence[object]) -> None:
    """Readers look at the state themselves."""
