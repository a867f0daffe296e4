"""One partition on this broker, on the way of a message between `apis` and `log`.

A partition is a replica with a leader, a leader epoch and a set of in-sync replicas, as the metadata image says, and a
high watermark of its own: the least durable end in the ISR. Consumers read up to the high watermark only, so nothing
that anyone was shown goes away with the power. With an ISR of one, the least durable end is that of the log here; while
others are in it, nothing is known of theirs, and the high watermark stands still (`in_sync.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog.replica.following import Place, cut_at, whole_batches
from tidelog.replica.resends import SENT_AGAIN, Resends, Sent, read_sent
from tidelog.replica.waiters import AckQueue, FetchWaiter
from tidelog.wire.batch import ATTRIBUTES_AT, CONTROL_FLAG, read_header
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.env.promise import Promise
    from tidelog.log.log import Log
    from tidelog.log.slice import Slice
    from tidelog.log.validate import Admitted
    from tidelog.metadata.image import PartitionImage


_logger = logging.getLogger("tidelog.replica")


class Commit(Protocol):
    """The group commit of the store."""

    def request(self, log: Log) -> None: ...


class Follower(Protocol):
    """Who copies a partition from its leader."""

    def log_changed(self, partition: Partition) -> None:
        """More of its log is durable, or it went offline."""
        ...


class Partition:
    """Owns the high watermark and the waiters; the log owns the records."""

    __slots__ = (
        "_acks",
        "_behind",
        "_commit",
        "_fetches",
        "_is_sole",
        "_leader_high_watermark",
        "_leader_log_start",
        "_node_id",
        "_resends",
        "_wake_later",
        "deleted",
        "epoch_start",
        "follower",
        "high_watermark",
        "image",
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        image: PartitionImage,
        log: Log,
        *,
        node_id: int,
        commit: Commit,
        wake_later: Callable[[Partition], None],
        behind: Callable[[Partition], None] | None = None,
        resends: Resends | None = None,
        high_watermark: int = 0,
    ) -> None:
        """`behind` is called while the log has what others in the ISR aren't known to have. `high_watermark` was known
        in an earlier life: it holds as far as the log does."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.deleted = False
        self._node_id = node_id
        self._commit = commit
        self._wake_later = wake_later
        self._behind = behind
        self._acks: AckQueue | None = None
        self._fetches: dict[FetchWaiter, None] | None = None
        self._resends = resends
        self.image = image
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.isr = image.isr
        self._is_sole = image.isr == (self._node_id,)
        known = max(log.log_start, min(high_watermark, log.durable_end))
        self.high_watermark = log.durable_end if self._is_sole else known
        self.follower: Follower | None = None
        self._leader_high_watermark = self._leader_log_start = -1
        log.begin_at_high_watermark(self.high_watermark)
        self.epoch_start = log.log_end
        log.listener = self
        if image.leader == node_id:
            log.lead(image.leader_epoch)
        if log.durable_end < log.log_end:
            commit.request(log)

    # -- as the image says

    def follow_image(self, image: PartitionImage) -> None:
        """Take over what the controller decided. A new leader epoch sends those who wait to look again."""
        if image is self.image:
            return
        new_epoch = image.leader_epoch != self.leader_epoch
        self.image = image
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.isr = image.isr
        self._is_sole = image.isr == (self._node_id,)
        if new_epoch:
            self._leader_high_watermark = self._leader_log_start = -1
            if image.leader == self._node_id and self.log.offline is None:
                self.log.lead(image.leader_epoch)
            self.epoch_start = self.log.log_end
            self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.advance()

    def delete(self) -> None:
        """The topic is gone: whoever waits hears of it. The store deletes the files."""
        self.deleted = True
        self.log.listener = None
        self._release(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def check_leader(self, current_epoch: int = -1) -> None:
        """Raises unless this broker leads the partition, in the epoch that the client believes in (-1: any)."""
        if -1 != current_epoch != self.leader_epoch:
            if current_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.leader != self._node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.log.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.log.offline)

    @property
    def is_served(self) -> bool:
        """Whether `check_leader` lets a client of the right epoch pass."""
        return self.leader == self._node_id and self.log.offline is None

    # -- writing

    def append(
        self,
        buffer: memoryview,
        start: int,
        end: int,
        acks: int,
        now_ms: int,
        admission: Admitted | KafkaError | None = None,
    ) -> tuple[int, int, int]:
        """Append what a producer sent; (base offset, next offset, append time or -1). The caller waits for its acks.

        `admission`: what came of a look into its records that was made already (`Log.admit`). Without one, Lengthy is
        raised where that takes long.
        """
        log = self.log
        sent = self._in_turn(buffer, start, end, now_ms) if self._resends is not None else None
        try:
            if self.leader != self._node_id or log.offline is not None:
                self.check_leader()
            if acks == -1 and len(self.isr) < log.config.min_insync_replicas and self._is_below_min_isr():
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            if admission is None:
                appended = log.append(buffer, start, end, self.leader_epoch, now_ms)
            elif isinstance(admission, KafkaError):
                raise admission
            else:
                made, first, last, _ = admission
                appended = log.append(made, first, last, self.leader_epoch, now_ms, admitted=True)
        except KafkaError as error:
            if error.code in SENT_AGAIN:
                self.expect_again(buffer, start, end, now_ms)
            raise
        if sent is not None:
            self._took(sent)
        self._grew(log)
        return appended

    def append_together(self, buffer: memoryview, spans: list[tuple[int, int]], acks: int, now_ms: int) -> list[int]:
        """As `append`, with one write, as many from the first on as are plainly fine: none, perhaps.

        Returns their base offsets, and the log's end behind them.
        """
        log = self.log
        below_min_isr = acks == -1 and len(self.isr) < log.config.min_insync_replicas and self._is_below_min_isr()
        if self._resends is not None or not self.is_served or below_min_isr:
            return [log.log_end]
        offsets = log.append_together(buffer, spans, self.leader_epoch, now_ms)
        if len(offsets) > 1:
            self._grew(log)
        return offsets

    def _grew(self, log: Log) -> None:
        """Something was appended."""
        ends = log.ends
        durable_end = ends.durable_end
        if durable_end != ends.log_end and not log.unsynced.requested:
            self._commit.request(log)
        if durable_end != self.high_watermark:
            self.advance()

    def begin(self) -> Promise[None] | None:
        """Settled when the log was made ready for its first write, or that failed; None: there is nothing to do."""
        return self.log.begin() if self.leader == self._node_id else None

    def remember(self, buffer: memoryview, start: int, end: int) -> Promise[None] | None:
        """Settled when the log knows what it can of a batch that may have been sent before; None: it does already."""
        if not self.log.has_unread:
            return None
        sent = read_sent(buffer, start, end)
        return self.log.read_windows() if sent is not None and self.log.is_unread(*sent) else None

    def expect_again(self, buffer: memoryview, start: int, end: int, now_ms: int) -> None:
        """A producer's batch isn't taken now and will be sent again: what comes behind it must not come before it."""
        resends = self._resends or Resends()
        resends.refuse_sound(buffer, start, end, now_ms)
        self._resends = resends or None

    @property
    def expected_again(self) -> int:
        """Of how many producers a batch that was refused has to come before what they sent behind it."""
        return len(self._resends or ())

    def _in_turn(self, buffer: memoryview, start: int, end: int, now_ms: int) -> Sent | None:
        """Whose batch this is; raises where one that was refused has to come before it."""
        resends = self._resends
        assert resends is not None
        resends.forget(now_ms)
        if not resends:
            self._resends = None
            return None
        sent = read_sent(buffer, start, end)
        first = None if sent is None else resends.before(sent)
        if sent is not None and first is not None and self.is_served:
            known = self.log.producers.get(sent.producer_id)
            if known is None or known.epoch < sent.epoch:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {sent.producer_id} sent sequence {sent.sequence} to {self.topic}-{self.index}, "
                    f"but tried {first} before, which was refused",
                )
        return sent

    def _took(self, sent: Sent) -> None:
        assert self._resends is not None
        self._resends.take(sent.producer_id)
        if not self._resends:
            self._resends = None

    def append_own(self, data: memoryview, epoch: int, now_ms: int) -> int:
        """Append a batch of this broker's own, offsets and epoch set, while it leads in `epoch`; the next offset.

        A marker may be larger than what the topic takes: the transaction would never end.
        """
        log = self.log
        self.check_leader(epoch)
        if len(self.isr) < log.config.min_insync_replicas and self._is_below_min_isr():
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        if len(data) > log.config.max_message_bytes and not data[ATTRIBUTES_AT + 1] & CONTROL_FLAG:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{log.place}: a batch of {len(data)} bytes; max.message.bytes is {log.config.max_message_bytes}",
            )
        _, next_offset = log.append_records(data, 0, len(data), now_ms)
        if log.durable_end != log.log_end:
            self._commit.request(log)
        self.advance()
        return next_offset

    def wait_for_ack(self, next_offset: int, complete: Callable[[ErrorCode], None]) -> None:
        """Call `complete` once everything below `next_offset` is committed, or can't be any more."""
        if self.deleted:
            complete(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif self.log.offline is not None:
            complete(ErrorCode.KAFKA_STORAGE_ERROR)
        elif self.high_watermark >= next_offset:
            complete(ErrorCode.NONE)
        else:
            if self._acks is None:
                self._acks = AckQueue()
            self._acks.add(next_offset, complete)

    def advance(self) -> None:
        """Raise the high watermark to the least durable end in the ISR. Below min.insync.replicas it stands still."""
        log = self.log
        if not self._is_sole:
            if self._behind is not None:
                self._behind(self)
            return
        if log.config.min_insync_replicas > 1 and self._is_below_min_isr():
            return
        durable_end = log.ends.durable_end
        if durable_end <= self.high_watermark:
            return
        self.high_watermark = durable_end
        log.advance_high_watermark(durable_end)
        if self._acks:
            self._acks.rise(durable_end)
        if self._fetches:
            self._wake_later(self)

    @property
    def is_alone(self) -> bool:
        """Whether there is no other replica, so that what is durable here is committed."""
        return self.image.replicas == (self._node_id,)

    def _is_below_min_isr(self) -> bool:
        """As in Kafka, no more in-sync replicas are asked for than the partition has replicas."""
        return len(self.isr) < min(self.log.config.min_insync_replicas, len(self.image.replicas))

    # -- reading

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins, if it isn't deleted there, or the high watermark."""
        unstable = self.log.first_unstable
        return max(unstable, self.log.ends.log_start) if 0 <= unstable < self.high_watermark else self.high_watermark

    @property
    def catching_up(self) -> bool:
        """Whether the high watermark may still be below what an earlier leader, or an earlier start, has shown."""
        return self.high_watermark < self.epoch_start

    def read(self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool) -> Slice | None:
        """Records from the batch with `offset` to the high watermark, or the last stable offset if `committed`."""
        end = self.last_stable_offset if committed else self.high_watermark
        return self.log.read(offset, max_bytes, end, at_least_one=at_least_one)

    def park(self, waiter: FetchWaiter) -> None:
        if self._fetches is None:
            self._fetches = {waiter: None}
        else:
            self._fetches[waiter] = None

    def unpark(self, waiter: FetchWaiter) -> None:
        if self._fetches is not None:
            self._fetches.pop(waiter, None)
            if not self._fetches:
                self._fetches = None

    @property
    def waiting_fetches(self) -> int:
        """How many fetches wait for more to read here: Kafka's purgatory size, for one partition."""
        return len(self._fetches or ())

    def wake_fetches(self) -> None:
        for waiter in list(self._fetches or ()):
            waiter.wake(self)

    def expire_fetches(self) -> None:
        """The broker stops: whoever waits is answered now."""
        for waiter in list(self._fetches or ()):
            waiter.expire()

    # -- what the log tells

    def durable_advanced(self, log: Log) -> None:
        if self.follower is not None:
            self._follow_leader()
            self.follower.log_changed(self)
        self.advance()

    def went_offline(self, log: Log) -> None:
        if self.follower is not None:
            self.follower.log_changed(self)
        self._release(ErrorCode.KAFKA_STORAGE_ERROR)

    def _release(self, code: ErrorCode) -> None:
        if self._acks:
            self._acks.fail(code)
        if self._fetches:
            self._wake_later(self)

    def check_invariants(self) -> None:
        log = self.log
        assert log.log_start <= self.high_watermark or self.high_watermark == log.durable_end, (
            f"{self.topic}-{self.index}: log start {log.log_start} above high watermark {self.high_watermark}"
        )
        assert self.high_watermark <= log.durable_end <= log.log_end, (
            f"{self.topic}-{self.index}: high watermark {self.high_watermark}, durable end {log.durable_end}, "
            f"log end {log.log_end}"
        )

    # -- following

    @property
    def place(self) -> Place:
        """From where on the leader is to be asked: what is told there is durable here."""
        log = self.log
        return Place(
            self.leader_epoch, log.ends.durable_end, log.epochs.latest, log.ends.log_start, self.high_watermark
        )

    def follow(self, follower: Follower) -> None:
        """Another broker leads: what it has is copied. An epoch that was led here without a record leaves no trace."""
        self.follower = follower
        self.log.epochs.truncate_from_end(self.log.log_end)
        if self.log.durable_end < self.log.log_end:
            self._commit.request(self.log)

    def begin_following(self) -> Promise[None] | None:
        """As `begin`, for the first batches that the leader sends."""
        return None if self.log.segments else self.log.begin()

    def append_fetched(self, records: memoryview, asked: Place, now_ms: int) -> None:
        """Append what the leader answered to `asked`, as it is. Nothing where this broker is no longer where it was
        then: in another leader epoch, or with another log end. The batch that came cut is left out.

        KafkaError where a batch can't be taken; those before it were.
        """
        log = self.log
        if not self.is_fetched(asked):
            return
        end = whole_batches(records, 0, len(records))
        if not end:
            return
        if log.ends.log_start == log.ends.log_end:
            self._begin_inside(records, now_ms)
        try:
            log.append_records(records, 0, end, now_ms, epoch_max=asked.leader_epoch)
        finally:
            if log.ends.durable_end < log.ends.log_end:
                self._commit.request(log)

    def _begin_inside(self, records: memoryview, now_ms: int) -> None:
        """The leader's log may start inside of a batch: one that has nothing yet begins with the whole of it."""
        first = read_header(records)
        if first.base_offset < self.log.log_end <= first.last_offset:
            self.log.truncate_fully_and_start_at(first.base_offset, now_ms)

    def is_fetched(self, asked: Place) -> bool:
        """Whether an answer to what was asked there concerns this log as it is."""
        follows = self.leader_epoch == asked.leader_epoch and self.leader != self._node_id
        return follows and not self.deleted and self.log.ends.log_end == asked.offset and self.log.offline is None

    def learn(self, high_watermark: int, log_start: int) -> None:
        """What the leader says of its log. The high watermark rises here as far as the log is durable, and never falls;
        the log's start follows it."""
        self._leader_high_watermark = max(self._leader_high_watermark, high_watermark)
        self._leader_log_start = max(self._leader_log_start, log_start)
        self._follow_leader()

    def _follow_leader(self) -> None:
        log = self.log
        high_watermark = min(self._leader_high_watermark, log.ends.durable_end)
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            log.advance_high_watermark(high_watermark)
            if self._fetches:
                self._wake_later(self)
        start = min(self._leader_log_start, self.high_watermark)
        if start > log.ends.log_start and log.offline is None:
            log.delete_before(start)

    def parts_at(self, epoch: int, end_offset: int) -> int:
        """Where this log and the leader's part, if the leader's ends an epoch there."""
        log = self.log
        return cut_at(log.epochs, log.log_end, epoch, end_offset)

    def expect_cut(self, offset: int) -> None:
        """The log is about to be cut there (`log/cutting.py`): what its leader doesn't have goes."""
        log, before = self.log, self.log.log_end
        if offset < min(self.high_watermark, before):
            _logger.error(
                "%s: cut to %d, below its high watermark %d, since its leader of epoch %d has no more: what was "
                "committed is lost, as an unclean election may have it",
                log.place,
                offset,
                self.high_watermark,
                self.leader_epoch,
            )
        elif offset < before:
            _logger.info("%s: cut from %d to %d, where its leader's log is another", log.place, before, offset)
        self._fall(min(self.high_watermark, offset))

    def start_anew(self, offset: int, now_ms: int) -> None:
        """The leader's log starts behind the end of this one: nothing of it is left."""
        log = self.log
        _logger.warning(
            "%s: begun anew at %d, where its leader's log starts; it had offsets %d to %d",
            log.place,
            offset,
            log.log_start,
            log.log_end,
        )
        log.truncate_fully_and_start_at(offset, now_ms)
        self._fall(offset)

    def _fall(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.log.advance_high_watermark(high_watermark)
