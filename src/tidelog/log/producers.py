"""What a partition knows of its producers: idempotence (no batch twice, none out of order) and open transactions.

Kept for each producer id: its epoch, its last five batches, and the first offset of its open transaction. An append
asks `check` first and calls `record` when the batch is written; recovery and followers feed `replay`, which doesn't
judge. A batch without producer id (-1) never comes here.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from tidelog.env.network import Buffer
from tidelog.log.bounds import EPOCH_MAX, PRODUCERS_MAX, WINDOW
from tidelog.wire.batch import CONTROL_FLAG, SEQUENCE_MAX, TRANSACTIONAL_FLAG, BatchHeader, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import read_marker

NO_EPOCH = -1
RAISES_EPOCH = 2
"""The transaction version from which the end of a transaction raises its producer's epoch."""


class Appended(NamedTuple):
    """A batch of a producer that is in the log. A sequence range may wrap past 2^31-1."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


_make_appended: Callable[[tuple[int, int, int, int, int]], Appended] = partial(cast(Any, tuple).__new__, Appended)
"""Half the cost of calling the class."""


class Producer:
    """One producer's state. `restored`: its window came from a snapshot, which holds one batch only. `seen_ms`: when it
    last wrote, which its own timestamps needn't tell: records may be years old when they are sent. `ended`: how many
    markers of it came since it is known here; only whether that changes means something.
    """

    __slots__ = (
        "coordinator_epoch",
        "ended",
        "epoch",
        "last_timestamp",
        "restored",
        "seen_ms",
        "txn_first_offset",
        "window",
    )

    def __init__(self, epoch: int = NO_EPOCH, coordinator_epoch: int = -1, last_timestamp: int = -1) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = self.seen_ms = last_timestamp
        self.txn_first_offset = -1
        self.ended = 0
        self.window: list[Appended] = []
        self.restored = False

    @property
    def last_sequence(self) -> int:
        return self.window[-1].last_sequence if self.window else -1


class Completed(NamedTuple):
    """A transaction that its marker at `last_offset` ended. `last_stable_offset`: what it is once readers see it."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


def _stale_epoch(producer_id: int, epoch: int, current: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} sent a batch of epoch {epoch}, but its epoch {current} was seen already",
    )


class NotRemembered(KafkaError):
    """A batch was sent again that is in the log, but its offset is not in memory. Clients take it for acknowledged."""

    def __init__(self, producer_id: int, sequence: int) -> None:
        super().__init__(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"producer {producer_id} sent sequence {sequence} again; it is in the log, "
            "but its offset is no longer remembered",
        )


def _is_short(producer: Producer) -> bool:
    """Whether the producer may have had more batches before its window's first."""
    return producer.restored and 0 < len(producer.window) < WINDOW


