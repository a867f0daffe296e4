"""One partition on this broker, on the way of a message between `apis` and `log`.

A partition is a replica with a leader, a leader epoch and a set of in-sync replicas, as the metadata image says, and a
high watermark of its own: the least durable end in the ISR. Consumers read up to the high watermark only, so nothing
that anyone was shown goes away with the power. With one replica, that is the durable end of the log here; with several,
their leader knows how far each of them is (`leading.py`), and the high watermark goes no further while the ISR is below
min.insync.replicas. Followers read to the end of the log, and their sessions are told what changes (`FollowerReader`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog.replica.following import Place, cut_at, whole_batches
from tidelog.replica.leading import Leading
from tidelog.replica.resends import SENT_AGAIN, Resends, Sent, read_sent
from tidelog.replica.waiters import AckQueue, FetchWaiter, FollowerReader
from tidelog.wire.batch import ATTRIBUTES_AT, CONTROL_FLAG, read_header
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.env.promise import Promise
    from tidelog.log.log import Log
    from tidelog.log.slice import Slice
    from tidelog.log.validate import Admitted
    from tidelog.metadata.image import PartitionImage
    from tidelog.replica.leading import InSyncReplicas


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
        "_commit",
        "_deletions",
        "_fetches",
        "_in_sync",
        "_is_alone",
        "_leader_high_watermark",
        "_leader_log_start",
        "_node_id",
        "_readers",
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
        "leading",
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
        in_sync: InSyncReplicas | None = None,
        resends: Resends | None = None,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark` was known in an earlier life: it holds as far as the log does. Where there are other
        replicas, no more is known."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.deleted = False
        self._node_id = node_id
        self._commit = commit
        self._wake_later = wake_later
        self._in_sync = in_sync
        self._acks: AckQueue | None = None
        self._deletions: AckQueue | None = None
        self._readers: list[FollowerReader] | None = None
        self._fetches: dict[FetchWaiter, None] | None = None
        self._resends = resends
        self.image = image
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.isr = image.isr
        self._is_alone = image.replicas == (node_id,)
        self.leading = self._begin_leading(image)
        if image.isr == (node_id,) and not self._is_below_min_isr():
            self.high_watermark = log.durable_end
        else:
            self.high_watermark = max(log.log_start, min(high_watermark, log.durable_end))
        self.follower: Follower | None = None
        self._leader_high_watermark = self._leader_log_start = -1
        log.advance_high_watermark(self.high_watermark)
        self.epoch_start = log.log_end
        log.listener = self
        if image.leader == node_id:
            log.lead(image.leader_epoch)
        if log.durable_end < log.log_end:
            commit.request(log)

    # -- as the image says

    def follow_image(self, image: PartitionImage) -> None:
        """Take over what the controller decided. A new leader epoch sends those who wait to look again.

        Of the ISR the leader may know something newer, by the answer to what it asked for.
        """
        if image is self.image:
            return
        new_epoch = image.leader_epoch != self.leader_epoch or image.leader != self.leader
        self.image = image
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self._is_alone = image.replicas == (self._node_id,)
        leading = self.leading
        if new_epoch or leading is None or self._is_alone:
            self.leading = self._begin_leading(image)
            self.isr = image.isr
        elif leading.decided(image.replicas, image.isr, image.partition_epoch):
            self.isr = image.isr
        if new_epoch:
            self._leader_high_watermark = self._leader_log_start = -1
            if image.leader == self._node_id and self.log.offline is None:
                self.log.lead(image.leader_epoch)
            self.epoch_start = self.log.log_end
            self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.advance()
        self._look()

    def _begin_leading(self, image: PartitionImage) -> Leading | None:
        """What is known of the followers: nothing, where it begins to lead; None where it doesn't, or has none."""
        if image.leader != self._node_id or self._is_alone:
            return None
        now_ms = 0 if self._in_sync is None else self._in_sync.now_ms()
        return Leading(self._node_id, image.replicas, image.isr, image.partition_epoch, now_ms)

    def delete(self) -> None:
        """The topic is gone: whoever waits hears of it. The store deletes the files."""
        self.deleted = True
        self.log.listener = None
        self._release(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def remove(self) -> None:
        """This broker is no replica any more: whoever waits is to ask another one. The store deletes the files."""
        self.deleted = True
        self.log.listener = None
        self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)

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
        if self._readers is not None:
            for reader in self._readers:
                reader.grew()
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
        self._grew(log)
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
        """Raise the high watermark to what all of the ISR have. Below min.insync.replicas it stands still."""
        log, leading = self.log, self.leading
        end = log.ends.durable_end
        if end <= self.high_watermark:
            return
        if leading is not None:
            if self._in_sync is None or self._is_below_min_isr():
                return
            end = leading.committed_end(end, log.ends.log_end, self._in_sync)
            if end <= self.high_watermark:
                return
        elif self.leader != self._node_id:
            return  # it is told by the leader
        self._rise(end)

    def _rise(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.log.advance_high_watermark(high_watermark)
        if self._acks:
            self._acks.rise(high_watermark)
        if self._fetches:
            self._wake_later(self)
        if self._readers is not None:
            for reader in self._readers:
                reader.moved()

    @property
    def is_alone(self) -> bool:
        """Whether there is no other replica, so that what is durable here is committed."""
        return self._is_alone

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
        if self._deletions:
            self._deletions.fail(code)
        if self._fetches:
            self._wake_later(self)
        for reader in list(self._readers or ()):
            reader.turned()

    # -- followers, where this broker leads

    def follower_fetched(self, id: int, broker_epoch: int, current_epoch: int, offset: int, log_start: int) -> None:
        """A follower asks for what is at `offset`, and so has all before it, of this leader or one that it agrees with.

        Raises where it is no replica, or its broker came back since, or the log doesn't reach from there.
        """
        log, leading = self.log, self.leading
        if leading is None or id not in leading.followers or self._in_sync is None:
            # Who names the right epoch may know of its assignment before this broker does, and comes again.
            knows = current_epoch == self.leader_epoch
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if knows else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ends = log.ends
        if not ends.log_start <= offset <= ends.log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{log.place} has offsets {ends.log_start} to {ends.log_end}; broker {id} asks for {offset}",
            )
        moved, start_moved = leading.fetched(id, broker_epoch, offset, log_start, ends.log_end, self._in_sync.now_ms())
        if moved:
            self.advance()
        if leading.has_others and id not in leading.isr:
            self._look()
        if start_moved and self._deletions:
            self._deletions.rise(self.low_watermark)

    def read_to_end(self, offset: int, max_bytes: int, *, at_least_one: bool) -> Slice | None:
        """As `read`, for a follower: what is written, be it committed, and durable here, or not."""
        return self.log.read(offset, max_bytes, self.log.ends.log_end, at_least_one=at_least_one)

    def add_reader(self, reader: FollowerReader) -> None:
        if self._readers is None:
            self._readers = [reader]
        else:
            self._readers.append(reader)

    def remove_reader(self, reader: FollowerReader) -> None:
        if self._readers is not None and reader in self._readers:
            self._readers.remove(reader)
            self._readers = self._readers or None

    def was_caught_up(self, id: int, at_ms: int) -> None:
        """The follower had everything at this time."""
        if self.leading is not None:
            self.leading.was_caught_up(id, at_ms)

    def wanted_isr(self) -> tuple[int, ...] | None:
        """The ISR that the controller is to be asked for; None: it is as it should be, or it was asked already."""
        leading = self.leading
        if leading is None or self.deleted or not self.is_served or self._in_sync is None:
            return None
        return leading.wanted(self.high_watermark, self.epoch_start, self.log.ends.log_end, self._in_sync)

    def isr_settled(self) -> None:
        """The controller answered what was asked of it."""
        if self.leading is not None:
            self.isr = self.leading.isr
            self.advance()
            self._look()

    def brokers_changed(self) -> None:
        """Others may join the ISR now, or no longer; or time has passed."""
        self.advance()
        if self._deletions:
            self._deletions.rise(self.low_watermark)
        self._look()

    def _look(self) -> None:
        if self._in_sync is not None and self.leading is not None:
            self._in_sync.look(self)

    @property
    def low_watermark(self) -> int:
        """The least log start over all replicas that live; -1 where one of them hasn't told its own yet."""
        if self.leading is None or self._in_sync is None:
            return self.log.ends.log_start
        return self.leading.low_watermark(self.log.ends.log_start, self._in_sync)

    def start_moved(self) -> None:
        """The log begins further on: followers hear of it with the next answer."""
        for reader in self._readers or ():
            reader.moved()

    def wait_for_low_watermark(self, offset: int, complete: Callable[[ErrorCode], None]) -> None:
        """Call `complete` once all replicas that live begin at `offset` or behind it, or won't be heard of here."""
        if self.deleted:
            complete(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif self.low_watermark >= offset:
            complete(ErrorCode.NONE)
        else:
            if self._deletions is None:
                self._deletions = AckQueue()
            self._deletions.add(offset, complete)

    def check_invariants(self) -> None:
        log = self.log
        assert log.log_start <= self.high_watermark or self.high_watermark == log.durable_end, (
            f"{self.topic}-{self.index}: log start {log.log_start} above high watermark {self.high_watermark}"
        )
        assert self.high_watermark <= log.durable_end <= log.log_end, (
            f"{self.topic}-{self.index}: high watermark {self.high_watermark}, durable end {log.durable_end}, "
            f"log end {log.log_end}"
        )
        if self.leading is not None:
            self.leading.check_invariants()

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