class Producers:
    """All producers of one partition.

    `first_unstable` is the first offset of the oldest transaction that is open, or ended above the high watermark
    (-1: none); read-committed fetches stop there. `end` is the offset up to which batches were seen. `unread`: windows
    came from a snapshot at this offset, and what the log has of them before it wasn't read yet (-1: it was).
    """

    __slots__ = ("_ended", "_expiration_ms", "_open", "_producers", "_replayed", "end", "first_unstable", "unread")

    def __init__(self, expiration_ms: int = 86_400_000) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: list[tuple[int, int]] = []  # (first offset, producer id) of open transactions, sorted
        self._ended: list[
            tuple[int, int]
        ] = []  # (first offset, marker's offset) of those not yet below the high watermark
        self._replayed: list[tuple[int, int]] = []  # all that ended in what was read, until the high watermark is known
        self._expiration_ms = expiration_ms
        self.first_unstable = -1
        self.end = 0
        self.unread = -1

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def ended(self, producer_id: int) -> int:
        """Another number whenever a marker of the producer was written."""
        producer = self._producers.get(producer_id)
        return 0 if producer is None else producer.ended

    def items(self) -> Iterable[tuple[int, Producer]]:
        return self._producers.items()

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int, attributes: int
    ) -> Appended | None:
        """Whether a client's batch may be appended: None, or the original of a duplicate of the last five.

        Raises INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            if epoch < NO_EPOCH:
                raise _stale_epoch(producer_id, epoch, NO_EPOCH)
            return None
        if epoch == producer.epoch:
            window = producer.window
            expected = (window[-1].last_sequence + 1) & SEQUENCE_MAX if window else 0
            if base_sequence != expected and epoch != NO_EPOCH:
                return self._duplicate(producer_id, producer, base_sequence, last_offset_delta, expected)
        elif epoch < producer.epoch:
            raise _stale_epoch(producer_id, epoch, producer.epoch)
        elif base_sequence and producer.epoch != NO_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} starts its new epoch {epoch} at sequence {base_sequence}; it must start at 0",
            )
        if producer.txn_first_offset >= 0 and not attributes & TRANSACTIONAL_FLAG:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has a transaction open from offset {producer.txn_first_offset}, "
                "but sent a batch that isn't part of it",
            )
        return None

    def _duplicate(
        self, producer_id: int, producer: Producer, base_sequence: int, last_offset_delta: int, expected: int
    ) -> Appended:
        last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MAX
        for appended in producer.window:
            if appended.first_sequence == base_sequence and appended.last_sequence == last_sequence:
                return appended
        if _is_short(producer):
            behind = (producer.window[0].first_sequence - last_sequence) & SEQUENCE_MAX
            if 0 < behind < SEQUENCE_MAX // 2:
                raise NotRemembered(producer_id, base_sequence)
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} sent sequence {base_sequence} where {expected} comes next",
        )

    def record(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp: int,
        attributes: int,
        seen_ms: int = -1,
    ) -> None:
        """A data batch was written, at `seen_ms`; -1: its timestamp tells when."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._add(producer_id, Producer(epoch))
        last_sequence = (base_sequence + last_offset - base_offset) & SEQUENCE_MAX if base_sequence >= 0 else -1
        window = producer.window
        if epoch != producer.epoch:
            window.clear()
            producer.epoch = epoch
            producer.restored = False
        elif len(window) == WINDOW:
            del window[0]
        window.append(_make_appended((base_sequence, last_sequence, base_offset, last_offset, timestamp)))
        producer.last_timestamp = timestamp
        producer.seen_ms = max(timestamp, seen_ms)
        self.end = last_offset + 1
        if attributes & TRANSACTIONAL_FLAG and producer.txn_first_offset < 0:
            producer.txn_first_offset = base_offset
            insort(self._open, (base_offset, producer_id))
            self._find_first_unstable()

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, version: int) -> None:
        """Whether a marker may be appended that a coordinator sends; `version` is the transaction version it ran in.

        From version 2 on a marker carries the next epoch, so one in the epoch of an open transaction is from an earlier
        one. Again it may come, since a coordinator that isn't answered asks again; it ends nothing then. Raises
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        late = version >= RAISES_EPOCH and epoch == producer.epoch and producer.txn_first_offset >= 0
        if epoch < producer.epoch or (late and epoch != EPOCH_MAX):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker of epoch {epoch} for producer {producer_id}, whose epoch {producer.epoch} was seen",
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {producer_id} from a coordinator of epoch {coordinator_epoch}; "
                f"one of epoch {producer.coordinator_epoch} has taken over",
            )

    def end_transaction(
        self, producer_id: int, epoch: int, offset: int, timestamp: int, coordinator_epoch: int, *, commit: bool
    ) -> Completed | None:
        """A marker was written at `offset`; None where the producer had nothing open here.

        The transaction stays unstable until `advance_high_watermark` passes the marker.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._add(producer_id, Producer(epoch))
        first_offset = producer.txn_first_offset
        completed = None
        if first_offset >= 0:
            completed = self._completed(producer_id, first_offset, offset, commit=commit)
            self._open.remove((first_offset, producer_id))
            insort(self._ended, (first_offset, offset))
            producer.txn_first_offset = -1
            self._find_first_unstable()
        if epoch != producer.epoch:
            producer.epoch = epoch
            producer.window.clear()
            producer.restored = False
        producer.coordinator_epoch = coordinator_epoch
        producer.ended += 1
        producer.last_timestamp = producer.seen_ms = timestamp
        self.end = offset + 1
        return completed

    def _completed(self, producer_id: int, first_offset: int, offset: int, *, commit: bool) -> Completed:
        others = (first for first, known_id in self._open if known_id != producer_id)
        return Completed(producer_id, first_offset, offset, not commit, next(others, offset + 1))

    def completed_by(self, buffer: Buffer, header: BatchHeader) -> Completed | None:
        """What a marker's batch would end, were it written; None where nothing is open."""
        producer = self._producers.get(header.producer_id)
        marker = next(records(buffer, header), None)
        if producer is None or producer.txn_first_offset < 0 or marker is None:
            return None
        first_offset = producer.txn_first_offset
        commit = read_marker(marker).committed
        return self._completed(header.producer_id, first_offset, header.base_offset, commit=commit)

    def replay(self, buffer: Buffer, header: BatchHeader) -> Completed | None:
        """A batch that is in the log already: what it means, without judging it (recovery, followers)."""
        if header.producer_id < 0:
            self.end = header.next_offset
            return None
        if not header.attributes & CONTROL_FLAG:
            self.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.attributes,
            )
            return None
        marker = next(records(buffer, header), None)
        self.end = header.next_offset
        if marker is None:  # compaction removed the transaction and left the marker's batch empty
            return None
        commit, coordinator_epoch = read_marker(marker)
        return self.end_transaction(
            header.producer_id,
            header.producer_epoch,
            header.base_offset,
            marker.timestamp,
            coordinator_epoch,
            commit=commit,
        )

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose markers are below it are stable now."""
        if self._ended:
            self._ended = [(first, last) for first, last in self._ended if last >= high_watermark]
            self._find_first_unstable()

    def loaded(self, durable_end: int) -> None:
        """All of the log was read. What is durable counts as committed, unless a replica knows better: `recall`."""
        self._replayed = self._ended
        self.advance_high_watermark(durable_end)

    def recall(self, high_watermark: int) -> None:
        """The replica's high watermark is this one: transactions that ended behind it are not committed yet."""
        replayed, self._replayed = self._replayed, []
        if replayed:
            self._ended = [(first, last) for first, last in replayed if last >= high_watermark]
            self._find_first_unstable()

    def restore(self, entries: Iterable[tuple[int, Producer]], end: int, now_ms: int | None = None) -> None:
        """Take over what a snapshot at offset `end` holds; with `now_ms`, not the producers that expired meanwhile."""
        self.clear(end)
        for producer_id, producer in entries:
            if now_ms is not None and self._expired(producer, now_ms):
                continue
            self._add(producer_id, producer)
            if producer.txn_first_offset >= 0:
                insort(self._open, (producer.txn_first_offset, producer_id))
        self._find_first_unstable()
        self.unread = end if self._producers else -1

    def is_unread(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether a batch may be one of its producer's last five that the log has and memory doesn't yet."""
        producer = self._producers.get(producer_id)
        if self.unread < 0 or producer is None or epoch != producer.epoch or not _is_short(producer):
            return False
        return 0 < (producer.window[0].first_sequence - sequence) & SEQUENCE_MAX < SEQUENCE_MAX // 2

    def short_windows(self) -> dict[int, tuple[int, int]]:
        """Of those whose windows came from a snapshot and may have had more: epoch, and the first offset known."""
        return {
            producer_id: (producer.epoch, producer.window[0].first_offset)
            for producer_id, producer in self._producers.items()
            if _is_short(producer)
        }

    def refill(self, older: Mapping[int, list[Appended]]) -> None:
        """Give restored producers the older batches of their windows back, as far as the log had them.

        A window has no gaps: what is before one is known to be an older batch, no more.
        """
        self.unread = -1
        for producer_id, batches in older.items():
            producer = self._producers.get(producer_id)
            if producer is None or not _is_short(producer) or not batches:
                continue
            window = producer.window
            if window[0].first_sequence == (batches[-1].last_sequence + 1) & SEQUENCE_MAX:
                window[:0] = batches[max(0, len(batches) + len(window) - WINDOW) :]

    def clear(self, end: int = 0) -> None:
        """Forget everything: the log was truncated fully, or is about to be replayed from a snapshot."""
        self._producers.clear()
        self._open.clear()
        self._ended = []
        self._replayed = []
        self.first_unstable = -1
        self.end = end
        self.unread = -1

    def expire(self, now_ms: int) -> int:
        """Forget producers idle for longer than producer.id.expiration.ms, but for those with an open transaction."""
        gone = [producer_id for producer_id, producer in self._producers.items() if self._expired(producer, now_ms)]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def _expired(self, producer: Producer, now_ms: int) -> bool:
        return producer.txn_first_offset < 0 and now_ms - producer.seen_ms >= self._expiration_ms

    def _add(self, producer_id: int, producer: Producer) -> Producer:
        if len(self._producers) >= PRODUCERS_MAX:
            idle = sorted(
                (known.seen_ms, known_id) for known_id, known in self._producers.items() if known.txn_first_offset < 0
            )
            for _, known_id in idle[: PRODUCERS_MAX // 10]:
                del self._producers[known_id]
        self._producers[producer_id] = producer
        return producer

    def _find_first_unstable(self) -> None:
        first = self._open[0][0] if self._open else -1
        if self._ended and (first < 0 or self._ended[0][0] < first):
            first = self._ended[0][0]
        self.first_unstable = first

    def check_invariants(self) -> None:
        for producer in self._producers.values():
            assert len(producer.window) <= WINDOW
            offsets = [batch.first_offset for batch in producer.window]
            assert offsets == sorted(offsets)
        assert self._open == sorted(self._open)
        assert {producer_id for _, producer_id in self._open} == {
            producer_id for producer_id, producer in self._producers.items() if producer.txn_first_offset >= 0
        }
